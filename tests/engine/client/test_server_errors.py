"""What a server's answers mean: those of an OpenSearch, and of whatever else may answer."""

import time

import pytest

from termweave.catalog import generations
from termweave.engine import EngineResponseError, connect
from termweave.engine.client.retries import is_temporary
from termweave.engine.client.server_errors import NotOpenSearch
from termweave.errors import EngineError, EngineUnreachable
from termweave.indexer.generations import listing
from termweave.search import Index
from termweave.settings import load
from tests.engine.forwarding import accepting

DEEP = b"[" * 3000
NOT_FOUND = [(404, b"<html>Not Found</html>"), (404, b""), (404, {"detail": "Not Found"}), (404, ["Not Found"])]
OTHERS = [(200, body) for body in (b"", [], "ok", {"responseHeader": {"status": 0}}, {"version": {"number": "8"}, "name": "n"})]
INNERMOST = {
    "type": "search_phase_execution_exception",
    "reason": "all shards failed",
    "root_cause": [{"type": "query_shard_exception", "reason": "failed to create query"}],
    "caused_by": {"type": "x", "reason": "failed to create", "caused_by": {"type": "y", "reason": "maxClauseCount is 1024"}},
}
#: The answer of OpenSearch's security plugin to a role that may not refresh a shard.
FORBIDDEN = "no permissions for [indices:admin/refresh[s]] and User [name=w]"
SHARD = {"shard": 0, "status": "FORBIDDEN", "reason": {"type": "security_exception", "reason": FORBIDDEN}}
#: A node that was cut off answers 500 until it has heard that it lost the shard.
OUTDATED = {"type": "illegal_state_exception", "reason": "[i][1] operation primary term [1] is too old (current [2])"}


def refused(text):
    return {"error": {"type": "an_exception", "reason": text}}


def page(title):
    return f"<html><head><title>{title}</title></head></html>".encode()


@pytest.mark.parametrize(
    ("status", "body", "reason", "hint"),
    [
        (400, {"error": INNERMOST, "status": 400}, "maxClauseCount is 1024", ""),
        (403, {"_shards": {"total": 1, "failed": 1, "failures": [SHARD]}}, FORBIDDEN, "docs/permissions.md"),
        (400, refused("this cluster currently has [41]/[3] maximum LOCAL_ONLY shards open;"), "41", "termweave prune"),
        (400, refused("Limit of total fields [5] has been exceeded"), "Limit of", "index.mapping.total_fields.limit"),
        (403, refused("index [x] blocked by: [FORBIDDEN/8/index write (api)];"), "index [x]", "Somebody set index.blocks.write"),
        (403, refused("index [x] blocked by: [FORBIDDEN/12/index read-only / allow delete (api)];"), "index [x]", "disk is full"),
        (400, page("400 No required SSL certificate was sent"), "400 No required SSL", "$TERMWEAVE_CLIENT_CERT"),
        (400, page("400 The SSL certificate error"), "400 The SSL", "it has expired"),
        (400, page("400 The plain HTTP request was sent to HTTPS port"), "400 The plain", "https://"),
        (421, page("421 Misdirected Request"), "421 Misdirected Request", "does not serve the host name"),
        # They may have been given, and wrong.
        (401, b"Unauthorized", "Unauthorized", "Give a user and a password that the server knows: $TERMWEAVE_USER"),
        # What is sent may hold a password, and a POST would become a GET.
        (301, page("301 Moved Permanently"), "301 Moved Permanently", "perhaps with https://"),
        (404, {"error": "alias [docs] missing", "status": 404}, "alias [docs] missing", ""),
        (404, {"_index": "docs", "found": False}, "docs", ""),
        (400, b"[1]", "[1]", ""),
        (400, DEEP, "[" * 197 + "...", ""),
        (400, b"<html>\r\n<head><TITLE>502 Bad\r\n Gateway</TITLE></head>\r\n</html>\r\n", "502 Bad Gateway", ""),
        (400, b"<html><body>\r\n  down\r\n</body>", "<html><body> down </body>", ""),
        (400, b'{"message": "half \\ud83d"}', "half \ufffd", ""),
        (400, b"\xed\xa0\xbd down", "\ufffd down", ""),
        (400, b"", "no reason given", ""),
        (400, b'{"error": {"type": "t", "root_cause": 7}}', "t", ""),
        (400, b'{"error": {"reason": "r", "caused_by": {"reason": ["x"]}}}', "['x']", ""),
        (403, {"Message": "User: anonymous is not authorized to perform: es:ESHttpGet"}, "User: anonymous", "Sign the requests"),
    ],
)
def test_an_error_has_the_innermost_reason_and_a_hint(scripted, status, body, reason, hint):
    scripted.answers["*"] = (status, body)
    with connect(load(url=scripted.url)) as engine, pytest.raises(EngineResponseError) as caught:
        engine.request("POST", "/docs/_refresh")
    error = caught.value
    assert (type(error), error.status) == (EngineResponseError, status)
    assert reason in error.reason
    assert hint in error.hint
    assert len(error.reason) <= 200
    assert len(scripted.seen) == 1


def test_a_node_that_was_cut_off_turns_requests_away(scripted):
    scripted.answers["*"] = (500, {"error": OUTDATED, "status": 500})
    with connect(load(url=scripted.url)) as engine, pytest.raises(EngineResponseError) as caught:
        engine.request("POST", "/i/_refresh")
    assert caught.value.status == 503
    assert is_temporary(caught.value)


@pytest.mark.parametrize("answer", [b"<html>hello</html>", DEEP + b"]" * 3000, b'{"count": 1} 2', b"\xef\xbb\xbf{}"])
def test_an_answer_that_no_parser_takes_is_no_json(scripted, answer):
    scripted.answers["*"] = (200, answer)
    with connect(load(url=scripted.url)) as engine, pytest.raises(EngineError, match="not in JSON"):
        engine.request("GET", "/_cluster/health")


@pytest.mark.parametrize(
    "answer",
    [b"content-length: 9\r\n\r\n{", b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n", b"transfer-encoding: chunked\r\n\r\n9\r\n{"],
)
def test_an_answer_that_ends_in_its_midst_was_cut(answer):
    """Something answered there: nobody has to be told to start a server."""

    def cut(client):
        client.recv(65536)
        client.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n" + answer)

    with (
        accepting(cut) as port,
        connect(load(url=f"http://127.0.0.1:{port}")) as engine,
        pytest.raises(EngineUnreachable, match="closed the connection"),
    ):
        engine.request("PUT", "/index")


@pytest.mark.parametrize("answer", [*NOT_FOUND, *OTHERS])
def test_a_server_of_something_else_is_called_that(scripted, answer):
    scripted.answers["*"] = answer
    with connect(load(url=scripted.url)) as engine:
        for ask in (Index.open, listing.list_generations, generations.live):
            with pytest.raises(NotOpenSearch, match=f"{scripted.url} is not an OpenSearch") as caught:
                ask(engine, "docs")
            assert caught.value.hint == "Check the address."


def test_half_a_character_of_an_answer_is_one_that_can_be_written(scripted):
    scripted.answers["*"] = (200, b'{"text": "half \\ud83d, whole \\ud83d\\ude00", "count": 3}')
    with connect(load(url=scripted.url)) as engine:
        assert engine.request("GET", "/index/_doc/1") == {"text": "half \ufffd, whole \U0001f600", "count": 3}


def test_a_hostile_error_page_is_read_in_no_time(scripted):
    """A search for the end of each title would take minutes."""
    scripted.answers["*"] = (400, b"<title>" * 1_000_000)
    began = time.perf_counter()
    with connect(load(url=scripted.url)) as engine, pytest.raises(EngineResponseError) as caught:
        engine.request("PUT", "/index")
    assert time.perf_counter() - began < 10
    assert caught.value.reason.startswith("<title><title>")
    assert len(caught.value.reason) == 200


@pytest.mark.parametrize("elastic", [False, True])
@pytest.mark.parametrize(
    ("url", "message"),
    [("http://no-such-host.invalid:9200", "is not known"), ("http://127.0.0.1:9", "No OpenSearch answers at http://127.0.0.1:9")],
)
def test_an_address_without_a_server_is_named(url, message, elastic):
    with connect(load(url=url)) as engine:
        if elastic:
            pytest.importorskip("elasticsearch")
            engine.use_elasticsearch()
        with pytest.raises(EngineUnreachable, match=message):
            engine.request("PUT", "/index")
