"""Terms that somebody else gave a document: weighted like its own, searched, verified, and shown nowhere in its text."""

import pytest

from termweave.encoders import load
from termweave.indexer import BuildOptions
from termweave.records import Document
from termweave.search import Index

pytestmark = pytest.mark.engine

DOCUMENTS = [
    {"_id": "terms", "text": "The guitar is tuned from low to high.", "expansion": ["ukulele", "how to tune strings"]},
    {"_id": "text", "title": "Cats", "text": "They sleep all day.", "expansion": "feline purring"},
    {"_id": "none", "title": "Guitars", "text": "Wood and strings."},
    {"_id": "odd", "text": "An entry of this name may hold anything.", "expansion": {"pack": 7}},
]


def test_what_the_encoder_sees():
    seen = {each["_id"]: Document(each["_id"], each["text"], each.get("title", ""), each).content for each in DOCUMENTS}
    assert seen["terms"] == "The guitar is tuned from low to high.\nukulele how to tune strings"
    assert seen["text"] == "Cats. They sleep all day.\nfeline purring"
    assert seen["odd"] == "An entry of this name may hold anything."
    assert Document("alone", "", metadata={"expansion": ["only", 3, "this"]}).content == "only this"


def test_beyond_the_models_sight_they_keep_their_anchor():
    """In a text longer than the model sees, an added term is worth its BM25."""
    encoder = load(dense="none", threads=1)
    text = " ".join(f"word{number}" for number in range(400))
    plain, more = (
        encoder.encode([Document("a", text, metadata=given).content], kind="document")[0].weights.as_dict()
        for given in ({}, {"expansion": "ukulele"})
    )
    assert "ukulel" in more
    assert "ukulel" not in plain
    assert more["ukulel"] == pytest.approx(more["word399"], rel=0.5)  # both unseen, both rare
    assert more["word0"] == pytest.approx(plain["word0"], rel=0.01)  # BM25's length counts the added term


def test_a_document_is_found_by_a_term_that_only_its_expansion_holds(desk):
    source = desk.source(DOCUMENTS)
    desk.build(source, BuildOptions())
    desk.clean(source)
    index = Index.open(desk.engine, desk.name)
    assert index.search("ukulele", mode="lexical") == []
    for mode, word, found in (("weights", "ukulele", "terms"), ("hybrid", "purring", "text")):
        hit = index.search(word, mode=mode, highlight=True, explain=True)[0]
        assert hit.id == found
        assert word not in hit.fields["text"]
        assert hit.highlights == ()
        assert hit.explanation["words"] == []
    hit = index.search("tune guitar", mode="weights", highlight=True, explain=True)[0]
    text = hit.explanation["text"]
    assert (hit.id, text) == ("terms", DOCUMENTS[0]["text"])
    assert {text[each["start"] : each["end"]] for each in hit.explanation["words"]} == {"guitar", "tuned"}
    for each in hit.highlights:
        assert each.text == text[each.start : each.start + len(each.text)]
    source = desk.source([{**DOCUMENTS[0], "expansion": ["banjo"]}, *DOCUMENTS[1:]])
    desk.update(source, BuildOptions())
    desk.clean(source)
    index = Index.open(desk.engine, desk.name)
    assert index.search("ukulele", mode="weights") == []
    assert [hit.id for hit in index.search("banjo", mode="weights")] == ["terms"]
