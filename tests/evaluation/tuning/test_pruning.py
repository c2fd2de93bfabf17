"""`tune --prune`: the strongest rule that keeps a share of nDCG@10, found on one half of the queries and measured on the other."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import orjson
import pytest

from termweave import corpora
from termweave.cli import run
from termweave.errors import InputError, UsageError
from termweave.evaluation.tuning.pruning import JudgedList, choose_rule, find, mean_ndcg
from termweave.indexer import BuildOptions, build
from termweave.search import Index
from termweave.signals import Pruning

SCHEMA = Path(__file__).parents[3] / "docs" / "schemas" / "tune-prune.1.json"

#: The relevant document is best by its light word; without it the other one is.
NEEDS_LIGHT = JudgedList({"a": 2.0, "b": 2.0}, {"right": {"a": 100, "b": 40}, "wrong": {"a": 120, "c": 200}}, {"right": 1})


def test_scores_are_best_first_and_a_document_keeps_its_largest_impact():
    assert NEEDS_LIGHT.scores(0.0) == {"right": 280.0, "wrong": 240.0}
    assert list(NEEDS_LIGHT.scores(0.0)) == ["right", "wrong"]
    assert list(NEEDS_LIGHT.scores(41.0)) == ["wrong", "right"]
    assert NEEDS_LIGHT.scores(250.0) == {"right": 200.0}  # "wrong" keeps c alone, which was not asked


def test_the_strongest_rule_that_keeps_the_share_is_chosen():
    # .14 and .16 of 255 are 35.7 and 40.8: the light impact of 40 is lost from .16 on.
    report = choose_rule("set", [NEEDS_LIGHT] * 3, [NEEDS_LIGHT], 0.99, 255, [np.array([200.0, 40.0, 30.0])])
    assert (report.rule, report.kept, report.ndcg) == ("0.14", 1.0, 1.0)
    assert report.postings == pytest.approx(2 / 3)
    # Where half of nDCG may be lost, further steps are allowed: the relevant document is second, which keeps 1 / log2(3) = .63.
    assert choose_rule("set", [NEEDS_LIGHT], [NEEDS_LIGHT], 0.6, 255, []).rule == "0.5"
    assert choose_rule("set", [NEEDS_LIGHT], [NEEDS_LIGHT], 0.7, 255, []).rule == "0.14"


def test_where_nothing_relevant_is_found_no_rule_is_chosen():
    """Every rule keeps all of nothing: the strongest would be advised."""
    nothing = JudgedList({"a": 1.0}, {"wrong": {"a": 200}}, {"right": 1})
    for halves in (([nothing], [NEEDS_LIGHT]), ([NEEDS_LIGHT], [nothing])):
        with pytest.raises(InputError, match="rank no relevant document of set"):
            choose_rule("set", *halves, 0.99, 255, [])


def test_a_rule_behind_one_that_fails_is_not_chosen():
    recovers = JudgedList(
        {"a": 1.0, "b": 1.0}, {"right": {"a": 200, "z": 255}, "wrong": {"a": 170, "b": 60, "y": 255}}, {"right": 1}
    )
    assert mean_ndcg([recovers], 0.0) < 1.0
    assert mean_ndcg([recovers], 61.0) == 1.0
    mixed = [recovers, NEEDS_LIGHT, NEEDS_LIGHT]
    assert choose_rule("set", mixed, mixed, 0.95, 255, []).rule == "0.14"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Sixty questions of the demo corpus, their judged entries and some others."""
    root = tmp_path_factory.mktemp("part")
    demo = corpora.open_dataset("demo")
    qrels, queries = demo.qrels(), demo.queries()[:60]
    wanted = {document for query in queries for document in qrels[query.id]}
    kept = [each for number, each in enumerate(demo.documents()) if each.id in wanted or number % 60 == 0]
    (root / "corpus.jsonl").write_bytes(
        b"\n".join(orjson.dumps({"_id": each.id, "title": each.title, "text": each.text}) for each in kept)
    )
    (root / "queries.jsonl").write_bytes(b"\n".join(orjson.dumps({"_id": each.id, "text": each.text}) for each in queries))
    (root / "qrels").mkdir()
    judged = [f"{each.id}\t{document}\t{grade}" for each in queries for document, grade in qrels[each.id].items()]
    (root / "qrels" / "test.tsv").write_text("\n".join(judged) + "\n")
    return root


@pytest.mark.engine
def test_a_rule_is_found_printed_and_keeps_what_it_says(opensearch_engine, folder, capsys):
    engine, name = opensearch_engine, "test-pruning"
    try:
        build(engine, corpora.open_source(folder), name, BuildOptions(dense="none"))
        dataset = corpora.open_dataset(folder)
        report = find(Index.open(engine, name), dataset, target=0.9)
        assert report.fitted + report.held_out == 60
        assert 0 < report.postings < 1
        assert find(Index.open(engine, name), dataset, target=0.9) == report
        arguments = ["tune", name, str(folder), "--url", engine.url, "--prune"]
        assert run([*arguments, "90%", "--json"]) == 0
        data = json.loads(capsys.readouterr().out)
        jsonschema.validate(data, json.loads(SCHEMA.read_text()))
        assert data["rule"] == report.rule
        assert run([*arguments, "90%"]) == 0
        assert f"--prune {report.rule} keeps" in capsys.readouterr().out
        assert run([*arguments, "90"]) == UsageError.exit_status
        assert "'90' is not a percentage." in capsys.readouterr().err

        # An index that is built with the rule has as many impacts as it says, and is not measured again.
        whole = engine.request("POST", f"/{name}/_search", body=TERMS)["aggregations"]["sum"]["value"]
        build(engine, corpora.open_source(folder), name, BuildOptions(dense="none", prune=Pruning.parse(report.rule)))
        left = engine.request("POST", f"/{name}/_search", body=TERMS)["aggregations"]["sum"]["value"]
        assert left / whole == pytest.approx(report.postings, abs=0.05)
        with pytest.raises(UsageError, match="was built with prune"):
            find(Index.open(engine, name), dataset)
    finally:
        engine.request("DELETE", f"/{name}*", params={"expand_wildcards": "all"})


TERMS = {"size": 0, "aggs": {"sum": {"sum": {"field": "weights_terms"}}}}


@pytest.mark.engine
def test_an_index_without_term_weights_has_nothing_to_prune(opensearch_engine, folder):
    engine, name = opensearch_engine, "test-pruning-lexical"
    try:
        build(engine, corpora.open_source(folder), name, BuildOptions(signals=("lexical",)))
        with pytest.raises(UsageError, match="has no term weights to prune"):
            find(Index.open(engine, name), corpora.open_dataset(folder))
    finally:
        engine.request("DELETE", f"/{name}*", params={"expand_wildcards": "all"})


@pytest.mark.parametrize("other", [("--measure", "MRR@10"), ("--rerank", "rnn"), ("--profile", "mine")])
def test_options_that_mean_nothing_with_prune_are_refused(capsys, other):
    assert run(["tune", "docs", "judged", "--prune", "99%", *other]) == 2
    assert "leave --measure, --profile, --rerank" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("share", ["0%", "99", "101%", "nan%", "most"])
def test_what_is_no_share_to_keep_is_refused(capsys, share):
    assert run(["tune", "docs", "judged", "--prune", share]) == 2
    assert share in capsys.readouterr().err
