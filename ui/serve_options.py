"""The options of `termweave serve`, and checks that a server which other machines reach asks for a token."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address

from termweave.errors import UsageError
from termweave.settings import Settings, load

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
        index: Name of the index that pages show first, or of the only index whose models are served; None: pages show the first index of the
            server first, and the models of all indices are served.
        host: The address to listen on.
        port: The port to listen on; 0: the system chooses a free port.
        names: Further names under which browsers reach the pages, for example through a proxy.
        proxies: Addresses of proxies whose headers about their clients (`X-Forwarded-For`, `X-Forwarded-Proto`) are believed.
        token: The token that clients must send; None: no token is needed, and only this machine can connect.
        read_only: Whether every change is refused: grades, profiles, promotions.
        rerankers: Rerankers that pages may use besides the built-in ones that need no folder, for example "ranker@FOLDER".
        datasets: Data sets that pages may evaluate and tune on.
        settings: Settings by which a learning process reaches the search server.
        models: Models to use in place of the models that the indices name: keyword of `search.Index.open` -> model.
        serves_models: Whether models are served in place of pages.
        served: Names or folders of models that are served by themselves, independent of any index.
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
        """Raise `UsageError` for options that would let everybody in or keep everybody out, and for invalid names, addresses and tokens."""
        if self.token is not None and len(self.token) < SHORTEST_TOKEN:
            advice = "Make one: python3 -c 'import secrets; print(secrets.token_urlsafe())'"
            raise UsageError(f"The token has fewer than {SHORTEST_TOKEN} characters.", advice)
        if wrong := [name for name in self.names if not _NAME.fullmatch(name)]:
            raise UsageError(f"--name {wrong[0]} is not the name of a host.", "Write the name without https://, port and path.")
        if wrong := [proxy for proxy in self.proxies if not _is_address(proxy)]:
            raise UsageError(f"--proxy {wrong[0]} is not an IP address.", "Write the address of the proxy, such as 127.0.0.1.")
        if self.token is None and (self.names or self.proxies or not self._local):
            option = "--name or --proxy" if self._local else f"--host {self.host}"
            advice = "Add --token-file FILE, or leave the default address 127.0.0.1."
            raise UsageError(f"With {option} other machines can reach the pages, and no token protects them.", advice)
        if self.host in _EVERY and not self.names:
            raise UsageError(f"Browsers cannot open the address {self.host}.", "Add --name HOST, the name of this machine.")

    @property
    def hosts(self) -> frozenset[str]:
        """The host names that the header Host of a request may have, in lower case and without a port."""
        local = ("127.0.0.1", "localhost", "[::1]") if self._local else ()
        host = () if self.host in _EVERY else (f"[{self.host}]" if ":" in self.host else self.host,)
        return frozenset(name.lower() for name in (*local, *host, *self.names))

    @property
    def _local(self) -> bool:
        """Whether only this machine can reach the address to listen on."""
        return self.host == "localhost" or (_is_address(self.host) and ip_address(self.host).is_loopback)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
