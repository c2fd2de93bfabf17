"""Export of models: what is refused and leaves nothing behind, and what int8 costs on a corpus. `test_every_kind` has the parity."""

import json

import jsonschema
import numpy as np
import pytest
import torch
from click.testing import CliRunner

from termweave.cli.verbs.models import export as command
from termweave.encoders import load
from termweave.encoders.kinds import read_folder
from termweave.encoders.kinds.dense import DenseModel
from termweave.encoders.manifest import GRAPHS
from termweave.encoders.onnx import export as exporting
from termweave.errors import ModelError, TermweaveError, UsageError
from termweave.training import sample_cost


def test_nothing_is_overwritten(made, tmp_path):
    path, _ = made()
    before = sorted(file.name for file in path.iterdir())
    (tmp_path / "notes").touch()
    for out, message in ((None, "would alter it"), (tmp_path, "not empty")):
        with pytest.raises(UsageError, match=message):
            exporting.export(path, out)
    assert sorted(file.name for file in path.iterdir()) == before


class Doubled(torch.nn.Module):
    """A transformer whose states torch computes otherwise than the graph: it looks at a number that tracing freezes."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.backbone = inner.backbone

    def forward(self, input_ids, attention_mask):
        return self.inner(input_ids, attention_mask) * (2 if input_ids.shape[1] > 12 else 1)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("graph", ["fp32", "int8"])
def test_what_fails_parity_is_refused(made, tmp_path, monkeypatch, graph):
    plain = DenseModel.load_torch
    if graph == "fp32":
        monkeypatch.setattr(DenseModel, "load_torch", lambda self: Doubled(plain(self)))
    else:
        monkeypatch.setattr(DenseModel, "least_cosine", 0.9999999)
    with pytest.raises(ModelError, match="differs from torch by" if graph == "fp32" else r"int8 graph .* gives other vectors"):
        exporting.export(made()[0], tmp_path / "out")
    assert not list(tmp_path.iterdir())


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


def test_a_model_of_graphs_alone_is_exported_already(tmp_path):
    with pytest.raises(ModelError, match=r"holds ONNX graphs alone.* index with it"):
        CliRunner().invoke(command, ["shipped", "--out", str(tmp_path / "again")], catch_exceptions=False)


@pytest.fixture
def corpus(tmp_path):
    """A BEIR folder of 30 documents, of which the first twenty are the answers to twenty queries."""
    folder = tmp_path / "corpus"
    (folder / "qrels").mkdir(parents=True)
    words = [f"{chr(97 + number % 26)}{chr(97 + number // 3)} thing number {number}" for number in range(30)]
    lines = {
        "corpus.jsonl": [json.dumps({"_id": f"d{number}", "text": f"All about {text}."}) for number, text in enumerate(words)],
        "queries.jsonl": [json.dumps({"_id": f"q{number}", "text": text}) for number, text in enumerate(words[:20])],
        "qrels/test.tsv": ["query-id\tcorpus-id\tscore", *(f"q{number}\td{number}\t1" for number in range(20))],
    }
    for file, rows in lines.items():
        (folder / file).write_text("\n".join(rows))
    return folder


def test_what_int8_costs_on_a_corpus(sparse_made, corpus, tmp_path):
    """The figures are those of the two graphs; without judgements there is no nDCG."""
    exporting.export(sparse_made()[0], tmp_path / "sparse")
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
    arguments = [str(ranked()[0]), "--out", str(tmp_path / "out"), "--on", str(corpus)]
    with pytest.raises(UsageError, match="is a cross-encoder, and on compares"):
        CliRunner().invoke(command, arguments, catch_exceptions=False)
    (tmp_path / "one.jsonl").write_text('{"_id": "a", "text": "alone"}')
    with pytest.raises(UsageError, match="fewer than two documents"):
        sample_cost.draw(str(tmp_path / "one.jsonl"))
    with pytest.raises(TermweaveError):
        sample_cost.draw(str(tmp_path / "nowhere"))


def test_the_command(made, corpus, schemas, tmp_path):
    arguments = [str(made("distilbert")[0]), "--out"]
    result = CliRunner().invoke(command, [*arguments, str(tmp_path / "out"), "--on", str(corpus), "--json", "--quiet"])
    data = json.loads(result.stdout)
    jsonschema.validate(data, json.loads((schemas / "export.1.json").read_text(encoding="utf-8")))
    assert {graph["file"] for graph in data["graphs"].values()} == set(GRAPHS.values())
    documents = sample_cost.draw(str(corpus)).documents
    encoders = [load("", tmp_path / "out", precision=precision) for precision in ("fp32", "int8")]
    rows = [np.stack([each.vector for each in encoder.encode(documents, kind="document")]) for encoder in encoders]
    figures = data["sample"]["dense"]
    assert figures["cosine_min"] == pytest.approx(float((rows[0] * rows[1]).sum(axis=1).min()), abs=1e-6)
    assert figures["documents"] == 30
    plain = CliRunner().invoke(command, [*arguments, str(tmp_path / "again")], catch_exceptions=False)
    assert "int8 vectors, smallest cosine" in plain.stdout
    assert "multipliers" not in plain.stdout  # a dense model has none
