"""Receive HTTP responses that must arrive in time.

The time-out of a socket begins anew with every byte that arrives, so that a server which sends a byte now and then is waited for without end.
"""

from __future__ import annotations

import io
import math
import socket
import time
from http.client import HTTPConnection, HTTPResponse
from typing import Any, ClassVar


class _PacedReader(io.RawIOBase):
    """Reads the bytes of a socket as long as at least `least` bytes arrive in each `seconds` of waiting; time between reads does not count."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, timeout: float, least: float, seconds: float) -> None:
        super().__init__()
        self._raw, self._sock, self._timeout, self._pace = raw, sock, timeout, (least, seconds)
        self._missing, self._left = self._pace

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(min(self._timeout, self._left))
        begun = time.monotonic()
        count: int | None = self._raw.readinto(buffer)
        self._missing -= count or 0
        self._left -= time.monotonic() - begun
        if self._missing <= 0:
            self._missing, self._left = self._pace
        elif self._left <= 0:
            raise TimeoutError("less than {:,} bytes arrived in {:.0f} s".format(*self._pace))
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _PacedResponse(HTTPResponse):
    least: ClassVar[float]
    seconds: ClassVar[float | None]

    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        if (timeout := sock.gettimeout()) is not None:
            self.fp = io.BufferedReader(_PacedReader(self.fp.detach(), sock, timeout, self.least, self.seconds or timeout))


def paced_connection(kind: type[HTTPConnection], least: float = math.inf, seconds: float | None = None) -> Any:
    """Derive a class of connections whose responses must arrive in time. A connection without a time-out is not limited.

    Args:
        kind: A class of `http.client`, or one that is derived from it.
        least: Number of bytes that must arrive in each `seconds` of waiting, unless the response ends; infinity: the whole response must.
        seconds: Length of the period in seconds; None: the time-out that the socket has when the response begins.
    """
    response = type(_PacedResponse.__name__, (_PacedResponse,), {"least": least, "seconds": seconds})
    return type(kind.__name__, (kind,), {"response_class": response})
