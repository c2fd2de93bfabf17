"""A source behind an http(s) address: read from real servers, which also redirect, break off, lie about types and are gone."""

import gzip
import shutil
import ssl
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from termweave.cli import run
from termweave.corpora import open_dataset, open_source
from termweave.corpora.formats import addresses, compression, lines
from termweave.errors import InputError, UsageError
from tests.engine.certificates import Authority

LINES = b'{"_id": "a", "text": "green tea"}\n{"_id": "b", "text": "black tea"}\n'
#: Answers that come slowly: what is sent at once, the rest, how many bytes of it at a time, and the seconds between them.
SLOW = {
    "/slow-headers": (b"HTTP/1.0 200 OK\r\nX-Long: ", 1000 * b"x", 1, 0.05),
    "/slow-body": (b"HTTP/1.0 200 OK\r\nContent-Length: 1000\r\n\r\n", 1000 * b" ", 1, 0.05),
    "/slow-chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4;", 1000 * b"x", 1, 0.05),
    "/steady.jsonl": (b"HTTP/1.0 200 OK\r\n\r\n", 20 * LINES, 100, 0.05),
}
#: Path -> status, body, headers.
ANSWERS = {
    "/tea.jsonl": (200, LINES, {}),
    "/tea.jsonl.gz": (200, gzip.compress(LINES, mtime=0), {}),
    "/odd.jsonl": (200, LINES, {"Content-Type": "text/html"}),
    "/login": (200, b"<!doctype html><title>Log in</title>", {"Content-Type": "text/html"}),
    "/secret.jsonl": (401, b"no", {}),
    "/broken": (503, b"later", {}),
    "/cut.jsonl": (200, LINES, {"Content-Length": str(10 * len(LINES))}),
    "/there": (302, b"", {"Location": "/tea.jsonl"}),
    "/circle": (302, b"", {"Location": "/circle"}),
}


class Handler(BaseHTTPRequestHandler):
    """Answers by path, below `/to/` with a redirection to the server's `target`; its `seen` keeps the headers of every request."""

    def do_GET(self):
        self.server.seen.append(dict(self.headers))
        path = self.path.partition("?")[0]
        if path in SLOW:
            self.send_slowly(*SLOW[path])
            return
        to_target = (302, b"", {"Location": self.server.target})
        status, body, headers = to_target if path.startswith("/to/") else ANSWERS.get(path, (404, b"", {}))
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def send_slowly(self, first, rest, size, pause):
        """Send a first line, then a few bytes now and then, so that no read waits long."""
        self.wfile.write(first)
        for start in range(0, len(rest), size):
            if self.server.ended.wait(pause):
                return
            try:
                self.wfile.write(rest[start : start + size])
            except OSError:
                return

    def log_message(self, *_):
        pass


@contextmanager
def serving(monkeypatch, context=None):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.seen, server.target, server.ended = [], "", threading.Event()
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    server.url = f"http{'s' if context else ''}://127.0.0.1:{server.server_port}"
    yield server
    server.ended.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def server(monkeypatch):
    with serving(monkeypatch) as server:
        yield server


@pytest.fixture(scope="module")
def identity(tmp_path_factory):
    """The certificate of an authority, and a context with a certificate that it signed."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not here to make certificates")
    authority = Authority(tmp_path_factory.mktemp("tls") / "authority", "Ours")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("good"))
    return str(authority.certificate), context


@pytest.fixture
def secure(identity, monkeypatch):
    certificate, context = identity
    with serving(monkeypatch, context) as server:
        server.authority = certificate
        yield server


@pytest.mark.parametrize("path", ["/tea.jsonl", "/tea.jsonl.gz", "/there", "/odd.jsonl", "/tea.jsonl?signature=abc"])
def test_a_file_behind_an_address_is_read_and_its_copy_removed(server, tmp_path, path):
    (tmp_path / "tea.jsonl").write_bytes(LINES)
    source = open_source(server.url + path)
    copies = list(compression.copies)
    for _ in range(2):  # as often as needed
        assert [document.id for document in source.documents()] == ["a", "b"]
    assert len(server.seen) == 1 + 2 * (path == "/there")  # it redirects, and may have been an index
    assert "signature" not in source.name + str(source.remarks)
    if not path.endswith(".gz"):  # a build is resumed by this digest
        assert source.fingerprint == open_source(tmp_path / "tea.jsonl").fingerprint
    del source
    assert not any(copy.exists() for copy in copies)


def test_no_credentials_are_sent(server, tmp_path, monkeypatch):
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login ada password secret\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    open_source(server.url + "/there")
    for headers in server.seen:
        assert not {"authorization", "cookie", "proxy-authorization"} & {name.lower() for name in headers}
    with pytest.raises(UsageError, match="does not send") as caught:
        open_source(server.url.replace("http://", "http://ada:secret@") + "/tea.jsonl")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/none.jsonl", r"The server has no http://.*/none\.jsonl \(HTTP 404\)"),
        ("/secret.jsonl", "may not be read without credentials"),
        ("/login", "answers with a web page"),
        ("/circle", "redirects in a circle"),
        ("/broken", "HTTP 503"),
        ("/cut.jsonl", "it sent 68 bytes of 680 bytes"),
    ],
)
def test_every_failure_has_its_sentence_and_leaves_no_copy(server, path, message):
    before = dict(compression.copies)
    with pytest.raises((UsageError, InputError), match=message):
        open_source(server.url + path)
    assert compression.copies == before


def test_a_server_that_is_gone_and_addresses_that_are_none(server, monkeypatch):
    with pytest.raises(InputError, match="could not be downloaded"):
        open_source("http://127.0.0.1:9/x.jsonl")
    for wrong in ("http:///x", "http://[::1/x", "http://host:port/x"):
        with pytest.raises(UsageError):
            open_source(wrong)
    with pytest.raises(UsageError, match="A data set cannot be"):
        open_dataset(server.url + "/tea.jsonl")
    monkeypatch.setattr(addresses, "LARGEST", 50)
    with pytest.raises(InputError, match="there is room for 50 bytes"):
        open_source(server.url + "/tea.jsonl")


@pytest.mark.parametrize("path", ["/slow-body", "/slow-headers", "/slow-chunks"])
@pytest.mark.parametrize("encrypted", [False, True])
def test_a_server_that_trickles_is_left(secure, server, monkeypatch, path, encrypted):
    monkeypatch.setenv("SSL_CERT_FILE", secure.authority)
    monkeypatch.setattr(addresses, "LEAST", (500, 0.4))
    begun = time.monotonic()
    with pytest.raises(InputError, match=r"could not be downloaded: (less than 500 bytes arrived in 0 s|.*timed out)"):
        addresses.downloaded((secure if encrypted else server).url + path)
    assert time.monotonic() - begun < 30  # all of it takes 50 s


def test_a_slow_server_that_sends_enough_is_waited_for(server, monkeypatch):
    monkeypatch.setattr(addresses, "LEAST", (300, 0.5))
    path = addresses.downloaded(server.url + "/steady.jsonl")
    assert path.read_bytes() == 20 * LINES
    lines.discard(path)


def test_tls_is_checked_and_never_left(secure, server, monkeypatch):
    with pytest.raises(InputError, match="certificate or the encryption of the server is not valid"):
        open_source(secure.url + "/tea.jsonl")
    monkeypatch.setenv("SSL_CERT_FILE", secure.authority)
    assert open_source(secure.url + "/tea.jsonl").name == "tea.jsonl"
    secure.target = server.url + "/tea.jsonl"
    with pytest.raises(InputError, match=r"redirects to http://.*not encrypted"):
        open_source(secure.url + "/to/http")
    assert not server.seen
    secure.target = "file:///etc/passwd"
    with pytest.raises(UsageError, match="neither http nor https"):
        open_source(secure.url + "/to/file")
    server.target = secure.url + "/tea.jsonl"  # the other way is safe
    assert open_source(server.url + "/to/https").name == "https"


def test_the_command_says_what_it_downloads(server, capsys):
    assert run(["index", server.url + "/none.jsonl?key=abc", "x", "--url", "http://127.0.0.1:9"]) == 2
    printed = capsys.readouterr().err
    assert f"Downloading {server.url}/none.jsonl." in printed
    assert "abc" not in printed
