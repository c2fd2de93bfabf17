"""What happens to the live generation, and to a copy of it, while a build or an update of its name runs."""

from __future__ import annotations

from functools import partial

import pytest

from termweave.catalog import generations
from termweave.catalog.lineage import read_lineage
from termweave.errors import EngineError
from termweave.indexer import UpdateMode, build, update
from termweave.indexer.generations import copy as generation_copy
from termweave.indexer.generations import deletion, listing, publication
from tests.indexer.builds import LEXICAL, check, numbered

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("updating", [False, True], ids=["build", "update"])
def test_a_live_generation_deleted_meanwhile_is_replaced_all_the_same(opensearch_engine, name, corpus, updating):
    first = build(opensearch_engine, corpus(numbered(5)), name, LEXICAL)

    def gate(_):
        opensearch_engine.request("DELETE", f"/{first.index}")

    if updating:
        update(opensearch_engine, corpus(numbered(7)), name, LEXICAL, mode=UpdateMode(new=True), gate=gate)
    else:
        build(opensearch_engine, corpus(numbered(7)), name, LEXICAL, gate=gate)
    assert check(opensearch_engine, name).ok
    made = read_lineage(opensearch_engine, generations.live(opensearch_engine, name))
    assert (made.documents, made.complete) == (7, True)


@pytest.mark.parametrize("back", [True, False], ids=["rolled back", "alias removed"])
def test_an_update_in_place_of_what_is_not_live_any_more_says_so(opensearch_engine, name, corpus, back):
    older = build(opensearch_engine, corpus(numbered(5)), name, LEXICAL)
    newer = build(opensearch_engine, corpus(numbered(6)), name, LEXICAL)
    done = []

    def progress(stage, *_):
        if stage == "Indexing" and not done:
            done.append(stage)
            if back:
                publication.promote(opensearch_engine, name, older.index)
            else:
                opensearch_engine.request("DELETE", f"/{newer.index}/_alias/{name}")

    said = f"was updated, and is not live: .*{older.index}" if back else "somebody removed the alias"
    with pytest.raises(EngineError, match=said) as moved:
        update(opensearch_engine, corpus(numbered(8)), name, LEXICAL, progress=progress)
    assert moved.value.hint == f"'termweave promote {name} {newer.index}' publishes it."
    assert generations.live(opensearch_engine, name) == (older.index if back else None)
    publication.promote(opensearch_engine, name, newer.index)
    assert check(opensearch_engine, name).ok
    assert read_lineage(opensearch_engine, newer.index).documents == 8


@pytest.mark.parametrize("then", ["update", "cancel", "remove"])
def test_what_the_engine_still_copies_for_a_client_that_died(opensearch_engine, name, corpus, monkeypatch, then):
    """It would bring back what the next update deletes, and an index that was deleted."""
    built = build(opensearch_engine, corpus(numbered(60)), name, LEXICAL)
    source, request, tasks = corpus(numbered(40)), type(opensearch_engine).request, []

    def slow(engine, method, path, **given):
        reindex_task = path == "/_reindex" and "params" in given  # not the question whether there is a _reindex
        if reindex_task and not tasks:
            given["params"] = {**given["params"], "requests_per_second": 20}
        answer = request(engine, method, path, **given)
        if reindex_task:
            tasks.append(answer["task"])
        return answer

    def die(stage, *_):
        if stage == "Copying":
            raise KeyboardInterrupt

    monkeypatch.setattr(generation_copy, "_STEP", 10)
    monkeypatch.setattr(type(opensearch_engine), "request", slow)
    with pytest.raises(KeyboardInterrupt):
        update(opensearch_engine, source, name, LEXICAL, mode=UpdateMode(new=True), progress=die)
    assert not opensearch_engine.request("GET", f"/_tasks/{tasks[0]}")["completed"]
    (copy,) = [each.index for each in listing.list_generations(opensearch_engine, name) if not each.complete]
    if then == "remove":
        deletion.remove_generation(opensearch_engine, copy)
        assert opensearch_engine.request("GET", f"/_tasks/{tasks[0]}")["completed"]
        assert not opensearch_engine.request("HEAD", f"/{copy}")
    elif then == "cancel":
        cancel = partial(opensearch_engine.request, "POST", f"/_tasks/{tasks[0]}/_cancel")
        stop_copying = lambda stage, *_: cancel() if stage == "Copying" else None  # noqa: E731
        with pytest.raises(EngineError, match=f"could not copy {built.index}: by user request"):
            update(opensearch_engine, source, name, LEXICAL, mode=UpdateMode(new=True), progress=stop_copying)
    updated = update(opensearch_engine, source, name, LEXICAL, mode=UpdateMode(delete_missing=True, new=True, allow_deletions=1))
    assert len(tasks) == (1 if then == "update" else 2)
    assert opensearch_engine.request("GET", f"/_tasks/{tasks[0]}")["completed"]
    assert (updated.documents, updated.deleted) == (40, 20)
    assert check(opensearch_engine, name).ok
