"""The address of an index that is read: ``opensearch:NAME`` on the target's server, ``https://host:9200/NAME`` on any other.

``elasticsearch:NAME`` means the same as ``opensearch:NAME``: the server itself says which of the two it is.

An http(s) address whose last part has a dot, or that has a query, is that of a file, and so is one without a path. An index with a dot in its
name is written ``opensearch:https://host:9200/NAME``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit, urlunsplit

from termweave.errors import UsageError
from termweave.support.messages import without_password

PREFIX = "opensearch:"
PREFIXES = (PREFIX, "elasticsearch:")
_SCHEMES = ("http://", "https://")
#: The names of indices that an address may end with as it stands.
_INDEX = re.compile(r"[a-z0-9][a-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class IndexAddress:
    """An index and the server that holds it.

    Attributes:
        index: Name of an index or alias.
        url: Address of the server, as given, perhaps with a user name and a password; None: the server that is written to.
        prefix: The one of `PREFIXES` that was written.
    """

    index: str
    url: str | None = None
    prefix: str = PREFIX

    @property
    def shown(self) -> str:
        """The address for messages, ledgers and lineage: without user name and password."""
        return f"{self.prefix}{self.index}" if self.url is None else f"{_without_user(self.url)}/{self.index}"


def is_address(spec: str) -> bool:
    """Whether a SOURCE argument names an index.

    Example:
        >>> [is_address(f"https://host:9200/{rest}") for rest in ("products", "products.jsonl.gz", "products?key=1", "")]
        [True, False, False, False]
    """
    if spec.startswith(PREFIXES):
        return True
    if not spec.startswith(_SCHEMES):
        return False
    try:
        parts = urlsplit(spec.rstrip("/"))
        usable = bool(parts.hostname) and (parts.port or True)
    except ValueError:
        return False
    return bool(usable and not parts.query and _INDEX.fullmatch(parts.path.rpartition("/")[2]))


def parse(spec: str) -> IndexAddress:
    """Read a SOURCE argument.

    Raises:
        UsageError: It names no index, or several.

    Example:
        >>> parse("https://reader:secret@host:9200/search/products").shown
        'https://host:9200/search/products'
    """
    prefix = next((each for each in PREFIXES if spec.startswith(each)), PREFIX)
    rest = spec.removeprefix(prefix)
    if not rest.startswith(_SCHEMES):
        url, index = None, rest
    else:
        try:
            parts = urlsplit(rest.rstrip("/"))
        except ValueError:  # its reason may show a part of a password
            raise UsageError(f"{without_password(spec)} is not an address.", "Write https://HOST:9200/INDEX.") from None
        path, _, index = parts.path.rpartition("/")
        url = urlunsplit((parts.scheme, parts.netloc, path, "", ""))
        if parts.query or parts.fragment:
            raise UsageError(
                f"{without_password(spec)} has a query or a fragment.",
                "Write https://HOST:9200/INDEX; --source-query FILE restricts it.",
            )
        if "," in parts.netloc:
            raise UsageError(
                f"{without_password(spec)} has several addresses.", "Write one, https://HOST:9200/INDEX; --url takes several."
            )
    index = unquote(index)
    if not index or set(index) & set('*?,<>/\\|" #') or index.startswith(("-", "_")):
        raise UsageError(
            f"{without_password(spec)} does not name one index.",
            "Write opensearch:INDEX or https://HOST:9200/INDEX, with the name of one index or alias.",
        )
    return IndexAddress(index, url, prefix)


def _without_user(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
