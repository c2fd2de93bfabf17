"""How a server is reached and how the user is authenticated: address, passwords, certificates, AWS signatures.

All requests go through opensearch-py's connection class for urllib3, signed or not. Its other class, for the package requests, lets
$REQUESTS_CA_BUNDLE and $CURL_CA_BUNDLE override the settings, uses $HTTPS_PROXY, reads .netrc and follows redirects (docs/connecting.md).
"""

from __future__ import annotations

import ipaddress
import logging
import os
import shlex
import subprocess
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

from termweave.engine.client import prompt
from termweave.engine.client.transports import Address
from termweave.errors import UsageError
from termweave.settings_trust import PASSWORDS, each_address
from termweave.support.extras import install
from termweave.support.messages import without_password

if TYPE_CHECKING:
    from pathlib import Path

    from termweave.settings import Settings


def addresses(settings: Settings, given: str) -> tuple[Address, ...]:
    """The addresses of a server or cluster with what each needs.

    Logs a warning where a password would travel unencrypted to another machine.

    Args:
        settings: Credentials, certificates and the way to sign, for each address.
        given: One address, or several with commas between; each may hold a user name and a password.

    Raises:
        UsageError: An address is not valid, or the credentials cannot be used.
    """
    parts = each_address(given)
    if len(parts) > 1 and any("@" in part and "://" not in part for part in parts):
        # The comma may belong to a password, of which nothing may be shown, or used as a port.
        raise UsageError(
            f"The addresses {without_password(given)!r} are not valid.",
            "Write each with http:// or https://, and a comma in a password as %2C.",
        )
    split_parts = [split(part) for part in parts]
    # One context: the password of a client key is asked for once.
    tls_options = _tls(settings) if any(url.startswith("https:") for url, *_ in split_parts) else {}
    return tuple({url: Address(url, _options(settings, tls_options, url, *user)) for url, *user in split_parts}.values())


def _options(settings: Settings, tls_options: dict[str, Any], url: str, *in_address: str | None) -> dict[str, Any]:
    """Arguments for opensearch-py's connection to an address."""
    arguments: dict[str, Any] = {}
    user, password = _user_and_password(settings, url, *in_address)
    if user:
        _warn_of_plain_text(url)
        # OpenSearch reads UTF-8 (RFC 7617), and opensearch-py encodes as Latin-1. Bytes that are not UTF-8 are sent unchanged.
        arguments["http_auth"] = tuple(
            text.encode("utf-8", "surrogateescape").decode("latin-1") for text in (user, password or "")
        )
    if url.startswith("https:"):
        arguments |= tls_options
    if settings.aws_sigv4:
        arguments |= _sigv4(settings.aws_sigv4, url)
    return arguments


def user_of(address: Address) -> str:
    """The user name that is sent to an address; "" if there is none."""
    given = address.authentication.get("http_auth")
    if not isinstance(given, tuple):
        return ""
    name: str = given[0]
    return name.encode("latin-1").decode("utf-8", "replace")


def _user_and_password(settings: Settings, url: str, user: str | None, password: str | None) -> tuple[str | None, str | None]:
    """User and password, each from the settings or from the address.

    Raises:
        UsageError: Settings and address give different values, so that a password could be sent to the wrong server.
    """
    source = settings.place("url")
    hint = "Remove one of them."
    if settings.user and user and settings.user != user:
        raise UsageError(
            f"The address, from {source}, names the user {user!r}, and {settings.place('user')} names the user {settings.user!r}.",
            hint,
        )
    secret = _password(settings, settings.user or user, url)
    if secret is not None and password is not None and secret != password:
        place = next(settings.place(name) for name in PASSWORDS if getattr(settings, name))
        raise UsageError(f"The address, from {source}, holds a password, and {place} gives a different one.", hint)
    return settings.user or user, password if secret is None else secret


def _password(settings: Settings, user: str | None, url: str) -> str | None:
    """The password that the settings give: itself, in a file, printed by a command, or asked for.

    Raises:
        UsageError: More than one is given in one place, or the file, the command or the terminal gives no password.
    """
    given = [name for name in PASSWORDS if getattr(settings, name) is not None]
    if len(given) > 1:
        first, second = map(settings.place, given[:2])
        raise UsageError(f"{given[0]} (from {first}) and {given[1]} (from {second}) both give a password.", "Remove one of them.")
    if settings.password is not None:
        from termweave.settings import ASK  # noqa: PLC0415 - pydantic, loaded already where there are settings

        secret = settings.password.get_secret_value()
        if secret == ASK and settings.origin("password") in {
            "flag",
            "$TERMWEAVE_SOURCE_PASSWORD",
        }:  # no file may have a user asked
            return prompt.secret(
                f"Password of {user or 'the user'} at {url}: ", "Use $TERMWEAVE_PASSWORD_FILE or $TERMWEAVE_PASSWORD instead."
            )
        return secret
    if settings.password_file is not None:
        return from_file(settings.password_file, "password")
    return None if settings.password_command is None else _from_command(settings.password_command)


def from_file(file: Path, what: str) -> str:
    """The password or token in a file, without the line end behind it and the byte-order mark that editors may write before it.

    Raises:
        UsageError: The file cannot be read, or does not hold one line. `what` names it in messages.
    """
    try:
        secret = file.read_text(encoding="utf-8-sig").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"The {what} file {file} cannot be read: {reason}.", "Correct the path or its permissions.") from error
    if not secret or "\n" in secret:
        raise UsageError(f"The {what} file {file} does not hold one line.", f"Write the {what} into it, and nothing else.")
    return secret


@cache
def _from_command(command: str) -> str:
    """The password that a command prints, run once per process and without a shell."""
    hint = "Correct password_command; for example: keyring get termweave USER"
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


def _warn_of_plain_text(url: str) -> None:
    """Warn where a password leaves this machine without encryption."""
    if url.startswith("http:") and not _is_this_machine(urlsplit(url).hostname or ""):
        logging.getLogger(__name__).warning(
            "Warning: the password travels to %s without encryption. If the server speaks TLS, write the address with https://.",
            url,
        )


def _is_this_machine(host: str) -> bool:
    """Whether the traffic to a host does not leave this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")  # RFC 6761


def _tls(settings: Settings) -> dict[str, Any]:
    from termweave.engine.client import tls  # noqa: PLC0415 - ssl, only where https is spoken

    if settings.insecure:
        import urllib3  # noqa: PLC0415 - with the client, 150 ms

        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)  # the user asked for it
    return {"ssl_context": tls.context(settings)}


def _sigv4(region: str, url: str) -> dict[str, Any]:
    """Sign requests for Amazon OpenSearch Service ("es"), or for Serverless ("aoss"), which its host name tells."""
    try:
        import boto3  # noqa: PLC0415 - an extra
    except ImportError:
        raise UsageError(
            "Signing requests for AWS needs boto3, which is not installed.", f"Install it with: {install('aws')}."
        ) from None
    from opensearchpy import Urllib3AWSV4SignerAuth  # noqa: PLC0415

    credentials = boto3.Session(region_name=region).get_credentials()
    if credentials is None:
        raise UsageError(
            "Requests are to be signed for AWS (aws_sigv4), but no AWS credentials were found.",
            "Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
        )
    return {"http_auth": Urllib3AWSV4SignerAuth(credentials, region, "aoss" if is_serverless(url) else "es")}


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

    wrong = f"The address {without_password(address)!r} is not valid"
    hint = "Write it as https://host:9200."
    if "@" in address:  # a password with "/" or "#" in it ends the host: the reason that the parser gives would show the password
        hint = (
            "Write it as https://host:9200, with --user and --password - beside it, or the password's /, #, ? as %2F, %23, %3F."
        )
    try:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"{wrong}." if "@" in address else f"{wrong}: {error}.", hint) from None
    if parts.scheme not in {"http", "https"} or not host:
        raise UsageError(f"{wrong}.", hint)
    bracketed = f"[{host}]" if ":" in host else host
    port = port or (443 if parts.scheme == "https" else 9200)
    url = urlunsplit((parts.scheme, f"{bracketed}:{port}", parts.path.rstrip("/"), "", ""))
    try:
        parse_url(url)  # the client's own parser is stricter
    except LocationParseError:
        raise UsageError(f"{wrong}.", hint) from None
    user = unquote(parts.username) if parts.username else None
    return url, user, unquote(parts.password) if parts.password else None
