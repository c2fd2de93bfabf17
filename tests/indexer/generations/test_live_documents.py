"""The documents of a live generation are those that were sent, passages joined to their texts."""

from dataclasses import replace

import pytest

from termweave.catalog import generations
from termweave.corpora import open_documents
from termweave.errors import InputError
from termweave.indexer.options import Window
from termweave.indexer.stored_documents import LiveDocuments
from tests.indexer.builds import LEXICAL

SENTENCES = [f"Sentence number {number} speaks of subject{number % 7}." for number in range(40)]
DOCUMENTS = [
    {"id": "short", "title": "A title", "text": "Only a few words.", "year": 1999, "tags": ["a", "b"]},
    {"id": "long", "text": " ".join(SENTENCES), "note": "n" * 40_000},
    {"id": "paragraphs", "text": "\n\n".join(" ".join(SENTENCES[at : at + 8]) for at in range(0, 40, 8))},
    {"id": "odd \u2029 id", "text": "a  b\tc"},
]


@pytest.fixture
def built(desk):
    """A function that builds an index of the documents and opens it as a source."""

    def call(**options):
        desk.build(open_documents(DOCUMENTS), replace(LEXICAL, **options))
        return LiveDocuments(desk.engine, generations.find_live(desk.engine, desk.name))

    return call


def test_documents_come_back_as_they_were_under_the_name_of_their_corpus(built):
    source = built()
    expected, read = ({each.id: each for each in one.documents()} for one in (open_documents(DOCUMENTS), source))
    assert {key: (each.title, each.text, dict(each.metadata)) for key, each in read.items()} == {
        key: (each.title, each.text, dict(each.metadata)) for key, each in expected.items()
    }
    assert (source.total, source.name) == (len(DOCUMENTS), open_documents(DOCUMENTS).name)


def test_passages_are_joined_to_a_text_that_is_cut_alike(desk, built):
    window = Window(40, 30)
    source = built(passages=window)
    texts = {each.id: each.text for each in source.documents()}
    assert texts["long"].split() == " ".join(SENTENCES).split()
    assert len(texts) == len(DOCUMENTS)
    desk.request("POST", "/_refresh")
    passages = desk.request("GET", "/_count")["count"]
    desk.name += "-again"
    assert desk.build(source, replace(LEXICAL, passages=window)).passages == passages


def test_a_document_that_another_program_changed_is_refused_and_one_that_is_gone_changes_the_fingerprint(desk, built):
    def opened():
        return LiveDocuments(desk.engine, generations.find_live(desk.engine, desk.name))

    source = built()
    before = source.fingerprint
    assert opened().fingerprint == before
    desk.request("POST", "/_update/short", {"doc": {"text": "changed"}})
    desk.request("POST", "/_refresh")
    with pytest.raises(InputError, match=r"'short' of .* differs from what was sent"):
        list(source.documents())
    desk.request("DELETE", "/_doc/short")
    assert opened().fingerprint != before
