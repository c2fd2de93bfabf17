"""Building on a real OpenSearch: names, settings, generations, and who may build."""

from __future__ import annotations

import os

import pytest

from termweave.catalog.generations import live
from termweave.errors import EngineError, TermweaveError, UsageError
from termweave.indexer import BuildOptions, build
from termweave.indexer.generations.publication import publish
from termweave.indexer.ledger import storage
from termweave.indexer.pipeline.pipeline import Pipeline
from termweave.search import Index
from tests.indexer.builds import LEXICAL, numbered

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("bad", ["Upper", "-dash", "with space", "a/b", "", "x" * 300, "star*", "_under"])
def test_names_that_cannot_be_are_refused_before_anything_is_read(opensearch_engine, corpus, bad):
    with pytest.raises(UsageError, match="name of an index"):
        build(opensearch_engine, corpus(numbered(1)), bad, LEXICAL)


def test_a_concrete_index_is_never_touched(opensearch_engine, name, corpus):
    opensearch_engine.request("PUT", f"/{name}")
    with pytest.raises(UsageError, match="does not touch it"):
        build(opensearch_engine, corpus(numbered(1)), name, LEXICAL)


def test_a_concrete_index_that_comes_to_be_meanwhile_is_not_touched_either(opensearch_engine, name, corpus):
    """An application that writes to NAME before the alias is there lets the server make an index of that name."""
    source = corpus(numbered(3))

    def comes(_):
        opensearch_engine.request("PUT", f"/{name}")
        return ""

    with pytest.raises(UsageError, match="does not touch it"):
        build(opensearch_engine, source, name, LEXICAL, gate=comes)
    opensearch_engine.request("DELETE", f"/{name}")
    assert build(opensearch_engine, source, name, LEXICAL).sent == 0  # it was whole, and is published now


def test_a_second_build_replaces_the_first_in_one_step_and_keeps_it(opensearch_engine, name, corpus):
    first = build(opensearch_engine, corpus(numbered(5)), name, LEXICAL)
    index = Index.open(opensearch_engine, name)
    second = build(opensearch_engine, corpus(numbered(7)), name, LEXICAL)
    assert live(opensearch_engine, name) == second.index != first.index
    assert opensearch_engine.request("GET", f"/{first.index}/_count")["count"] == 5
    assert len(index.search("text", k=10, mode="lexical")) == 7  # an open index follows the alias
    assert index.generation == second.index


def test_an_alias_that_somebody_else_moved_is_left_alone(opensearch_engine, name, corpus):
    build(opensearch_engine, corpus(numbered(2)), name, LEXICAL)
    with pytest.raises(EngineError, match="another command pointed"):
        publish(opensearch_engine, name, f"{name}-mine", expected=None)


@pytest.mark.parametrize("loading", [True, False])
def test_settings_for_loading_are_restored_and_can_be_declined(opensearch_engine, name, corpus, monkeypatch, loading):
    seen, said = {}, []
    run = Pipeline.run

    def look(pipeline, progress):
        seen.update(settings(pipeline.engine, pipeline.target.index))
        return run(pipeline, progress)

    monkeypatch.setattr(Pipeline, "run", look)
    options = BuildOptions(weights="none", dense="none", replicas=1, loading=loading)
    built = build(opensearch_engine.patient(60, said.append), corpus(numbered(3)), name, options)
    wanted = {"index.number_of_replicas": "0", "index.refresh_interval": "-1"} if loading else {"index.number_of_replicas": "1"}
    assert {key: seen.get(key) for key in wanted} == wanted
    after = settings(opensearch_engine, built.index)
    assert after["index.number_of_replicas"] == "1"
    assert "index.refresh_interval" not in after
    missing = "though not all of its replicas are up: documents are lost if a node fails now."  # the cluster has one node
    steps = ["is published"] if loading else ["is filled", "is published"]
    assert [line.startswith(f"{built.index} {step} {missing}") for line, step in zip(said, steps, strict=True)] == [True] * len(
        steps
    )


def settings(engine, index):
    return engine.request("GET", f"/{index}/_settings", params={"flat_settings": True})[index]["settings"]


def test_a_second_build_of_a_name_is_told_of_the_first(opensearch_engine, name, corpus):
    source = corpus(numbered(3))
    with (
        storage.lease(opensearch_engine, name),
        pytest.raises(TermweaveError, match=rf"Another build of '{name}' is running on this host \(process {os.getpid()}"),
    ):
        build(opensearch_engine, source, name, LEXICAL)
    assert build(opensearch_engine, source, name, LEXICAL).documents == 3


def test_two_builds_in_one_second_are_two_generations(opensearch_engine, name, corpus):
    source = corpus(numbered(2))
    made = {build(opensearch_engine, source, name, LEXICAL).index for _ in range(3)}
    assert len(made) == 3
    assert all((storage.folder(opensearch_engine) / f"{index}.sqlite").exists() for index in made)


def test_an_alias_of_somebody_else_is_not_taken_over(opensearch_engine, name, corpus):
    opensearch_engine.request("PUT", f"/{name}-theirs", body={"aliases": {name: {}}})
    with pytest.raises(UsageError, match="was not built by termweave"):
        build(opensearch_engine, corpus(numbered(1)), name, LEXICAL)
