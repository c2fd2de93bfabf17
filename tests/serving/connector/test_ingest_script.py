"""The script of the ingest pipeline of `termweave connect --documents`: text and id of documents are those of `termweave enrich`."""

from dataclasses import asdict

import orjson
import pytest

from termweave.catalog.lineage import Lineage
from termweave.catalog.source_fields import Fields
from termweave.corpora.formats.fields import Mapper
from termweave.corpora.index.entries import entry_of
from termweave.corpora.sources import Reading
from termweave.serving.connector.registrations import ConnectOptions, DocumentEncoding, IndexConnection

#: Fields that `enrich` was told -> documents.
CASES = {
    Fields(): [
        {"title": "A title", "text": "words"},
        {"title": "A title", "content": "words"},
        {"body": "words"},
        {"contents": "taken", "body": "not taken", "content": "not taken"},
        {"title": "only"},
        {"title": "A title", "text": None, "body": "not taken"},
        {"title": "\u00a0 ", "text": "blank title"},
        {"title": ["one", "two"], "text": ["a", ["b", None, "", 7], True, 2.5]},
        {"title": 1984, "text": " \t\x85"},
    ],
    Fields(title="name"): [{"name": "N", "title": "no title, but metadata", "content": "words"}],
    Fields(text=("title",)): [{"title": "once", "text": "not read"}],
    Fields(title="body"): [{"body": "a title", "content": "words"}],
    Fields(text=("one", "two")): [
        {"title": "T", "two": ["b", "c"], "one": "a"},
        {"two": "b", "text": "no"},
        {"one": " ", "two": "b"},
    ],
}


def simulated(engine, fields, documents, written=(), prefix=""):
    """What the script makes of documents, by default in an index that an earlier version enriched."""
    source = {"name": "", "fingerprint": "", "enriched": " ".join(written), "fields": orjson.dumps(asdict(fields)).decode()}
    made = Lineage(name="docs", created="", termweave="", source=source, fingerprint="", signals={}, models={})
    encoding = DocumentEncoding(made.application_fields, {}, written, prefix)
    usual = {"name": "docs", "options": ConnectOptions(address=""), "models": {}, "weights": {}, "text_fields": []}
    connection = IndexConnection(**usual, documents=encoding)
    script, *_ = connection.ingest_body({})["processors"]
    docs = [{"_id": str(number), "_source": document} for number, document in enumerate(documents)]
    answer = engine.request("POST", "/_ingest/pipeline/_simulate", body={"pipeline": {"processors": [script]}, "docs": docs})
    return [each["doc"]["_source"] for each in answer["docs"]]


@pytest.mark.parametrize("fields", CASES, ids=str)
def test_the_text_is_that_of_enrich(opensearch_engine, fields):
    for document, found in zip(CASES[fields], simulated(opensearch_engine, fields, CASES[fields]), strict=True):
        entry = entry_of({"_id": "1", "_source": document}, Reading(fields=fields))
        assert found.get("termweave_text", "") == Mapper(fields).document(entry, 1).content, document


def test_what_enrich_cannot_read_gets_no_text(opensearch_engine):
    made = simulated(opensearch_engine, Fields(), [{"title": "T", "text": [{"inner": "x"}]}])
    assert made == [{"title": "T", "text": [{"inner": "x"}], "id": "0"}]


def test_numbers_of_an_earlier_encoding_go_and_the_id_is_written(opensearch_engine):
    stale = {"id": "another", "text": "new", "weights": {"old": 1.0}, "vector_fp16": "AAA=", "source_digest": 1}
    (made,) = simulated(opensearch_engine, Fields(), [stale], ["id", "weights", "vector_fp16", "source_digest"])
    assert made == {"id": "0", "text": "new", "termweave_text": "new"}
    (kept,) = simulated(opensearch_engine, Fields(), [{"id": "its own", "text": "x"}], ["weights"])
    assert kept["id"] == "its own"
    stale = {"id": 7, "text": "new", "termweave": {"id": "another", "weights": {"old": 1.0}}}
    (made,) = simulated(opensearch_engine, Fields(), [stale], ["termweave"], "termweave.")
    assert made == {"id": 7, "text": "new", "termweave": {"id": "0"}, "termweave_text": "new"}
