"""TLS: the context that a connection is made with, and what a failed handshake means.

The context is made here, and not by opensearch-py, so that a wrong file is refused before anything is sent, with the file's name.
opensearch-py cannot pass on the password of a key at all.
"""

from __future__ import annotations

import os
import socket
import ssl
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from termweave.engine.client import prompt
from termweave.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from termweave.settings import Settings

#: OpenSSL's codes of a certificate that is not trusted -> what is wrong, and what to do.
#: https://docs.openssl.org/3.0/man3/X509_STORE_CTX_get_error/
_CERTIFICATE_ERRORS = {
    7: (
        "carries a signature that does not match",
        "Is --ca-certs the authority that signed it, or an older one of the same name?",
    ),
    9: ("is not valid yet", "Check the clocks of this machine and of the server."),
    10: ("has expired", "Renew the server's certificate; check the clock of this machine."),
    18: ("is self-signed", "If you trust it, give the certificate itself as --ca-certs; use --insecure for a test server only."),
    19: (
        "is signed by an authority of the server's own",
        "If you trust it, give that authority's certificate as --ca-certs; use --insecure for a test server only.",
    ),
    20: (
        "is signed by an unknown authority",
        "Give the certificate of its authority as --ca-certs; use --insecure for a test server only.",
    ),
    21: (
        "comes without the certificates that lead to its authority",
        "Let the server send the intermediate certificates, too, or add them to the file of --ca-certs.",
    ),
    23: ("was revoked", "Renew the server's certificate."),
    26: ("is not meant for servers", "Give the server a certificate whose extended key usage names serverAuth."),
    62: ("is for another host name", "Write the address with a name that the certificate has."),
    64: ("is for another address", "Write the address with a name or an IP address that the certificate has."),
    66: ("has a key that is too short", "Give the server a certificate with an RSA key of 2048 bits or more."),
    68: ("is signed with an outdated digest", "Give the server a certificate that is signed with SHA-256."),
}
#: OpenSSL's names of other failures, as they stand in an exception's text -> what is wrong, with {url}, and what to do.
_HANDSHAKE_ERRORS = {
    ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"): (
        "{url} does not speak TLS.",
        "Write the address with http://.",
    ),
    ("UNSUPPORTED_PROTOCOL", "ALERT_PROTOCOL_VERSION", "VERSION_TOO_LOW"): (
        "{url} speaks only an outdated version of TLS.",
        "Let the server speak TLS 1.2 or newer; nothing older is used.",
    ),
    ("NO_SHARED_CIPHER", "DH_KEY_TOO_SMALL", "INSUFFICIENT_SECURITY"): (
        "{url} offers no encryption that is safe enough.",
        "Let the server offer current cipher suites and keys.",
    ),
    ("CERTIFICATE_REQUIRED",): (
        "{url} asks for a client certificate.",
        "Give one with $TERMWEAVE_CLIENT_CERT and $TERMWEAVE_CLIENT_KEY.",
    ),
    ("ALERT_UNKNOWN_CA", "ALERT_BAD_CERTIFICATE", "ALERT_CERTIFICATE_UNKNOWN", "ALERT_UNSUPPORTED_CERTIFICATE", "ALERT_ACCESS_DENIED"): (
        "{url} does not accept the client certificate.",
        "Is it signed by the authority that the server trusts for clients? The server's log says more.",
    ),
    ("ALERT_CERTIFICATE_EXPIRED", "ALERT_CERTIFICATE_REVOKED"): (
        "{url} does not accept the client certificate: it has expired or was revoked.",
        "Renew the client certificate.",
    ),
    ("UNRECOGNIZED_NAME",): (
        "{url} serves no host of this name.",
        "Write the address with the host name that the server is configured for.",
    ),
    ("ALERT_HANDSHAKE_FAILURE",): (
        "{url} ended the TLS handshake.",
        "It may ask for a client certificate ($TERMWEAVE_CLIENT_CERT), or offer only outdated encryption; the server's log says more.",
    ),
    ("EOF_OCCURRED_IN_VIOLATION", "CONNECTION_HAS_BEEN_CLOSED"): (  # the second in Python before 3.11.4
        "{url} closed the connection without saying why.",
        "It may ask for a client certificate ($TERMWEAVE_CLIENT_CERT), or have ended; the server's log says more.",
    ),
}  # fmt: skip
#: Seconds to wait for what a server says after a handshake.
_LISTENING = 2.0
_CERTIFICATE, _KEY = b"-----BEGIN CERTIFICATE-----", b"PRIVATE KEY-----"
_KEY_IS_LOCKED = "Put its password into $TERMWEAVE_CLIENT_KEY_PASSWORD, or client_key_password into your settings file."
_INTO_PEM = "Convert it: openssl x509 -inform DER -in FILE -out FILE.pem (or openssl pkcs12 -in FILE -nodes for PKCS #12)."


def context(settings: Settings) -> ssl.SSLContext:
    """The TLS context that the settings describe: TLS 1.2 or newer.

    Without `ca_certs` the trusted authorities are those of $SSL_CERT_FILE or $SSL_CERT_DIR, else those of the package certifi.

    Raises:
        UsageError: A file cannot be read, is not in PEM format, or does not go with the others; the message names the file.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # as ssl.create_default_context, which adds the system's authorities
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.post_handshake_auth = True  # a server may ask for the client certificate after the handshake
    if settings.insecure:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    elif settings.ca_certs is not None:
        _trust(made, settings.ca_certs, settings.place("ca_certs"))
    else:
        _trust_usual_authorities(made)
    if settings.client_cert is not None:
        password = settings.client_key_password
        _identify(made, settings.client_cert, settings.client_key, None if password is None else password.get_secret_value())
    elif settings.client_key is not None:
        raise UsageError("A client key was given without its certificate.", "Set client_cert, too.")
    return made


def _trust(made: ssl.SSLContext, file: Path, place: str) -> None:
    """Trust the authorities in a file, and no others."""
    content = _content(file, f"The file of certificate authorities, from {place},")
    if _CERTIFICATE not in content:
        raise UsageError(f"{file}, the file of certificate authorities, holds no certificate in PEM format.", _INTO_PEM)
    try:
        made.load_verify_locations(cafile=file)
    except ssl.SSLError as error:
        raise UsageError(
            f"{file}, the file of certificate authorities, holds a damaged certificate ({_code(error)}).", "Fetch the file again."
        ) from error


def _trust_usual_authorities(made: ssl.SSLContext) -> None:
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    try:
        if file or folder:
            made.load_verify_locations(cafile=file or None, capath=folder or None)
            return
        import certifi  # noqa: PLC0415 - only where https is spoken

        made.load_verify_locations(cafile=certifi.where())
    except (OSError, ssl.SSLError) as error:
        named = "$SSL_CERT_FILE or $SSL_CERT_DIR" if file or folder else "the package certifi"
        raise UsageError(
            f"The certificate authorities of {named} cannot be read: {error}.", "Correct it, or give --ca-certs."
        ) from error


def _identify(made: ssl.SSLContext, certificate: Path, key: Path | None, password: str | None) -> None:
    """Prove who we are with a client certificate and its key, which may stand in the same file."""
    if _CERTIFICATE not in _content(certificate, "The client certificate"):
        raise UsageError(f"{certificate}, the client certificate, holds no certificate in PEM format.", _INTO_PEM)
    key_file = key or certificate
    if _KEY not in _content(key_file, "The key of the client certificate"):
        if key is None:
            raise UsageError(f"{certificate} holds a client certificate without its key.", "Set client_key, too.")
        raise UsageError(
            f"{key}, the key of the client certificate, holds no private key in PEM format.", _INTO_PEM.replace("x509", "pkey")
        )
    asked = False

    def passphrase() -> str:
        nonlocal asked
        asked = True
        if password is None:
            if prompt.possible():
                return prompt.secret(f"Password of the key {key_file}: ", _KEY_IS_LOCKED)
            raise UsageError(f"{key_file}, the key of the client certificate, is encrypted.", _KEY_IS_LOCKED)
        return password

    try:
        made.load_cert_chain(certificate, key_file, password=passphrase)
    except ssl.SSLError as error:
        code = _code(error)
        if "KEY_VALUES_MISMATCH" in code:
            raise UsageError(
                f"{key_file} is not the key of the client certificate {certificate}.",
                "Give the two files that were made together.",
            ) from error
        if asked:
            raise UsageError(
                f"The password of {key_file}, the key of the client certificate, is wrong.",
                "Correct it, or $TERMWEAVE_CLIENT_KEY_PASSWORD.",
            ) from error
        raise UsageError(
            f"The client certificate {certificate} or its key {key_file} is damaged ({code}).", "Fetch both files again."
        ) from error


def _content(file: Path, name: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{name} cannot be read: {file}: {error.strerror or error}.", "Correct the path or its permissions."
        ) from error


def _code(error: ssl.SSLError) -> str:
    return error.reason or str(error)


def handshake_failure(error: BaseException, url: str, context: ssl.SSLContext | None) -> tuple[str, str] | None:
    """Explain a failed TLS handshake.

    Args:
        error: The exception of the client; the one of OpenSSL is looked for among its causes and arguments.
        url: The address, for the sentence.
        context: The TLS context of the connection; None for a connection without TLS.

    Returns:
        ``(what is wrong, what to do)``; None where TLS is not the reason.
    """
    cause = _tls_error(error)
    if isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError) and context is not None:
        cause = _said_to_a_listener(url, context) or cause
    if isinstance(cause, ssl.SSLCertVerificationError):
        wrong, hint = _CERTIFICATE_ERRORS.get(
            cause.verify_code,
            (f"was refused ({cause.verify_message})", "Give its authority with --ca-certs, or use --insecure for a test server."),
        )
        return f"The certificate of {url} could not be verified: it {wrong}.", hint
    text = f"{cause} {error}".upper().replace(" ", "_")
    return next(
        (
            (wrong.format(url=url), hint)
            for codes, (wrong, hint) in _HANDSHAKE_ERRORS.items()
            if any(code in text for code in codes)
        ),
        None,
    )


def _said_to_a_listener(url: str, context: ssl.SSLContext) -> ssl.SSLError | None:
    """Listen to the server as a client that sends nothing; returns its TLS error.

    In TLS 1.3 a server checks the client certificate after the client's side of the handshake. A client that is sending its request at that
    moment loses the server's message with the connection.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        with (
            socket.create_connection((host, parts.port or 443), _LISTENING) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            secure.recv(1)
    except ssl.SSLError as error:
        return error
    except OSError:  # it waits for a request, or is away
        return None
    return None


def _tls_error(error: BaseException) -> ssl.SSLError | None:
    """OpenSSL's exception: urllib3 and opensearch-py keep it among the arguments of theirs."""
    waiting: list[BaseException] = [error]
    seen: set[int] = set()
    while waiting:
        current = waiting.pop()
        if isinstance(current, ssl.SSLError):
            return current
        if id(current) in seen:
            continue
        seen.add(id(current))
        inner = (*current.args, current.__cause__, current.__context__, getattr(current, "reason", None))
        waiting += [each for each in inner if isinstance(each, BaseException)]
    return None
