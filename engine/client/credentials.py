"""Make the addresses of a server, each with its credentials: passwords, certificates, AWS signatures.

All requests go through opensearch-py's connection class for urllib3, signed or not. Its other class, for the package requests, lets
$REQUESTS_CA_BUNDLE and $CURL_CA_BUNDLE override the settings, uses $HTTPS_PROXY, reads .netrc and follows redirects (docs/connecting.md).
"""

from __future__ import annotations

import getpass
import ipaddress
import logging
import os
import shlex
import ssl
import subprocess
import sys
import warnings
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from termweave.engine.client.transports import Address
from termweave.errors import UsageError
from termweave.settings_trust import PASSWORDS, each_address
from termweave.support.extras import needed
from termweave.support.messages import without_password

if TYPE_CHECKING:
    from termweave.settings import Settings

_KEY_IS_LOCKED = "Put its password into $TERMWEAVE_CLIENT_KEY_PASSWORD, or client_key_password into your settings file."


def addresses(settings: Settings, urls: str) -> tuple[Address, ...]:
    """The addresses of a server or cluster, each with its credentials and certificates.

    Logs a warning where a password would travel unencrypted to another machine.

    Args:
        settings: The credentials, certificates and AWS signing that hold for each address.
        urls: One address, or several with commas between; each may hold a user name and a password.

    Raises:
        UsageError: An address is not valid, or the credentials cannot be used.
    """
    parts = each_address(urls)
    if len(parts) > 1 and any("@" in part and "://" not in part for part in parts):
        # The comma may belong to a password, of which nothing may be shown, or used as a port.
        hint = "Write each address with http:// or https://, and a comma in a password as %2C."
        raise UsageError(f"The addresses {without_password(urls)!r} are not valid.", hint)
    split_parts = [split(part) for part in parts]
    # One context: the password of a client key is asked for once.
    context = _tls(settings) if any(url.startswith("https:") for url, *_ in split_parts) else None
    return tuple({url: _address(settings, context, url, *user) for url, *user in split_parts}.values())


def _address(settings: Settings, context: ssl.SSLContext | None, url: str, *in_address: str | None) -> Address:
    user, password = _user_and_password(settings, url, *in_address)
    if user and url.startswith("http:") and not _is_this_machine(urlsplit(url).hostname or ""):
        advice = "If the server speaks TLS, write the address with https://."
        logging.getLogger(__name__).warning("Warning: the password travels to %s without encryption. %s", url, advice)
    signer = _signer(settings.aws_sigv4, url) if settings.aws_sigv4 else None
    return Address(url, user or "", password or "", context if url.startswith("https:") else None, signer)


def _user_and_password(settings: Settings, url: str, user: str | None, password: str | None) -> tuple[str | None, str | None]:
    """The user and the password, each from the settings or from the address; None: neither gives it.

    Raises:
        UsageError: Settings and address give different values, so that a password could be sent to the wrong server.
    """
    source = settings.place("url")
    hint = "Remove one of them."
    if settings.user and user and settings.user != user:
        other = f"{settings.place('user')} names the user {settings.user!r}"
        raise UsageError(f"The address, from {source}, names the user {user!r}, and {other}.", hint)
    secret = _password(settings, settings.user or user, url)
    if secret is not None and password is not None and secret != password:
        place = next(settings.place(name) for name in PASSWORDS if getattr(settings, name))
        raise UsageError(f"The address, from {source}, holds a password, and {place} gives a different one.", hint)
    return settings.user or user, password if secret is None else secret


def _password(settings: Settings, user: str | None, url: str) -> str | None:
    """The password that the settings give: as a value, in a file, by a command that prints it, or typed by the user; None: no password.

    Raises:
        UsageError: The settings give a password in two of these ways, or the file, the command or the terminal gives none.
    """
    ways = [name for name in PASSWORDS if getattr(settings, name) is not None]
    if len(ways) > 1:
        first, second, *_ = (f"{name} (from {settings.place(name)})" for name in ways)
        raise UsageError(f"{first} and {second} both give a password.", "Remove one of them.")
    if settings.password is not None:
        from termweave.settings import ASK  # noqa: PLC0415 - pydantic, loaded already where there are settings

        secret = settings.password.get_secret_value()
        may_ask = {"flag", "$TERMWEAVE_SOURCE_PASSWORD"}  # no file may have a user asked
        if secret == ASK and settings.origin("password") in may_ask:
            instead = "Use $TERMWEAVE_PASSWORD_FILE or $TERMWEAVE_PASSWORD instead."
            return _typed(f"Password of {user or 'the user'} at {url}: ", instead)
        return secret
    if settings.password_file is not None:
        return from_file(settings.password_file, "password")
    return None if settings.password_command is None else _from_command(settings.password_command)


def from_file(file: Path, noun: str) -> str:
    """Read a password or token from a file, without a final line end and without the byte-order mark that editors may write first.

    Raises:
        UsageError: The file cannot be read, or does not hold one line. `noun` ("password") is the word for the secret in messages.
    """
    try:
        secret = file.read_text(encoding="utf-8-sig").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"The {noun} file {file} cannot be read: {reason}.", "Correct the path or its permissions.") from error
    if not secret or "\n" in secret:
        raise UsageError(f"The {noun} file {file} does not hold one line.", f"Write the {noun} into it, and nothing else.")
    return secret


@cache
def _typed(question: str, instead: str) -> str:
    """Ask the user to type a secret on the terminal, without showing it; the question is asked once per process.

    Args:
        question: The text that the terminal shows.
        instead: Advice for the case that there is no terminal.

    Raises:
        UsageError: There is no terminal.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error", getpass.GetPassWarning)  # it would show the secret while it is typed
        try:
            return getpass.getpass(question)
        except (getpass.GetPassWarning, EOFError):
            raise UsageError("There is no terminal to ask for the password.", instead) from None


@cache
def _from_command(command: str) -> str:
    """The password that a command prints. The command runs once per process, without a shell."""
    hint = "Correct the setting password_command; for example: keyring get termweave USER"
    try:
        # PYTHONSAFEPATH is for termweave's own processes: a program in Python may import from its folder.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
        result = subprocess.run(shlex.split(command), stdout=subprocess.PIPE, text=True, check=True, env=environment)  # noqa: S603 - the user's own settings name it
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        reason = f"exit status {error.returncode}" if isinstance(error, subprocess.CalledProcessError) else str(error)
        raise UsageError(f"The command that gives the password failed: {reason}.", hint) from error
    if not (secret := result.stdout.rstrip("\r\n")):
        raise UsageError("The command that gives the password printed nothing.", hint)
    return secret


def _is_this_machine(host: str) -> bool:
    """Whether a host is this machine, so that traffic to it does not leave the machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")  # RFC 6761


def _tls(settings: Settings) -> ssl.SSLContext:
    """Make the TLS context that the settings describe, for TLS 1.2 or newer.

    The context is not left to opensearch-py, so that a wrong file is refused by its name before anything is sent. opensearch-py
    cannot pass on the password of a key at all. Without `ca_certs` the trusted authorities are those of $SSL_CERT_FILE or $SSL_CERT_DIR, else
    those of the package certifi.

    Raises:
        UsageError: A file cannot be read, is not in PEM format, or does not go with the others; the message names the file.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # as ssl.create_default_context, which adds the system's authorities
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.post_handshake_auth = True  # a server may ask for the client certificate after the handshake
    if settings.insecure:
        import urllib3  # noqa: PLC0415 - with the client, 150 ms

        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)  # the user asked for it
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif settings.ca_certs is not None:
        _check_pem(settings.ca_certs, "file of certificate authorities", f", from {settings.place('ca_certs')},")
        try:
            context.load_verify_locations(cafile=settings.ca_certs)
        except ssl.SSLError as error:
            wrong = f"holds a damaged certificate ({error.reason or error})"
            hint = "Fetch the file again."
            raise UsageError(f"{settings.ca_certs}, the file of certificate authorities, {wrong}.", hint) from error
    else:
        _trust_usual_authorities(context)
    if settings.client_cert is not None:
        password = settings.client_key_password
        _identify(context, settings.client_cert, settings.client_key, None if password is None else password.get_secret_value())
    elif settings.client_key is not None:
        raise UsageError("A client key was given without its certificate.", "Set client_cert, too.")
    return context


def _trust_usual_authorities(context: ssl.SSLContext) -> None:
    import certifi  # noqa: PLC0415 - only where https is spoken

    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    usual = None if file or folder else certifi.where()
    try:
        context.load_verify_locations(cafile=file or usual, capath=folder or None)
    except OSError as error:
        place = "the package certifi" if usual else "$SSL_CERT_FILE or $SSL_CERT_DIR"
        hint = "Correct the path, or give --ca-certs."
        raise UsageError(f"The certificate authorities of {place} cannot be read: {error}.", hint) from error


def _identify(context: ssl.SSLContext, certificate: Path, key: Path | None, password: str | None) -> None:
    """Load a client certificate into the TLS context, with its key, which may stand in the same file."""
    _check_pem(certificate, "client certificate")
    if key is None and b"PRIVATE KEY-----" not in certificate.read_bytes():
        raise UsageError(f"{certificate} holds a client certificate without its key.", "Set client_key, too.")
    key_file, is_encrypted = key or certificate, False
    _check_pem(key_file, "key of the client certificate", kind="private key")

    def passphrase() -> str:
        nonlocal is_encrypted
        is_encrypted = True
        if password is None:
            if sys.stdin is not None and sys.stdin.isatty():
                return _typed(f"Password of the key {key_file}: ", _KEY_IS_LOCKED)
            raise UsageError(f"{key_file}, the key of the client certificate, is encrypted.", _KEY_IS_LOCKED)
        return password

    try:
        context.load_cert_chain(certificate, key_file, password=passphrase)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            wrong = f"{key_file} is not the key of the client certificate {certificate}."
            raise UsageError(wrong, "Give the two files that were made together.") from error
        if is_encrypted:
            wrong = f"The password of {key_file}, the key of the client certificate, is wrong."
            raise UsageError(wrong, _KEY_IS_LOCKED) from error
        wrong = f"The client certificate {certificate} or its key {key_file} is damaged ({error.reason or error})."
        raise UsageError(wrong, "Fetch both files again.") from error


def _check_pem(file: Path, role: str, place: str = "", *, kind: str = "certificate") -> None:
    """Raise an error if a file holds no certificate, or no private key, in PEM format.

    Raises:
        UsageError: The file cannot be read, or holds no certificate or key.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        reason = error.strerror or error
        hint = "Correct the path or its permissions."
        raise UsageError(f"The {role}{place} cannot be read: {file}: {reason}.", hint) from error
    if f"{kind.upper()}-----".encode() not in content:
        openssl = f"openssl {'x509' if kind == 'certificate' else 'pkey'} -inform DER -in FILE -out FILE.pem"
        hint = f"Convert it: {openssl} (or openssl pkcs12 -in FILE -nodes for PKCS #12)."
        raise UsageError(f"{file}, the {role}, holds no {kind} in PEM format.", hint)


def _signer(region: str, url: str) -> Any:
    """Make the object that signs requests for Amazon OpenSearch Service ("es"), or for Serverless ("aoss"), which the host name tells."""
    boto3 = needed("boto3", "aws", "Signing requests for AWS needs boto3, which")
    from opensearchpy import Urllib3AWSV4SignerAuth  # noqa: PLC0415

    credentials = boto3.Session(region_name=region).get_credentials()
    if credentials is None:
        hint = "Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        raise UsageError("Requests are to be signed for AWS (aws_sigv4), but no AWS credentials were found.", hint)
    return Urllib3AWSV4SignerAuth(credentials, region, "aoss" if is_serverless(url) else "es")


def is_serverless(url: str) -> bool:
    """Whether an address is one of Amazon OpenSearch Serverless."""
    return ".aoss." in (urlsplit(url).hostname or "")


def split(address: str) -> tuple[str, str | None, str | None]:
    """Split an address into ``(address without credentials, user, password)``; ``host:port`` without a scheme means http.

    Raises:
        UsageError: The address is not valid. The message does not show a password in it.
    """
    from urllib3.exceptions import LocationParseError  # noqa: PLC0415 - with the client, 150 ms
    from urllib3.util import parse_url  # noqa: PLC0415

    wrong, hint = f"The address {without_password(address)!r} is not valid", "Write the address as https://host:9200."
    if "@" in address:  # a password with "/" or "#" in it ends the host
        hint = "Write the address as https://host:9200 and give --user and --password -, or write the password's /, #, ? as %2F, %23, %3F."
    try:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        host, port = parts.hostname, parts.port or (443 if parts.scheme == "https" else 9200)
    except ValueError as error:  # its text may show the password
        raise UsageError(f"{wrong}." if "@" in address else f"{wrong}: {error}.", hint) from None
    url = f"{parts.scheme}://{f'[{host}]' if ':' in (host or '') else host}:{port}{parts.path.rstrip('/')}"
    try:
        parse_url(url)  # the client's own parser is stricter
    except LocationParseError:
        host = None
    if parts.scheme not in {"http", "https"} or not host:
        raise UsageError(f"{wrong}.", hint)
    user, password = (unquote(each) if each else None for each in (parts.username, parts.password))
    return url, user, password
