"""Limits on the answer of a server: one deadline for all of it, and a number of bytes. Both client libraries read whatever comes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from termweave.support.paced_responses import paced_connection

#: Most bytes of an answer, unpacked.
LARGEST = 256_000_000
_CHUNK = 1 << 16


class AnswerTooLarge(Exception):
    """The server sent more than `LARGEST` bytes."""


def limit(pool: Any, seconds: float) -> None:
    """Limit the answers that a pool of connections reads.

    Args:
        pool: A pool of urllib3.
        seconds: For a request that names no time-out: for connecting, sending and the answer together.
    """
    from urllib3 import Timeout  # noqa: PLC0415 - comes with the client library

    pool.ConnectionCls = paced_connection(pool.ConnectionCls)
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
