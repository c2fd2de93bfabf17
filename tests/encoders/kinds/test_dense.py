"""Dense models of other makers give the vectors that sentence-transformers gives."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from termweave.encoders import DenseEncoder, load
from termweave.encoders.kinds import read_folder
from termweave.encoders.kinds.dense import DenseModel
from termweave.encoders.manifest import write_manifest
from termweave.encoders.onnx import runtime
from termweave.encoders.onnx.export import export
from termweave.encoders.onnx.rewritten_graphs import POOLED, STATES
from termweave.encoders.onnx.runtime import OnnxModel
from termweave.errors import ModelError

ARCHITECTURES = ("bert", "roberta", "xlm-roberta", "mpnet", "distilbert", "modernbert")


def difference(path, reference, texts):
    """The largest difference of documents' and queries' vectors to those of sentence-transformers."""
    encoder = DenseEncoder.load(path)
    pairs = [
        (encoder.encode(texts, kind="document"), reference.encode_document(texts)),
        (encoder.encode(texts, kind="query"), reference.encode_query(texts)),
    ]
    return max(float(np.abs(own - other / np.linalg.norm(other, axis=1, keepdims=True)).max()) for own, other in pairs)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_architectures(made, texts, architecture):
    path, reference = made(architecture)
    assert difference(path, reference, texts) < 1e-4


@pytest.mark.parametrize("pooling", ["cls", "max", "lasttoken", "weightedmean", "mean_sqrt_len_tokens", ("mean", "max")], ids=str)
def test_pooling(made, texts, pooling):
    path, reference = made(pooling=pooling)
    assert difference(path, reference, texts) < 1e-4


@pytest.mark.parametrize(
    "pooling", ["mean", "cls", "lasttoken", "weightedmean", "mean_sqrt_len_tokens", ("mean", "cls"), "max"], ids=str
)
def test_what_a_gpu_pools_in_the_graph_is_the_same_vector(made, texts, pooling, monkeypatch):
    """The graph with the pooling, run on the CPU in a GPU's batches. "max" is no sum: there all states come back."""
    path, reference = made(pooling=pooling, prompts={"query": "find this: ", "passage": "text: "}, include_prompt=False)
    monkeypatch.setattr(runtime, "cuda_usable", lambda: True)
    monkeypatch.setattr(runtime, "CUDA", runtime.CPU)
    DenseEncoder.load(path).encode(texts[:1], kind="query")  # exports the graph, which asks for states
    asked = []
    start = OnnxModel.start
    monkeypatch.setattr(OnnxModel, "start", lambda self, inputs, outputs: asked.extend(outputs) or start(self, inputs, outputs))
    assert difference(path, reference, texts) < 1e-4
    assert set(asked) == {STATES if pooling == "max" else POOLED}


def test_dense_layers(made, texts):
    path, reference = made(dense=[(24, torch.nn.Tanh()), (12, torch.nn.GELU()), (8, torch.nn.Identity())])
    assert load(weights="none", dense=path).dimension == 8
    assert difference(path, reference, texts) < 1e-4


def test_a_dense_layer_that_does_not_fit_is_refused(made, tmp_path):
    path, _ = made(dense=[(32, torch.nn.Tanh())])
    export(path, tmp_path / "edited")
    manifest = read_folder(tmp_path / "edited").manifest
    write_manifest(tmp_path / "edited", replace(manifest, pooling="mean+max"))
    with pytest.raises(ModelError, match="gives vectors of 64 numbers, but its description says 32"):
        DenseEncoder.load(tmp_path / "edited").encode(["a text"], kind="document")


@pytest.mark.parametrize("include_prompt", [True, False])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_prompts(made, texts, pooling, include_prompt):
    prompts = {"query": "find this: ", "passage": "text: "}
    path, reference = made(pooling=pooling, include_prompt=include_prompt, prompts=prompts)
    assert difference(path, reference, texts) < 1e-4
    encoder = DenseEncoder.load(path)
    assert np.abs(encoder.encode(texts[:1], kind="query") - encoder.encode(texts[:1], kind="document")).max() > 1e-3


SETTINGS = [
    ("sentence_roberta_config.json", {"max_seq_length": 9, "do_lower_case": True}),
    ("sentence_xlm-roberta_config.json", {"max_seq_length": 9}),
    ("sentence_bert_config.json", {"processing_kwargs": {"text": {"max_length": 9, "truncation": True}}, "max_seq_length": 20}),
    ("sentence_bert_config.json", {"processor_kwargs": {"model_max_length": 9}, "max_seq_length": 20}),
]


@pytest.mark.parametrize(("name", "settings"), SETTINGS, ids=["roberta", "xlm-roberta", "processing", "processor"])
def test_settings_of_the_tokeniser(made, texts, tmp_path, name, settings):
    from sentence_transformers import SentenceTransformer

    path, _ = made("roberta")
    changed = shutil.copytree(path, tmp_path / "model")
    (changed / "sentence_bert_config.json").unlink()
    (changed / name).write_text(json.dumps(settings))
    reference = SentenceTransformer(str(changed), device="cpu")
    assert difference(changed, reference, texts) < 1e-4
    assert difference(path, reference, texts) > 1e-3
    assert read_folder(changed).manifest.max_length == 9


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"query_length": 8}, "says query_length=8"),
        ({"document_length": 8}, "says document_length=8"),
        ({"processing_kwargs": {"text": {"add_special_tokens": False}}}, "says add_special_tokens=False"),
        ({"processing_kwargs": {"common": {"max_length": 8}}}, "says max_length=8"),
    ],
)
def test_settings_that_are_not_known_are_refused(made, tmp_path, settings, says):
    path, _ = made("roberta")
    changed = shutil.copytree(path, tmp_path / "model")
    (changed / "sentence_bert_config.json").write_text(json.dumps(settings))
    with pytest.raises(ModelError, match=rf"sentence_bert_config.json {says}"):
        read_folder(changed)


def test_truncated_vectors(made, texts):
    """Models of the Matryoshka sort: sentence-transformers keeps the first numbers of a vector."""
    path, reference = made(truncate_dim=12)
    assert load(weights="none", dense=path).dimension == 12
    assert reference.encode(texts[:1]).shape == (1, 12)
    assert difference(path, reference, texts) < 1e-4


@pytest.fixture
def two_towers(made, tmp_path):
    """A folder with an encoder for documents and another one for queries."""
    documents, reference = made("bert")
    queries, query_reference = made("roberta", "cls", prompts={"query": "q: "})
    path = shutil.copytree(documents, tmp_path / "towers")
    shutil.copytree(queries, path / "query")
    write_manifest(path / "query", read_folder(queries).manifest)
    manifest = read_folder(documents).manifest
    write_manifest(path, replace(manifest, settings={**manifest.settings, "query_folder": "query"}))
    return path, reference, query_reference


def test_two_towers(two_towers, texts):
    path, reference, query_reference = two_towers
    encoder = DenseEncoder.load(path)
    assert np.abs(encoder.encode(texts) - reference.encode_document(texts)).max() < 1e-4
    assert np.abs(encoder.encode(texts, kind="query") - query_reference.encode_query(texts)).max() < 1e-4
    query = DenseModel.query_folder(read_folder(path))
    assert read_folder(path).manifest.hash != query.manifest.hash


def test_two_towers_are_exported_with_a_graph_each(two_towers, texts, tmp_path):
    path, _, _ = two_towers
    expected = DenseEncoder.load(path).encode(texts, kind="query")
    export(path, tmp_path / "out")
    assert (tmp_path / "out" / "query" / "model.int8.onnx").is_file()
    assert (tmp_path / "out" / "model.int8.onnx").is_file()
    given = load(weights="none", dense=tmp_path / "out", precision="fp32").encode(texts, kind="query")
    assert max(np.abs(encoding.vector - row).max() for encoding, row in zip(given, expected, strict=True)) < 1e-5


def test_towers_of_two_dimensions_are_one_sentence(made, tmp_path):
    documents, _ = made("bert")
    queries, _ = made("bert", dense=[(8, torch.nn.Tanh())])
    path = shutil.copytree(documents, tmp_path / "towers")
    shutil.copytree(queries, path / "query")
    write_manifest(path / "query", read_folder(queries).manifest)
    manifest = read_folder(documents).manifest
    write_manifest(path, replace(manifest, settings={**manifest.settings, "query_folder": "query"}))
    with pytest.raises(ModelError, match="gives 8 numbers, the document encoder 'model' 32"):
        DenseEncoder.load(path)
