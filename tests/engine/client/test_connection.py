"""Which server, how to get in, and how a call goes through."""

import base64
import subprocess
import sys
from contextlib import nullcontext

import pytest

from termweave.engine import EngineResponseError, connect
from termweave.engine.client import credentials
from termweave.errors import EngineUnreachable, UsageError
from termweave.settings import load


def test_without_an_address_and_a_node_it_says_how_to_start_one(monkeypatch):
    monkeypatch.delenv("OPENSEARCH_URL", raising=False)
    with pytest.raises(EngineUnreachable) as caught:
        connect(load())
    assert caught.value.exit_status == 5
    assert "termweave node start" in caught.value.hint


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("localhost:9201", ("http://localhost:9201", None, None)),
        ("http://localhost", ("http://localhost:9200", None, None)),
        ("https://search.example", ("https://search.example:443", None, None)),
        ("https://me:p%40ss@search.example:9200/prefix/", ("https://search.example:9200/prefix", "me", "p@ss")),
        ("http://[::1]:9200", ("http://[::1]:9200", None, None)),
    ],
)
def test_an_address_is_taken_apart(address, expected):
    assert credentials.split(address) == expected


@pytest.mark.parametrize(
    ("address", "hint"),
    [
        *(
            (each, "https://host:9200")
            for each in (
                "ftp://host",
                "http://",
                "http://host:notaport",
                "http://host:99999",
                "http://%zz",
                "caf\udce9",
                "http://one,",
            )
        ),
        *((each, "--password") for each in ("https://me:hush/ed@host:9200", "me:hush#ed@host", "https://me:hush@host:99999")),
        ("https://me:12,hush@host:9200", "comma in a password as %2C"),  # 12 would be a port
        ("https://me:hush@host,,https://other", "https://host:9200"),
    ],
)
def test_an_address_that_cannot_be_meant_is_wrong_usage_and_shows_no_password(address, hint):
    with pytest.raises(UsageError, match="not valid") as caught:
        connect(load(url=address))
    assert hint in caught.value.hint
    assert "hush" not in str(caught.value)


READ, WRITE, SEARCH = (
    ("GET", "/index/_doc/1", {}),
    ("POST", "/_bulk", {"body": b"{}\n"}),
    ("POST", "/index/_search", {"body": {}}),
)
BUSY, DOWN, PROXY, CUT, FINE = (429, {}), (503, {"error": "down"}), (502, b"<html>down"), (None, None), (200, {"found": True})


@pytest.mark.parametrize(
    ("request_", "answers", "attempts"),
    [
        (READ, [DOWN, PROXY, CUT, FINE], 4),
        (READ, [DOWN] * 9, -4),
        (WRITE, [DOWN, FINE], -1),
        (SEARCH, [BUSY, FINE], 2),
        ((*SEARCH[:2], {"body": {}, "retry": False}), [BUSY, FINE], -1),
    ],
)
def test_reads_are_sent_again_and_writes_are_not(scripted, request_, answers, attempts):
    """Attempts below 0: the last of them failed."""
    method, path, options = request_
    with connect(load(url=scripted.url)) as engine:
        engine.without_pipeline({})  # the first search asks the server whether it has search pipelines
        scripted.seen.clear()
        scripted.queue = answers
        with nullcontext() if attempts > 0 else pytest.raises(EngineResponseError):
            assert engine.request(method, path, **options) == {"found": True}
    assert len(scripted.seen) == abs(attempts)


@pytest.mark.parametrize("product", ["OpenSearch", "Elasticsearch"])
def test_a_request_as_it_travels(scripted, product):
    """Bytes stay as they are, user and password are UTF-8, and what the server calls deprecated is no warning of Python."""
    elastic = {"x-elastic-product": product} if product == "Elasticsearch" else {}
    scripted.headers = {"warning": '299 OpenSearch-3.6.0 "[types removal] is deprecated"', **elastic}
    scripted.answers["*"] = (200, {"errors": False})
    body = '{"index":{}}\n{"text":"Füße 😀"}\n'.encode()
    for credentials_of in (
        {"user": "Łukasz", "password": "ż@łw"},
        {"url": scripted.url.replace("//", "//%C5%81ukasz:%C5%BC%40%C5%82w@")},
    ):
        with connect(load(**{"url": scripted.url, **credentials_of})) as engine:
            for _ in range(2):  # the second time by the library of this server
                engine.request("POST", "/index/_bulk", body=body, params={"refresh": True, "routing": None})
            assert "w@" not in repr(engine)
    for method, path, headers, sent in scripted.seen:
        assert (method, path, sent) == ("POST", "/index/_bulk?refresh=true", body)
        assert headers["content-type"] == "application/x-ndjson"
        assert base64.b64decode(headers["authorization"].removeprefix("Basic ")).decode() == "Łukasz:ż@łw"


_FORKS = """
import os, sys
from termweave.engine import connect
from termweave.settings import load

with connect(load(url=sys.argv[1])) as engine:
    engine.request("GET", "/parent")
    if not (child := os.fork()):
        engine.request("GET", "/child")
        os._exit(0)
    os.waitpid(child, 0)
    engine.request("GET", "/parent")
"""


def test_a_forked_process_has_connections_of_its_own(scripted):
    scripted.answers["*"] = (200, {})
    subprocess.run([sys.executable, "-c", _FORKS, scripted.url], check=True)
    assert [path for _, path, *_ in scripted.seen] == ["/parent", "/child", "/parent"]
    before, child, after = scripted.peers
    assert before == after != child


def test_two_who_ask_are_refused_with_both_places_and_without_a_password(monkeypatch):
    monkeypatch.setenv("OPENSEARCH_URL", "https://bob:hush@host:9200")
    monkeypatch.setenv("TERMWEAVE_PASSWORD", "hushed")
    for given, said in (
        ({"user": "me"}, r"from \$OPENSEARCH_URL, names the user 'bob', and user names the user 'me'"),
        ({"user": "bob"}, r"from \$OPENSEARCH_URL, holds a password, and \$TERMWEAVE_PASSWORD gives a different one"),
        ({}, "holds a password"),
    ):
        with pytest.raises(UsageError, match=said) as caught:
            connect(load(**given))
        assert "hush" not in str(caught.value)
    for given in ({"password": "hush"}, {"user": "bob", "password": "hush"}, {"url": "https://bob@host:9200"}):
        connect(load(**given)).close()


def test_sigv4_without_boto3_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(UsageError) as caught:
        connect(load(url="https://search.eu-central-1.es.amazonaws.com", aws_sigv4="eu-central-1"))
    assert "[aws]'" in caught.value.hint
