"""What metadata means, from the command line to the search: odd cells, notations, declared types, and terms that somebody added."""

import json

import pytest

from termweave.cli import run
from termweave.errors import UsageError
from termweave.indexer import BuildOptions
from termweave.records import Document
from termweave.search import Index
from tests.indexer.builds import clean, command

SKUS = ("--id-field", "sku")


@pytest.fixture
def cases(shared):
    if not (folder := shared / "cases").is_dir():
        pytest.skip("the cases stand beside the project and are not here")
    return folder


@pytest.fixture
def build(opensearch_engine, name, capsys):
    """Build with the command, and return what it said."""

    def call(source, *options, status=0):
        assert run(command(source, name, opensearch_engine.url, *options)) == status
        return "".join(capsys.readouterr())

    return call


@pytest.fixture
def found(opensearch_engine, name):
    """A function that searches; returns the ids of the hits, and the remarks."""

    def call(query, **options):
        searched = Index.open(opensearch_engine, name).search(query, k=20, **options)
        return [hit.id for hit in searched], " ".join(searched.remarks)

    return call


def test_an_odd_cell_is_missing_and_the_column_keeps_its_type(cases, build, found):
    said = build(cases / "odd-cell" / "odd.csv", *SKUS)
    assert "'price' has numbers, and 'N/A' (1); 'released' has dates, and 'TBD' (1)." in said
    by_price, _ = found("kettle", sort="price")
    assert by_price == ["p03", "p08", "p05", "p00", "p01", "p09", "p04", "p07", "p02", "p06", "p99"]
    recent, remarks = found("kettle", where="released>=2025")
    assert (set(recent), remarks) == ({"p04", "p05", "p06", "p07", "p09"}, "")
    assert found("kettle", where="price=N/A")[0] == ["p99"]  # it is stored as it was
    assert found("kettle", rerank="boost@price")[0]


def test_dates_in_other_notations_and_times_that_are_declared(opensearch_engine, name, cases, build, found, tmp_path):
    news = cases / "epoch" / "news.jsonl"
    assert "add `--types ms=epoch-milliseconds,sec=epoch-seconds`" in build(news)
    for where in ("de>=2026-11", "rfc>=2026-11", "iso>=2026-11", "de=18.11.2026", "de>17.11.2026", "rfc=2026-11-18"):
        assert found("bridge", where=where) == (["n0"], "")
    for where, passing in (("sec>=2025", 6), ("ms<2027", 0)):
        documents, remarks = found("bridge", where=where)
        assert len(documents) == passing
        assert f"--types {where[:3].strip('<')}=epoch-seconds, or epoch-milliseconds" in remarks
    with pytest.raises(UsageError, match="'2026-11' is not a number") as refused:
        found("bridge", where="sec>=2026-11")
    assert "--types sec=epoch-seconds" in refused.value.hint

    build(news, "--types", "sec=epoch-seconds", "--types", "ms=epoch-milliseconds")
    for where in ("sec>=2026-11", "ms>=2026-11", "sec=1795000000"):
        assert found("bridge", where=where) == (["n0"], "")
    assert clean(opensearch_engine, name) == 6

    later = tmp_path / "later.jsonl"
    later.write_text(json.dumps({"id": "n9", "text": "The bridge is built.", "sec": 1795100000, "ms": "later"}))
    assert "'ms' (1, not dates)" in build(later, "--update")  # an update keeps notations ...
    assert found("bridge", where="sec>=2026-11-19")[0] == ["n9"]
    assert clean(opensearch_engine, name) == 7
    assert "An update cannot change --types" in build(later, "--update", "--types", "sec=number", status=2)
    build(later, "--update", "--types", "sec=epoch-seconds")
    taken = build(news, "--shards", "1")  # ... and so does a rebuild
    assert "--types ms=epoch-milliseconds,sec=epoch-seconds" in taken
    assert found("bridge", where="ms>=2026-11")[0] == ["n0"]


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
