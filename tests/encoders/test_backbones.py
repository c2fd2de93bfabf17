"""Backbones by name: what is fetched is what was pinned, the parameters in a graph are those of BertModel, bad archives are refused."""

import hashlib
import json
import shutil
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from termweave import encoders
from termweave.encoders import backbones, model_lookup
from termweave.encoders.manifest import SENTENCE_GRAPH
from termweave.encoders.onnx import bert_graph
from termweave.engine.embedded.artifacts import MavenArtifact
from termweave.errors import TermweaveError
from termweave.indexer import build_plan
from termweave.support import paths

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")
SHAPE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
SCHEMAS = Path(__file__).parents[2] / "docs/schemas"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "dog", "house", "##s", "the", "a", ":", "query", "passage"]


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """A BERT with random weights of two layers and four heads, its ONNX graph as exporters write it, and its tokeniser."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("graph")
    torch.manual_seed(0)
    config = BertConfig(**SHAPE, vocab_size=len(WORDS), intermediate_size=64, attn_implementation="eager")
    model = BertModel(config, add_pooling_layer=False).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # fresh biases are all zero, and exporters write equal tensors once
            parameter.add_(torch.randn_like(parameter) * 0.1)

    class States(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bert = model

        def forward(self, ids, mask, types):
            return self.bert(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state

    ids, names = torch.tensor([[2, 5, 8, 3]]), ["input_ids", "attention_mask", "token_type_ids"]
    options = {"input_names": names, "output_names": ["last_hidden_state"]}
    axes = {name: {0: "batch", 1: "length"} for name in names}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the older exporter is the one that published graphs come from
        inputs = (ids, torch.ones_like(ids), torch.zeros_like(ids))
        torch.onnx.export(States().eval(), inputs, folder / "model.onnx", **options, dynamic_axes=axes, dynamo=False)
    tokenizer = Tokenizer(models.WordPiece({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder, model


@pytest.fixture
def shelf(graph, tmp_path, monkeypatch):
    """An archive of this model as the backbone "tiny", in the folder that the variable names; caches of its own."""
    (tmp_path / "brought").mkdir()
    artifact = MavenArtifact("org.example", "tiny-model", "1.0", "", "jar")
    file = tmp_path / "brought" / artifact.file_name
    with zipfile.ZipFile(file, "w") as archive:
        archive.write(graph[0] / "model.onnx", "tiny.onnx")
        archive.write(graph[0] / "tokenizer.json", "tiny-tokenizer.json")
    pinned = replace(artifact, sha256=hashlib.sha256(file.read_bytes()).hexdigest())
    prompts = {"query": "query: ", "document": "passage: "}
    tiny = backbones.Backbone("tiny", pinned, 1, "English", "MIT", "example/tiny", 2, 16, 4, "cls", prompts)
    monkeypatch.setitem(backbones.BACKBONES, "tiny", tiny)
    for name in ("cache", "models"):
        monkeypatch.setattr(paths, name, lambda name=name: tmp_path / name)
    monkeypatch.setenv(backbones.OVERRIDE, str(tmp_path / "brought"))
    return file


def test_a_name_serves_wherever_a_model_is_named(shelf, graph):
    assert model_lookup.resolve_local("tiny") is None  # an index fetches nothing
    assert not backbones.BACKBONES["tiny"].fetched()
    encoder = encoders.load(weights="none", dense="tiny")
    query, document = (encoder.encode(["the cat"], kind=kind)[0].vector for kind in ("query", "document"))
    with torch.no_grad():
        pieces = [WORDS.index(word) for word in ("[CLS]", "query", ":", "the", "cat", "[SEP]")]
        expected = graph[1](torch.tensor([pieces])).last_hidden_state[0, 0].numpy()  # pooled by the first token
    np.testing.assert_allclose(query, expected / np.linalg.norm(expected), atol=1e-5)
    assert not np.allclose(query, document, atol=1e-3)  # another prompt
    assert encoder.models["dense"].name == "tiny"
    assert model_lookup.resolve_local("tiny") == backbones.BACKBONES["tiny"].folder  # an index may name what is here


def test_a_model_that_lacks_its_prompts_is_warned_of(graph, tmp_path):
    folder, _ = graph
    content = [(folder / file).read_bytes() for file in ("model.onnx", "tokenizer.json")]
    said = {}
    for name, prompts in (("e5-small-mine", {}), ("with/e5-small-mine", {"query": "query: "}), ("unknown", {})):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        bert_graph.write_folder(tmp_path / name, *content, SHAPE, "mean", prompts)
        said[name] = build_plan.prompt_warnings(encoders.load("none", tmp_path / name).models)
    assert said["with/e5-small-mine"] == said["unknown"] == []
    (warning,) = said["e5-small-mine"]
    assert "'e5-small-mine' was probably trained with 'query: ' before a query and 'passage: ' before a document" in warning
    assert "prompts={'query': 'query: ', 'document': 'passage: '}" in warning


def test_training_reads_the_weights_from_the_graph(shelf, graph, tmp_path):
    from termweave.training import backbone_model
    from termweave.training.methods import base

    settings = base.get("fectek").settings({"backbone": "tiny", "outputs": "weights"})
    model = backbone_model.load(backbone_model.find(settings, [], tmp_path), settings)
    for name, tensor in graph[1].state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], tensor)


def test_a_fetch_says_its_size_once(shelf, monkeypatch, tmp_path, capsys):
    monkeypatch.delenv(backbones.OVERRIDE)
    kept = backbones.shelf().cache
    kept.mkdir(parents=True)
    (kept / shelf.name).write_bytes(shelf.read_bytes())  # in place of the network
    monkeypatch.setattr("termweave.engine.embedded.artifacts.Shelf.holds", lambda *_: False)
    model_lookup.resolve("tiny")
    assert "Fetching tiny (1 MB, MIT, example/tiny)" in capsys.readouterr().err
    model_lookup.resolve("tiny")
    assert capsys.readouterr().err == ""
    assert not list(kept.iterdir())  # the folder holds everything


@pytest.mark.parametrize("damage", [lambda data: data[:-100], lambda data: data.replace(b"tiny.onnx", b"tiny.onnX")])
def test_an_archive_that_was_cut_short_or_altered_is_refused(shelf, damage):
    shelf.write_bytes(damage(shelf.read_bytes()))
    with pytest.raises(TermweaveError, match="is not the archive that was tested"):
        backbones.fetch("tiny")
    assert not backbones.BACKBONES["tiny"].folder.exists()


def test_no_network_says_what_to_bring(shelf, monkeypatch, no_network):
    monkeypatch.delenv(backbones.OVERRIDE)
    with pytest.raises(TermweaveError, match="there is no network") as caught:
        backbones.fetch("tiny", lambda _: None)
    assert backbones.OVERRIDE in caught.value.hint
    assert not list(backbones.shelf().cache.iterdir())


def test_the_command_lists_and_fetches(shelf, termweave):
    def listed():
        answer = json.loads(termweave("models", "--json"))
        jsonschema.validate(answer, json.loads((SCHEMAS / "models.1.json").read_text()))
        return {each["name"]: each for each in answer["models"]}

    assert list(listed().items())[-1] == ("tiny", listed()["tiny"] | {"folder": None})
    answer = json.loads(termweave("backbone", "fetch", "tiny", "--json"))
    jsonschema.validate(answer, json.loads((SCHEMAS / "backbone.1.json").read_text()))
    facts = {name: [each["origin"], each["outputs"], each["language"], bool(each["folder"])] for name, each in listed().items()}
    assert facts["tiny"] == ["fetched", ["dense"], "English", True]
    assert facts["fast"] == ["shipped", ["weights", "dense"], "English", True]
    assert facts["bm25-german"] == ["shipped", ["weights"], "German", True]
    assert 0.4 < listed()["fast"]["calibration"] < 0.5
    assert "bge-small-en" in termweave("backbone", "fetch", "bge", status=2)


def test_a_graph_of_ones_own_is_imported(shelf, graph, termweave):
    termweave("backbone", "import", graph[0] / "model.onnx", "--name", "ours", "--query-prompt", "query: ")
    config = json.loads((paths.models() / "ours/config.json").read_bytes())
    assert config["num_attention_heads"] == 4
    (encoding,) = encoders.load(weights="none", dense="ours").encode(["the dogs"], kind="document")
    assert encoding.vector.shape == (16,)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[: len(data) // 2], "not an ONNX graph, or was cut short"),
        (lambda data: data.replace(b"self.query.", b"self.other."), "parameters of a BERT"),
        (lambda data: data.replace(b"encoder.layer.1.", b"encoder.layer.9."), "all parameters of a BERT"),
        (lambda data: data.replace(b"position_embeddings.weight", b"position_embeddings.wEight"), "all parameters of a BERT"),
    ],
)
def test_a_graph_that_is_not_a_bert_is_refused(shelf, graph, termweave, tmp_path, damage, message):
    (tmp_path / "bad.onnx").write_bytes(damage((graph[0] / "model.onnx").read_bytes()))
    shutil.copy(graph[0] / "tokenizer.json", tmp_path)
    assert message in termweave("backbone", "import", tmp_path / "bad.onnx", "--name", "bad", status=1)
    assert not (paths.models() / "bad").exists()


def test_a_name_that_is_taken_or_a_path_is_refused(shelf, graph, termweave):
    own = paths.models() / "own"
    own.mkdir(parents=True)
    (own / "notes.txt").write_text("kept")
    for name in ("tiny", "../x", "~x", "own", "fast", "none", "bm25-german", "hf:x"):
        termweave("backbone", "import", graph[0] / "model.onnx", "--name", name, status=2)
    assert (own / "notes.txt").read_text() == "kept"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bge-small-zh", "bge-small-en"])
def test_a_real_backbone_computes_the_states_of_its_graph(name, monkeypatch, tmp_path):
    """The parameters read from the published graph give its states in torch, with the declared number of heads."""
    try:
        folder = backbones.fetch(name, lambda _: None)
    except TermweaveError as error:
        pytest.skip(f"{name} cannot be fetched here: {error}")
    state = bert_graph.parameters(folder / SENTENCE_GRAPH)
    assert bert_graph._same_states(folder / SENTENCE_GRAPH, state, backbones.BACKBONES[name].heads)


def test_weights_in_several_files_are_not_read_from_the_graph(tmp_path):
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "model.onnx").write_bytes(b"of an architecture that is not BERT's")
    (tmp_path / "model-1-of-1.safetensors").write_bytes(b"")
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "model-1-of-1.safetensors"}}')
    bert_graph.write_weights(tmp_path)
    assert not (tmp_path / "model.safetensors").exists()
