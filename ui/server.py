"""Serve the application: listen on an address, say where, and end in order."""

from __future__ import annotations

import socket
from contextlib import suppress
from ipaddress import ip_address
from threading import Thread
from typing import TYPE_CHECKING

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from termweave.errors import UsageError
from termweave.ui import application
from termweave.ui.guard import HERE, network

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


#: Bytes of an answer that a client takes in this time, if there are so many.
TAKEN = 16 << 10
#: Connections that one address may have open; this machine and proxies, for whom many clients ask, may have more.
FROM_ONE, FROM_HERE = 64, 2 * _AT_ONCE


class ImpatientProtocol(H11Protocol):
    """HTTP that closes a connection whose request does not arrive, or whose answer is not taken. uvicorn waits for both without end."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to look at the clock, unless the client's address has too many connections."""
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        trusted = self.config.proxy_headers and address in self.config.forwarded_allow_ips
        others = [client[0] for other in self.connections if (client := getattr(other, "client", None))]
        opened = sum(network(other) == network(address) for other in others)
        if opened > (FROM_HERE if trusted or network(address) == HERE else FROM_ONE):
            transport.abort()
        else:
            self._look_later(None)

    def _look_later(self, last: object) -> None:
        self.loop.call_later(SILENT_FOR, self._look, last, self.transport.get_write_buffer_size())

    def _look(self, last: object, unsent: int) -> None:
        """Close the connection if no request came since the last look, and abort it if the client does not take the answer.

        A transport that was closed still waits until the client has taken everything.

        Args:
            last: The request and answer of the last look.
            unsent: How many bytes of answers waited for the client then.
        """
        cycle, waiting = self.cycle, self.transport.get_write_buffer_size()
        if cycle is last and waiting > max(0, unsent - TAKEN) and unsent:
            self.transport.abort()
        elif waiting or not (self.transport.is_closing() or (cycle is last and (cycle is None or cycle.response_complete))):
            self._look_later(cycle)
        else:
            self.transport.close()


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
        # Only a proxy may say for whom it asks. Otherwise a program could take a new address for each try.
        proxy_headers=bool(options.proxies),
        forwarded_allow_ips=[str(ip_address(each)) for each in options.proxies],
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
