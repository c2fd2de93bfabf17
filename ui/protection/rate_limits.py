"""How many requests a client may send: a bucket of tokens for each client, and which addresses are one client."""

from __future__ import annotations

import time
from collections import OrderedDict
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.requests import Request

#: Requests that one client may send at once, and how many more each second.
BURST, EACH_SECOND = 2_000, 500
#: Tries of a token that one client may make at once, and how many more each second.
TRIES, TRIES_EACH_SECOND = 10, 0.1
#: Clients that are remembered; the one that was silent longest is forgotten first.
_ADDRESSES = 10_000
#: All addresses of this machine.
HERE = "this machine"


@lru_cache(maxsize=_ADDRESSES)
def network(address: str) -> str:
    """What all addresses of one client have in common: `HERE` of this machine, the first half of one of version 6, else the address."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.is_loopback:
        return HERE
    return str(ip_network((parsed, 64), strict=False)) if isinstance(parsed, IPv6Address) else str(parsed)


class RateLimit:
    """A bucket of tokens for each client."""

    def __init__(self, burst: float, each_second: float) -> None:
        self._burst, self._rate = burst, each_second
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = Lock()

    def allows(self, request: Request) -> bool:
        """Take a token of the client that sent a request; False if there is none left. All clients without an address share one bucket."""
        client = network(request.client.host) if request.client else ""
        with self._lock:  # forms are answered by several threads
            now = time.monotonic()
            left, last = self._buckets.pop(client, (self._burst, now))
            left = min(self._burst, left + (now - last) * self._rate)
            self._buckets[client] = (left - 1 if left >= 1 else left, now)
            if len(self._buckets) > _ADDRESSES:
                self._buckets.popitem(last=False)
            return left >= 1
