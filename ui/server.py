"""Serve the application: listen on an address, say where, and end in order."""

from __future__ import annotations

import socket
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from termweave.errors import UsageError
from termweave.ui import application

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from termweave.engine import Engine
    from termweave.ui.serve_options import ServeOptions

#: Requests that are answered at the same time; more get 503.
_AT_ONCE = 256
#: Seconds in which requests may end after Ctrl-C or SIGTERM.
_GRACE = 10
#: Seconds that a connection may stay open without a request: otherwise a few hundred silent ones would lock everybody out.
SILENT_FOR = 15.0


class ImpatientProtocol(H11Protocol):
    """HTTP that closes a connection whose request does not arrive. uvicorn itself waits without end for its first line."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to look at the clock."""
        super().connection_made(transport)
        self._look_later(None)

    def _look_later(self, last: object) -> None:
        self.loop.call_later(SILENT_FOR, self._look, last)

    def _look(self, last: object) -> None:
        """Close the connection if no request is being answered, and none has been since the last look."""
        if self.transport.is_closing():
            return
        cycle = self.cycle
        if cycle is last and (cycle is None or cycle.response_complete):
            self.transport.close()
        else:
            self._look_later(cycle)


def run(engine: Engine, options: ServeOptions, announce: Callable[[str], None]) -> None:
    """Serve until the process is told to stop. Requests that have begun are answered first.

    Args:
        engine: The server that is searched.
        options: How it is served.
        announce: Called with the address once it can be opened.

    Raises:
        UsageError: The address cannot be listened on.
    """
    listening = _listen(options.host, options.port)
    app = application.create(engine, options)
    config = uvicorn.Config(
        app,
        http=ImpatientProtocol,
        log_level="warning",
        access_log=False,
        # Only a proxy may say for whom it asks, and one needs --name. Otherwise a program could take a new address for each try.
        proxy_headers=bool(options.names),
        server_header=False,
        ws="none",
        lifespan="off",
        limit_concurrency=_AT_ONCE,
        timeout_graceful_shutdown=_GRACE,
    )
    host = f"[{options.host}]" if ":" in options.host else options.host
    try:
        with listening, suppress(KeyboardInterrupt):  # uvicorn raises Ctrl-C again when all is done
            announce(f"http://{host}:{listening.getsockname()[1]}/")
            Thread(target=app.state.workspace.warm, daemon=True).start()
            uvicorn.Server(config).run(sockets=[listening])
    finally:
        app.state.jobs.close()


def _listen(host: str, port: int) -> socket.socket:
    """A socket that listens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise UsageError(
            f"The address {host} port {port} cannot be used: {error.strerror or error}.",
            "Choose another one with --host and --port.",
        ) from None
