"""The time-out counts for all attempts of a request together, and a build says how long it waited for the server."""

from __future__ import annotations

import time
import tracemalloc
import zlib
from contextlib import contextmanager

import pytest

from termweave import engine, settings
from termweave.engine.client.retries import Retries
from termweave.errors import EngineError, EngineUnreachable
from tests.engine.sockets import accepting


def test_what_a_build_waited_is_counted_and_said():
    calls = []

    def call(_):
        calls.append(1)
        if len(calls) < 3:
            raise EngineUnreachable("away")
        return "here"

    patient = Retries(30)
    assert patient.run(call, repeatable=True) == "here"
    assert 0 < patient.waited < 5
    server = engine.connect(settings.load(url="http://127.0.0.1:9")).patient(60)
    assert server.retries.waited == 0


def test_without_patience_attempts_end_with_the_limit():
    calls = []

    def call(_):
        calls.append(1)
        time.sleep(0.06)
        raise EngineUnreachable("slow")

    with pytest.raises(EngineUnreachable):
        Retries().run(call, repeatable=True, limit=0.05)
    assert len(calls) == 1


@contextmanager
def dripping(beginning, *, part=b" ", pause=0.1):
    """A server that sends the beginning of an answer at once and a part of the rest after each pause, for ever."""

    def drip(connection):
        connection.recv(65536)
        connection.sendall(beginning)
        while True:
            connection.sendall(part)
            time.sleep(pause)

    with accepting(drip) as port:
        yield f"http://127.0.0.1:{port}"


PACKED = zlib.compressobj(9, zlib.DEFLATED, 31)
BOMB = PACKED.compress(bytes(400_000_000)) + PACKED.flush()
ELASTIC = b"X-Elastic-Product: Elasticsearch\r\n"


@pytest.mark.parametrize("product", [b"", ELASTIC])
@pytest.mark.parametrize("beginning", [b"HTTP/1.1 200 OK\r\nX-Header: ", b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n%s\r\n{"])
def test_a_server_that_sends_byte_after_byte_ends_within_the_time_out(beginning, product):
    with dripping(beginning.replace(b"%s", product)) as url, engine.connect(settings.load(url=url, timeout=0.4)) as server:
        if product:
            server.use_elasticsearch()
        began = time.monotonic()
        with pytest.raises(EngineUnreachable, match="did not answer"):
            server.request("GET", "/")
        assert time.monotonic() - began < 30  # it was without end
        server.close()  # the next request opens new connections
        with pytest.raises(EngineUnreachable, match="did not answer"):
            server.request("GET", "/", timeout=0.3)
        assert time.monotonic() - began < 60


@pytest.mark.parametrize("product", [b"", ELASTIC])
@pytest.mark.parametrize(
    ("beginning", "part"),
    [
        (b"HTTP/1.1 200 OK\r\n%s\r\n", bytes(10_000_000)),
        (b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n%s\r\n", BOMB),
    ],
)
def test_an_answer_without_end_takes_bounded_memory(beginning, part, product):
    with dripping(beginning.replace(b"%s", product), part=part, pause=0) as url, engine.connect(settings.load(url=url)) as server:
        if product:
            server.use_elasticsearch()
        tracemalloc.start()
        try:
            with pytest.raises(EngineError, match="answered GET / with more than 256"):
                server.request("GET", "/")
            assert tracemalloc.get_traced_memory()[1] < 800_000_000
        finally:
            tracemalloc.stop()


def test_an_answer_that_is_not_a_text_is_a_sentence(scripted):
    scripted.answers["*"] = (200, b'{"name": "\xff\xfe"}')
    for elastic in (False, True):
        with engine.connect(settings.load(url=scripted.url)) as server:
            if elastic:
                server.use_elasticsearch()
            with pytest.raises(EngineError, match="not in UTF-8"):
                server.request("GET", "/")
