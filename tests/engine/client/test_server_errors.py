"""What a server's answers mean: those of an OpenSearch, and of whatever else may answer."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from termweave.catalog import generations
from termweave.engine import EngineResponseError, connect
from termweave.engine.client.retries import is_temporary
from termweave.engine.client.server_errors import NotOpenSearch, block_hint
from termweave.errors import EngineError, EngineUnreachable
from termweave.indexer.generations import listing
from termweave.search import Index
from termweave.settings import load


def test_the_reason_is_the_innermost_one(scripted):
    scripted.answers["*"] = (
        400,
        {
            "error": {
                "type": "search_phase_execution_exception",
                "reason": "all shards failed",
                "root_cause": [{"type": "query_shard_exception", "reason": "failed to create query"}],
                "caused_by": {
                    "type": "x",
                    "reason": "failed to create query",
                    "caused_by": {"type": "y", "reason": "maxClauseCount is set to 1024"},
                },
            },
            "status": 400,
        },
    )
    engine = connect(load(url=scripted.url))
    with pytest.raises(EngineResponseError) as caught:
        engine.request("POST", "/index/_search", body={})
    assert caught.value.reason == "maxClauseCount is set to 1024"
    assert caught.value.status == 400
    assert caught.value.body["status"] == 400
    assert isinstance(caught.value, EngineError)
    assert not isinstance(caught.value, EngineUnreachable)
    engine.close()


def test_the_reason_of_a_refused_refresh_is_that_of_its_shard(scripted):
    """The answer of OpenSearch's security plugin to a role that may not refresh a shard."""
    reason = "no permissions for [indices:admin/refresh[s]] and User [name=w]"
    failure = {"shard": 0, "index": "i", "status": "FORBIDDEN", "reason": {"type": "security_exception", "reason": reason}}
    scripted.answers["*"] = (403, {"_shards": {"total": 1, "successful": 0, "failed": 1, "failures": [failure]}})
    with connect(load(url=scripted.url)) as engine, pytest.raises(EngineResponseError) as caught:
        engine.request("POST", "/i/_refresh")
    assert caught.value.reason == reason
    assert "docs/permissions.md" in caught.value.hint
    assert block_hint(reason) == caught.value.hint


def test_a_node_that_was_cut_off_turns_requests_away(scripted):
    """It answers 500 until it has heard that it lost the shard: a request may be sent again."""
    outdated = {"type": "illegal_state_exception", "reason": "[i][1] operation primary term [1] is too old (current [2])"}
    scripted.answers["*"] = (500, {"error": outdated, "status": 500})
    with connect(load(url=scripted.url)) as engine, pytest.raises(EngineResponseError) as caught:
        engine.request("POST", "/i/_refresh")
    assert caught.value.status == 503
    assert is_temporary(caught.value)


@pytest.mark.parametrize(
    ("reason", "hint"),
    [  # OpenSearch 3.6.0, Elasticsearch 9.2.0, both, both
        (
            "this action would add [1] total LOCAL_ONLY shards, but this cluster currently has [41]/[3] maximum LOCAL_ONLY shards open;",
            "prune",
        ),
        (
            "this action would add [2] shards, but this cluster currently has [41]/[3] maximum normal shards open;",
            "max_shards_per_node",
        ),
        ("Limit of total fields [5] has been exceeded while adding new fields [8]", "index.mapping.total_fields.limit"),
        ("Limit of mapping depth [1] has been exceeded due to object field [termweave]", "index.mapping.depth.limit"),
    ],
)
def test_limits_of_a_cluster_and_of_an_index_are_named(scripted, reason, hint):
    scripted.answers["*"] = (400, {"error": {"type": "validation_exception", "reason": reason}, "status": 400})
    with connect(load(url=scripted.url)) as engine, pytest.raises(EngineResponseError) as caught:
        engine.request("PUT", "/products/_mapping", body={})
    assert hint in caught.value.hint
    assert "--mapping" not in caught.value.hint


@pytest.mark.parametrize(
    ("title", "hint"),
    [
        ("400 No required SSL certificate was sent", "$TERMWEAVE_CLIENT_CERT"),
        ("400 The SSL certificate error", "it has expired"),
        ("400 The plain HTTP request was sent to HTTPS port", "https://"),
    ],
)
def test_pages_of_nginx_say_what_to_do(scripted, title, hint):
    scripted.answers["*"] = (400, f"<html><head><title>{title}</title></head></html>".encode())
    with connect(load(url=scripted.url)) as engine, pytest.raises(EngineResponseError) as caught:
        engine.request("GET", "/_cluster/health")
    assert caught.value.reason == title
    assert hint in caught.value.hint


def test_something_that_is_no_opensearch(scripted):
    scripted.answers["*"] = (200, b"<html>hello</html>")
    engine = connect(load(url=scripted.url))
    with pytest.raises(EngineError, match="not in JSON"):
        engine.request("GET", "/_cluster/health")
    engine.close()


@pytest.mark.parametrize("answer", [b"[" * 3000 + b"]" * 3000, b'{"count": 1} 2', b"\xef\xbb\xbf{}"])
def test_an_answer_that_no_parser_takes_is_no_json(scripted, answer):
    scripted.answers["*"] = (200, answer)
    with connect(load(url=scripted.url)) as engine, pytest.raises(EngineError, match="not in JSON"):
        engine.request("GET", "/_cluster/health")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"[1]", "[1]"),
        (b'"down"', '"down"'),
        (b"null", "null"),
        (b"[" * 3000, "[" * 197 + "..."),
        (b"<html>\r\n<head><TITLE>502 Bad\r\n Gateway</TITLE></head>\r\n</html>\r\n", "502 Bad Gateway"),
        (b"<html><body>\r\n  down\r\n</body>", "<html><body> down </body>"),
        (b'{"message": "half \\ud83d"}', "half \ufffd"),
        (b"\xed\xa0\xbd down", "\ufffd down"),
        (b"", "no reason given"),
        (b'{"error": {"type": "t", "root_cause": 7}}', "t"),
        (b'{"error": {"reason": "r", "caused_by": {"reason": ["x"]}}}', "['x']"),
    ],
)
def test_whatever_an_error_says_it_is_one(scripted, answer, reason):
    scripted.queue = [(502, answer), (200, {"count": 1}), (400, answer)]
    with connect(load(url=scripted.url)) as engine:
        assert engine.request("GET", "/index/_count") == {"count": 1}  # sent again, as after every 502
        with pytest.raises(EngineResponseError) as caught:
            engine.request("GET", "/index/_count")
    assert (caught.value.status, caught.value.reason) == (400, reason)


@pytest.mark.parametrize(
    "answer",
    [b"content-length: 9\r\n\r\n{", b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n", b"transfer-encoding: chunked\r\n\r\n9\r\n{"],
)
def test_an_answer_that_ends_in_its_midst_was_cut(answer):
    """Something answered there: nobody has to be told to start a server."""

    def cut():
        with listener.accept()[0] as client:
            client.recv(65536)
            client.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n" + answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=cut)
        server.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with connect(load(url=url)) as engine, pytest.raises(EngineUnreachable, match="closed the connection"):
            engine.request("PUT", "/index")
        server.join()


@pytest.mark.parametrize("body", [b"<html>Not Found</html>", b"", {"detail": "Not Found"}, ["Not Found"]])
def test_a_web_server_without_the_page_is_not_a_missing_index(scripted, body):
    scripted.answers["*"] = (404, body)
    with connect(load(url=scripted.url)) as engine:
        with pytest.raises(NotOpenSearch, match=f"{scripted.url} is no OpenSearch") as caught:
            engine.request("GET", "/docs/_alias")
        assert caught.value.hint == "Check the address."
        with pytest.raises(NotOpenSearch):
            Index.open(engine, "docs")


@pytest.mark.parametrize(
    "body", [b"", [], "ok", {"responseHeader": {"status": 0}}, {"version": {"number": "8.13.0"}, "name": "n"}]
)
def test_a_server_of_something_else_that_answers_any_address_is_called_that(scripted, body):
    scripted.answers["*"] = (200, body)
    with connect(load(url=scripted.url)) as engine:
        asks = (
            lambda: Index.open(engine, "docs"),
            lambda: listing.list_generations(engine, "docs"),
            lambda: generations.live(engine, "docs"),
        )
        for ask in asks:
            with pytest.raises(NotOpenSearch, match=f"{scripted.url} is no OpenSearch") as caught:
                ask()
            assert caught.value.hint == "Check the address."


@pytest.mark.parametrize("body", [{"error": "alias [docs] missing", "status": 404}, {"_index": "docs", "found": False}, {}])
def test_an_opensearch_without_the_page_says_what_is_missing(scripted, body):
    scripted.answers["*"] = (404, body)
    with connect(load(url=scripted.url)) as engine, pytest.raises(EngineResponseError) as caught:
        engine.request("GET", "/docs/_alias")
    assert (type(caught.value), caught.value.status) == (EngineResponseError, 404)


def test_half_a_character_of_an_answer_is_one_that_can_be_written(scripted):
    scripted.answers["*"] = (200, b'{"text": "half \\ud83d, whole \\ud83d\\ude00", "count": 3}')
    with connect(load(url=scripted.url)) as engine:
        assert engine.request("GET", "/index/_doc/1") == {"text": "half \ufffd, whole \U0001f600", "count": 3}


def test_being_refused_says_which_options_help(scripted):
    scripted.answers["*"] = (401, b"Unauthorized")
    engine = connect(load(url=scripted.url))
    with pytest.raises(EngineResponseError) as caught:
        engine.request("GET", "/")
    assert caught.value.hint.startswith(
        "Give a user and a password that it knows: $TERMWEAVE_USER"
    )  # they may have been given, and wrong
    engine.close()


def test_a_redirection_is_not_followed_and_says_what_to_give(scripted):
    """What is sent may hold a password, and a POST would become a GET."""
    scripted.answers["*"] = (301, b"<html><title>301 Moved Permanently</title></html>")
    with connect(load(url=scripted.url)) as engine, pytest.raises(EngineResponseError, match="301 Moved") as caught:
        engine.request("POST", "/docs/_search", body={})
    assert "perhaps with https://" in caught.value.hint
    assert len(scripted.seen) == 1


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("index [x] blocked by: [FORBIDDEN/8/index write (api)];", "Somebody set index.blocks.write on it"),
        ("index [x] blocked by: [FORBIDDEN/5/index read-only (api)];", "Somebody set index.blocks.read_only on it"),
        (
            "[TOO_MANY_REQUESTS/12/disk usage exceeded flood-stage watermark, index has read-only-allow-delete block]",
            "disk is full",
        ),
        ("[FORBIDDEN/12/index read-only / allow delete (api)]", "disk is full"),
        ("no permissions for [indices:data/write/bulk]", "docs/permissions.md"),
    ],
)
def test_blocks_by_a_full_disk_and_by_a_person_are_told_apart(said, hint):
    assert hint in block_hint(said)
    assert bool(block_hint(said)) is bool(hint)


def test_a_hostile_error_page_is_read_in_no_time(scripted):
    """A search for the end of each title would take minutes."""
    scripted.answers["*"] = (400, b"<title>" * 1_000_000)
    began = time.perf_counter()
    with connect(load(url=scripted.url)) as engine, pytest.raises(EngineResponseError) as caught:
        engine.request("PUT", "/index")
    assert time.perf_counter() - began < 10
    assert caught.value.reason.startswith("<title><title>")
    assert len(caught.value.reason) == 200


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        ("The request signature we calculated does not match the signature you provided.", "secret key"),
        ("Credential should be scoped to a valid region.", "$TERMWEAVE_AWS_SIGV4"),
        ("The security token included in the request is expired", "session token has expired"),
        ("Signature expired: 20260101T000000Z is now earlier than 20260101T000500Z", "clock"),
        ("User: anonymous is not authorized to perform: es:ESHttpGet", "Sign the requests"),
    ],
)
@pytest.mark.parametrize("key", ["message", "Message"])
def test_a_refused_signature_of_aws_says_what_to_check(scripted, message, hint, key):
    scripted.answers["*"] = (403, {key: message})
    with connect(load(url=scripted.url)) as engine, pytest.raises(EngineResponseError, match=message[:30]) as caught:
        engine.request("GET", "/")
    assert hint in caught.value.hint


def test_a_host_name_that_the_server_does_not_serve_is_named(scripted):
    scripted.answers["*"] = (421, b"<title>421 Misdirected Request</title>")
    with connect(load(url=scripted.url)) as engine, pytest.raises(EngineResponseError, match="421 Misdirected") as caught:
        engine.request("GET", "/")
    assert "does not serve the host name" in caught.value.hint


def test_a_host_name_that_nobody_knows_is_named():
    with connect(load(url="http://no-such-host.invalid:9200")) as engine, pytest.raises(EngineUnreachable, match="is not known"):
        engine.request("PUT", "/index")
