"""Serve the application: listen on an address, say where, and end in order."""

from __future__ import annotations

import socket
from contextlib import suppress
from ipaddress import ip_address
from threading import Thread
from typing import TYPE_CHECKING

import uvicorn

from termweave.errors import UsageError
from termweave.ui import application
from termweave.ui.protection.time_limits import AT_ONCE, ImpatientProtocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from termweave.engine import Engine
    from termweave.ui.serve_options import ServeOptions

#: Seconds in which requests may end after Ctrl-C or SIGTERM.
_GRACE = 10


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
        limit_concurrency=AT_ONCE,
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
