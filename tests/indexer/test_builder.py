"""Building on a real OpenSearch: names, settings, generations, and who may build."""

from __future__ import annotations

from dataclasses import replace

import pytest

from termweave.errors import EngineError, UsageError
from termweave.indexer import build
from termweave.indexer.generations.publication import publish
from termweave.indexer.ledger import storage
from termweave.indexer.pipeline.pipeline import Pipeline
from termweave.search import Index
from tests.indexer.builds import LEXICAL

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("bad", ["Upper", "-dash", "with space", "a/b", "", "x" * 300, "star*", "_under"])
def test_names_that_cannot_be_are_refused_before_anything_is_read(desk, bad):
    with pytest.raises(UsageError, match="name of an index"):
        build(desk.engine, desk.source(1), bad, LEXICAL)


def test_an_index_or_an_alias_of_somebody_else_is_never_touched_also_one_that_comes_meanwhile(desk):
    """An application that writes to NAME before the alias is there lets the server make an index of that name."""

    def comes(_=None):
        desk.engine.request("PUT", f"/{desk.name}")
        return ""

    comes()
    with pytest.raises(UsageError, match="does not touch it"):
        desk.build(3)
    desk.engine.request("DELETE", f"/{desk.name}")
    with pytest.raises(UsageError, match="does not touch it"):
        desk.build(3, gate=comes)
    desk.engine.request("DELETE", f"/{desk.name}")
    assert desk.build(3).sent == 0  # it was whole, and is published now
    desk.name += "-other"
    desk.engine.request("PUT", f"/{desk.name}-theirs", body={"aliases": {desk.name: {}}})
    with pytest.raises(UsageError, match="was not built by termweave"):
        desk.build(1)


def test_a_second_build_replaces_the_first_in_one_step_and_keeps_it(desk):
    first = desk.build(5)
    index = Index.open(desk.engine, desk.name)
    second = desk.build(7)
    assert desk.live == second.index != first.index
    assert desk.engine.request("GET", f"/{first.index}/_count")["count"] == 5
    assert len(index.search("text", k=10, mode="lexical")) == 7  # an open index follows the alias
    assert index.generation == second.index
    third = desk.build(7)  # in the same second
    assert len({each.index for each in desk.generations}) == 3
    assert all((storage.folder(desk.engine) / f"{each.index}.sqlite").exists() for each in (first, second, third))
    with pytest.raises(EngineError, match="another command pointed"):  # an alias that somebody else moved is left alone
        publish(desk.engine, desk.name, f"{desk.name}-mine", expected=None)


def test_settings_for_loading_are_restored(desk, monkeypatch):
    before, said, run = {}, [], Pipeline.run

    def settings(index):
        found = desk.engine.request("GET", f"/{index}/_settings", params={"flat_settings": True})[index]["settings"]
        return found["index.number_of_replicas"], found.get("index.refresh_interval")

    def look(pipeline, progress):
        before[pipeline.target.index] = settings(pipeline.target.index)
        return run(pipeline, progress)

    monkeypatch.setattr(Pipeline, "run", look)
    built = build(desk.engine.patient(60, said.append), desk.source(3), desk.name, replace(LEXICAL, replicas=1))
    assert before == {built.index: ("0", "-1")}
    assert settings(built.index) == ("1", None)
    missing = "though not all of its replicas are up: documents are lost if a node fails now."  # the cluster has one node
    assert [line.partition(missing)[0] for line in said] == [f"{built.index} is published "]
