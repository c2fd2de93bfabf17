"""Folders of sentence-transformers: what is read of them, and what is refused in one sentence."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

from termweave.encoders import DenseEncoder, load
from termweave.encoders.kinds import read_folder
from termweave.encoders.onnx.checked_graphs import write_fp32
from termweave.errors import ModelError


def change(file, **changes):
    """Alter a JSON file of a folder; None removes an entry."""
    content = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


@pytest.fixture
def folder(made, tmp_path):
    """A copy of a saved model."""
    path, _ = made(dense=[(16, torch.nn.Tanh())])
    return shutil.copytree(path, tmp_path / "model")


def dense(folder):
    return load(weights="none", dense=folder)


def test_what_a_folder_says(made, folder):
    manifest = read_folder(folder).manifest
    assert (manifest.kind, manifest.outputs, manifest.name) == ("dense", ("dense",), "model")
    assert (manifest.dimension, manifest.max_length, manifest.pooling) == (16, 40, "mean")
    change(folder / "sentence_bert_config.json", max_seq_length=17)
    assert read_folder(folder).manifest.max_length == 17
    change(folder / "sentence_bert_config.json", max_seq_length=5000)  # more than the transformer has positions
    assert read_folder(folder).manifest.max_length == 64
    roberta, _ = made("roberta")
    roberta = shutil.copytree(roberta, folder.parent / "roberta")
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
    for name in ("tokenizer_config.json",):
        shutil.copy(path / name, plain / name)
    vectors = reference.encode(texts)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    assert np.abs(DenseEncoder.load(plain).encode(texts) - vectors).max() < 1e-4


CASES = [
    ("tokenizer.json", None, "has no tokeniser"),
    ("model.safetensors", None, "has no weights"),
    ("2_Dense/model.safetensors", None, "2_Dense.* is not a dense layer: .* No such file"),
    ("1_Pooling/config.json", None, "incomplete: .*1_Pooling"),
    ("config.json", {"model_type": None}, "unknown architecture"),
    ("config.json", {"hidden_size": None}, "does not say how wide"),
    ("1_Pooling/config.json", {"pooling_mode": "median"}, "names the pooling median"),
    (
        "1_Pooling/config.json",
        {"pooling_mode": ["mean", "max"]},
        "takes vectors of 32 numbers, and what comes before it gives 64",
    ),
    ("2_Dense/config.json", {"activation_function": "os.system"}, "activation 'system'"),
    ("config_sentence_transformers.json", {"model_type": "MultiVectorEncoder"}, "is a MultiVectorEncoder"),
    ("config_sentence_transformers.json", {"prompts": ["query: "]}, "has an entry of the wrong type: 'list'"),
    ("1_Pooling/config.json", {"pooling_mode": 5}, "has an entry of the wrong type: 'int'"),
    ("1_Pooling/config.json", [], "is not a table"),
    ("modules.json", {}, "is not a list"),
]


@pytest.mark.parametrize(("file", "changes", "sentence"), CASES, ids=lambda value: str(value)[:40])
def test_what_cannot_be_run_is_one_sentence(folder, file, changes, sentence):
    if changes is None:
        (folder / file).unlink()
    elif not changes:
        (folder / file).write_text(json.dumps(changes))
    else:
        change(folder / file, **changes)
    with pytest.raises(ModelError, match=sentence) as error:
        dense(folder)
    assert error.value.hint


def test_weights_in_parts_are_the_same_model(folder, texts, tmp_path):
    from transformers import AutoModel

    whole = DenseEncoder.load(folder).encode(texts)
    AutoModel.from_pretrained(folder).save_pretrained(tmp_path / "parts", max_shard_size="20KB")
    (folder / "model.safetensors").unlink()
    for file in (tmp_path / "parts").glob("model*"):
        shutil.copy(file, folder / file.name)
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    assert np.abs(DenseEncoder.load(folder).encode(texts) - whole).max() < 1e-6
    first = min(folder.glob("model-*.safetensors"))
    assert first.name in read_folder(folder).manifest.files  # the hash covers every part
    first.unlink()
    with pytest.raises(ModelError, match=f"incomplete: .*{first.name} is missing"):
        dense(folder)
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../b"}}')
    with pytest.raises(ModelError, match="names the file"):
        dense(folder)


def test_pickled_weights_are_not_read(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="are a pickle") as error:
        dense(folder)
    assert "safetensors" in error.value.hint


def test_weights_that_are_no_numbers(folder):
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    tensors["embeddings.LayerNorm.weight"][:] = float("nan")
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match="not numbers"):
        dense(folder).encode(["a"], kind="query")


def test_code_of_a_model_is_not_run(folder):
    """A graph holds all of its code: such a model runs, whatever the configuration says."""
    from termweave.encoders.kinds.dense import DenseModel

    graph = folder.parent / "model.onnx"
    write_fp32(DenseModel(read_folder(folder)).load_torch(), graph, ["last_hidden_state"])
    expected = dense(folder).encode(["a"], kind="query")[0].vector
    change(folder / "config.json", auto_map={"AutoModel": "modeling.Own"}, model_type="own-bert")
    with pytest.raises(ModelError, match="brings code of its own"):
        dense(folder)
    (folder / "onnx").mkdir()
    shutil.copy(graph, folder / "onnx" / "model.onnx")
    assert np.abs(dense(folder).encode(["a"], kind="query")[0].vector - expected).max() < 1e-5


def test_a_dense_model_gives_no_term_weights(folder):
    with pytest.raises(ModelError, match="it gives vectors, not term weights") as error:
        load(weights=folder, dense="none")
    assert "termweave train" in error.value.hint


def test_an_architecture_that_transformers_does_not_know(folder):
    change(folder / "config.json", model_type="tomorrow")
    with pytest.raises(ModelError, match="describes no model of transformers"):
        dense(folder).encode(["a"], kind="query")


def test_code_of_a_model_never_runs(folder):
    marker = folder / "ran"
    (folder / "code.py").write_text(f"open({str(marker)!r}, 'w')")
    change(folder / "config.json", model_type="own", auto_map={"AutoConfig": "code.C", "AutoModel": "code.M"})
    with pytest.raises(ModelError):
        dense(folder).encode(["a"], kind="query")
    assert not marker.exists()


def test_a_cross_encoder_gives_no_vectors(folder):
    (folder / "modules.json").unlink()
    change(folder / "config.json", architectures=["BertForSequenceClassification"])
    with pytest.raises(ModelError, match="is a cross-encoder: it gives scores of pairs, not vectors"):
        dense(folder)


def test_a_model_for_dot_products_needs_vectors_of_length_1(made, tmp_path):
    path, _ = made(normalise=False, similarity_fn_name="dot")
    with pytest.raises(ModelError, match="compares vectors by dot"):
        dense(path)
    path, _ = made(similarity_fn_name="dot")
    assert dense(path).dimension == 32


@pytest.mark.parametrize(
    ("modules", "sentence"),
    [
        ([], "lists the modules"),
        ([{"type": "sentence_transformers.base.modules.router.Router", "path": ""}], "does not describe the modules"),
        (
            [
                {"type": "sentence_transformers.models.Transformer", "path": ""},
                {"type": "sentence_transformers.models.SpladePooling", "path": "1_Pooling"},
            ],
            "sparse encoder",
        ),
        (
            [
                {"type": "sentence_transformers.models.Transformer", "path": "../other"},
                {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
            ],
            "not inside",
        ),
        (
            [
                {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
                {"type": "sentence_transformers.models.Transformer", "path": ""},
            ],
            "in this order",
        ),
        ([7], "does not list modules"),
        ([{"type": "custom_st.Transformer", "path": ""}], "brings code of its own"),
    ],
    ids=str,
)
def test_other_modules_are_refused(folder, modules, sentence):
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ModelError, match=sentence):
        dense(folder)


@pytest.mark.parametrize("damage", [b"", b"\xff" * 100, b"\x10\0\0\0\0\0\0\0" + b"{" * 16])
def test_damaged_layers_are_one_sentence(folder, damage):
    (folder / "2_Dense" / "model.safetensors").write_bytes(damage)
    with pytest.raises(ModelError, match="is not a dense layer"):
        dense(folder)


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = sys.modules["transformers"] = None
from termweave.encoders import DenseEncoder
from termweave.errors import ModelError
try:
    print(DenseEncoder.load(sys.argv[1]).encode(["a small text"], kind="query").tolist())
except ModelError as error:
    print(error, error.hint)
"""


def without_torch(folder, tmp_path):
    """What a host without the extra gives; its cache is empty."""
    code = WITHOUT_TORCH.replace("import sys\n", "import sys, importlib.util as u\nf = u.find_spec\n", 1).replace(
        "from termweave.encoders import",
        "u.find_spec = lambda name, *p: None if name in ('torch', 'transformers') else f(name, *p)\nfrom termweave.encoders import",
        1,
    )
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_folder_with_a_graph_runs_without_torch(folder, tmp_path):
    from termweave.encoders.kinds.dense import DenseModel

    said = without_torch(folder, tmp_path)
    assert "has no ONNX graph" in said
    assert "[train]'" in said
    expected = DenseEncoder.load(folder).encode(["a small text"], kind="query")
    (folder / "onnx").mkdir()
    write_fp32(DenseModel(read_folder(folder)).load_torch(), folder / "onnx" / "model.onnx", ["token_embeddings"])
    (folder / "model.safetensors").unlink()
    assert np.abs(np.array(json.loads(without_torch(folder, tmp_path))) - expected).max() < 1e-6


def test_the_states_may_have_the_name_that_torch_gives(folder):
    """The graph of all-minilm-l6 that Maven has calls them output_0."""
    from termweave.encoders.kinds.dense import DenseModel

    module = DenseModel(read_folder(folder)).load_torch()
    expected = DenseEncoder.load(folder).encode(["a small text"], kind="query")
    (folder / "onnx").mkdir()
    write_fp32(module, folder / "onnx" / "model.onnx", ["output_0"])
    assert np.abs(dense(folder).encode(["a small text"], kind="query")[0].vector - expected[0]).max() < 1e-6


def test_a_graph_of_another_model_is_one_sentence(made, folder):
    from termweave.encoders.kinds.dense import DenseModel

    other, _ = made("distilbert", pooling=("mean", "max"))
    module = DenseModel(read_folder(other)).load_torch()
    (folder / "onnx").mkdir()
    write_fp32(module, folder / "onnx" / "model.onnx", ["logits"])
    with pytest.raises(ModelError, match="gives logits, and not the states"):
        dense(folder).encode(["a"], kind="query")
    change(folder / "config.json", hidden_size=64)  # the description of a wider model
    change(folder / "1_Pooling" / "config.json", embedding_dimension=64)
    (folder / "2_Dense" / "model.safetensors").unlink()
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps([entry for entry in modules if "Dense" not in entry["type"]]))
    write_fp32(module, folder / "onnx" / "model.onnx", ["last_hidden_state"])
    with pytest.raises(ModelError, match="vectors of 32 numbers, but its description says 64"):
        dense(folder).encode(["a"], kind="query")


def test_a_graph_that_reads_other_files_is_refused(folder):
    import onnx

    from termweave.encoders.kinds.dense import DenseModel

    (folder / "onnx").mkdir()
    graph = folder / "onnx" / "model.onnx"
    write_fp32(DenseModel(read_folder(folder)).load_torch(), graph, ["last_hidden_state"])
    model = onnx.load(graph)
    onnx.external_data_helper.set_external_data(model.graph.initializer[0], "../../secret", 0, 8)
    model.graph.initializer[0].ClearField("raw_data")
    graph.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=r"cannot be run: .*External data path"):
        dense(folder).encode(["a"], kind="query")


def test_the_hash_covers_weights_that_lie_beside_the_graph(folder):
    import onnx

    from termweave.encoders.kinds.dense import DenseModel

    graph = folder / "onnx" / "model.onnx"
    graph.parent.mkdir()
    write_fp32(DenseModel(read_folder(folder)).load_torch(), graph, ["last_hidden_state"])
    model = onnx.load(graph)
    name = f"model.onnx_{'x' * 130}"  # a length of two bytes in protobuf
    onnx.save(model, graph, save_as_external_data=True, location=name, size_threshold=0)
    other = shutil.copytree(folder, folder.parent / "other")
    file = other / "onnx" / name
    weights = np.frombuffer(file.read_bytes(), np.float32)
    file.write_bytes((weights * np.random.default_rng(0).uniform(0.5, 1.5, weights.shape)).astype(np.float32).tobytes())
    assert f"onnx/{name}" in read_folder(folder).manifest.files
    assert f"onnx/{name}" in read_folder(folder).identities
    assert read_folder(folder).manifest.hash != read_folder(other).manifest.hash
    (vector,), (expected,) = (
        encoder.encode(["The cat sat."], kind="query") for encoder in (load("none", folder, dense_query=other), dense(other))
    )
    assert np.array_equal(vector.vector, expected.vector)
    file.unlink()
    with pytest.raises(ModelError, match=r"incomplete: .*onnx_x+ is missing"):
        read_folder(other)
