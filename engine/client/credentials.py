"""How a server is reached and how we prove who we are: the address taken apart, certificates, signatures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

from termweave.errors import UsageError
from termweave.words import without_password

if TYPE_CHECKING:
    from termweave.settings import Settings


def options(settings: Settings, address: str) -> tuple[str, dict[str, Any]]:
    """What opensearch-py must be told to reach an address with these settings.

    Returns:
        ``(address without credentials, keyword arguments)``.

    Raises:
        UsageError: The address or the way to authenticate cannot be meant.
    """
    url, *in_address = split(address)
    found: dict[str, Any] = {}
    user, password = _agreed(settings, *in_address)
    if user:
        pair = (user, password or "")
        # OpenSearch reads UTF-8 (RFC 7617), opensearch-py makes Latin-1; bytes of the environment that are neither go as they are.
        found["http_auth"] = tuple(each.encode("utf-8", "surrogateescape").decode("latin-1") for each in pair)
    if url.startswith("https:"):
        found |= _tls(settings)
    if settings.aws_sigv4:
        found |= _sigv4(settings.aws_sigv4, url)
    return url, found


def _agreed(settings: Settings, user: str | None, password: str | None) -> tuple[str | None, str | None]:
    """User and password, each from the settings or from the address.

    Raises:
        UsageError: Both say one, and not the same: a password would be sent that belongs to somebody else, or elsewhere.
    """
    secret = None if settings.password is None else settings.password.get_secret_value()
    both = "Leave one of them out: nobody can tell whose password is meant."
    if settings.user and user and settings.user != user:
        said = f"{_place('user', settings.user)} the user {settings.user!r}"
        raise UsageError(f"The address, from {_place('url', settings.url)}, names the user {user!r}, and {said}.", both)
    if None not in {secret, password} and secret != password:
        said = f"another one from {_place('password', settings.password)}"
        raise UsageError(f"The address, from {_place('url', settings.url)}, holds a password, and there is {said}.", both)
    return settings.user or user, password if secret is None else secret


def _place(name: str, value: object) -> str:
    """Where a setting was said."""
    from termweave.settings import origin  # noqa: PLC0415 - only for a sentence

    place = origin(name, value)
    return f"--{name}" if place == "flag" else place


def _tls(settings: Settings) -> dict[str, Any]:
    found: dict[str, Any] = {"verify_certs": not settings.insecure}
    if settings.insecure:
        found["ssl_assert_hostname"] = False
        found["ssl_show_warn"] = False  # the user said --insecure: no need to be told
    elif settings.ca_certs is not None:
        found["ca_certs"] = str(settings.ca_certs)
    if settings.client_cert is not None:
        found["client_cert"] = str(settings.client_cert)
    if settings.client_key is not None:
        if settings.client_cert is None:
            raise UsageError("A client key was given without its certificate.", "Add --client-cert.")
        found["client_key"] = str(settings.client_key)
    return found


def _sigv4(region: str, url: str) -> dict[str, Any]:
    """Signed requests: Amazon OpenSearch Service ("es"), or Serverless ("aoss") by its host name."""
    try:
        import boto3  # noqa: PLC0415 - an extra
    except ImportError:
        raise UsageError(
            "--aws-sigv4 needs boto3, which is not installed.", "Install it with: pip install 'termweave[aws]'."
        ) from None
    from opensearchpy import RequestsAWSV4SignerAuth, RequestsHttpConnection  # noqa: PLC0415

    credentials = boto3.Session(region_name=region).get_credentials()
    if credentials is None:
        raise UsageError(
            "--aws-sigv4 was given, but no AWS credentials were found.",
            "Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
        )
    service = "aoss" if ".aoss." in url else "es"
    return {"http_auth": RequestsAWSV4SignerAuth(credentials, region, service), "connection_class": RequestsHttpConnection}


def split(address: str) -> tuple[str, str | None, str | None]:
    """Address -> (address without credentials, user, password); a bare ``host:port`` means http."""
    from urllib3.exceptions import LocationParseError  # noqa: PLC0415 - with the client, 150 ms
    from urllib3.util import parse_url  # noqa: PLC0415

    wrong = f"The address {without_password(address)!r} cannot be meant"
    hint = "Write it as https://host:9200."
    if "@" in address:  # a password with "/" or "#" in it ends the host; what is said of the rest would tell the password
        hint = "Write it as https://host:9200, with --user and --password beside it, or the password's /, #, ? as %2F, %23, %3F."
    try:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"{wrong}." if "@" in address else f"{wrong}: {error}.", hint) from None
    if parts.scheme not in {"http", "https"} or not host:
        raise UsageError(f"{wrong}.", hint)
    shown = f"[{host}]" if ":" in host else host
    port = port or (443 if parts.scheme == "https" else 9200)
    url = urlunsplit((parts.scheme, f"{shown}:{port}", parts.path.rstrip("/"), "", ""))
    try:
        parse_url(url)  # what the client does not take
    except LocationParseError:
        raise UsageError(f"{wrong}.", hint) from None
    user = unquote(parts.username) if parts.username else None
    return url, user, unquote(parts.password) if parts.password else None
