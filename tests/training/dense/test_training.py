"""Whole runs of the dense methods on a toy collection: judged pairs and the corpus alone, the folder that comes out."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from termweave.encoders import load
from termweave.encoders.analysis.word_pieces import ModelTokenizer
from termweave.encoders.kinds import read_folder
from termweave.encoders.manifest import write_manifest
from termweave.encoders.models.joint_model import load_backbone
from termweave.encoders.onnx.export import export
from termweave.errors import UsageError
from termweave.training.dense.model import reading_of
from termweave.training.methods import base as methods
from termweave.training.methods.bert_scorer import BertScorer
from termweave.training.model_folder import remove_int8
from tests.training.conftest import describe_pooling, train

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_cache")]

SMALL = ("max_length=64", "training_length=64", "batch=12", "layers_rate=0.002", "dev=8", "every=8", "steps=16", "chunk=8")
CODER = (*SMALL, "candidates=40", "context=20", "k=5")
#: Runs that tests share.
TWO_TOWERS, ONE_ENCODER_OF_QUERIES = ("dtr", (*SMALL, "towers=two")), ("coder", CODER)


def vectors(folder, texts, kind):
    encoder = load("", str(folder), precision="fp32")
    return np.stack([each.vector for each in encoder.encode(texts, kind=kind)])


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        TWO_TOWERS,
        ONE_ENCODER_OF_QUERIES,
        ("coder", (*CODER, "towers=one", "labels=uniform", "candidates_from=bm25")),
        ("le-bs", (*SMALL, "labels=tfidf", "alpha=0.5")),
    ],
    ids=["dtr", "coder", "coder-both-sides", "le-bs-tfidf"],
)
def test_a_run_ends_as_a_dense_model(trained, method, settings):
    out, data = trained(method, settings, plain=method != "dtr")
    assert data["history"]["losses"][-1] < data["history"]["losses"][1]
    read = read_folder(out)  # digests hold
    assert (read.manifest.kind, read.manifest.hash, read.manifest.outputs) == ("dense", data["hash"], ("dense",))
    assert data["ndcg"]["dense"].keys() == {"fp32", "int8", "change", "shipped", "shipped_p"}
    assert data["passages"] == []
    assert f"{data['dev']:.4f}" in (out / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("given", "pooling"), [("vectors=unit", "cls"), ("preset=paper", "mean")])
def test_the_papers_le_bs_averages_states_whatever_the_backbone_does(folder, base, tmp_path, given, pooling):
    by_first = {"word_embedding_dimension": 32, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    first = describe_pooling(shutil.copytree(base, tmp_path / "first"), by_first)
    sets = (given, *SMALL, "labels=none", "steps=1")
    train(folder, first, tmp_path / "out", method="le-bs", settings=sets)
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


def test_two_towers_are_a_model_with_two_encoders(trained, tmp_path, toy):
    out, data = trained(*TWO_TOWERS)
    assert data["dev"] > data["history"]["values"][0]
    texts = toy[0][:5]
    queries, documents = (vectors(out, texts, kind) for kind in ("query", "document"))
    assert np.abs(queries - documents).max() > 1e-3
    assert (out / "query" / "model.onnx").is_file()
    sentence_transformers = pytest.importorskip("sentence_transformers")
    for place, expected in (("query", queries), (".", documents)):
        found = sentence_transformers.SentenceTransformer(str(out / place), device="cpu").encode(texts)
        assert (found * expected).sum(axis=1).min() > 0.9999
    copy = shutil.copytree(out, tmp_path / "copy")
    remove_int8(copy)
    export(copy)
    assert len([*copy.rglob("model.int8.onnx")]) == 2  # of both encoders


def test_coder_leaves_the_documents_encoder_as_it_was(trained, base):
    out, _ = trained(*ONE_ENCODER_OF_QUERIES, plain=True)
    begun, documents, queries = (load_file(each / "model.safetensors") for each in (base, out, out / "query"))
    assert all(np.array_equal(tensor, begun[name]) for name, tensor in documents.items())
    assert any(not np.array_equal(tensor, begun[name]) for name, tensor in queries.items())


def test_the_corpus_alone_is_enough(folder, base, tmp_path):
    corpus = shutil.copy(folder / "corpus.jsonl", tmp_path)
    data = train(corpus, base, tmp_path / "out", method="coder", settings=(*CODER, "steps=2", "every=2"))
    made = read_folder(tmp_path / "out").manifest.training
    assert (made["origin"], made["options"]["labels"]) == ("corpus", "hybrid")
    assert data["history"]["steps"] == [0, 2]


def test_le_bs_trains_its_scorer_first(folder, base, tmp_path, monkeypatch):
    monkeypatch.setattr("termweave.support.paths.cache", lambda: tmp_path / "cache")
    printed = BertScorer.presets["paper-frozen"]
    brief = replace(printed, settings={**printed.settings, "steps": 2, "every": 2})
    monkeypatch.setitem(BertScorer.presets, "paper-frozen", brief)
    data_set = shutil.copytree(folder, tmp_path / "data")

    def told(name, *more):
        settings = (*SMALL, "steps=2", "every=2", "alpha=1", *more)
        return train(data_set, base, tmp_path / name, method="le-bs", settings=settings, json_too=False)

    told("out")
    (scorer,) = (tmp_path / "cache" / "scorers").iterdir()
    assert read_folder(scorer).manifest.training["method"] == "bert-scorer"
    assert f"BERT-Scorer is read from the cache: {scorer}" in told("again")
    told("named", f"scorer={scorer}")
    figures = [read_folder(tmp_path / name).manifest.metrics["train"] for name in ("out", "again", "named")]
    assert figures[0]["history"] == figures[1]["history"] == figures[2]["history"]
    # Of other questions, which may be held out now, another scorer is trained.
    questions = data_set / "queries.jsonl"
    questions.write_text(questions.read_text(encoding="utf-8").replace('"text": "', '"text": "once '), encoding="utf-8")
    assert "training BERT-Scorer in" in told("third")
