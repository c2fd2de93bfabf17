"""Servers that misbehave on purpose, for real: what the engine layer must survive is not mocked."""

import json
import shutil
import socket
import subprocess
import tempfile
import threading
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.engine.forwarding import Answering

#: Modules of a JDK that the server can use.
WHOLE = ("java.base", "java.instrument", "java.management", "jdk.incubator.vector", "jdk.localedata", "jdk.unsupported")


class Scripted:
    """An HTTP server that answers what it is told to and remembers what it was asked."""

    def __init__(self):
        self.answers = {}
        self.queue = []
        self.delays = []  # seconds before each of the next answers
        self.seen = []  # method, path, headers by their names in lower case, body
        self.peers = []
        self.headers = {}  # sent with every answer
        self.closing = threading.Event()
        outer = self

        class Handler(Answering):
            def respond(self):
                length = int(self.headers.get("content-length", 0))
                body = self.rfile.read(length)
                path = self.path.partition("?")[0]
                outer.peers.append(self.client_address)
                outer.seen.append((self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, body))
                usual = outer.answers.get(path, outer.answers.get("*", (404, {})))
                status, content = outer.queue.pop(0) if outer.queue else usual
                if outer.delays:
                    outer.closing.wait(outer.delays.pop(0))
                if status is None:  # cut the line
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.answer(status, data, outer.headers)

            do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = respond  # noqa: N815 - the names http.server calls

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self):
        self.closing.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def scripted():
    server = Scripted()
    yield server
    server.close()


@contextmanager
def enterable():
    """A temporary folder that root's unprivileged server may enter.

    Not below pytest's own: every pytest session that starts sets those back to mode 700.
    """
    root = Path(tempfile.mkdtemp(prefix="termweave-engine-"))
    root.chmod(0o711)
    yield root
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def open_tmp():
    """Like tmp_path, for what the server must reach."""
    with enterable() as root:
        yield root


@pytest.fixture
def make_java(open_tmp):
    """A Java that is a shell script: what it says of itself, and what happens when it is to run something."""

    def make(name="jdk", *, version="25.0.1", modules=WHOLE, run="exit 0", broken=False):
        home = open_tmp / name
        (home / "bin").mkdir(parents=True)
        launcher = home / "bin" / "java"
        listing = "\n".join(f"echo {module}@25" for module in modules)
        said = "exit 1" if broken else f"echo 'openjdk version \"{version}\" 2025-10-21' >&2; exit 0"
        launcher.write_text(f'#!/bin/sh\ncase "$1" in\n-version) {said};;\n--list-modules)\n{listing}\nexit 0;;\nesac\n{run}\n')
        launcher.chmod(0o755)
        return home

    return make


@pytest.fixture
def only_these_javas(monkeypatch):
    """Hide the machine's JDKs: the places to look in are the ones given."""

    def hide(*homes):
        monkeypatch.setattr("termweave.engine.embedded.java._places", lambda: iter(homes))
        monkeypatch.delenv("JAVA_HOME", raising=False)

    return hide


@pytest.fixture
def small_disk(open_tmp):
    """A real file system of 1 MB."""
    place = open_tmp / "small-disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a small disk cannot be mounted here (needs root)")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)
