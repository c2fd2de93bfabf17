"""Proxies before a real server that misbehave: one is away, slow or cuts connections, one turns requests away by chance, from a seed."""

import random
import socket
import threading
import time
from contextlib import suppress

from tests.engine.forwarding import ForwardingProxy


class Proxy:
    """Forwards bytes to a server on this host.

    While `away` is set, the server cannot be reached. `delay`: seconds that a response waits, at most. `cut`: share of the requests and
    responses that end in the middle: where a response does, the server has applied the request and the client does not know.
    """

    def __init__(self, port, *, cut=0.0, delay=0.0):
        self._target = ("127.0.0.1", port)
        self.away, self.delay, self.cut, self.faults = False, delay, cut, 0
        self._chance = random.Random(5)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._listener.close()

    def _accept(self):
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = None if self.away else socket.create_connection(self._target)
                except OSError:
                    server = None
                if server is None:
                    client.close()
                    continue
                threading.Thread(target=self._pump, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._pump, args=(server, client, True), daemon=True).start()

    def _pump(self, source, sink, answers):
        with suppress(OSError):
            while (data := source.recv(16_384)) and not self.away:
                if answers and self.delay:
                    time.sleep(self._chance.uniform(0, self.delay))
                # A request of a few hundred bytes is a question; only what carries documents is worth cutting.
                if (answers or len(data) > 1000) and self._chance.random() < self.cut:
                    self.faults += 1
                    sink.sendall(data[: len(data) // 2])
                    break
                sink.sendall(data)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        source.close()


class BusyProxy(ForwardingProxy):
    """Forwards to a server, except for the requests that it turns away: 429 with a Retry-After, or 503.

    Args:
        share: Share of the requests that are turned away, with `status`.
        surely: Part of a path; the first request whose path contains it is turned away, whatever the chances.
        always: Part of a path; every request whose path contains it is turned away.

    `requests` and `turned_away` are (method, path) of each; `contents` are (path, headers, body) of what was let pass.
    """

    #: The server's answers come as they are: their headers are not passed on.
    _OF_A_HOP = ForwardingProxy._OF_A_HOP | {"accept-encoding"}

    def __init__(self, url, *, share=0.0, seed=0, status=429, surely="", always=""):
        self.share, self.status = share, status
        self.requests, self.turned_away, self.contents = [], [], []
        self._surely, self._always = surely, always
        self._chance, self._lock = random.Random(seed), threading.Lock()
        super().__init__(url)

    def intercept(self, method, path, headers, body):
        """Turn the request away, or let it pass."""
        with self._lock:
            busy = self._chance.random() < self.share or (self._always and self._always in path)
            if self._surely and self._surely in path:
                busy = busy or not any(self._surely in turned for _, turned in self.turned_away)
            self.requests.append((method, path))
            if not busy:
                self.contents.append((path, headers, body))
                return None
            self.turned_away.append((method, path))
            return self.status, b'{"error": {"type": "busy", "reason": "too many requests"}}', {"Retry-After": "0"}
