"""Copies of a generation, live generations and tuned profiles while a build or an update runs: resumed, refused, deleted, changed meanwhile."""

from functools import partial

import pytest

from termweave.catalog import lineage
from termweave.catalog.profiles import Profile
from termweave.errors import EngineError
from termweave.indexer import BuildOptions
from termweave.indexer.generations import copy as generation_copy
from termweave.indexer.generations import deletion, publication
from termweave.indexer.generations.publication import promote
from termweave.indexer.job import Job
from termweave.search import Index
from tests.indexer.builds import numbered
from tests.indexer.conftest import stopping


def leave_a_copy(desk, source):
    """An update that is stopped when its copy is whole."""
    with stopping(Job, "_verify"), pytest.raises(KeyboardInterrupt):
        desk.update(source, new=True)


def test_a_copy_of_what_was_live_before_or_for_another_source_is_begun_anew(desk):
    desk.build(10)
    leave_a_copy(desk, desk.source(12, name="other.jsonl"))
    updated = desk.update(10, new=True)
    assert (updated.documents, updated.sent, len(desk.generations)) == (10, 0, 2)  # the copy for the other source is gone
    leave_a_copy(desk, 12)
    (unfinished,) = [each.index for each in desk.generations if not each.complete]
    desk.update(12)  # the live one is another now
    assert desk.update(13, new=True).counts.new == 1
    assert unfinished not in {each.index for each in desk.generations}
    desk.clean()


def test_a_default_search_pipeline_hides_no_document_from_the_copy(desk):
    desk.build(10)
    path, hiding = f"/_search/pipeline/{desk.name}", {"filter_query": {"query": {"match_none": {}}}}
    desk.engine.request("PUT", path, body={"request_processors": [hiding]})
    desk.request("PUT", "/_settings", {"index.search.default_pipeline": desk.name})
    try:
        updated = desk.update(12, new=True)
        assert (updated.documents, updated.sent) == (12, 2)
    finally:
        desk.clean()
        desk.engine.request("DELETE", path)


@pytest.mark.parametrize("back", [False, True], ids=["live", "rolled back"])
def test_a_copy_whose_update_died_just_after_publishing_it_stays(desk, back):
    built = desk.build(10)
    with stopping(publication, "publish", after=True), pytest.raises(KeyboardInterrupt):
        desk.update(12, new=True)
    copy = desk.live
    assert copy != built.index
    if back:
        promote(desk.engine, desk.name, built.index)
    source = desk.source(13)
    assert desk.update(source, new=True).counts.new == (3 if back else 1)
    assert desk.clean(source) == 13
    promote(desk.engine, desk.name, copy)
    assert desk.clean() == 12


@pytest.mark.parametrize("updating", [False, True], ids=["build", "update"])
def test_a_live_generation_deleted_meanwhile_is_replaced_all_the_same(desk, updating):
    first = desk.build(5)

    def gate(_):
        desk.engine.request("DELETE", f"/{first.index}")

    desk.update(7, new=True, gate=gate) if updating else desk.build(7, gate=gate)
    assert desk.check().ok
    stored = lineage.read_lineage(desk.engine, desk.live)
    assert (stored.documents, stored.complete) == (7, True)


def test_an_update_in_place_of_what_is_not_live_any_more_says_so(desk):
    older, newer = desk.build(5), desk.build(6)
    progress = when_indexing(lambda: promote(desk.engine, desk.name, older.index))
    with pytest.raises(EngineError, match=f"was updated, and is not live: .*{older.index}") as moved:
        desk.update(8, progress=progress)
    assert moved.value.hint == f"'termweave promote {desk.name} {newer.index}' publishes it."
    assert desk.live == older.index
    promote(desk.engine, desk.name, newer.index)
    assert desk.check().ok
    assert lineage.read_lineage(desk.engine, newer.index).documents == 8


@pytest.mark.parametrize("then", ["update", "cancel", "remove"])
def test_what_the_engine_still_copies_for_a_client_that_died(desk, monkeypatch, then):
    """It would bring back what the next update deletes, and an index that was deleted."""
    built, engine, tasks = desk.build(60), desk.engine, []
    source, request = desk.source(40), type(engine).request

    def slow(engine, method, path, **options):
        reindex_task = path == "/_reindex" and "params" in options  # not the question whether there is a _reindex
        if reindex_task and not tasks:
            options["params"] = {**options["params"], "requests_per_second": 20}
        answer = request(engine, method, path, **options)
        if reindex_task:
            tasks.append(answer["task"])
        return answer

    def die(stage, *_):
        if stage == "Copying":
            raise KeyboardInterrupt

    monkeypatch.setattr(generation_copy, "_STEP", 10)
    monkeypatch.setattr(type(engine), "request", slow)
    with pytest.raises(KeyboardInterrupt):
        desk.update(source, new=True, progress=die)
    assert not engine.request("GET", f"/_tasks/{tasks[0]}")["completed"]
    (copy,) = [each.index for each in desk.generations if not each.complete]
    if then == "remove":
        deletion.remove_generation(engine, copy)
        assert engine.request("GET", f"/_tasks/{tasks[0]}")["completed"]
        assert not engine.request("HEAD", f"/{copy}")
    elif then == "cancel":
        cancel = partial(engine.request, "POST", f"/_tasks/{tasks[0]}/_cancel")
        with pytest.raises(EngineError, match=f"could not copy {built.index}: by user request"):
            desk.update(source, new=True, progress=lambda stage, *_: cancel() if stage == "Copying" else None)
    updated = desk.update(source, new=True, delete=True)
    assert len(tasks) == (1 if then == "update" else 2)
    assert engine.request("GET", f"/_tasks/{tasks[0]}")["completed"]
    assert (updated.documents, updated.deleted) == (40, 20)
    assert desk.check().ok


def tune(desk, profile="tuned"):
    """As `termweave tune` does when it has found something."""
    desk.open().adopt(Profile(profile, {"lexical": 1.0}, "adaptive", None))


def when_indexing(call):
    """A progress that calls, once, in the middle of the work."""
    waiting = [call]

    def progress(stage, *_):
        if stage == "Indexing" and waiting:
            waiting.pop()()

    return progress


def of_live(desk):
    stored = desk.open().lineage
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
        desk.run("profiles", "--drop", "older")

    run(6, meanwhile)
    assert of_live(desk) == (["tuned"], "tuned")
    assert desk.open().lineage.documents == 6
    run(7, lambda: desk.run("profiles", "--drop", "tuned"))
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
    desk.open().adopt(profile)
    for votes, lost in (("many", ["boost@votes:0.2"]), ("some", [])):
        built = desk.build([{**documents[0], "votes": votes, "price": 2.5}, *documents[1:]])  # 2.5 and 2 are both numbers
        said = [each.partition(":0.2: ")[0] for each in built.warnings if "goes on without" in each]
        assert said == [f"The profile 'shop' goes on without {each.partition(':')[0]}" for each in lost]
        index = desk.open()
        ids = [hit.id for hit in index.search("text")]
        assert (ids[0], sorted(ids)) == ("d3", ["d1", "d2", "d3", "d4"])
        assert index.lineage.profiles["shop"]["rules"] == ["boost@price:0.1"]
