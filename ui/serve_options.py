"""The options of `termweave serve`, and the rules that keep a server from being open to everybody."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING

from termweave.errors import UsageError
from termweave.settings import Settings, load

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The fewest characters of a token.
SHORTEST_TOKEN = 16
#: Addresses that mean: every address of this machine.
_EVERY = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound to
#: The name in a header Host: of a host, or an IPv6 address in brackets.
_NAME = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """The options of `termweave serve`, for pages and for a model server.

    Attributes:
        index: The index that pages show first; None: the first one of the server.
        host: The address to listen on.
        port: The port; 0: a free one.
        names: Further names under which browsers reach the pages, for example through a proxy.
        proxies: Addresses of proxies: what they say of their clients (`X-Forwarded-For`, `X-Forwarded-Proto`) is believed.
        token: What clients must know; None: nothing, on this machine only.
        read_only: Refuse every change: grades, profiles, promotions.
        rerankers: Rerankers that pages may use besides those that need no place, for example "ranker@FOLDER".
        datasets: Data sets that pages may evaluate and tune on.
        settings: How a process that learns reaches the server.
        models: Models in place of those that the indices name, as `search.Index.open` takes them.
        serves_models: Serve models, not pages.
        served: Names or folders of models that are served alone, whatever indices there are.
    """

    index: str | None = None
    host: str = "127.0.0.1"
    port: int = 8321
    names: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    token: str | None = None
    read_only: bool = False
    rerankers: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    settings: Settings = field(default_factory=load)
    models: Mapping[str, str | None] | None = None
    serves_models: bool = False
    served: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise `UsageError` for options that would let everybody in, or nobody."""
        if self.token is not None and len(self.token) < SHORTEST_TOKEN:
            advice = "Make one: python3 -c 'import secrets; print(secrets.token_urlsafe())'"
            raise UsageError(f"The token has fewer than {SHORTEST_TOKEN} characters.", advice)
        for name in self.names:
            if not _NAME.fullmatch(name):
                raise UsageError(f"--name {name} is not the name of a host.", "Write it without https://, port and path.")
        for proxy in self.proxies:
            if not _is_address(proxy):
                raise UsageError(f"--proxy {proxy} is not an IP address.", "Write the address of the proxy, such as 127.0.0.1.")
        if self.token is None and (self.names or self.proxies or not self._local):
            option = "--name or --proxy" if self._local else f"--host {self.host}"
            advice = "Add --token-file FILE, or leave the default address 127.0.0.1."
            raise UsageError(f"With {option} other machines can reach the pages, and no token protects them.", advice)
        if self.host in _EVERY and not self.names:
            raise UsageError(f"Browsers cannot ask for the address {self.host}.", "Add --name HOST, the name of this machine.")

    @property
    def hosts(self) -> frozenset[str]:
        """The names that the header Host may have, in lower case and without a port."""
        local = ("127.0.0.1", "localhost", "[::1]") if self._local else ()
        host = () if self.host in _EVERY else (f"[{self.host}]" if ":" in self.host else self.host,)
        return frozenset(name.lower() for name in (*local, *host, *self.names))

    @property
    def _local(self) -> bool:
        """Whether only this machine can reach the address."""
        return self.host == "localhost" or (_is_address(self.host) and ip_address(self.host).is_loopback)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
