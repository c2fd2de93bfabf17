"""Building on a real OpenSearch: names, settings, generations, vectors of bytes, and builds that were stopped."""

from dataclasses import replace

import pytest

from termweave.catalog.generations import find_live
from termweave.errors import EngineError, UsageError
from termweave.indexer import BuildOptions, build, build_plan
from termweave.indexer.generations import publication
from termweave.indexer.generations.publication import publish
from termweave.indexer.job import Job
from termweave.indexer.ledger import storage
from termweave.indexer.pipeline.pipeline import Pipeline
from termweave.indexer.stored_documents import LiveDocuments
from termweave.learning.preparation import LearningTask, prepare
from termweave.records import Capabilities
from tests.indexer.builds import LEXICAL
from tests.indexer.conftest import before, stopping


def test_an_index_or_an_alias_of_somebody_else_is_never_touched_also_one_that_comes_meanwhile(desk):
    """An application that writes to NAME before the alias is there lets the server make an index of that name."""

    def comes(_=None):
        desk.engine.request("PUT", f"/{desk.name}")
        return ""

    comes()
    with pytest.raises(UsageError, match="does not touch it"):
        desk.build(3)
    for verb in (["rollback"], ["delete", "--yes"]):
        said = f"The index '{desk.name}' was not built by termweave, nor enriched.\nAdd signals to it with 'termweave enrich"
        assert said in desk.run(*verb, status=2).err
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
    index = desk.open()
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


def test_settings_for_loading_are_restored(desk):
    loading, said = {}, []

    def settings(index):
        found = desk.engine.request("GET", f"/{index}/_settings", params={"flat_settings": True})[index]["settings"]
        return found["index.number_of_replicas"], found.get("index.refresh_interval")

    def look(pipeline, _):
        loading[pipeline.target.index] = settings(pipeline.target.index)

    with before(Pipeline, "run", look):
        built = build(desk.engine.patient(60, said.append), desk.source(3), desk.name, replace(LEXICAL, replicas=1))
    assert loading == {built.index: ("0", "-1")}
    assert settings(built.index) == ("1", None)
    missing = "though not all of its replicas are up: documents are lost if a node fails now."  # the cluster has one node
    assert [line.partition(missing)[0] for line in said] == [f"{built.index} is published "]


def test_bytes_rank_as_floats_are_verified_and_explained(desk, tmp_path, shell):
    texts = {"d0": "Rinse the kettle with vinegar.", "d1": "Grind coffee.", "d2": "Keep bread in a bag.", "d3": "Prune roses."}
    scores = {}
    for vectors in ("float", "byte"):
        desk.build(texts, BuildOptions(vectors=vectors))
        index = desk.open()
        scores[vectors] = {hit.id: hit.score for hit in index.search("a clean kettle", mode="dense", k=4)}
    assert list(scores["byte"]) == list(scores["float"])
    assert scores["byte"] == pytest.approx(scores["float"], abs=0.01)
    mapping = desk.request("GET", "/_mapping")[index.generation]["mappings"]
    assert mapping["properties"]["vector"]["data_type"].lower() == "byte"
    assert desk.check().ok
    hit = index.explain("a clean kettle", "d0")
    assert sum(each.share for each in hit.signals.values()) == pytest.approx(hit.score)

    # An update keeps what the generation has, and refuses another value.
    desk.source({**texts, "d4": "Boil water for tea."})
    words = ("index", tmp_path / "corpus.jsonl", desk.name, "--update")
    shell(*words)
    assert desk.check().ok
    assert "--vectors" in shell(*words, "--vectors", "float", status=UsageError.exit_status).err


def test_byte_vectors_are_for_opensearch(corpus):
    elastic = Capabilities("9.2.0", "elasticsearch", knn=True, sparse_vector=True)
    with pytest.raises(UsageError, match="vectors byte needs OpenSearch"):
        build_plan.plan(corpus([{"_id": "d", "text": "x"}]), elastic, BuildOptions(vectors="byte"))


def stopped(desk, source, options=LEXICAL):
    """A build that is stopped when all documents were sent."""
    with stopping(Job, "_verify"), pytest.raises(KeyboardInterrupt):
        desk.build(source, options)


def test_an_unfinished_generation_of_another_source_is_named_until_fresh(desk):
    stopped(desk, 10)
    with pytest.raises(UsageError, match="None of its generations is published"):
        desk.open()
    other = desk.source(12, name="other.jsonl")
    begun = r"unfinished generation.*: source was corpus.jsonl \(.*\) and is other.jsonl \(.{8}\)\."
    with pytest.raises(UsageError, match=begun):
        desk.build(other)
    same = desk.source(10)
    for setting, said in (
        ({"shards": 2}, "shards was 1 and is 2"),
        ({"dense": None}, "signals was lexical and is dense,lexical; dense was none and is .*"),
        ({"skip_bad": True}, "skip_bad, what keep_mapping takes over, or the version of termweave"),
    ):
        with pytest.raises(UsageError, match=rf"with another source, model or setting: {said}"):
            desk.build(same, replace(LEXICAL, **setting))
    assert desk.build(other, replace(LEXICAL, fresh=True)).documents == 12
    assert len(desk.engine.request("GET", f"/{desk.name}-*/_alias")) == 1  # the unfinished one is gone


def test_a_trial_that_was_stopped_blocks_no_build(desk):
    """`learn` builds from the live documents; whoever stops it has no command that would finish the trial generation."""

    def trial():
        return LiveDocuments(desk.engine, find_live(desk.engine, desk.name))

    desk.build(4)
    stopped(desk, trial())
    task = LearningTask(desk.name, "no-such-questions", minutes=1)
    with pytest.raises(UsageError, match="no-such-questions"):  # `learn` goes on with it
        prepare(desk.engine, task)
    (unfinished,) = [each.index for each in desk.generations if not each.complete]
    assert desk.build(5, replace(LEXICAL, fresh=True)).documents == 5
    indices = [each.index for each in desk.generations]
    assert (len(indices), unfinished in indices) == (3, True)  # hours of `learn` are not deleted on the way
    assert desk.build(trial()).documents == 5
    assert unfinished not in [each.index for each in desk.generations]  # it has other documents
    stopped(desk, 6)
    with pytest.raises(UsageError, match="has an unfinished generation"):  # before anything is trained
        prepare(desk.engine, task)


def test_a_generation_that_was_whole_but_not_yet_published_is_published(desk):
    with stopping(publication, "publish"), pytest.raises(KeyboardInterrupt):
        desk.build(10)
    built = desk.build(10)
    assert (built.documents, built.sent, built.index) == (10, 0, desk.live)


def test_a_generation_published_but_not_marked_so_is_never_thrown_away(desk):
    built = desk.build(4)
    with storage.existing(desk.engine, built.index) as ledger:
        ledger.put("state", "building")  # killed between the swap and the note of it
    other = desk.build(desk.source(5, name="other.jsonl"), replace(LEXICAL, fresh=True))
    assert desk.engine.request("GET", f"/{built.index}/_count")["count"] == 4
    assert desk.live == other.index


def test_a_build_that_died_surveying_leaves_nothing_behind(desk):
    index = f"{desk.name}-20200101000000-dead"
    with storage.open_(desk.engine, index) as ledger:
        ledger.put("name", desk.name)
        ledger.put("state", "surveying")
    for each in (index, f"{index}.stats"):
        desk.engine.request("PUT", f"/{each}")
    desk.build(2)
    assert not {index, f"{index}.stats"} & {*desk.engine.request("GET", f"/{desk.name}-*/_alias")}
    assert not (storage.folder(desk.engine) / f"{index}.sqlite").exists()


def test_an_index_deleted_while_it_is_built_is_neither_made_again_nor_published(desk):
    def meddle(pipeline, _):
        pipeline.engine.request("DELETE", f"/{pipeline.target.index}")

    with before(Pipeline, "run", meddle), pytest.raises(EngineError, match="was deleted while it was being built"):
        desk.build(10)
    assert desk.live is None
    assert not [index for index in desk.engine.request("GET", f"/{desk.name}-*/_alias") if not index.endswith(".stats")]
    assert desk.build(10).documents == 10
