"""Export: parity, refusal, the command."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from safetensors.torch import load_file, save_file

from termweave.encoders import load
from termweave.encoders.kinds import read_folder
from termweave.encoders.manifest import HEADS, WEIGHTS, digests, write_manifest
from termweave.encoders.models import joint_model
from termweave.encoders.onnx import checked_graphs
from termweave.encoders.onnx import export as exporting
from termweave.encoders.onnx.quantisation import write_single
from termweave.errors import ModelError
from termweave.training import dev_measure
from termweave.training.data.bm25_index import SparseIndex, bm25_weights
from termweave.training.data.pairs import Pairs, count_terms
from termweave.training.dev_measure import ranking_measure, stored
from tests.encoders.exact_scores import dot
from tests.training.conftest import read_by

TEXTS = ["about granada", "mortar and telust about vexino", "", "about lumert " * 20]


@pytest.fixture
def folder(model, trained_folder):
    for head in (model.heads.document, model.heads.query):
        torch.nn.init.normal_(head.outer.weight, std=0.5)
    return trained_folder(model)


def test_parity(folder):
    parity = exporting.export(folder)
    assert parity.fp32_difference <= checked_graphs.TOLERANCE
    assert parity.int8_rank_correlation > 0.9
    assert parity.int8_cosine_min > 0.95
    assert parity.dequantised_cosine_min > 0.99
    read = read_folder(folder)  # digests hold
    assert read.manifest.quantisation["parity"] == parity.as_dict()
    assert {"model.onnx", "model.int8.onnx", "model.dequantised.onnx", "tokenizer.json"} <= set(read.manifest.files)


@pytest.mark.parametrize(("added", "said"), [(2e-4, r"differs from torch by 0\.0002"), (np.nan, "not numbers")])
def test_a_graph_that_differs_is_not_written(folder, monkeypatch, added, said):
    before = sorted(file.name for file in folder.iterdir())
    run = checked_graphs.run_torch
    monkeypatch.setattr(checked_graphs, "run_torch", lambda *given: [[part + added for part in each] for each in run(*given)])
    with pytest.raises(ModelError, match=said):
        exporting.export(folder)
    assert sorted(file.name for file in folder.iterdir()) == before


def test_damaged_weights_are_a_sentence(folder):
    heads = load_file(folder / HEADS)
    for file in (HEADS, WEIGHTS):
        whole = (folder / file).read_bytes()
        (folder / file).write_bytes(whole[: len(whole) // 2])
        with pytest.raises(ModelError, match="are damaged"):
            exporting.export(folder)
        (folder / file).write_bytes(whole)
    save_file({key: values.repeat(2, *[1] * (values.dim() - 1)) for key, values in heads.items()}, folder / HEADS)
    with pytest.raises(ModelError, match="are damaged"):
        exporting.export(folder)
    (folder / HEADS).unlink()
    with pytest.raises(ModelError, match=r"damaged: No such file .*heads\.safetensors"):
        exporting.export(folder)


def test_an_untrained_model_is_bm25(model, trained_folder):
    """The whole way: torch, ONNX, int8, words, weights."""
    folder = trained_folder(model)
    exporting.export(folder)
    for graph in ("int8", "fp32", "dequantised"):
        encoder = load(str(folder), str(folder), precision=graph)
        statistics = count_terms([TEXTS], encoder.analysis, encoder.analyse)
        document, query = "about granada vexino granada mortar", "granada granada lumert"
        terms = encoder.analyse([document])[0]
        expected = 0.0
        for term in encoder.analyse([query])[0]:
            tf = terms.count(term)
            norm = 1.2 * (0.25 + 0.75 * len(terms) / statistics.average_length)
            expected += statistics.idf(term) * tf * 2.2 / (tf + norm)
        weights = encoder.encode([document], kind="document", statistics=statistics)[0].weights
        factors = encoder.encode([query], kind="query", statistics=statistics)[0].weights
        assert dot(factors, weights) == pytest.approx(expected, rel=1e-6)


def test_the_hash_names_what_is_computed(model, folder):
    first = read_folder(folder, check=False).manifest
    again = joint_model.save(model, folder, replace(first, hash=""))
    assert again.hash == first.hash
    with torch.no_grad():
        model.heads.query.outer.bias += 1
    assert joint_model.save(model, folder, first).hash != first.hash


def test_what_int8_costs_is_asked_of_the_graphs_themselves(model, folder, toy, monkeypatch):
    """Random heads, and beside their fp32 graph the int8 one of untrained heads, which is BM25."""
    documents, questions, relevant = toy
    exporting.export(folder)
    analysis, _, statistics, bm25 = read_by(folder, documents)
    plain = bm25_weights(documents, analysis, statistics, bm25, "document")
    asked = bm25_weights(questions, analysis, statistics, bm25, "query")
    weighed = dict(zip(questions, asked, strict=True))
    setup = SimpleNamespace(dev=Pairs(questions, relevant), texts=documents, statistics=statistics, bm25_index=SparseIndex(plain))
    setup.bm25_weights = lambda texts, kind: [weighed[text] for text in texts]  # noqa: ARG005 - as `RunSetup`
    development = dev_measure.DevelopmentSet(setup)

    def cost():
        return development.int8_cost(folder, ("weights", "dense"))

    found = cost()
    assert (found["questions"], found["documents"] <= 6 * len(questions)) == (20, True)
    assert abs(found["weights"]["change"]) < 0.1
    manifest, fp32 = read_folder(folder).manifest, (folder / "model.onnx").read_bytes()
    for head in (model.heads.document, model.heads.query):
        torch.nn.init.zeros_(head.outer.weight)
    joint_model.save(model, folder, manifest)
    exporting.export(folder)
    (folder / "model.onnx").write_bytes(fp32)
    write_manifest(folder, replace(manifest, files=digests(folder)))
    other = cost()
    assert other["weights"]["fp32"] == found["weights"]["fp32"]
    pool = development._pool(range(20))
    gains = [{number: 1 for number, place in enumerate(pool) if place in known} for known in relevant]
    bm25 = ranking_measure(SparseIndex(stored([plain[place] for place in pool])).rankings(asked, 10), gains).mean()
    assert other["weights"]["int8"] == pytest.approx(bm25, abs=1e-3)
    setup.dev = Pairs(questions, relevant, spared=[frozenset(range(len(documents))) - known for known in relevant])
    monkeypatch.setattr(dev_measure, "QUESTIONS", 7)
    found = cost()
    assert found["questions"] == 7
    assert {found[output]["fp32"] for output in ("weights", "dense")} == {1.0}  # only answers are ranked


def test_the_graph_for_one_text_says_what_the_padded_one_says(model, tmp_path):
    """No mask, a softmax that is written out: the same numbers, of a text that is alone."""
    padded, single = tmp_path / "padded.onnx", tmp_path / "single.onnx"
    checked_graphs.write_fp32(model, padded, ["weights", "dense"])
    assert write_single(padded, single, only_mask=checked_graphs.adds_only_mask(model)) == model.backbone.config.num_hidden_layers
    one, other = (onnxruntime.InferenceSession(str(each)) for each in (padded, single))
    assert [each.name for each in other.get_inputs()] == ["input_ids", "features"]
    for length in (1, 2, 33):
        ids = np.arange(length)[None, :] % 60
        given = {"input_ids": ids, "features": np.full((1, length, 2), 0.3, dtype=np.float32)}
        expected = one.run(None, {**given, "attention_mask": np.ones_like(ids)})
        for first, second in zip(expected, other.run(None, given), strict=True):
            np.testing.assert_allclose(first, second, atol=1e-5)


def test_an_attention_of_another_kind_stays_as_it_is(model, tmp_path):
    padded, single = tmp_path / "padded.onnx", tmp_path / "single.onnx"
    checked_graphs.write_fp32(model, padded, ["weights", "dense"])
    model_of = onnx.load(padded)
    nodes = model_of.graph.node
    softmax = next(node for node in nodes if node.op_type == "Softmax")
    reader = next(node for node in nodes if softmax.output[0] in node.input)
    reader.input[0] = "again"
    place = list(nodes).index(reader)
    nodes.insert(place, onnx.helper.make_node("Neg", ["negated"], ["again"]))
    nodes.insert(place, onnx.helper.make_node("Neg", [softmax.output[0]], ["negated"]))
    onnx.save(model_of, padded)
    layers = model.backbone.config.num_hidden_layers
    assert write_single(padded, single, only_mask=checked_graphs.adds_only_mask(model)) == layers - 1
    onnxruntime.InferenceSession(str(single))


def test_what_an_index_would_take_for_another_model_is_not_written(folder):
    """The graphs of altered weights agree with torch; their name, figures and card would be those of the trained ones."""
    exporting.export(folder)
    manifest = read_folder(folder).manifest
    for altered in ({"max_length": 5000}, {"anchor": {**manifest.anchor, "kind": "idf"}}):
        write_manifest(folder, replace(manifest, **altered))
        with pytest.raises(ModelError, match="was altered"):
            exporting.export(folder)
    write_manifest(folder, manifest)
    heads = load_file(folder / HEADS)
    save_file({name: values + 1 for name, values in heads.items()}, folder / HEADS)
    with pytest.raises(ModelError, match="was altered"):
        exporting.export(folder)
    assert read_folder(folder).manifest == manifest  # digests hold: nothing was written


def test_what_a_killed_export_left_is_removed(folder):
    (folder / ".export-killed").mkdir()
    (folder / ".export-killed" / "model.onnx").write_bytes(b"half")
    exporting.export(folder)
    assert not list(folder.glob(".export-*"))
