"""Plans: what they count, what they warn of, that they write nothing, and that an index weighs what they say."""

from __future__ import annotations

import orjson
import pytest

from termweave import corpora
from termweave.indexer import Options, build
from termweave.indexer.forecast import forecast
from termweave.indexer.passages import Window

LEXICAL = Options(weights="none", dense="none")


@pytest.fixture
def corpus(tmp_path):
    """Write documents as JSON lines and open them as a plan does."""

    def write(documents):
        path = tmp_path / "corpus.jsonl"
        path.write_bytes(b"\n".join(each if isinstance(each, bytes) else orjson.dumps(each) for each in documents) + b"\n")
        return corpora.open_source(path, skip_bad=True)

    return write


def numbered(count):
    return [
        {"_id": f"d{number}", "title": f"title {number}", "text": f"some text about the number{number}"}
        for number in range(count)
    ]


@pytest.mark.engine
def test_what_would_go_wrong_is_said_before(opensearch_engine, corpus):
    documents = [
        *numbered(6),
        {"_id": "d1", "text": "other content"},
        b'{"_id": "broken',
        {"_id": "dots", "text": "see os.path for that"},
        {"_id": "long", "text": "the words of a long text " * 200},
        {"_id": "zh", "text": "重庆是中国西南部的一个直辖市。" * 5},
        {"_id": "ru", "text": "Москва является столицей России"},
        {"_id": "fr", "text": "Le chat mange la souris dans la maison que nous avons louée pour nos vacances " * 4},
        {"_id": "none", "text": ""},
    ]
    found = forecast(corpus(documents), opensearch_engine.capabilities, Options())
    assert (found.documents, found.passages, found.exact) == (12, 12, True)
    said = "\n".join(found.warnings)
    for part in (
        "'d1' (line 7; line 2 is kept). Without --skip-bad the build stops there",
        "line 8",
        "8% of the documents are longer than the 256 word-pieces",
        "words with dots",
        "knows corpus.jsonl only in part",
        "1 document without any text",
    ):
        assert part in said, part
    assert found.encode_seconds > 0
    plain = forecast(corpus(numbered(6)), opensearch_engine.capabilities, LEXICAL, ["one two three", "four"])
    assert plain.warnings == ()
    assert (plain.clauses.mean, plain.clauses.most, plain.clauses.of) == (2.0, 3, "queries")


@pytest.mark.engine
def test_a_plan_writes_nothing_and_counts_what_is_built(opensearch_engine, name, corpus, own_places):
    long = [{"_id": f"d{number}", "text": f"Sentence number {number} says something. " * number} for number in range(40)]
    options = Options(weights="none", dense="none", passages=Window(20, 15))
    before = set((own_places / "state").rglob("*"))
    found = forecast(corpus(long), opensearch_engine.capabilities, options)  # it has no server to write to
    assert set((own_places / "state").rglob("*")) == before
    built = build(opensearch_engine, corpus(long), name, options)
    assert (found.documents, found.passages) == (built.documents, built.passages)


@pytest.mark.engine
def test_a_part_of_a_large_source_is_extrapolated(opensearch_engine, corpus):
    found = forecast(corpus(numbered(30_000)), opensearch_engine.capabilities, LEXICAL, most=15_000)
    assert not found.exact
    assert found.documents == pytest.approx(30_000, rel=0.2)


@pytest.mark.engine
def test_an_index_weighs_about_what_its_plan_said(opensearch_engine, name, shared):
    source = corpora.open_source(shared / "data" / "nfcorpus")
    found = forecast(source, opensearch_engine.capabilities, LEXICAL)
    built = build(opensearch_engine, source, name, LEXICAL)
    shards = opensearch_engine.request("GET", f"/{built.index}/_segments")["indices"][built.index]["shards"]
    weighed = sum(segment["size_in_bytes"] for copies in shards.values() for segment in copies[0]["segments"].values())
    assert found.index_bytes == pytest.approx(weighed, rel=0.35)
