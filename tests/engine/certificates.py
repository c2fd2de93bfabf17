"""Certificates for tests, made with openssl; where it is not installed, the tests are skipped."""

import subprocess

from tests.programs import program


def openssl(*arguments):
    """Run openssl; it must succeed."""
    subprocess.run([program("openssl"), *map(str, arguments)], capture_output=True, check=True)


class Authority:
    """An authority of a common name; its own `key` and `certificate` and those that it issues are files in a new folder."""

    def __init__(self, folder, name):
        self.folder = folder
        folder.mkdir()
        self.key, self.certificate = folder / "ca.key", folder / "ca.pem"
        openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 30, "-subj", f"/CN={name}",
            "-keyout", self.key, "-out", self.certificate,
        )  # fmt: skip

    def issue(self, name, alternative="IP:127.0.0.1", *, days=30):
        """Issue a certificate for a common name and a subject alternative name; returns two files: (certificate, key)."""
        key, request, certificate = (self.folder / f"{name}.{kind}" for kind in ("key", "csr", "pem"))
        openssl(
            "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
            "-keyout", key, "-out", request,
        )  # fmt: skip
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={alternative}\n")
        openssl(
            "x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial", "-days", days,
            "-extfile", extensions, "-out", certificate,
        )  # fmt: skip
        return certificate, key
