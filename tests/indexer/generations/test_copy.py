"""Copies of a generation, and live ones while a build or an update runs: left behind, gone on with, refused, deleted, moved meanwhile."""

from __future__ import annotations

from functools import partial

import pytest

from termweave.catalog import lineage
from termweave.errors import EngineError, UsageError
from termweave.indexer.generations import copy as generation_copy
from termweave.indexer.generations import deletion, publication
from termweave.indexer.generations.publication import promote
from termweave.indexer.job import Job
from tests.indexer.conftest import stopping

pytestmark = pytest.mark.engine


def leave_a_copy(desk, source):
    """An update that is stopped when its copy is whole."""
    with stopping(Job, "_verify"), pytest.raises(KeyboardInterrupt):
        desk.update(source, new=True)


def test_a_copy_of_what_was_live_before_is_begun_anew(desk):
    desk.build(10)
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


def test_what_was_sent_of_another_source_is_not_published(desk):
    desk.build(10)
    leave_a_copy(desk, desk.source(12, name="other.jsonl"))
    updated = desk.update(10, new=True)
    assert (updated.documents, updated.sent) == (10, 0)
    assert len(desk.generations) == 2  # the copy of the other source is gone


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


def test_a_copy_that_misses_its_gate_leaves_the_live_generation(desk):
    built = desk.build(5)
    source = desk.source(6)
    assert desk.update(source, new=True, gate=lambda _: "No.").missed == "No."
    assert desk.live == built.index
    refused = desk.generations[0]
    assert (refused.complete, refused.missed, refused.documents) == (True, "No.", 6)
    with pytest.raises(UsageError, match="needs a new generation"):
        desk.update(source, gate=lambda _: "No.")
    assert desk.update(source, new=True).documents == 6
    assert refused in desk.generations  # it is whole: only `prune` removes it


@pytest.mark.parametrize("updating", [False, True], ids=["build", "update"])
def test_a_live_generation_deleted_meanwhile_is_replaced_all_the_same(desk, updating):
    first = desk.build(5)

    def gate(_):
        desk.engine.request("DELETE", f"/{first.index}")

    desk.update(7, new=True, gate=gate) if updating else desk.build(7, gate=gate)
    assert desk.check().ok
    stored = lineage.read_lineage(desk.engine, desk.live)
    assert (stored.documents, stored.complete) == (7, True)


@pytest.mark.parametrize("back", [True, False], ids=["rolled back", "alias removed"])
def test_an_update_in_place_of_what_is_not_live_any_more_says_so(desk, back):
    older, newer = desk.build(5), desk.build(6)
    done = []

    def progress(stage, *_):
        if stage == "Indexing" and not done:
            done.append(stage)
            if back:
                promote(desk.engine, desk.name, older.index)
            else:
                desk.engine.request("DELETE", f"/{newer.index}/_alias/{desk.name}")

    said = f"was updated, and is not live: .*{older.index}" if back else "somebody removed the alias"
    with pytest.raises(EngineError, match=said) as moved:
        desk.update(8, progress=progress)
    assert moved.value.hint == f"'termweave promote {desk.name} {newer.index}' publishes it."
    assert desk.live == (older.index if back else None)
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
