"""An HTTP proxy before a real server that turns a share of all requests away, from a seed: 429 with a Retry-After, or 503."""

from __future__ import annotations

import random
import threading

from tests.engine.forwarding import ForwardingProxy


class BusyProxy(ForwardingProxy):
    """Forwards to a server, except for the requests that it turns away.

    Args:
        share: Share of the requests that are turned away, with `status`.
        surely: Part of a path; the first request whose path contains it is turned away, whatever the chances.
        always: Part of a path; every request whose path contains it is turned away.

    `requests` and `turned_away` are (method, path) of each.
    """

    def __init__(self, url, *, share=0.0, seed=0, status=429, surely="", always=""):
        self.share, self.status = share, status
        self.requests, self.turned_away = [], []
        self._surely, self._always = surely, always
        self._chance, self._lock = random.Random(seed), threading.Lock()
        super().__init__(url)

    def intercept(self, method, path, headers, body):
        """Turn the request away, or let it pass."""
        del headers, body
        with self._lock:
            busy = self._chance.random() < self.share
            if self._surely and self._surely in path:
                busy = busy or not any(self._surely in turned for _, turned in self.turned_away)
            busy = busy or bool(self._always and self._always in path)
            self.requests.append((method, path))
            if busy:
                self.turned_away.append((method, path))
        return (
            (self.status, b'{"error": {"type": "busy", "reason": "too many requests"}}', {"Retry-After": "0"}) if busy else None
        )
