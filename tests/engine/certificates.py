"""Certificates for tests, made with openssl; where it is not installed, the tests are skipped."""

from __future__ import annotations

import subprocess

from tests.programs import program


def openssl(*arguments):
    """Run openssl; it must succeed."""
    subprocess.run([program("openssl"), *map(str, arguments)], capture_output=True, check=True)


class Authority:
    """An authority with its own key; it issues certificates.

    Args:
        folder: Where all files go; it does not exist yet.
        name: Common name of the authority.

    Attributes:
        key, certificate: Files of the authority itself.
    """

    def __init__(self, folder, name):
        self.folder = folder
        folder.mkdir()
        self.key, self.certificate = folder / "ca.key", folder / "ca.pem"
        openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 30, "-subj", f"/CN={name}",
            "-keyout", self.key, "-out", self.certificate,
        )  # fmt: skip

    def issue(self, name, alternative="IP:127.0.0.1", *, dates=()):
        """Issue a certificate.

        Args:
            name: Common name.
            alternative: Subject alternative name.
            dates: First and last moment, as ``YYYYMMDDHHMMSSZ``; default: 30 days from now.

        Returns:
            ``(certificate, key)``, two files.
        """
        key, request, certificate = (self.folder / f"{name}.{kind}" for kind in ("key", "csr", "pem"))
        openssl(
            "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
            "-keyout", key, "-out", request,
        )  # fmt: skip
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={alternative}\n")
        if dates:  # `openssl x509` cannot set the first day before version 3.4, `openssl ca` can
            database = self.folder / f"{name}.db"
            database.touch()
            config = self.folder / f"{name}.cnf"
            config.write_text(
                f"[ca]\ndefault_ca=a\n[a]\ndatabase={database}\nnew_certs_dir={self.folder}\ndefault_md=sha256\nrand_serial=yes\n"
                "policy=p\n[p]\ncommonName=supplied\n"
            )
            openssl(
                "ca", "-batch", "-config", config, "-in", request, "-out", certificate, "-cert", self.certificate, "-keyfile", self.key,
                "-startdate", dates[0], "-enddate", dates[1], "-extfile", extensions, "-notext",
            )  # fmt: skip
        else:
            openssl(
                "x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial", "-days", 30,
                "-extfile", extensions, "-out", certificate,
            )  # fmt: skip
        return certificate, key
