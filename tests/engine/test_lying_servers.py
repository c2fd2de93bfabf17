"""A server that lies: one value of one answer is another. Every command ends in time with a result or a sentence, never in a fault of its own."""

import gc
import json
import os
import random
import threading
import time

import pytest

from termweave import corpora
from termweave.cli import run
from termweave.engine.client.connection import blamed_server
from termweave.engine.client.payloads import LastAnswers
from termweave.indexer import BuildOptions, build
from tests.engine.forwarding import ForwardingProxy

DOCUMENTS = ["a red sofa for two", "a wooden chair", "a lamp that gives warm light", "soft towels of cotton", "a kettle for tea"]
#: What a value becomes.
LIES = [None, True, -1, 10**12, 1.5, "", "x", "9" * 40, [], [None], [[]], {}, {"x": 1}, {"value": "x"}, "../../x", "\u0000"]
COMMANDS = [
    "search NAME light --explain",
    "search NAME light --mode lexical --facet kind --filter kind=a --fields * --sort kind",
    "search NAME light --rerank rnn --mode weights:.5,dense:.5",
    "search NAME --like 2",
    "explain NAME light 2",
    "list",
    "generations NAME",
    "verify NAME",
    "audit NAME",
    "profiles NAME",
    "evaluate NAME SET",
    "index opensearch:NAME-shop NAME-copy --text-field name --dense none --weights none",
    "index SET NAME --update",
    "index SET NAME-new --dense none",
    "enrich NAME-shop --text-field name --dense none",
]
#: Lies told to each command, each in another place: more with $LIES.
LIES_EACH = 3


class LyingProxy(ForwardingProxy):
    """Changes one value of the answers with a number that fits."""

    def __init__(self, url):
        super().__init__(url)
        self.lock, self.count, self.lie, self.told = threading.Lock(), 0, None, ""

    def changed(self, path, content):
        """The content of an answer, with a lie in its turn."""
        with self.lock:
            self.count += 1
            if self.lie is None or self.count != self.lie[0]:
                return content
        try:
            answer = {"answer": json.loads(content)}
        except ValueError:
            return content
        chance = random.Random(self.lie[1])
        holder, key = chance.choice(list(places_in(answer)))
        holder[key] = chance.choice(LIES)
        self.told = f"{path}: {key} = {holder[key]!r}"
        return json.dumps(answer["answer"]).encode()


def places_in(value):
    """Objects and lists in a JSON value, with each key or position in them."""
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places_in(value[key])


@pytest.fixture
def world(opensearch_engine, name, tmp_path, monkeypatch):
    """An index of a data set with a book of changes, one of an application, and a proxy before the server."""
    folder = tmp_path / "set"
    (folder / "qrels").mkdir(parents=True)
    lines = [json.dumps({"_id": str(number), "text": text, "kind": "ab"[number % 2]}) for number, text in enumerate(DOCUMENTS)]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "light"}\n')
    (folder / "qrels" / "test.tsv").write_text("q\t2\t1\n")
    build(opensearch_engine, corpora.open_source(folder), name, BuildOptions())
    for number, text in enumerate(DOCUMENTS):
        opensearch_engine.request("PUT", f"/{name}-shop/_doc/{number}", params={"refresh": True}, body={"name": text})
    monkeypatch.setattr("termweave.engine.client.transports.LARGEST", 10_000_000)
    with LyingProxy(opensearch_engine.url) as proxy:
        yield lambda line: [{"SET": str(folder)}.get(word, word.replace("NAME", name)) for word in line.split()], proxy
    opensearch_engine.request("DELETE", f"/{name}*", params={"ignore_unavailable": True})


@pytest.mark.nightly
@pytest.mark.parametrize("line", COMMANDS)
def test_a_lie_is_a_sentence_about_the_server(line, world, capsys, monkeypatch):
    command, proxy = world
    monkeypatch.setenv("TERMWEAVE_TIMEOUT", "5")
    arguments = [*command(line), "--url", proxy.url]
    proxy.lie = None
    assert run(arguments) in {0, 4}, capsys.readouterr().err
    gc.collect()  # the connections that were lied to before
    assert blamed_server(KeyError("x")) is None  # true answers are never blamed
    answers, faults = proxy.count, []
    capsys.readouterr()
    for number in range(int(os.environ.get("LIES", LIES_EACH))):
        proxy.count, proxy.told, proxy.lie = 0, "", (1 + number % answers, number)
        began = time.monotonic()
        run(arguments)
        said = capsys.readouterr()
        if "A fault in termweave itself" in said.err:
            faults.append(f"{proxy.told}: {said.err.splitlines()[-2]}")
        if time.monotonic() - began > 20:
            faults.append(f"{proxy.told}: took {time.monotonic() - began:.0f} s")
    assert faults == []


@pytest.mark.parametrize(
    ("request_", "answer", "place"),
    [
        ("POST /a/_search", {"hits": None}, "hits is None"),
        ("POST /a/_search", {"took": 1}, "hits is missing"),
        ("POST /a/_search", {"hits": {"total": {"value": "x"}, "hits": []}}, "hits.total.value is 'x'"),
        ("POST /a/_search", {"hits": {"hits": [{"_id": 3}]}}, "hits.hits.0._id is 3"),
        ("POST /a/_search", {"hits": {"hits": [1.5]}}, "hits.hits.0 is 1.5"),
        ("GET /a/_mapping", {"a": {"x": 1}}, "mappings is missing"),
        ("GET /a/_mapping", {"a": {"mappings": {"properties": {"count": {"fields": {"raw": "x"}}}}}}, "count.fields.raw is 'x'"),
        ("GET /a/_count", {"count": -1}, "count is -1"),
        ("POST /a/_search", {"hits": {"hits": [{"_id": "a", "_source": {"count": "many", "hits": 3}}]}}, None),
        ("GET /a/_mapping", {"a": {"mappings": {"properties": {"count": {"type": "keyword"}}}}}, None),
        ("DELETE /_search/point_in_time", {"pits": [{"pit_id": "x", "successful": True}]}, None),
    ],
)
def test_an_exception_is_blamed_on_an_answer_of_another_shape(request_, answer, place):
    answers = LastAnswers()
    answers.add(request_, json.dumps(answer))
    answers.add("GET /", "<html>")
    blamed = answers.blamed(KeyError("hits"), "http://server")
    assert (blamed is None) if place is None else (f"answered {request_} with something" in blamed.message)
    assert place is None or place in blamed.message
    assert answers.blamed(AssertionError(), "http://server") is None  # it does not come of reading an answer


def test_a_command_names_the_server(scripted, capsys):
    gc.collect()  # connections of other tests
    scripted.answers = {"/": (200, {"version": {"number": "3.1.0", "distribution": "opensearch"}}), "*": (200, {"hits": -1})}
    assert run(["audit", "docs", "--url", scripted.url]) == 1
    assert "/_search with something that no OpenSearch sends: hits is -1" in capsys.readouterr().err
