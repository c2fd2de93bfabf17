"""`index --vectors byte`: the same order and nearly the same scores, verified, kept by updates, refused on Elasticsearch."""

from __future__ import annotations

import pytest

from termweave.cli import run
from termweave.errors import UsageError
from termweave.indexer import BuildOptions, build_plan
from termweave.records import Capabilities
from termweave.search import Index

TEXTS = {
    "d0": "Rinse the kettle with vinegar.",
    "d1": "Grind coffee just before brewing.",
    "d2": "Keep bread in a paper bag.",
    "d3": "Prune roses in March.",
}


@pytest.mark.engine
def test_bytes_rank_as_floats_are_verified_and_explained(desk, tmp_path, capsys):
    scores = {}
    for vectors in ("float", "byte"):
        desk.build(TEXTS, BuildOptions(vectors=vectors))
        index = Index.open(desk.engine, desk.name)
        scores[vectors] = {hit.id: hit.score for hit in index.search("a clean kettle", mode="dense", k=4)}
    assert list(scores["byte"]) == list(scores["float"])
    assert scores["byte"] == pytest.approx(scores["float"], abs=0.01)
    mapping = desk.request("GET", "/_mapping")[index.generation]["mappings"]
    assert mapping["properties"]["vector"]["data_type"].lower() == "byte"
    assert desk.check().ok
    hit = index.explain("a clean kettle", "d0")
    assert sum(each.share for each in hit.signals.values()) == pytest.approx(hit.score)

    # An update keeps what the generation has, and refuses another value.
    desk.source({**TEXTS, "d4": "Boil water for tea."})
    words = ["index", str(tmp_path / "corpus.jsonl"), desk.name, "--update", "--url", desk.engine.url]
    assert run(words) == 0
    assert desk.check().ok
    capsys.readouterr()
    assert run([*words, "--vectors", "float"]) == UsageError.exit_status
    assert "--vectors" in capsys.readouterr().err


def test_byte_vectors_are_for_opensearch(corpus):
    elastic = Capabilities("9.2.0", "elasticsearch", knn=True, sparse_vector=True)
    with pytest.raises(UsageError, match="vectors byte needs an OpenSearch"):
        build_plan.plan(corpus([{"_id": "d", "text": "x"}]), elastic, BuildOptions(vectors="byte"))
