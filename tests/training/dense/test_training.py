"""Whole runs of the dense methods on a toy collection: judged pairs and the corpus alone, resumed runs, the folder that comes out."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import numpy as np
import pytest

from termweave.cli import run
from termweave.encoders import load
from termweave.encoders.analysis.word_pieces import ModelTokenizer
from termweave.encoders.kinds import read_folder
from termweave.encoders.manifest import write_manifest
from termweave.encoders.models.joint_model import load_backbone
from termweave.encoders.onnx.export import export
from termweave.errors import UsageError
from termweave.training.dense.preparation import reading_of
from termweave.training.methods import base as methods
from termweave.training.model_folder import remove_int8
from termweave.training.trainer import checkpoints
from tests.training.conftest import stop_and_resume, train, with_special_tokens

pytest.importorskip("accelerate", reason="training needs the extra [train]")
torch = pytest.importorskip("torch", reason="training needs the extra [train]")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_cache")]

SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"
SMALL = ("max_length=64", "training_length=64", "batch=12", "layers_rate=0.002", "dev=8", "every=8", "steps=16", "chunk=8")
CODER = (*SMALL, "candidates=40", "context=20", "k=5")


def vectors(folder, texts, kind):
    encoder = load("", str(folder), precision="fp32")
    return np.stack([each.vector for each in encoder.encode(texts, kind=kind)])


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("dtr", SMALL),
        ("coder", CODER),
        ("coder", (*CODER, "towers=one", "labels=uniform", "candidates_from=bm25")),
        ("le-bs", (*SMALL, "labels=tfidf", "alpha=0.5")),
        ("le-bs", (*SMALL, "labels=none")),
    ],
    ids=["dtr", "coder", "coder-both-sides", "le-bs-tfidf", "le-bs-none"],
)
def test_a_run_ends_as_a_dense_model(capsys, folder, base, tmp_path, method, settings):
    data = train(capsys, folder, base, tmp_path / "out", method=method, settings=settings)
    assert data["history"]["values"][data["history"]["best"]] == max(data["history"]["values"])
    assert data["history"]["losses"][-1] < data["history"]["losses"][1]
    read = read_folder(tmp_path / "out")  # digests hold
    assert (read.manifest.kind, read.manifest.hash, read.manifest.outputs) == ("dense", data["hash"], ("dense",))
    assert data["ndcg"]["dense"].keys() == {"fp32", "int8", "change", "shipped", "shipped_p"}
    assert data["passages"] == []
    groups = ET.parse(tmp_path / "out" / "curves.svg").getroot().findall(".//{*}g")
    (development,) = [group for group in groups if group.get("id") == "curves-development"]
    assert len(development.findall(".//{*}use")) == len(data["history"]["steps"])
    assert f"{data['dev']:.4f}" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def complete(base, tmp_path):
    """The small backbone as other programs read it."""
    return with_special_tokens(base, tmp_path / "complete", "PreTrainedTokenizerFast")


@pytest.mark.parametrize(("given", "pooling"), [("vectors=unit", "cls"), ("preset=paper", "mean")])
def test_the_papers_le_bs_averages_states_whatever_the_backbone_does(capsys, folder, base, tmp_path, given, pooling):
    first = tmp_path / "first"
    shutil.copytree(base, first)
    modules = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for n, (kind, path) in enumerate((("Transformer", ""), ("Pooling", "1_Pooling")))
    ]
    (first / "modules.json").write_text(json.dumps(modules))
    (first / "1_Pooling").mkdir()
    pooled = {"word_embedding_dimension": 32, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (first / "1_Pooling" / "config.json").write_text(json.dumps(pooled))
    sets = (given, *SMALL, "labels=none", "steps=1")
    train(capsys, folder, first, tmp_path / "out", method="le-bs", settings=sets)
    assert read_folder(tmp_path / "out").manifest.pooling == pooling
    asked = ["about granada", "morino filler"]
    tokenizer = ModelTokenizer(base / "tokenizer.json", lower=False)
    for text, vector in zip(asked, vectors(tmp_path / "out", asked, "query"), strict=True):
        ids = torch.tensor(tokenizer.encode([text], 64)[0])[None]
        with torch.no_grad():
            states = load_backbone(tmp_path / "out")(input_ids=ids).last_hidden_state[0]
        expected = torch.nn.functional.normalize(states[0] if pooling == "cls" else states.mean(dim=0), dim=0)
        assert vector == pytest.approx(expected.numpy(), abs=1e-4)


def test_a_backbone_that_termweave_trained_is_read_as_it_says(model, trained_folder):
    folder, method = trained_folder(model), methods.get("dtr")
    described = replace(read_folder(folder, check=False).manifest, pooling="cls", settings={"prompts": {"query": "find: "}})
    write_manifest(folder, described)
    assert method.build(method.settings({}), folder).pooling == "cls"
    assert reading_of(folder)[1].prompt("query") == "find: "
    write_manifest(folder, replace(described, kind="ranker"))
    with pytest.raises(UsageError, match="is a cross-encoder"):
        reading_of(folder)
    settings = {"prompts": {"query": "find: "}, "include_prompt": False}
    write_manifest(folder, replace(described, kind="dense", settings=settings))
    with pytest.raises(UsageError, match="prompts that its pooling leaves out, which termweave does not train"):
        method.build(method.settings({}), folder)


def test_two_towers_are_a_model_with_two_encoders(capsys, folder, complete, tmp_path, toy):
    data = train(capsys, folder, complete, tmp_path / "out", method="dtr", settings=(*SMALL, "towers=two"))
    assert data["dev"] > data["history"]["values"][0]
    texts = toy[0][:5]
    queries, documents = (vectors(tmp_path / "out", texts, kind) for kind in ("query", "document"))
    assert np.abs(queries - documents).max() > 1e-3
    assert (tmp_path / "out" / "query" / "model.onnx").is_file()
    sentence_transformers = pytest.importorskip("sentence_transformers")
    for place, expected in (("query", queries), (".", documents)):
        found = sentence_transformers.SentenceTransformer(str(tmp_path / "out" / place), device="cpu").encode(texts)
        cosines = (found * expected).sum(axis=1)
        assert cosines.min() > 0.9999
    remove_int8(tmp_path / "out")
    export(tmp_path / "out")
    assert len([*(tmp_path / "out").rglob("model.int8.onnx")]) == 2  # of both encoders


def test_coder_leaves_the_documents_encoder_as_it_was(capsys, folder, base, tmp_path):
    from safetensors.numpy import load_file

    train(capsys, folder, base, tmp_path / "out", method="coder", settings=CODER)
    begun, documents = load_file(base / "model.safetensors"), load_file(tmp_path / "out" / "model.safetensors")
    assert all(np.array_equal(tensor, begun[name]) for name, tensor in documents.items())
    queries = load_file(tmp_path / "out" / "query" / "model.safetensors")
    assert any(not np.array_equal(tensor, begun[name]) for name, tensor in queries.items())


@pytest.mark.parametrize("method", ["dtr", "coder"])
def test_the_corpus_alone_is_enough(capsys, folder, base, tmp_path, method):
    corpus = tmp_path / "corpus.jsonl"
    shutil.copy(folder / "corpus.jsonl", corpus)
    settings = (*(CODER if method == "coder" else SMALL), "steps=10", "every=5")
    data = train(capsys, corpus, base, tmp_path / "out", method=method, settings=settings)
    made = read_folder(tmp_path / "out").manifest.training
    assert made["origin"] == "corpus"
    assert data["history"]["steps"][-1] == 10
    if method == "coder":
        assert made["options"]["labels"] == "hybrid"


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        pytest.param("coder", CODER, marks=pytest.mark.nightly),
        ("le-bs", (*SMALL, "labels=distill", "alpha=0.5")),
    ],
    ids=["one-fit", "two-fits"],
)
def test_stopped_and_resumed_is_the_same_model(capsys, folder, base, tmp_path, monkeypatch, method, settings):
    again = partial(train, capsys, folder, base, method=method, settings=(*settings, "steps=14", "every=4"))
    stop_and_resume(monkeypatch, tmp_path, (7, 20), again)


@pytest.mark.nightly
def test_a_killed_run_ends_with_the_same_model(capsys, folder, base, tmp_path):
    """kill -9 between two checkpoints, in a process of its own."""
    settings = (*CODER, "steps=40", "every=4", "patience=100", "labels=hard")
    whole = train(capsys, folder, base, tmp_path / "whole", method="coder", settings=settings)
    out = tmp_path / "out"
    words = [word for each in (f"backbone={base}", *settings) for word in ("--set", each)]
    command = [sys.executable, "-m", "termweave", "train", "coder", str(folder), "--out", str(out), *words]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and len(list((out / "checkpoints").glob(f"checkpoint-*/{checkpoints.HISTORY}"))) < 2:
        time.sleep(0.02)
    process.kill()
    _, said = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, said
    resumed = train(capsys, folder, base, out, "--resume", method="coder", settings=settings)
    assert (resumed["hash"], resumed["history"]) == (whole["hash"], whole["history"])


def test_le_bs_trains_its_scorer_first(capsys, folder, base, tmp_path, monkeypatch):
    monkeypatch.setattr("termweave.support.paths.cache", lambda: tmp_path / "cache")
    data_set = shutil.copytree(folder, tmp_path / "data")
    settings = (*SMALL, "steps=4", "every=2", "alpha=1")
    data = train(capsys, data_set, base, tmp_path / "out", method="le-bs", settings=settings)
    (scorer,) = (tmp_path / "cache" / "scorers").iterdir()
    assert read_folder(scorer).manifest.training["method"] == "bert-scorer"
    named = train(capsys, data_set, base, tmp_path / "named", method="le-bs", settings=(*settings, f"scorer={scorer}"))
    assert named["history"] == data["history"]
    sets = [part for each in (f"backbone={base}", *settings) for part in ("--set", each)]
    assert run(["train", "le-bs", str(data_set), "--out", str(tmp_path / "again"), *sets]) == 0
    said = capsys.readouterr().err
    assert f"BERT-Scorer is read from the cache: {scorer}" in said
    assert "training BERT-Scorer" not in said
    # Of other questions, which may be held out now, another scorer is trained.
    questions = data_set / "queries.jsonl"
    questions.write_text(questions.read_text(encoding="utf-8").replace('"text": "', '"text": "once '), encoding="utf-8")
    assert run(["train", "le-bs", str(data_set), "--out", str(tmp_path / "third"), *sets]) == 0
    assert "training BERT-Scorer in" in capsys.readouterr().err


def test_a_plan_says_what_would_be_done(capsys, folder, base, tmp_path):
    plan = train(capsys, folder, base, tmp_path / "out", "--plan", method="coder", settings=CODER)
    jsonschema.validate(plan, json.loads((SCHEMAS / "train-plan.1.json").read_text(encoding="utf-8")))
    assert (plan["documents"], plan["questions"], plan["frozen"]) == (160, 72, False)
    assert 0 < plan["minutes"] < 5
    larger = train(capsys, folder, base, tmp_path / "out", "--plan", method="coder", settings=(*CODER, "chunk=12", "towers=one"))
    assert larger["memory_bytes"] > plan["memory_bytes"] > 4 * 3 * 10_000  # the toy backbone has more than 10,000 parameters
    assert not (tmp_path / "out").exists()


def test_a_plan_counts_the_training_of_the_scorer(capsys, folder, base, tmp_path, monkeypatch):
    monkeypatch.setattr("termweave.support.paths.cache", lambda: tmp_path / "cache")
    settings = (*SMALL, "steps=4", "every=2", "alpha=1", "scorer=paper")
    plan = train(capsys, folder, base, tmp_path / "out", "--plan", method="le-bs", settings=settings)
    jsonschema.validate(plan, json.loads((SCHEMAS / "train-plan.1.json").read_text(encoding="utf-8")))
    (scorer,) = plan["before"]
    assert (scorer["method"], scorer["steps"]) == ("bert-scorer", 500)
    assert 0 < scorer["minutes"] < plan["minutes"]
    settings = (*settings, "labels=tfidf")
    assert train(capsys, folder, base, tmp_path / "out", "--plan", method="le-bs", settings=settings)["before"] == []
    sets = [part for each in (f"backbone={base}", "steps=99999999") for part in ("--set", each)]
    assert run(["train", "le-bs", str(folder), "--plan", *sets]) == 0
    said = capsys.readouterr().out
    assert "bert-scorer is trained first: at most 500 steps" in said
    assert re.search(r"about [\d,.]+ days and", said)  # not millions of minutes
    assert run(["train", "le-bs", str(folder), *sets]) == 2
    assert "--out DIR is missing" in capsys.readouterr().err


def test_a_plan_counts_every_fit():
    method = methods.get("le-bs")
    assert [method.settings({"labels": labels}).rounds() for labels in ("scorer", "distill")] == [1, 2]


@pytest.mark.parametrize(
    ("method", "given", "said"),
    [
        ("dtr", {"weights": "0,0,0,0"}, "not the four weights of a loss"),
        ("dtr", {"weights": "1,-1,0,0"}, "four weights from 0 on"),
        ("dtr", {"weights": "1"}, "not the four weights of a loss"),
        ("dtr", {"towers": "query"}, "towers must be one or two"),
        ("coder", {"top_layers": 0}, "freezes all of them"),
        ("le-bs", {"in_batch": "false", "random_negatives": 0, "drawn": 0}, "No wrong document .*drawn above 0"),
        ("fectek", {"in_batch": "false", "negatives": 0}, "No wrong document is drawn"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(method, given, said):
    with pytest.raises(UsageError, match=said):
        methods.get(method).settings(given)


def test_an_index_takes_the_trained_model(capsys, folder, base, tmp_path, name, opensearch_engine):
    """Two encoders: documents are indexed with one, the question is read by the other."""
    train(capsys, folder, base, tmp_path / "out", method="dtr", settings=(*SMALL, "towers=two"))
    url = ["--url", opensearch_engine.url]
    model = ["--dense", str(tmp_path / "out")]
    assert run(["index", str(folder / "corpus.jsonl"), name, *model, "--signals", "lexical,dense", *url, "--quiet"]) == 0
    capsys.readouterr()
    assert run(["search", name, "about granada", "--mode", "dense", *model, "-k", "5", *url, "--json"]) == 0
    hits = json.loads(capsys.readouterr().out)["hits"]
    lines = (folder / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    documents = [json.loads(line) for line in lines]
    scores = (
        vectors(tmp_path / "out", [each["text"] for each in documents], "document")
        @ vectors(tmp_path / "out", ["about granada"], "query")[0]
    )
    expected = [documents[place]["_id"] for place in np.argsort(-scores, kind="stable")[:5]]
    assert len(set(expected) & {hit["id"] for hit in hits}) >= 4  # the index rounds, and its int8 encoder differs a little
