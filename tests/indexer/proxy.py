"""A TCP proxy before a real server that misbehaves by chance, from a seed: it drops, delays and cuts connections mid-response."""

from __future__ import annotations

import random
import socket
import threading
import time
from contextlib import suppress

_CHUNK = 16_384


class Proxy:
    """Forwards to a server; a share of the answers is cut off after the server has applied the request: the client does not know.

    Args:
        port: Of the server, on this host.
        seed: Of the chances; which connection meets them depends on the threads.
        refuse: Share of the connections that are closed before anything is forwarded.
        cut: Share of the responses that end in the middle.
        lose: Share of the requests that end in the middle.
        delay: Seconds that a response waits, at most.

    While `away` is set, the server cannot be reached. `heard` is what came from the client, a connection each.
    """

    def __init__(self, port, *, seed=0, refuse=0.0, cut=0.0, lose=0.0, delay=0.0):
        self._target = ("127.0.0.1", port)
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self.refuse, self.cut, self.lose, self.delay = refuse, cut, lose, delay
        self.away = False
        self.faults = 0
        self.heard = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._listener.close()

    def _happens(self, share):
        with self._lock:
            hit = self._chance.random() < share
            self.faults += hit
        return hit

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.away or self._happens(self.refuse):
                client.close()
                continue
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            threading.Thread(target=self._pump, args=(client, server, self.lose, False), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, self.cut, True), daemon=True).start()

    def _pump(self, source, sink, share, answers):
        heard = bytearray()
        if not answers:
            self.heard.append(heard)
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                if self.away:
                    break
                if not answers:
                    heard += data
                if answers and self.delay:
                    time.sleep(self._chance.uniform(0, self.delay))
                # A request of a few hundred bytes is a question; only what carries documents is worth cutting.
                if (answers or len(data) > 1000) and self._happens(share):
                    sink.sendall(data[: len(data) // 2])
                    break
                sink.sendall(data)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        source.close()
