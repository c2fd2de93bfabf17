"""Tuned profiles while a build or an update runs: what `tune` and `profiles` say meanwhile is what holds afterwards."""

from __future__ import annotations

import pytest

from termweave.catalog import lineage
from termweave.catalog.profiles import Profile, without
from termweave.indexer import BuildOptions
from termweave.search import Index
from tests.indexer.builds import numbered

pytestmark = pytest.mark.engine


def tune(desk, profile="tuned"):
    """As `termweave tune` does when it has found something."""
    Index.open(desk.engine, desk.name).adopt(Profile(profile, {"lexical": 1.0}, "adaptive", None))


def drop(desk, profile):
    """As `termweave profiles NAME --drop` does."""
    lineage.store_lineage(desk.engine, desk.live, without(lineage.read_lineage(desk.engine, desk.live), profile))


def when_indexing(call):
    """A progress that calls, once, in the middle of the work."""
    waiting = [call]

    def progress(stage, *_):
        if stage == "Indexing" and waiting:
            waiting.pop()()

    return progress


def of_live(desk):
    stored = Index.open(desk.engine, desk.name).lineage
    return sorted(stored.profiles), stored.profile


@pytest.mark.parametrize("way", ["build", "update in place", "update of a copy"])
def test_no_tuning_of_meanwhile_is_undone(desk, way):
    desk.build(5)
    tune(desk, "older")

    def run(count, meanwhile):
        progress = when_indexing(meanwhile)
        desk.build(count, progress=progress) if way == "build" else desk.update(count, new="copy" in way, progress=progress)

    def meanwhile():
        tune(desk)
        drop(desk, "older")

    run(6, meanwhile)
    assert of_live(desk) == (["tuned"], "tuned")
    assert Index.open(desk.engine, desk.name).lineage.documents == 6
    run(7, lambda: drop(desk, "tuned"))
    assert of_live(desk) == ([], "")


def test_a_resumed_build_and_its_gate_know_what_was_tuned_since(desk):
    desk.build(5)
    source, profiles = desk.source(6), []

    def no(index):
        profiles.append(Index.open(desk.engine, index).lineage.profile)
        return "No."

    assert desk.build(source, gate=no).missed
    tune(desk)
    assert desk.build(source, gate=no).missed
    assert profiles == ["", "tuned"]
    refused = desk.generations[0]
    assert (refused.complete, refused.missed) == (True, "No.")
    assert lineage.read_lineage(desk.engine, refused.index).profile == "tuned"  # should somebody promote it
    tune(desk, "later")
    assert desk.build(source).index == refused.index
    assert of_live(desk) == (["later", "tuned"], "later")


def test_profiles_of_other_signals_are_left_and_named_though_tuned_meanwhile(desk):
    desk.build(5)
    other = BuildOptions(dense="none", signals=("lexical", "learned"))
    built = desk.build(5, other, progress=when_indexing(lambda: tune(desk)))
    assert [each for each in built.warnings if "left behind (tuned)" in each]
    assert of_live(desk) == ([], "")


def test_a_rule_whose_metadata_changed_type_leaves_the_profile_and_no_search_fails(desk):
    """One text in a column of numbers makes texts of it: `boost` would refuse every search of the new generation."""
    documents = [each | {"votes": number, "price": 2} for number, each in enumerate(numbered(5))]
    desk.build(documents)
    rules = ["boost@votes:0.2", "boost@price:0.1"]
    rewrite = {"pins": [["text", "d3", "pin"], ["text", "d0", "hide"]]}
    profile = Profile("shop", {"lexical": 1.0}, "adaptive", None, rules=rules, rewrite=rewrite)
    Index.open(desk.engine, desk.name).adopt(profile)
    for votes, lost in (("many", ["boost@votes:0.2"]), ("some", [])):
        built = desk.build([{**documents[0], "votes": votes, "price": 2.5}, *documents[1:]])  # 2.5 and 2 are both numbers
        said = [each.partition(":0.2: ")[0] for each in built.warnings if "goes on without" in each]
        assert said == [f"The profile 'shop' goes on without {each.partition(':')[0]}" for each in lost]
        index = Index.open(desk.engine, desk.name)
        ids = [hit.id for hit in index.search("text")]
        assert (ids[0], sorted(ids)) == ("d3", ["d1", "d2", "d3", "d4"])
        assert index.lineage.profiles["shop"]["rules"] == ["boost@price:0.1"]
