"""`index --vectors byte`: the same order and nearly the same scores, verified, kept by updates, refused on Elasticsearch."""

from __future__ import annotations

import json

import pytest

import termweave as tw
from termweave import corpora
from termweave.cli import run
from termweave.errors import UsageError
from termweave.indexer import BuildOptions, build, build_plan
from termweave.indexer.preparation import estimate
from termweave.records import Capabilities
from termweave.search import Index
from tests.indexer.builds import check

TEXTS = (
    "Rinse the kettle with vinegar.",
    "Grind coffee just before brewing.",
    "Keep bread in a paper bag.",
    "Prune roses in March.",
)


@pytest.fixture
def source(tmp_path):
    lines = [json.dumps({"_id": f"d{number}", "text": text}) for number, text in enumerate(TEXTS)]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path / "texts.jsonl"


@pytest.mark.engine
def test_bytes_rank_as_floats_are_verified_and_explained(opensearch_engine, name, source, capsys):
    engine = opensearch_engine
    found = {}
    for vectors in ("float", "byte"):
        build(engine, corpora.open_source(source), name, BuildOptions(vectors=vectors))
        hits = tw.connect(engine.url).index(name).search("a clean kettle", mode="dense", k=4)
        found[vectors] = {hit.id: hit.score for hit in hits}
    assert list(found["byte"]) == list(found["float"])
    assert found["byte"] == pytest.approx(found["float"], abs=0.01)
    index = Index.open(engine, name)
    mapping = engine.request("GET", f"/{index.generation}/_mapping")[index.generation]["mappings"]
    assert mapping["properties"]["vector"]["data_type"].lower() == "byte"
    assert check(engine, name).ok
    hit = index.explain("a clean kettle", "d0")
    assert sum(each.share for each in hit.signals.values()) == pytest.approx(hit.score)

    # An update keeps what the generation has, and refuses another value.
    source.write_text(source.read_text() + json.dumps({"_id": "d4", "text": "Boil water for tea."}) + "\n")
    assert run(["index", str(source), name, "--update", "--url", engine.url]) == 0
    assert check(engine, name).ok
    capsys.readouterr()
    assert run(["index", str(source), name, "--update", "--vectors", "float", "--url", engine.url]) == UsageError.exit_status
    assert "--vectors" in capsys.readouterr().err


@pytest.mark.engine
def test_byte_vectors_are_for_opensearch(opensearch_engine, source):
    opened = corpora.open_source(source)
    elastic = Capabilities("9.2.0", "elasticsearch", knn=True, sparse_vector=True)
    with pytest.raises(UsageError, match="vectors byte is for OpenSearch"):
        build_plan.plan(opened, elastic, BuildOptions(vectors="byte"))


@pytest.mark.engine
def test_the_plan_counts_a_quarter_of_the_bytes(opensearch_engine, source):
    opened = corpora.open_source(source, skip_bad=True)
    sizes = {
        vectors: estimate.estimate_build(opened, opensearch_engine.capabilities, BuildOptions(vectors=vectors)).cache_bytes
        for vectors in ("float", "byte")
    }
    assert sizes["float"] - sizes["byte"] > 3 * 384 * len(TEXTS) * 0.9
