"""Limits on the answer of a server: one deadline for all of it, and a number of bytes.

The time-out of urllib3, which both client libraries use, begins anew with every byte that arrives, and both libraries read whatever comes.
"""

from __future__ import annotations

import io
import time
from http.client import HTTPResponse
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket

#: Most bytes of an answer, unpacked.
LARGEST = 256_000_000
_CHUNK = 1 << 16


class AnswerTooLarge(Exception):
    """The server sent more than `LARGEST` bytes."""


class _TimedReader(io.RawIOBase):
    """A socket's bytes until a moment of `time.monotonic`."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, end: float) -> None:
        super().__init__()
        self._raw, self._sock, self._end = raw, sock, end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(left)
        count: int | None = self._raw.readinto(buffer)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _TimedResponse(HTTPResponse):
    """A response that must have arrived when the time-out that its socket has at the beginning is over."""

    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        if (seconds := sock.gettimeout()) is not None:
            self.fp = io.BufferedReader(_TimedReader(self.fp.detach(), sock, time.monotonic() + seconds))


def limit(pool: Any, seconds: float) -> None:
    """Limit the answers that a pool of connections reads.

    Args:
        pool: A pool of urllib3.
        seconds: For a request that names no time-out: for connecting, sending and the answer together.
    """
    from urllib3 import Timeout  # noqa: PLC0415 - comes with the client library

    pool.ConnectionCls = type(pool.ConnectionCls.__name__, (pool.ConnectionCls,), {"response_class": _TimedResponse})
    send = pool.urlopen

    def urlopen(*arguments: Any, timeout: float | None = None, **options: Any) -> SimpleNamespace:
        whole = Timeout(total=seconds if timeout is None else timeout)
        response = send(*arguments, timeout=whole, preload_content=False, **options)
        content = bytearray()
        for part in response.stream(_CHUNK):
            content += part
            if len(content) > LARGEST:
                response.close()
                raise AnswerTooLarge
        return SimpleNamespace(status=response.status, headers=response.headers, data=bytes(content))

    pool.urlopen = urlopen
