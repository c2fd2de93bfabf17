"""Run a web server for pages or models: listen on an address, announce the address, and shut down in order."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from threading import Thread
from typing import TYPE_CHECKING

import uvicorn

from termweave.errors import UsageError
from termweave.ui import application
from termweave.ui.protection.limits import AT_ONCE, ImpatientProtocol, ModelServerProtocol

if TYPE_CHECKING:
    from termweave.engine import Engine
    from termweave.ui.serve_options import ServeOptions

#: Seconds in which requests may end after Ctrl-C or SIGTERM.
_GRACE = 10
#: Bytes of the head of a request: an address may hold a query of 10,000 characters, each of which is up to twelve bytes there.
_LONGEST_HEAD = 160 << 10


def run(engine: Engine | None, options: ServeOptions, announce: Callable[[str], None]) -> None:
    """Serve pages or models until the process is told to stop; requests that have begun are answered before it ends.

    Args:
        engine: The search server; None: only models that need no index are served.
        options: The options of `termweave serve`.
        announce: Function that is called with the address once the server listens there.

    Raises:
        UsageError: The address cannot be listened on, or a model that the options name cannot be served.
    """
    if options.serves_models:
        from termweave.serving.model_server import model_application  # noqa: PLC0415 - pages need none of it

        app = model_application.create(engine, options)
    else:
        assert engine is not None
        app = application.create(engine, options)
    config = uvicorn.Config(
        app,
        http=ModelServerProtocol if options.serves_models else ImpatientProtocol,
        h11_max_incomplete_event_size=_LONGEST_HEAD,
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
        # uvicorn raises Ctrl-C again when all is done.
        with _listen(options.host, options.port) as listening, suppress(KeyboardInterrupt):
            announce(f"http://{host}:{listening.getsockname()[1]}/")
            Thread(target=app.state.warm, daemon=True).start()
            server = uvicorn.Server(config)
            app.state.ending = lambda: server.should_exit
            server.run(sockets=[listening])
    finally:
        app.state.close()


def _listen(host: str, port: int) -> socket.socket:
    """Open a socket that listens on an address and a port.

    Raises:
        UsageError: The address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        message = f"The address {host} port {port} cannot be used: {error.strerror or error}."
        raise UsageError(message, "Choose another one with --host and --port.") from None
    # Connections inherit it. asyncio does not set it itself on a socket of its caller, and then each answer after the first one of a connection
    # takes 40 ms more: its body waits until the client has acknowledged the headers.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening
