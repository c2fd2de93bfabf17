"""Export of models of other makers: three graphs, parity, and a folder that sentence-transformers loads, too."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import torch
from click.testing import CliRunner

from termweave.cli.verbs.models import export as command
from termweave.encoders import DenseEncoder, load
from termweave.encoders.kinds import read_folder
from termweave.encoders.kinds.dense import DenseModel
from termweave.encoders.manifest import GRAPHS, write_manifest
from termweave.encoders.onnx import export as exporting
from termweave.encoders.onnx.checked_graphs import TOLERANCE
from termweave.errors import ModelError, TermweaveError, UsageError
from termweave.training import sample_cost

SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"


@pytest.mark.parametrize("architecture", ["roberta", "modernbert"])
def test_what_comes_out_gives_the_same_vectors_here_and_in_sentence_transformers(made, texts, tmp_path, architecture):
    from sentence_transformers import SentenceTransformer

    path, reference = made(architecture, dense=[(16, torch.nn.Tanh())], prompts={"query": "find: ", "document": "text: "})
    parity = exporting.export(path, tmp_path / "out")
    assert parity.fp32_difference <= TOLERANCE
    assert 0.9 <= parity.int8_cosine_min <= parity.int8_cosine_mean <= 1.0001
    manifest = read_folder(tmp_path / "out").manifest  # digests hold
    assert manifest.hash == read_folder(path).manifest.hash  # the same model
    assert manifest.quantisation["parity"] == parity.as_dict()
    assert "2_Dense/model.safetensors" in manifest.files
    expected = reference.encode_query(texts)
    again = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    assert np.abs(again.encode_query(texts) - expected).max() < 1e-6
    fp32, int8 = (
        load(weights="none", dense=tmp_path / "out", precision=precision).encode(texts, kind="query")
        for precision in ("fp32", "int8")
    )
    assert max(np.abs(row.vector - vector).max() for row, vector in zip(fp32, expected, strict=True)) < 1e-4
    assert min(row.vector @ vector for row, vector in zip(int8, expected, strict=True)) > 0.9
    changed = max(np.abs(row.vector - vector).max() for row, vector in zip(int8, expected, strict=True))
    assert changed > 1e-6  # int8 is another graph


def test_an_exported_folder_that_was_altered_is_refused(made, tmp_path):
    path, _ = made(dense=[(16, torch.nn.Tanh())])
    exporting.export(path, tmp_path / "out")
    file = tmp_path / "out" / "2_Dense" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-4] + b"\0\0\0?")
    with pytest.raises(ModelError, match=r"was altered: .*2_Dense"):
        load(weights="none", dense=tmp_path / "out")


@pytest.mark.parametrize(
    "changes",
    [
        {"layers": [{"file": "../elsewhere.safetensors", "activation": "Tanh"}]},
        {"layers": [{"file": "2_Dense/model.safetensors", "activation": "exec"}]},
        {"transformer": "/etc"},
        {"prompts": {"query": 7}},
        {"unknown": 1},
    ],
    ids=str,
)
def test_malformed_descriptions_are_one_sentence(made, tmp_path, changes):
    path, _ = made()
    manifest = read_folder(path).manifest
    own = shutil.copytree(path, tmp_path / "own")
    write_manifest(own, replace(manifest, settings={**manifest.settings, **changes}))
    with pytest.raises(ModelError, match=r"The description of the model .* is malformed"):
        load(weights="none", dense=own)


def test_nothing_is_overwritten(made, tmp_path):
    path, _ = made()
    before = sorted(file.name for file in path.iterdir())
    with pytest.raises(UsageError, match="would alter it"):
        exporting.export(path)
    assert sorted(file.name for file in path.iterdir()) == before
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").touch()
    with pytest.raises(UsageError, match="not empty"):
        exporting.export(path, tmp_path / "full")


class Doubled(torch.nn.Module):
    """A transformer whose states torch computes otherwise than the graph: it looks at a number that tracing freezes."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.backbone = inner.backbone

    def forward(self, input_ids, attention_mask):
        return self.inner(input_ids, attention_mask) * (2 if input_ids.shape[1] > 12 else 1)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_what_fails_parity_is_refused(made, tmp_path, monkeypatch):
    path, _ = made()
    plain = DenseModel.load_torch
    monkeypatch.setattr(DenseModel, "load_torch", lambda self: Doubled(plain(self)))
    with pytest.raises(ModelError, match="differs from torch by"):
        exporting.export(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".export-*"))


def test_an_export_leaves_the_work_of_another_one_alone(made, tmp_path, monkeypatch):
    path, _ = made()
    plain = exporting.write_checked

    def meanwhile(model, scratch):
        monkeypatch.setattr(exporting, "write_checked", plain)
        exporting.export(path, tmp_path / "second")
        return plain(model, scratch)

    monkeypatch.setattr(exporting, "write_checked", meanwhile)
    exporting.export(path, tmp_path / "first")
    assert read_folder(tmp_path / "first").manifest.files == read_folder(tmp_path / "second").manifest.files
    assert {file.name for file in tmp_path.iterdir()} == {"first", "second"}


def test_an_int8_graph_with_other_vectors_is_refused(made, tmp_path, monkeypatch):
    path, _ = made()
    monkeypatch.setattr(DenseModel, "least_cosine", 0.9999999)
    with pytest.raises(ModelError, match=r"int8 graph .* gives other vectors"):
        exporting.export(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.fixture
def corpus(tmp_path):
    """A BEIR folder of 30 documents, of which the first twenty are the answers to twenty queries."""
    folder = tmp_path / "corpus"
    (folder / "qrels").mkdir(parents=True)
    words = [f"{chr(97 + number % 26)}{chr(97 + number // 3)} thing number {number}" for number in range(30)]
    documents = [
        json.dumps({"_id": f"d{number}", "title": "", "text": f"All about {text}."}) for number, text in enumerate(words)
    ]
    (folder / "corpus.jsonl").write_text("\n".join(documents))
    queries = [json.dumps({"_id": f"q{number}", "text": text}) for number, text in enumerate(words[:20])]
    (folder / "queries.jsonl").write_text("\n".join(queries))
    judgements = ["query-id\tcorpus-id\tscore", *(f"q{number}\td{number}\t1" for number in range(20))]
    (folder / "qrels" / "test.tsv").write_text("\n".join(judgements))
    return folder


def test_what_int8_costs_on_a_corpus(made_with_head, corpus, tmp_path):
    """The figures are those of the two graphs: the cosines are computed again here, and without judgements there is no nDCG."""
    path, _ = made_with_head("SparseEncoder")
    exporting.export(path, tmp_path / "sparse")
    sample = sample_cost.draw(str(corpus))
    assert (len(sample.queries), len(sample.documents)) == (20, 30)
    assert [sample.documents[next(iter(gains))] for gains in sample.gains] == [f"All about {query}." for query in sample.queries]
    figures = sample_cost.cost(tmp_path / "sparse", "weights", sample)
    assert figures["ndcg"]["change"] == pytest.approx(figures["ndcg"]["int8"] - figures["ndcg"]["fp32"])
    assert 0 < figures["ndcg"]["fp32"] <= 1
    assert "nDCG@10" in sample_cost.in_words("weights", figures)
    plain = sample_cost.draw(str(corpus / "corpus.jsonl"))
    assert (len(plain.queries), plain.gains) == (30, [])
    assert plain.queries[0] == plain.documents[0]
    alone = sample_cost.cost(tmp_path / "sparse", "weights", plain)
    assert alone.keys() == {"queries", "documents", "overlap"}
    assert 0 < alone["overlap"] <= 1


def test_a_corpus_that_cannot_be_compared_on(ranked, corpus, tmp_path):
    path, _ = ranked("bert")
    with pytest.raises(UsageError, match="is a cross-encoder, and on compares"):
        CliRunner().invoke(command, [str(path), "--out", str(tmp_path / "out"), "--on", str(corpus)], catch_exceptions=False)
    (tmp_path / "one.jsonl").write_text('{"_id": "a", "text": "alone"}')
    with pytest.raises(UsageError, match="fewer than two documents"):
        sample_cost.draw(str(tmp_path / "one.jsonl"))
    with pytest.raises(TermweaveError):
        sample_cost.draw(str(tmp_path / "nowhere"))


def test_the_command(made, corpus, texts, tmp_path):
    path, _ = made("distilbert")
    arguments = [str(path), "--out", str(tmp_path / "out"), "--on", str(corpus), "--json", "--quiet"]
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    data = json.loads(result.stdout)
    jsonschema.validate(data, json.loads((SCHEMAS / "export.1.json").read_text(encoding="utf-8")))
    assert data["parity"]["fp32_difference"] <= 1e-4
    assert {graph["file"] for graph in data["graphs"].values()} == set(GRAPHS.values())
    assert DenseEncoder.load(tmp_path / "out").encode(texts).shape == (len(texts), 32)
    documents = sample_cost.draw(str(corpus)).documents
    rows = [
        np.stack([each.vector for each in load("", tmp_path / "out", precision=precision).encode(documents, kind="document")])
        for precision in ("fp32", "int8")
    ]
    figures = data["sample"]["dense"]
    assert figures["cosine_min"] == pytest.approx(float((rows[0] * rows[1]).sum(axis=1).min()), abs=1e-6)
    assert figures["documents"] == 30
    plain = CliRunner().invoke(command, [str(path), "--out", str(tmp_path / "again")], catch_exceptions=False)
    assert "int8 vectors, smallest cosine" in plain.stdout
    assert "multipliers" not in plain.stdout  # a dense model has none


def test_a_model_of_graphs_alone_is_exported_already(tmp_path):
    with pytest.raises(ModelError, match=r"holds ONNX graphs alone.* index with it"):
        CliRunner().invoke(command, ["shipped", "--out", str(tmp_path / "again")], catch_exceptions=False)
