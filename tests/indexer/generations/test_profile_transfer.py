"""Tuned profiles while a build or an update runs: what `tune` and `profiles` say meanwhile is what holds afterwards."""

from __future__ import annotations

import pytest

from termweave.catalog.generations import live
from termweave.catalog.lineage import read_lineage, store_lineage
from termweave.catalog.profiles import Profile, without
from termweave.indexer import BuildOptions, UpdateMode, build, update
from termweave.indexer.generations.listing import list_generations
from termweave.search import Index
from tests.indexer.builds import LEXICAL, numbered

pytestmark = pytest.mark.engine


def tune(engine, name, profile="tuned"):
    """As `termweave tune` does when it has found something."""
    Index.open(engine, name).adopt(Profile(profile, {"lexical": 1.0}, "adaptive", None))


def drop(engine, name, profile):
    """As `termweave profiles NAME --drop` does."""
    index = live(engine, name)
    store_lineage(engine, index, without(read_lineage(engine, index), profile))


def when_indexing(call):
    """A progress that calls, once, in the middle of the work."""
    waiting = [call]

    def progress(stage, *_):
        if stage == "Indexing" and waiting:
            waiting.pop()()

    return progress


def of_live(engine, name):
    found = Index.open(engine, name).lineage
    return sorted(found.profiles), found.profile


@pytest.mark.parametrize("new", [False, True], ids=["in place", "new generation"])
def test_an_update_undoes_no_tuning_of_meanwhile(opensearch_engine, name, corpus, new):
    build(opensearch_engine, corpus(numbered(5)), name, LEXICAL)
    tune(opensearch_engine, name, "older")

    def meanwhile():
        tune(opensearch_engine, name)
        drop(opensearch_engine, name, "older")

    update(opensearch_engine, corpus(numbered(6)), name, LEXICAL, mode=UpdateMode(new=new), progress=when_indexing(meanwhile))
    assert of_live(opensearch_engine, name) == (["tuned"], "tuned")
    assert Index.open(opensearch_engine, name).lineage.documents == 6
    update(
        opensearch_engine,
        corpus(numbered(7)),
        name,
        LEXICAL,
        mode=UpdateMode(new=new),
        progress=when_indexing(lambda: drop(opensearch_engine, name, "tuned")),
    )
    assert of_live(opensearch_engine, name) == ([], "")


def test_a_build_takes_the_profiles_of_its_last_moment(opensearch_engine, name, corpus):
    build(opensearch_engine, corpus(numbered(5)), name, LEXICAL)
    tune(opensearch_engine, name, "older")

    def meanwhile():
        tune(opensearch_engine, name)
        drop(opensearch_engine, name, "older")

    built = build(opensearch_engine, corpus(numbered(6)), name, LEXICAL, progress=when_indexing(meanwhile))
    assert live(opensearch_engine, name) == built.index
    assert of_live(opensearch_engine, name) == (["tuned"], "tuned")


def test_a_resumed_build_and_its_gate_know_what_was_tuned_since(opensearch_engine, name, corpus):
    build(opensearch_engine, corpus(numbered(5)), name, LEXICAL)
    source = corpus(numbered(6))
    asked = []

    def no(index):
        asked.append(Index.open(opensearch_engine, index).lineage.profile)
        return "No."

    assert build(opensearch_engine, source, name, LEXICAL, gate=no).missed
    tune(opensearch_engine, name)
    assert build(opensearch_engine, source, name, LEXICAL, gate=no).missed
    assert asked == ["", "tuned"]
    refused = list_generations(opensearch_engine, name)[0]
    assert (refused.complete, refused.missed) == (True, "No.")
    assert read_lineage(opensearch_engine, refused.index).profile == "tuned"  # should somebody promote it
    tune(opensearch_engine, name, "later")
    assert build(opensearch_engine, source, name, LEXICAL).index == refused.index
    assert of_live(opensearch_engine, name) == (["later", "tuned"], "later")


def test_profiles_of_other_signals_are_left_and_named_though_tuned_meanwhile(opensearch_engine, name, corpus):
    source = corpus(numbered(5))
    build(opensearch_engine, source, name, LEXICAL)
    other = BuildOptions(dense="none", signals=("lexical", "learned"))
    built = build(opensearch_engine, source, name, other, progress=when_indexing(lambda: tune(opensearch_engine, name)))
    assert [each for each in built.warnings if "left behind (tuned)" in each]
    assert of_live(opensearch_engine, name) == ([], "")


def test_a_rule_whose_metadata_changed_type_leaves_the_profile_and_no_search_fails(opensearch_engine, name, corpus):
    """One text in a column of numbers makes texts of it: `boost` would refuse every search of the new generation."""
    documents = [each | {"votes": number, "price": 2} for number, each in enumerate(numbered(5))]
    build(opensearch_engine, corpus(documents), name, LEXICAL)
    rules = ["boost@votes:0.2", "boost@price:0.1"]
    rewrite = {"pins": [["text", "d3", "pin"], ["text", "d0", "hide"]]}
    Index.open(opensearch_engine, name).adopt(Profile("shop", {"lexical": 1.0}, "adaptive", None, rules=rules, rewrite=rewrite))
    for votes, lost in (("many", ["boost@votes:0.2"]), ("some", [])):
        changed = [{**documents[0], "votes": votes, "price": 2.5}, *documents[1:]]  # 2.5 and 2 are both numbers
        built = build(opensearch_engine, corpus(changed), name, LEXICAL)
        said = [each.partition(":0.2: ")[0] for each in built.warnings if "goes on without" in each]
        assert said == [f"The profile 'shop' goes on without {each.partition(':')[0]}" for each in lost]
        index = Index.open(opensearch_engine, name)
        found = [hit.id for hit in index.search("text")]
        assert (found[0], sorted(found)) == ("d3", ["d1", "d2", "d3", "d4"])
        assert index.lineage.profiles["shop"]["rules"] == ["boost@price:0.1"]
    build(opensearch_engine, corpus(numbered(5)), name, LEXICAL)
    index = Index.open(opensearch_engine, name)
    assert (index.search("text")[0].id, "rules" in index.lineage.profiles["shop"]) == ("d3", False)
