"""`train ltr`: trained on what an index finds, served as a reranker, explained, tuned, and refused where it does not fit."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import uuid
from pathlib import Path

import numpy as np
import pytest

import termweave as tw
from termweave import corpora
from termweave.cli import run
from termweave.errors import ModelError, UsageError
from termweave.indexer import BuildOptions, build
from termweave.search import Index
from termweave.search.ranking.feature_ranker import open_feature_ranker
from termweave.training import feature_ranker
from termweave.training.methods.ltr import METHOD

pytest.importorskip("lightgbm")

TOPICS = [f"{first}{last}" for first in ("tim", "jas", "soc", "par", "cac") for last in ("er", "on", "ket", "ide", "um", "ola")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Ten texts on each of thirty topics that differ in votes alone; the two with most votes are relevant."""
    root, draw = tmp_path_factory.mktemp("votes"), random.Random(0)
    lines, rows = [], []
    for topic in TOPICS:
        votes = draw.sample(range(1000), 10)
        for number, count in enumerate(votes):
            text = f"The {topic} module, part {number}."
            lines.append({"_id": f"{topic}-{number}", "text": text, "votes": count, "kind": draw.choice(["old", "new"])})
            rows.append((topic, f"{topic}-{number}", int(count in sorted(votes)[-2:])))
    (root / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (root / "queries.jsonl").write_text("".join(json.dumps({"_id": topic, "text": f"{topic} module"}) + "\n" for topic in TOPICS))
    (root / "qrels").mkdir()
    for split in ("train", "test"):
        (root / "qrels" / f"{split}.tsv").write_text(
            "query-id\tcorpus-id\tscore\n" + "".join(f"{query}\t{document}\t{grade}\n" for query, document, grade in rows)
        )
    return root


@pytest.fixture(scope="module")
def built(opensearch_engine, folder):
    name = f"test-{uuid.uuid4().hex[:10]}"
    build(opensearch_engine, corpora.open_source(folder), name, BuildOptions())
    yield name
    opensearch_engine.request("DELETE", f"/{name}*", params={"expand_wildcards": "all"})


@pytest.fixture(scope="module")
def model(opensearch_engine, folder, built, tmp_path_factory, module_patch):
    """The folder of a trained model, by the command line."""
    module_patch.setenv("OPENSEARCH_URL", opensearch_engine.url)
    out = tmp_path_factory.mktemp("models") / "by-votes"
    assert (
        run(
            [
                "train",
                "ltr",
                str(folder),
                "--out",
                str(out),
                "--set",
                f"candidates_from=index:{built}",
                "--set",
                "steps=60",
                "--quiet",
            ]
        )
        == 0
    )
    return out


@pytest.fixture(scope="module")
def module_patch():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture
def index(opensearch_engine, built, monkeypatch):
    monkeypatch.setenv("OPENSEARCH_URL", opensearch_engine.url)
    return tw.connect(opensearch_engine.url).index(built)


def test_metadata_decide_and_the_explanation_sums(index, folder, model):
    held = {(line := json.loads(each))["_id"]: line["votes"] for each in (folder / "corpus.jsonl").read_text().splitlines()}
    figures = json.loads((model / "termweave.json").read_text())["metrics"]["train"]
    assert figures["start"] < 0.6
    assert figures["dev"] > 0.9
    hits = index.search("socket module", rerank=f"ltr@{model}", k=10, explain=True)
    votes = [held[hit.id] for hit in hits if hit.id.startswith("socket")]
    assert set(votes[:2]) == set(sorted(votes, reverse=True)[:2])
    for hit in hits:
        (part,) = (part for part in hit.explanation["parts"] if part["name"].startswith("ltr@"))
        assert part["base"] + sum(each["share"] for each in part["features"]) == pytest.approx(part["share"], abs=1e-9)
        assert sum(each["share"] for each in hit.explanation["parts"]) == pytest.approx(hit.score, abs=1e-9)
    assert index.explain("socket module", hits[3].id, rerank=f"ltr@{model}").score == pytest.approx(hits[3].score)


def test_pages_hold_every_document_once(index, model):
    whole = [hit.id for hit in index.search("socket module", rerank=f"ltr@{model}", k=200)]
    pages = [
        hit.id for start in range(0, 200, 20) for hit in index.search("socket module", rerank=f"ltr@{model}", k=20, start=start)
    ]
    assert pages == whole
    assert len(set(pages)) == len(pages)


def test_training_sees_what_a_search_sees(opensearch_engine, index, built, folder, model):
    """The features of training, scored by the model, give the order of a search."""
    opened = Index.open(opensearch_engine, built)
    settings = METHOD.settings({"candidates_from": f"index:{built}"})
    mode, _ = opened.choose(None, "none")
    judged = feature_ranker.gather(opened, corpora.open_dataset(f"{folder}:test"), mode, settings, lambda *_: None)
    trees = open_feature_ranker(str(model), "").trees
    assert judged.features == trees.features
    for number in (0, 7):
        scores = trees.scores(judged.rows[number])
        question = f"{judged.questions[number]} module"
        found = {hit.id: hit.score for hit in index.search(question, rerank=f"ltr@{model}", k=len(scores))}
        expected = dict(zip(judged.documents[number], scores.tolist(), strict=True))
        assert found == pytest.approx(expected)


def test_tuning_adopts_it_and_every_search_uses_it(index, folder, model, capsys):
    assert run(["tune", index.name, f"{folder}:test", "--rerank", f"ltr@{model}", "--json"]) == 0
    tuned = json.loads(capsys.readouterr().out)
    assert tuned["adopted"]
    assert tuned["profile"]["ranker"] == {
        "kind": "ltr", "model": "by-votes", "hash": open_feature_ranker(str(model), "").info.hash, "candidates": 100
    }  # fmt: skip
    opened = tw.connect(index.engine.url).index(index.name)
    assert [hit.id for hit in opened.search("parum module")] == [
        hit.id for hit in index.search("parum module", rerank=f"ltr@{model}")
    ]
    assert run(["evaluate", index.name, f"{folder}:test", "--quiet"]) == 0
    assert run(["profiles", index.name, "--drop", "tuned", "--quiet"]) == 0


def test_a_question_that_finds_nothing_has_no_candidates(opensearch_engine, built, folder, tmp_path):
    for name in ("corpus.jsonl", "queries.jsonl"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with (tmp_path / "queries.jsonl").open("a") as file:
        file.write(json.dumps({"_id": "nothing", "text": "zzyzx"}) + "\n")
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "train.tsv").write_bytes(
        (folder / "qrels" / "train.tsv").read_bytes() + f"nothing\t{TOPICS[0]}-1\t1\n".encode()
    )
    opened = Index.open(opensearch_engine, built)
    mode = opened.mode("lexical")
    settings = METHOD.settings({"candidates_from": f"index:{built}"})
    judged = feature_ranker.gather(opened, corpora.open_dataset(f"{tmp_path}:train"), mode, settings, lambda *_: None)
    at = judged.questions.index("nothing")
    assert (len(judged.documents[at]), len(judged.rows[at])) == (0, 0)
    assert len(feature_ranker.cross_validate(judged, settings).values) == len(TOPICS) + 1
    assert "nothing" not in feature_ranker.letor(judged)


def test_noise_gains_nothing(opensearch_engine, built, folder, tmp_path):
    """With judgements by chance, cross-validation shows no gain: nothing of a question leaks into its own fold."""
    draw = random.Random(3)
    (tmp_path / "qrels").mkdir()
    for name in ("corpus.jsonl", "queries.jsonl"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    rows = [f"{topic}\t{topic}-{number}\t{draw.randint(0, 1)}\n" for topic in TOPICS for number in range(10)]
    (tmp_path / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    opened = Index.open(opensearch_engine, built)
    settings = METHOD.settings({"candidates_from": f"index:{built}", "steps": 40})
    mode, _ = opened.choose(None, "none")
    judged = feature_ranker.gather(opened, corpora.open_dataset(f"{tmp_path}:train"), mode, settings, lambda *_: None)
    gain = feature_ranker.cross_validate(judged, settings).values - judged.figures()
    assert gain.mean() < 3 * gain.std() / len(gain) ** 0.5


def test_letor_and_trees_of_others(index, folder, model, tmp_path, capsys):
    out = tmp_path / "parts"
    command = ["train", "ltr", str(folder), "--set", f"candidates_from=index:{index.name}", "--set", "steps=20", "--json"]
    assert run([*command, "--out", str(out), "--set", "outputs=trees,letor"]) == 0
    capsys.readouterr()

    xgboost = pytest.importorskip("xgboost")
    lines = [line for line in (out / "letor.txt").read_text().splitlines() if not line.startswith("#")]
    names = [line.split()[2] for line in (out / "letor.txt").read_text().splitlines() if line.startswith("#")]
    rows = np.full((len(lines), len(names)), np.nan)
    grades, groups = [], []
    for at, line in enumerate(lines):
        grade, group, *values = line.partition(" # ")[0].split()
        grades.append(int(grade))
        groups.append(int(group.removeprefix("qid:")))
        for value in values:
            number, number_value = value.split(":")
            rows[at, int(number) - 1] = float(number_value)
    trained = xgboost.train(
        {"objective": "rank:ndcg", "max_depth": 4, "nthread": 1}, xgboost.DMatrix(rows, grades, qid=groups), num_boost_round=20
    )
    trained.save_model(tmp_path / "theirs.json")
    theirs = tmp_path / "theirs"
    same = ["--set", f"start={tmp_path / 'theirs.json'}"]
    assert run([*command, "--out", str(theirs), *same]) == 0
    assert json.loads(capsys.readouterr().out)["dev"] > 0.9  # measured on what it was trained on
    hits = index.search("cacola module", rerank=f"ltr@{theirs}", k=2)
    assert all(hit.id.startswith("cacola") for hit in hits)
    assert run([*command, "--out", str(tmp_path / "other"), *same, "--set", "metadata=none"]) == 1
    assert "are of" in capsys.readouterr().err


def test_mistakes_are_said_in_a_sentence(index, folder, model, tmp_path, capsys, opensearch_engine):
    def refused(*arguments):
        assert run(["train", "ltr", *map(str, arguments), "--out", str(tmp_path / "out")]) in {1, 2}
        assert not (tmp_path / "out").exists()
        return capsys.readouterr().err

    assert "none is named" in refused(folder)
    assert "index" in refused(folder, "--set", "candidates_from=index:not-there")
    named = ("--set", f"candidates_from=index:{index.name}")
    assert "has no plan" in refused(folder, *named, "--plan")
    assert "no typed metadata entry 'price'" in refused(folder, *named, "--set", "metadata=price")
    assert "cannot be used" in refused(folder, *named, "--set", f"start={folder / 'corpus.jsonl'}")
    few = tmp_path / "few"
    few.mkdir()
    (few / "qrels").mkdir()
    for name in ("corpus.jsonl", "queries.jsonl"):
        (few / name).write_bytes((folder / name).read_bytes())
    (few / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\ntimer\ttimer-1\t1\n")
    assert "needs at least 20" in refused(few, *named)
    with pytest.raises(UsageError, match="no profile in use names one"):
        index.search("timer", rerank="ltr")
    with pytest.raises(UsageError, match="no model folder"):
        index.search("timer", rerank=f"ltr@{tmp_path / 'nothing'}")
    with pytest.raises(UsageError, match="there is one list"):
        index.search("timer", rerank=f"ltr@{model}", server_fusion=True)
    with pytest.raises(ModelError, match="not a feature ranker"):
        index.search("timer", rerank="ltr@shipped")
    with pytest.raises(ModelError, match="no model of that name"):
        open_feature_ranker("by-votes", "0" * 16)
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for file in model.iterdir():
        if file.is_file():
            (damaged / file.name).write_bytes(file.read_bytes())
    (damaged / "trees.txt").write_text("tree\n")
    with pytest.raises(ModelError, match="was altered"):
        index.search("timer", rerank=f"ltr@{damaged}")
    other = f"{index.name}-other"
    plain = tmp_path / "plain.jsonl"
    plain.write_text("".join(f'{{"_id": "{number}", "text": "timer module {number}"}}\n' for number in range(5)))
    build(opensearch_engine, corpora.open_source(plain), other, BuildOptions())
    with pytest.raises(UsageError, match=r"reads the metadata entry '(kind|votes)'"):
        tw.connect(opensearch_engine.url).index(other).search("timer", rerank=f"ltr@{model}")


@pytest.mark.nightly
def test_the_benchmark_compares_with_and_without_metadata(opensearch_engine, folder):
    script = Path(__file__).parents[2] / "benchmarks" / "feature_ranker.py"
    environment = {**os.environ, "OPENSEARCH_URL": opensearch_engine.url}
    try:
        ended = subprocess.run(
            [sys.executable, script, folder, "--seeds", "1", "--parts"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        opensearch_engine.request("DELETE", f"/ltr-{folder.name}*", params={"expand_wildcards": "all"})
    assert ended.returncode == 0, ended.stderr
    assert "| without metadata.votes |" in ended.stdout
