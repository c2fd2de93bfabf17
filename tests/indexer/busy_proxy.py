"""An HTTP proxy before a real server that turns a share of all requests away, from a seed: 429 with a Retry-After, or 503."""

from __future__ import annotations

import http.client
import random
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


class BusyProxy:
    """Forwards to a server, except for the requests that it turns away.

    Args:
        url: Of the server.
        share: Share of the requests that are turned away.
        seed: The same seed gives the same sequence of chances.
        status: Status of the answer to a request that is turned away.
        surely: Part of a path; the first request whose path contains it is turned away, whatever the chances.
        always: Part of a path; every request whose path contains it is turned away.

    Attributes:
        requests: (method, path) of all that came.
        turned_away: (method, path) of those that were turned away.
    """

    def __init__(self, url, *, share=0.0, seed=0, status=429, surely="", always=""):
        self.share, self.status = share, status
        self.requests, self.turned_away = [], []
        chance, lock, server = random.Random(seed), threading.Lock(), urlsplit(url).netloc
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def forward(self):
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                with lock:
                    busy = chance.random() < outer.share
                    if surely and surely in self.path:
                        busy = busy or not any(surely in path for _, path in outer.turned_away)
                    busy = busy or bool(always and always in self.path)
                    outer.requests.append((self.command, self.path))
                    if busy:
                        outer.turned_away.append((self.command, self.path))
                if busy:
                    self.answer(outer.status, b'{"error": {"type": "busy", "reason": "too many requests"}}', {"Retry-After": "0"})
                    return
                connection = http.client.HTTPConnection(server)
                headers = {name: value for name, value in self.headers.items() if name.lower() not in {"host", "connection"}}
                connection.request(self.command, self.path, body, headers)
                answer = connection.getresponse()
                content = answer.read()
                self.answer(answer.status, content, {"content-type": answer.getheader("content-type", "application/json")})
                connection.close()

            def answer(self, status, content, headers):
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = forward  # noqa: N815 - the names http.server calls

            def log_message(self, *arguments):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
