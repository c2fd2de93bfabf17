"""Servers whose answers and connections a test treats as it likes, and an HTTP proxy before a real server."""

import http.client
import socketserver
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


class Answering(BaseHTTPRequestHandler):
    """A handler of requests that sends whole answers and logs nothing."""

    protocol_version = "HTTP/1.1"

    def answer(self, status, content, headers=None):
        """Send an answer, JSON unless the headers say otherwise; one to HEAD has no content."""
        self.send_response(status)
        usual = {"content-type": "application/json", "content-length": str(len(content))}
        own = {name.lower(): value for name, value in (headers or {}).items()}
        for name, value in (usual | own).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *arguments):
        pass


class ForwardingProxy:
    """Forwards every request for which `intercept` has no answer to a server; `url` and `port` are the proxy's own."""

    #: Headers of a request that are not passed on.
    _OF_A_HOP = frozenset({"host", "connection"})

    def __init__(self, url):
        server, outer = urlsplit(url).netloc, self

        class Handler(Answering):
            def forward(self):
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                own = outer.intercept(self.command, self.path, self.headers, body)
                if own is not None:
                    self.answer(*own)
                    return
                connection = http.client.HTTPConnection(server)
                headers = {name: value for name, value in self.headers.items() if outer.passes_on(name.lower())}
                connection.request(self.command, self.path, body, headers)
                answer = connection.getresponse()
                content = outer.changed(self.path, answer.read())
                passed = ("content-type", "x-elastic-product")
                self.answer(answer.status, content, {name: answer.headers[name] for name in passed if name in answer.headers})
                connection.close()

            do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = forward  # noqa: N815 - the names http.server calls

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def intercept(self, method, path, headers, body):
        """The proxy's own answer to a request: (status, content, headers); None: the server answers."""

    def changed(self, path, content):
        """What becomes of the content of the server's answer to a path."""
        del path
        return content

    def passes_on(self, header):
        """Whether a header of a request, in lower case, goes to the server."""
        return header not in self._OF_A_HOP


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
