"""A server whose connections a test treats as it likes."""

from __future__ import annotations

import socketserver
import threading
from contextlib import contextmanager, suppress


@contextmanager
def accepting(treat):
    """A server on 127.0.0.1 that calls `treat` with each connection, in a thread, and closes it; yields its port."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            with suppress(OSError):
                treat(self.request)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()
