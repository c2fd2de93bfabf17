"""Plans: what they count, what they warn of, that they write nothing, and that an index weighs what they say."""

from dataclasses import replace
from functools import partial
from itertools import islice

import pytest

from termweave import corpora
from termweave.catalog import generations, statistics_store
from termweave.cli import run
from termweave.indexer import BuildOptions, build
from termweave.indexer.options import Window
from termweave.indexer.preparation import corpus_pass, estimate
from termweave.support import paths
from tests.indexer.builds import LEXICAL, numbered


@pytest.fixture
def corpus(corpus):
    """Write documents as JSON lines and open them as a plan does."""
    return partial(corpus, skip_bad=True)


def test_what_would_go_wrong_is_said_before(opensearch_engine, corpus):
    french = "Le chat mange la souris dans la maison que nous avons louée pour nos vacances " * 4
    foreign = ("重庆是中国西南部的一个直辖市。" * 5, "Москва является столицей России", french)
    documents = [
        *numbered(6),
        {"_id": "d1", "text": "other content"},
        b'{"_id": "broken',
        {"_id": "dots", "text": "see os.path for that"},
        {"_id": "long", "text": "the words of a long text " * 200},
        *({"_id": str(len(text)), "text": text} for text in foreign),
        {"_id": "none", "text": ""},
    ]
    found = estimate.estimate_build(corpus(documents), opensearch_engine.capabilities, BuildOptions())
    assert (found.documents, found.passages, found.exact) == (12, 12, True)
    said = "\n".join(found.warnings)
    for part in (
        "'d1' (line 7; line 2 is kept). Without --skip-bad the build stops with an error", "8% of the documents are longer than the 256 word-pieces",
        "knows the language of corpus.jsonl only in part", "1 document without any text", "line 8",
    ):  # fmt: skip
        assert part in said, part
    assert found.encode_seconds > 0
    plain = estimate.estimate_build(corpus(numbered(6)), opensearch_engine.capabilities, LEXICAL, ["one two three", "four"])
    assert plain.warnings == ()
    assert (plain.clauses.mean, plain.clauses.most, plain.clauses.of) == (2.0, 3, "queries")


def test_a_part_of_a_large_source_is_extrapolated(opensearch_engine, corpus, monkeypatch):
    monkeypatch.setattr(estimate, "_READ", 15_000)
    found = estimate.estimate_build(corpus(numbered(30_000)), opensearch_engine.capabilities, LEXICAL)
    assert not found.exact
    assert found.documents == pytest.approx(30_000, rel=0.2)


@pytest.mark.parametrize("options", [LEXICAL, replace(LEXICAL, passages=Window(160, 120))], ids=["whole", "passages"])
def test_a_plan_writes_nothing_and_counts_and_weighs_what_is_built(opensearch_engine, name, shared, own_places, options):
    source, before = corpora.open_source(shared / "data" / "cranfield"), set((own_places / "state").rglob("*"))
    found = estimate.estimate_build(source, opensearch_engine.capabilities, options)  # it has no server to write to
    assert set((own_places / "state").rglob("*")) == before
    built = build(opensearch_engine, source, name, options)
    assert (found.documents, found.passages) == (built.documents, built.passages)
    shards = opensearch_engine.request("GET", f"/{built.index}/_segments")["indices"][built.index]["shards"]
    weighed = sum(segment["size_in_bytes"] for copies in shards.values() for segment in copies[0]["segments"].values())
    assert found.index_bytes == pytest.approx(weighed, rel=0.35)


def test_statistics_that_have_drifted_are_said_before_an_update(
    opensearch_engine, name, corpus, shared, tmp_path, capsys, monkeypatch
):
    """Titles of real collections: the same one and another one against what is live."""
    titles = {}
    for each in ("cranfield", "nfcorpus"):
        documents = islice(corpora.open_source(shared / "data" / each).documents(), 700)
        titles[each] = [{"_id": document.id, "text": document.title} for document in documents]
    options = BuildOptions(weights="bm25-german", dense="none", signals=("weights",))  # statistics without a graph
    built = build(opensearch_engine, corpus(titles["cranfield"]), name, options)
    live = corpus_pass.live_statistics(opensearch_engine, generations.find_live(opensearch_engine, name))

    def said(documents, options=options):
        found = estimate.estimate_build(corpus(documents), opensearch_engine.capabilities, options, live=live)
        return [warning for warning in found.warnings if "drifted" in warning]

    assert said(titles["cranfield"]) == []
    (whole,) = said(titles["nfcorpus"])
    assert built.index in whole
    assert said(titles["nfcorpus"], replace(options, passages=Window(20, 15))) == []  # an update keeps the passages
    monkeypatch.setattr(estimate, "_READ", 400)
    assert "its first 400 documents" in said(titles["nfcorpus"])[0]
    assert said(titles["cranfield"]) == []
    corpus(titles["nfcorpus"])
    arguments = ["index", str(tmp_path / "corpus.jsonl"), name, "--plan", "--weights", "bm25-german", "--dense", "none"]
    for remark in ("drifted", "The statistics of the live generation are not compared"):
        assert run([*arguments, "--url", opensearch_engine.url]) == 0
        assert remark in capsys.readouterr().err
        opensearch_engine.request("DELETE", f"/{statistics_store.companion(built.index)}", params={"ignore_unavailable": True})
        (paths.cache() / "statistics" / f"{live[1].hash}.bin").unlink(missing_ok=True)
