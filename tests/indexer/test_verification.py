"""What is stored, on a real OpenSearch: missing, extra and altered documents are named, and the documents can be read as a source."""

from dataclasses import replace

import pytest

from termweave.catalog import generations, statistics_store
from termweave.corpora import open_documents
from termweave.errors import InputError, TermweaveError, VerificationFailed
from termweave.indexer import BuildOptions, verify, verify_against_source
from termweave.indexer.generations import index_setup
from termweave.indexer.ledger import storage
from termweave.indexer.options import Window
from termweave.indexer.stored_documents import LiveDocuments
from tests.indexer.builds import LEXICAL, numbered, write
from tests.indexer.conftest import before


def test_verification_names_what_is_missing_extra_and_altered(desk):
    source = desk.source(50)
    built = desk.build(source, BuildOptions(dense="none"))
    assert desk.check().ok
    desk.request("DELETE", "/_doc/d7")
    stored = desk.request("GET", "/_doc/d8")["_source"]
    desk.request("PUT", "/_doc/stranger", {**stored, "id": "stranger"})
    desk.request("PUT", "/_doc/d9", {**stored, "id": "d9"})
    difference = desk.check(deep=False)
    assert (difference.missing, difference.extra, difference.altered, difference.ok) == (["d7"], ["stranger"], ["d9"], False)
    against = verify_against_source(desk.engine, built.index, source)
    assert (against.missing, against.extra, against.altered) == (["d7"], ["stranger"], ["d9"])


def test_one_flipped_value_in_one_document_is_found_by_reading_back(desk):
    declared = {"properties": {"year": {"type": "integer"}, "month": {"type": "integer"}}}
    desk.build([{**each, "year": 2020} for each in numbered(20)], BuildOptions(mapping=declared))
    for number, change in enumerate(({"doc": {"year": 2021}}, {"doc": {"month": 5}}, {"script": "ctx._source.remove('year')"})):
        desk.request("POST", f"/_update/d{number}", change)
    stored = {number: desk.request("GET", f"/_doc/d{number}")["_source"] for number in range(3, 8)}
    stored[3]["weights"][next(iter(stored[3]["weights"]))] += 1
    stored[4]["vector"][5] += 1e-6
    stored[5]["vector_fp16"] = stored[5]["vector_fp16"][:-4] + "AAA="
    stored[6]["text"] += "!"
    stored[7]["title"] += "!"
    for number, flipped in stored.items():
        desk.request("PUT", f"/_doc/d{number}", flipped)
    assert desk.check(deep=False).ok  # the digests beside them are as they were
    assert desk.check(deep=True).altered == [f"d{number}" for number in range(8)]


#: Values that termweave never writes.
STRANGE = (
    {"id": ["d8", "d9"]},
    {"id": 8},
    {"text": ["one", "two"]},
    {"title": 7},
    {"passage": 3},
    {"passage": [1, 2], "passage_start": None, "passage_end": []},
    {"weights": [{"tea": 3}]},
    {"vector_fp16": "AAAA"},
    {"source_digest": [1, 2]},
)


def test_a_value_that_termweave_never_writes_is_damage_like_any_other(desk):
    source = desk.source(20)
    index = desk.build(source, BuildOptions()).index
    for number, change in enumerate(STRANGE):
        stored = desk.request("GET", f"/_doc/d{number}")["_source"]
        desk.request("PUT", f"/_doc/d{number}", {**stored, **change})
    for difference in (desk.check(), verify_against_source(desk.engine, index, source, deep=1.0)):
        assert {f"d{number}" for number in range(len(STRANGE))} <= {*difference.altered, *difference.extra}
    desk.update(source, BuildOptions())  # whatever it mends of that, it ends


def test_a_build_that_finds_a_difference_is_not_published(desk):
    def meddle(engine, index, *_):
        engine.request("DELETE", f"/{index}/_doc/d3")

    with before(index_setup, "finish_loading", meddle), pytest.raises(VerificationFailed, match="1 missing"):
        desk.build(10)
    assert desk.live is None
    built = desk.build(10)  # what is missing is sent again, and no more
    assert (built.documents, built.sent) == (10, 1)
    assert desk.check().ok


#: Has statistics, which the weights are based on.
WEIGHTS = BuildOptions(dense="none")


def test_deleted_statistics_are_missed_and_whoever_keeps_a_copy_puts_them_back(desk, monkeypatch, tmp_path):
    source = desk.source(3)
    assert desk.build(source, WEIGHTS, gate=lambda _: "Not today.").missed == "Not today."
    (unpublished,) = desk.generations
    desk.engine.request("DELETE", f"/{statistics_store.companion(unpublished.index)}")
    built = desk.build(source, WEIGHTS)  # goes on with it
    assert built.index == unpublished.index
    assert desk.check().ok
    companion = statistics_store.companion(built.index)
    desk.engine.request("DELETE", f"/{companion}")
    for difference in (desk.check(), verify_against_source(desk.engine, built.index, source)):
        assert (difference.same, difference.ok, difference.lost) == (True, False, companion)
    with monkeypatch.context() as another_host:
        another_host.setattr(statistics_store.paths, "cache", lambda: tmp_path / "elsewhere")
        with pytest.raises(TermweaveError, match="cannot be weighted without them"):
            desk.open().search("x")
    desk.update(source, WEIGHTS)
    assert desk.check().ok


def test_statistics_of_which_a_part_is_missing_are_missed_and_stored_again(desk, monkeypatch):
    monkeypatch.setattr(statistics_store, "_CHUNK", 100)
    source = desk.source(50)
    companion = statistics_store.companion(desk.build(source, WEIGHTS).index)
    assert desk.engine.request("GET", f"/{companion}/_doc/3")["found"]
    for part in (0, 2):
        desk.engine.request("DELETE", f"/{companion}/_doc/{part}", params={"refresh": True})
        assert desk.check().lost == companion
        desk.update(source, WEIGHTS)
        assert desk.check().ok


def test_a_sample_is_read_back(desk):
    built = desk.build(300)
    with storage.existing(desk.engine, built.index) as ledger:
        difference = verify(desk.engine, built.index, ledger, deep=0.1)
    assert difference.ok
    assert 30 <= difference.read <= 40


def test_ids_that_would_play_with_the_terminal_are_quoted(desk):
    strange = ["line\nfeed", "nul\x00", "\x1b[2Jclear"]
    index = desk.build([{"_id": each, "text": "x"} for each in [*strange, "a b", "\u732b"]]).index
    desk.engine.request("POST", f"/{index}/_delete_by_query?refresh=true", body={"query": {"match_all": {}}})
    lines = desk.run("verify", status=VerificationFailed.exit_status).out.splitlines()
    assert sorted(lines[1:]) == sorted(f"  missing: {each}" for each in [*map(repr, strange), "a b", "\u732b"])


def test_verification_reads_documents_that_are_not_ours(desk):
    built = desk.build(3)
    write(desk.engine, built.index, {f"foreign-{number}": {"text": "not ours"} for number in range(1500)})
    difference = desk.check()
    assert (len(difference.extra), difference.missing, difference.altered) == (1500, [], [])


SENTENCES = [f"Sentence number {number} speaks of subject{number % 7}." for number in range(40)]
CORPUS = [
    {"id": "short", "title": "A title", "text": "Only a few words.", "year": 1999, "tags": ["a", "b"]},
    {"id": "long", "text": " ".join(SENTENCES), "note": "n" * 40_000},
    {"id": "paragraphs", "text": "\n\n".join(" ".join(SENTENCES[at : at + 8]) for at in range(0, 40, 8))},
    {"id": "odd \u2029 id", "text": "a  b\tc"},
]


def opened(desk):
    return LiveDocuments(desk.engine, generations.find_live(desk.engine, desk.name))


def test_documents_come_back_as_they_were_and_one_that_another_program_changed_is_refused(desk):
    corpus = open_documents(CORPUS)
    desk.build(corpus, LEXICAL)
    source = opened(desk)
    expected, read = ({each.id: (each.title, each.text, each.metadata) for each in one.documents()} for one in (corpus, source))
    assert read == expected
    assert (source.total, source.name) == (len(CORPUS), corpus.name)
    before = source.fingerprint
    assert opened(desk).fingerprint == before
    desk.request("POST", "/_update/short", {"doc": {"text": "changed"}})
    desk.request("POST", "/_refresh")
    with pytest.raises(InputError, match=r"'short' of .* differs from what was sent"):
        list(source.documents())
    desk.request("DELETE", "/_doc/short")
    assert opened(desk).fingerprint != before


def test_passages_are_joined_to_a_text_that_is_cut_alike(desk):
    options = replace(LEXICAL, passages=Window(40, 30))
    desk.build(open_documents(CORPUS), options)
    source = opened(desk)
    texts = {each.id: each.text for each in source.documents()}
    assert texts["long"].split() == " ".join(SENTENCES).split()
    assert len(texts) == len(CORPUS)
    desk.request("POST", "/_refresh")
    passages = desk.request("GET", "/_count")["count"]
    desk.name += "-again"
    assert desk.build(source, options).passages == passages
