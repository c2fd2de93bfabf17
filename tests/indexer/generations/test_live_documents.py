"""The documents of a live generation are those that were sent, passages joined to their texts."""

from __future__ import annotations

import pytest

from termweave import corpora
from termweave.catalog import generations
from termweave.corpora import open_documents
from termweave.errors import InputError
from termweave.indexer import BuildOptions, build
from termweave.indexer.options import Window
from termweave.indexer.stored_documents import LiveDocuments

SENTENCES = [f"Sentence number {number} speaks of subject{number % 7}." for number in range(40)]
DOCUMENTS = [
    {"id": "short", "title": "A title", "text": "Only a few words.", "year": 1999, "tags": ["a", "b"]},
    {"id": "long", "text": " ".join(SENTENCES), "note": "n" * 40_000},
    {"id": "paragraphs", "text": "\n\n".join(" ".join(SENTENCES[at : at + 8]) for at in range(0, 40, 8))},
    {"id": "odd \u2029 id", "text": "a  b\tc"},
]


def built(engine, name, **options):
    build(engine, open_documents(DOCUMENTS), name, BuildOptions(weights="none", dense="none", **options))
    return LiveDocuments(engine, generations.find_live(engine, name))


def test_documents_come_back_as_they_were(opensearch_engine, name):
    source = built(opensearch_engine, name)
    expected = {each.id: each for each in open_documents(DOCUMENTS).documents()}
    read = {each.id: each for each in source.documents()}
    assert {key: (each.title, each.text, dict(each.metadata)) for key, each in read.items()} == {
        key: (each.title, each.text, dict(each.metadata)) for key, each in expected.items()
    }
    assert source.total == len(DOCUMENTS)


def test_passages_are_joined_to_a_text_that_is_cut_alike(opensearch_engine, name):
    window = Window(40, 30)
    source = built(opensearch_engine, name, passages=window)
    read = {each.id: each.text for each in source.documents()}
    assert read["long"] == " ".join(SENTENCES) or read["long"].split() == " ".join(SENTENCES).split()
    assert len(read) == len(DOCUMENTS)
    again = build(opensearch_engine, source, f"{name}-again", BuildOptions(weights="none", dense="none", passages=window))
    assert again.passages == sum(1 for _ in stored(opensearch_engine, name))


def stored(engine, name):
    engine.request("POST", f"/{name}/_refresh")
    return range(engine.request("GET", f"/{name}/_count")["count"])


def test_the_fingerprint_changes_with_the_documents(opensearch_engine, name):
    source = built(opensearch_engine, name)
    before = source.fingerprint
    assert LiveDocuments(opensearch_engine, generations.find_live(opensearch_engine, name)).fingerprint == before
    index = generations.live(opensearch_engine, name)
    opensearch_engine.request("DELETE", f"/{index}/_doc/short", params={"refresh": True})
    assert LiveDocuments(opensearch_engine, generations.find_live(opensearch_engine, name)).fingerprint != before


def test_a_document_that_another_program_changed_is_refused(opensearch_engine, name):
    source = built(opensearch_engine, name)
    index = generations.live(opensearch_engine, name)
    body = {"doc": {"text": "changed"}}
    opensearch_engine.request("POST", f"/{index}/_update/short", body=body, params={"refresh": True})
    with pytest.raises(InputError, match=r"'short' of .* differs from what was sent"):
        list(source.documents())


def test_its_name_is_that_of_the_corpus(opensearch_engine, name):
    source = built(opensearch_engine, name)
    assert source.name == corpora.open_documents(DOCUMENTS).name
