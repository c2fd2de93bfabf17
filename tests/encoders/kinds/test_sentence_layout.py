"""Folders of sentence-transformers: what is read of them, what is refused in one sentence, and what a GPU pools."""

import json
import shutil
import sys

import numpy as np
import onnx
import pytest
import torch
from safetensors.torch import load_file, save_file

from termweave.encoders import DenseEncoder, load
from termweave.encoders.kinds import read_folder
from termweave.encoders.kinds.dense import DenseModel
from termweave.encoders.onnx import checked_graphs, runtime
from termweave.encoders.onnx.checked_graphs import write_fp32
from termweave.encoders.onnx.runtime import POOLED, STATES, OnnxModel
from termweave.errors import ModelError
from termweave.support import paths
from tests.encoders.kinds.conftest import change, of_vectors


@pytest.fixture
def folder(made, tmp_path):
    """A copy of a saved model."""
    path, _ = made(dense=[(16, torch.nn.Tanh())])
    return shutil.copytree(path, tmp_path / "model")


def dense(folder):
    return load(weights="none", dense=folder)


def vector_of(folder, text="a small text"):
    return dense(folder).encode([text], kind="query")[0].vector


def with_graph(folder, output, source=None):
    """Give a folder the graph of its model, or of another one; the output has this name."""
    graph = folder / "onnx" / "model.onnx"
    graph.parent.mkdir(exist_ok=True)
    write_fp32(DenseModel(read_folder(source or folder)).load_torch(), graph, [output])
    return graph


def test_what_a_folder_says(made, folder):
    manifest = read_folder(folder).manifest
    assert (manifest.kind, manifest.outputs, manifest.name) == ("dense", ("dense",), "model")
    assert (manifest.dimension, manifest.max_length, manifest.pooling) == (16, 40, "mean")
    for length, read in ((17, 17), (5000, 64)):  # the transformer has 64 positions
        change(folder / "sentence_bert_config.json", max_seq_length=length)
        assert read_folder(folder).manifest.max_length == read
    roberta = shutil.copytree(made("roberta")[0], folder.parent / "roberta")
    change(roberta / "tokenizer_config.json", model_max_length=None)
    assert read_folder(roberta).manifest.max_length == 64  # of its 66 positions two are no tokens


def test_the_hash_names_what_is_computed(folder):
    first = read_folder(folder).manifest.hash
    change(folder / "config.json", transformers_version="0", _name_or_path="elsewhere")
    (folder / "README.md").write_text("another card")
    assert read_folder(folder).manifest.hash == first
    hashes = {first}
    for file, changes in (
        ("config.json", {"num_attention_heads": 2}),
        ("sentence_bert_config.json", {"max_seq_length": 20}),
        ("sentence_bert_config.json", {"do_lower_case": True}),
        ("1_Pooling/config.json", {"pooling_mode": "cls"}),
        ("config_sentence_transformers.json", {"prompts": {"query": "q: "}}),
        ("2_Dense/config.json", {"activation_function": "torch.nn.modules.linear.Identity"}),
    ):
        change(folder / file, **changes)
        hashes.add(read_folder(folder).manifest.hash)
    assert len(hashes) == 7


def test_older_layouts_are_read(made, texts, tmp_path):
    path, _ = made(pooling="cls")
    old = shutil.copytree(path, tmp_path / "old")
    change(old / "1_Pooling" / "config.json", pooling_mode=None, pooling_mode_cls_token=True, pooling_mode_mean_tokens=False)
    change(old / "1_Pooling" / "config.json", embedding_dimension=None, word_embedding_dimension=32)
    (old / "0_Transformer").mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "sentence_bert_config.json"):
        (old / name).rename(old / "0_Transformer" / name)
    modules = json.loads((old / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    for module in modules:
        module["type"] = f"sentence_transformers.models.{module['type'].rsplit('.', 1)[-1]}"
    (old / "modules.json").write_text(json.dumps(modules))
    expected = DenseEncoder.load(path).encode(texts)
    assert DenseEncoder.load(old).encode(texts).tobytes() == expected.tobytes()


def test_a_transformers_folder_is_pooled_by_the_mean(made, texts, tmp_path):
    path, reference = made(normalise=False)
    plain = shutil.copytree(path, tmp_path / "plain", ignore=shutil.ignore_patterns("modules.json", "*_*"))
    shutil.copy(path / "tokenizer_config.json", plain)
    vectors = reference.encode(texts)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    assert np.abs(DenseEncoder.load(plain).encode(texts) - vectors).max() < 1e-4


MODELS = "sentence_transformers.models"
CASES = [
    ("tokenizer.json", None, "has no tokeniser"),
    ("model.safetensors", None, "has no weights"),
    ("2_Dense/model.safetensors", None, "2_Dense.* is not a dense layer: .* No such file"),
    ("2_Dense/model.safetensors", b"\x10" + b"\0" * 7 + b"{" * 16, "is not a dense layer"),
    ("1_Pooling/config.json", None, "incomplete: .*1_Pooling"),
    ("config.json", {"model_type": None}, "unknown architecture"),
    ("config.json", {"hidden_size": None}, "does not say how wide"),
    ("config.json", {"model_type": "tomorrow"}, "describes no model of transformers"),
    ("1_Pooling/config.json", {"pooling_mode": "median"}, "names the pooling median"),
    ("1_Pooling/config.json", {"pooling_mode": ["mean", "max"]}, "takes vectors of 32 numbers, and gets vectors of 64"),
    ("2_Dense/config.json", {"activation_function": "os.system"}, "activation 'system'"),
    ("config_sentence_transformers.json", {"model_type": "MultiVectorEncoder"}, "is a MultiVectorEncoder"),
    ("config_sentence_transformers.json", {"prompts": ["query: "]}, "has an entry of the wrong type: 'list'"),
    ("1_Pooling/config.json", b"[]", "is not a table"),
    ("modules.json", b"{}", "is not a list"),
    ("modules.json", [], "lists the modules"),
    ("modules.json", [("sentence_transformers.base.modules.router.Router", "")], "does not describe the modules"),
    ("modules.json", [(f"{MODELS}.Transformer", ""), (f"{MODELS}.SpladePooling", "1_Pooling")], "sparse encoder"),
    ("modules.json", [(f"{MODELS}.Transformer", "../other"), (f"{MODELS}.Pooling", "1_Pooling")], "not inside"),
    ("modules.json", [(f"{MODELS}.Pooling", "1_Pooling"), (f"{MODELS}.Transformer", "")], "in this order"),
    ("modules.json", [("custom_st.Transformer", "")], "brings code of its own"),
    ("sentence_bert_config.json", {"query_length": 8}, "sentence_bert_config.json says query_length=8"),
    ("sentence_bert_config.json", {"processing_kwargs": {"text": {"add_special_tokens": False}}}, "add_special_tokens=False"),
    ("sentence_bert_config.json", {"processing_kwargs": {"common": {"max_length": 8}}}, "max_length=8"),
]


@pytest.mark.parametrize(("file", "changes", "sentence"), CASES, ids=lambda value: str(value)[:60])
def test_what_cannot_be_run_is_one_sentence(folder, file, changes, sentence):
    if changes is None:
        (folder / file).unlink()
    elif isinstance(changes, bytes):
        (folder / file).write_bytes(changes)
    elif isinstance(changes, list):
        (folder / file).write_text(json.dumps([{"type": kind, "path": path} for kind, path in changes]))
    else:
        change(folder / file, **changes)
    with pytest.raises(ModelError, match=sentence) as error:
        vector_of(folder)
    assert error.value.hint


def test_weights_in_parts_are_the_same_model(folder, texts, tmp_path):
    from transformers import AutoModel

    whole = DenseEncoder.load(folder).encode(texts)
    AutoModel.from_pretrained(folder).save_pretrained(tmp_path / "parts", max_shard_size="20KB")
    (folder / "model.safetensors").unlink()
    for file in (tmp_path / "parts").glob("model*"):
        shutil.copy(file, folder / file.name)
    first, *_, last = sorted(folder.glob("model-*.safetensors"))
    assert np.abs(DenseEncoder.load(folder).encode(texts) - whole).max() < 1e-6
    assert {first.name, last.name} <= read_folder(folder).manifest.files.keys()  # the hash covers every part
    first.unlink()
    with pytest.raises(ModelError, match=f"incomplete: .*{first.name} is missing"):
        dense(folder)
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../b"}}')
    with pytest.raises(ModelError, match="names the file"):
        dense(folder)


def test_weights_that_are_no_numbers_or_a_pickle(folder):
    tensors = load_file(folder / "model.safetensors")
    tensors["embeddings.LayerNorm.weight"][:] = float("nan")
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match="not numbers"):
        vector_of(folder)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="are a pickle") as error:
        dense(folder)
    assert "safetensors" in error.value.hint


@pytest.mark.parametrize("output", ["last_hidden_state", "token_embeddings", "output_0"])  # the last one by exporters of torch
def test_a_graph_needs_neither_weights_nor_torch_and_runs_whatever_the_configuration_says(folder, monkeypatch, output):
    expected = vector_of(folder)
    with_graph(folder, output)
    change(folder / "config.json", auto_map={"AutoModel": "modeling.Own"}, model_type="own-bert")
    (folder / "model.safetensors").unlink()
    for module in ("torch", "transformers"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(checked_graphs, "find_spec", lambda _: None)
    assert np.abs(vector_of(folder) - expected).max() < 1e-5


def test_without_torch_a_folder_needs_a_graph(folder, monkeypatch, tmp_path):
    expected = vector_of(folder)
    monkeypatch.setattr(checked_graphs, "find_spec", lambda _: None)
    assert np.array_equal(vector_of(folder), expected)  # by the graph in the cache
    monkeypatch.setattr(paths, "cache", lambda: tmp_path / "cache")
    with pytest.raises(ModelError, match="has no ONNX graph") as error:
        vector_of(folder)
    assert "[train]'" in error.value.hint


def test_code_of_a_model_never_runs(folder):
    (folder / "code.py").write_text(f"open({str(folder / 'ran')!r}, 'w')")
    change(folder / "config.json", model_type="own", auto_map={"AutoConfig": "code.C", "AutoModel": "code.M"})
    with pytest.raises(ModelError):
        vector_of(folder)
    assert not (folder / "ran").exists()


def test_a_model_for_dot_products_needs_vectors_of_length_1(made):
    with pytest.raises(ModelError, match="compares vectors by dot"):
        dense(made(normalise=False, similarity_fn_name="dot")[0])
    assert dense(made(similarity_fn_name="dot")[0]).dimension == 32


def test_a_graph_of_another_model_is_one_sentence(made, folder):
    other, _ = made("distilbert")
    with_graph(folder, "logits", other)
    with pytest.raises(ModelError, match="gives logits, and not the states"):
        vector_of(folder)
    change(folder / "config.json", hidden_size=64)  # the description of a wider model
    change(folder / "1_Pooling" / "config.json", embedding_dimension=64)
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps([entry for entry in modules if "Dense" not in entry["type"]]))
    with_graph(folder, "last_hidden_state", other)
    with pytest.raises(ModelError, match="vectors of 32 numbers, but its description says 64"):
        vector_of(folder)


def test_the_hash_covers_weights_that_lie_beside_the_graph(folder):
    graph = with_graph(folder, "last_hidden_state")
    name = f"model.onnx_{'x' * 130}"  # a length of two bytes in protobuf
    onnx.save(onnx.load(graph), graph, save_as_external_data=True, location=name, size_threshold=0)
    other = shutil.copytree(folder, folder.parent / "other")
    file = other / "onnx" / name
    weights = np.frombuffer(file.read_bytes(), np.float32)
    file.write_bytes((weights * np.random.default_rng(0).uniform(0.5, 1.5, weights.shape)).astype(np.float32).tobytes())
    assert f"onnx/{name}" in read_folder(folder).manifest.files.keys() & read_folder(folder).identities.keys()
    assert read_folder(folder).manifest.hash != read_folder(other).manifest.hash
    (encoding,) = load("none", folder, dense_query=other).encode(["The cat sat."], kind="query")
    assert np.array_equal(encoding.vector, vector_of(other, "The cat sat."))
    file.unlink()
    with pytest.raises(ModelError, match=r"incomplete: .*onnx_x+ is missing"):
        read_folder(other)


POOLINGS = ["mean", "cls", "lasttoken", "weightedmean", "mean_sqrt_len_tokens", ("mean", "cls"), "max"]


@pytest.mark.parametrize("pooling", POOLINGS, ids=str)
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


SETTINGS = [
    ("roberta", {"max_seq_length": 9, "do_lower_case": True}),
    ("bert", {"processing_kwargs": {"text": {"max_length": 9, "truncation": True}}, "max_seq_length": 20}),
    ("bert", {"processor_kwargs": {"model_max_length": 9}, "max_seq_length": 20}),
]


@pytest.mark.parametrize(("name", "settings"), SETTINGS)
def test_settings_of_the_tokeniser(made, texts, tmp_path, name, settings):
    from sentence_transformers import SentenceTransformer

    changed = shutil.copytree(made("roberta")[0], tmp_path / "model")
    (changed / "sentence_bert_config.json").unlink()
    (changed / f"sentence_{name}_config.json").write_text(json.dumps(settings))
    reference = SentenceTransformer(str(changed), device="cpu")
    assert of_vectors(changed, reference, texts) < 1e-4
    assert read_folder(changed).manifest.max_length == 9
