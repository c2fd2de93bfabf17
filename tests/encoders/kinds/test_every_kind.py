"""What holds of every kind: parity with sentence-transformers, also exported; what is lacking is one sentence; int8 is the same everywhere."""

import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import pytest
import torch
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from termweave.cli.verbs.models import export as command
from termweave.encoders import Ranker, load
from termweave.encoders.kinds import kind_of, read_folder
from termweave.encoders.kinds.dense import DenseModel
from termweave.encoders.manifest import GRAPHS, write_manifest
from termweave.encoders.model_lookup import resolve_local
from termweave.encoders.onnx import export as exporting
from termweave.encoders.onnx import quantisation
from termweave.encoders.onnx.checked_graphs import TOLERANCE
from termweave.encoders.onnx.quantisation import MOST, pair_sums, quantised, saturating
from termweave.errors import ModelError, TermweaveError, UsageError
from termweave.support import paths
from termweave.training import sample_cost
from tests.encoders.kinds.conftest import logits, of_scores, of_vectors, of_weights
from tests.programs import program

PROMPTS = {"query": "find this: ", "passage": "text: "}
LAYERS = [(24, torch.nn.Tanh()), (12, torch.nn.GELU()), (8, torch.nn.Identity())]
#: The fixture that makes the model, how it is compared, the architectures, and options of which each is a model.
PARITY = [
    ("made", of_vectors, ["bert", "roberta", "xlm-roberta", "mpnet", "distilbert", "modernbert"], [{}]),
    ("made", of_vectors, ["bert"], [{"pooling": each} for each in ("cls", "max", "lasttoken", "weightedmean", ("mean", "max"))]),
    ("made", of_vectors, ["bert"], [{"pooling": "mean_sqrt_len_tokens"}, {"dense": LAYERS}, {"truncate_dim": 12}]),
    ("made", of_vectors, ["bert"], [{"prompts": PROMPTS, "include_prompt": each} for each in (True, False)]),
    ("made", of_vectors, ["bert"], [{"prompts": PROMPTS, "include_prompt": each, "pooling": "cls"} for each in (True, False)]),
    ("ranked", of_scores, ["bert", "roberta", "xlm-roberta", "mpnet", "distilbert", "modernbert", "electra", "deberta-v2"], [{}]),
    ("ranked", of_scores, ["bert", "roberta", "modernbert", "deberta-v2"], [{"labels": 2}]),
    ("sparse_made", of_weights, ["bert", "distilbert", "roberta", "xlm-roberta", "mpnet", "modernbert"], [{}]),
    ("inference_free", of_weights, ["bert", "roberta"], [{}]),
]

SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"


@pytest.mark.parametrize(
    ("fixture", "difference", "architecture", "options"),
    [(fixture, how, each, options) for fixture, how, names, several in PARITY for each in names for options in several],
    ids=lambda each: getattr(each, "__name__", str(each)),  # a function's text has an address, which differs between processes
)
def test_models_compute_what_sentence_transformers_computes(request, texts, fixture, difference, architecture, options):
    path, reference = request.getfixturevalue(fixture)(architecture, **options)
    assert difference(path, reference, texts) < 1e-4


@pytest.mark.parametrize(
    ("fixture", "opened", "message"),
    [
        ("made", {"weights": ...}, r"is an encoder: it gives vectors, not term weights.*`termweave train`"),
        ("ranked", {"dense": ...}, r"is a cross-encoder: it gives scores of pairs, not vectors"),
        ("ranked", {"dense": "shipped", "dense_query": ...}, r"is a cross-encoder.* for dense_query"),
        ("sparse_made", {"dense": ...}, "is a sparse encoder: it gives term weights, not vectors"),
        ("made", {"ranker": ...}, r"is an encoder and scores no pairs"),
        ("made", {"dense_query": ...}, "no model gives vectors of documents"),
    ],
    ids=str,
)
def test_an_output_that_a_kind_lacks(request, fixture, opened, message):
    path, _ = request.getfixturevalue(fixture)()
    names = {output: path if name is ... else name for output, name in opened.items()}
    with pytest.raises(TermweaveError, match=message):
        Ranker.load(path) if "ranker" in opened else load(**{"weights": "none", "dense": "none", **names})


MALFORMED = [
    ("made", {"layers": [{"file": file, "activation": name}]}) for file, name in (("../x", "Tanh"), ("2_Dense/x", "exec"))
]
MALFORMED += [("made", {"prompts": {"query": 7}}), ("made", {"unknown": 1})]
MALFORMED += [("ranked", each) for each in ({"transformer": "/etc"}, {"labels": 3}, {"prompt": 7})]


@pytest.mark.parametrize(("fixture", "changes"), MALFORMED, ids=str)
def test_malformed_descriptions_are_one_sentence(request, tmp_path, fixture, changes):
    path, _ = request.getfixturevalue(fixture)()
    folder, manifest = shutil.copytree(path, tmp_path / "own"), read_folder(path).manifest
    write_manifest(folder, replace(manifest, settings={**manifest.settings, **changes}))
    with pytest.raises(ModelError, match=r"The description of the model .* is malformed"):
        kind_of(manifest)(read_folder(folder))


@pytest.mark.parametrize("architecture", ["deberta-v2", "modernbert"])
def test_a_cross_encoder_is_exported(ranked, texts, tmp_path, architecture):
    from sentence_transformers import CrossEncoder

    path, reference = ranked(architecture)
    done = CliRunner().invoke(command, [str(path), "--out", str(tmp_path / "out"), "--json"], catch_exceptions=False)
    jsonschema.validate(json.loads(done.stdout), json.loads((SCHEMAS / "export.1.json").read_text()))
    parity = json.loads(done.stdout)["parity"]
    assert (parity["fp32_difference"] <= TOLERANCE, 0.5 < parity["int8_rank_correlation"] <= 1) == (True, True)
    manifest = read_folder(tmp_path / "out").manifest
    assert (manifest.kind, manifest.outputs, manifest.hash) == ("ranker", ("scores",), read_folder(path).manifest.hash)
    expected = logits(reference, "the cat", texts)
    fp32, int8 = (Ranker.load(tmp_path / "out", precision=each).score("the cat", texts) for each in ("fp32", "int8"))
    assert np.abs(fp32 - expected).max() < 1e-4
    assert 1e-6 < np.abs(int8 - expected).max() < np.ptp(expected)
    assert np.abs(logits(CrossEncoder(str(tmp_path / "out"), device="cpu"), "the cat", texts) - expected).max() < 1e-6


@pytest.mark.parametrize("architecture", ["roberta", "modernbert"])
def test_a_dense_model_is_exported(made, texts, tmp_path, architecture):
    from sentence_transformers import SentenceTransformer

    path, reference = made(architecture, dense=[(16, torch.nn.Tanh())], prompts={"query": "find: ", "document": "text: "})
    parity = exporting.export(path, tmp_path / "out")
    manifest = read_folder(tmp_path / "out").manifest  # digests hold
    assert (manifest.hash, manifest.quantisation["parity"]) == (read_folder(path).manifest.hash, parity.as_dict())
    expected = reference.encode_query(texts)
    assert np.abs(SentenceTransformer(str(tmp_path / "out"), device="cpu").encode_query(texts) - expected).max() < 1e-6
    fp32, int8 = (load("none", tmp_path / "out", precision=each).encode(texts, kind="query") for each in ("fp32", "int8"))
    assert max(np.abs(row.vector - vector).max() for row, vector in zip(fp32, expected, strict=True)) < 1e-4
    assert min(row.vector @ vector for row, vector in zip(int8, expected, strict=True)) > 0.9
    assert max(np.abs(row.vector - vector).max() for row, vector in zip(int8, expected, strict=True)) > 1e-6  # another graph


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json", "config.json", GRAPHS["int8"]])
def test_a_folder_that_is_swapped_between_check_and_opening_is_refused(ranked, tmp_path, monkeypatch, file):
    monkeypatch.setattr(paths, "cache", lambda: tmp_path / "cache")
    if file == GRAPHS["int8"]:
        exporting.export(ranked()[0], tmp_path / "model")
    else:
        shutil.copytree(ranked()[0], tmp_path / "model")
    scorer = Ranker.load(tmp_path / "model")  # digests are compared here, the graph is opened at the first score
    shutil.copyfile(tmp_path / "model" / file, tmp_path / "other")
    (tmp_path / "other").replace(tmp_path / "model" / file)
    with pytest.raises(ModelError, match=rf"changed while it was opened: .*{file}"):
        scorer.score("cat", ["a text"])
    assert not list((tmp_path / "cache").rglob("*.onnx"))  # no graph of one model under the digest of another


@pytest.mark.parametrize(("fixture", "output"), [("made", "dense"), ("sparse_made", "weights")])
def test_a_model_on_the_hub_comes_with_all_its_modules(request, served, fixture, output):
    path, _ = request.getfixturevalue(fixture)()
    served.files = {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
    served.files["pytorch_model.bin"] = b"unwanted"
    model = load(**{"weights": "none", "dense": "none", output: "hf:team/model"}).models[output]
    assert (model.name, model.hash) == ("hf:team/model", read_folder(path).manifest.hash)
    assert not (model.folder / "pytorch_model.bin").exists()
    assert resolve_local("hf:team/model") == model.folder  # a name that an index gives opens what is here


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
    sample, plain = (sample_cost.draw(str(source)) for source in (corpus, corpus / "corpus.jsonl"))
    assert (len(sample.queries), len(sample.documents)) == (20, 30)
    assert [sample.documents[next(iter(gains))] for gains in sample.gains] == [f"All about {query}." for query in sample.queries]
    figures, alone = (sample_cost.cost(tmp_path / "sparse", "weights", each) for each in (sample, plain))
    assert figures["ndcg"]["change"] == pytest.approx(figures["ndcg"]["int8"] - figures["ndcg"]["fp32"])
    assert 0 < figures["ndcg"]["fp32"] <= 1
    assert "nDCG@10" in sample_cost.in_words("weights", figures)
    assert (len(plain.queries), plain.gains, plain.queries[0]) == (30, [], plain.documents[0])
    assert alone.keys() == {"queries", "documents", "overlap"}
    assert 0 < alone["overlap"] <= 1


def test_a_corpus_that_cannot_be_compared_on(ranked, corpus, tmp_path):
    arguments = [str(ranked()[0]), "--out", str(tmp_path / "out"), "--on", str(corpus)]
    with pytest.raises(UsageError, match="is a cross-encoder, and on measures only models of"):
        CliRunner().invoke(command, arguments, catch_exceptions=False)
    (tmp_path / "one.jsonl").write_text('{"_id": "a", "text": "alone"}')
    with pytest.raises(UsageError, match="fewer than two documents"):
        sample_cost.draw(str(tmp_path / "one.jsonl"))
    with pytest.raises(TermweaveError):
        sample_cost.draw(str(tmp_path / "nowhere"))


def test_the_command(made, corpus, tmp_path):
    arguments = [str(made("distilbert")[0]), "--out"]
    result = CliRunner().invoke(command, [*arguments, str(tmp_path / "out"), "--on", str(corpus), "--json", "--quiet"])
    data = json.loads(result.stdout)
    jsonschema.validate(data, json.loads((SCHEMAS / "export.1.json").read_text(encoding="utf-8")))
    assert {graph["file"] for graph in data["graphs"].values()} == set(GRAPHS.values())
    assert data["sample"]["dense"]["documents"] == 30
    assert 0.9 < data["sample"]["dense"]["cosine_min"] < 1
    plain = CliRunner().invoke(command, [*arguments, str(tmp_path / "again")], catch_exceptions=False)
    assert "int8 vectors, smallest cosine" in plain.stdout
    assert "multipliers" not in plain.stdout  # a dense model has none


ROOT = Path(__file__).parents[3]
SHIPPED = sorted(path.parent for folder in ("encoders/shipped", "models") for path in (ROOT / folder).rglob("model.int8.onnx"))
#: Encodes texts with the shipped model and prints all outputs of its graph.
ENCODE = """
import json, sys
import numpy as np
from termweave.encoders.kinds import kind_of, read_folder
from termweave.encoders.model_lookup import resolve
from termweave.encoders.onnx.runtime import GraphInput, OnnxModel
folder = read_folder(resolve("shipped"))
model = kind_of(folder.manifest)(folder)
texts = json.loads(sys.argv[1])
inputs = [GraphInput(each.ids, np.full((len(each.ids), 2), 0.3, np.float32)) for each in model.tokenizer.encode(texts, 256)]
graph = OnnxModel(folder, threads=1)
print(json.dumps([np.concatenate([part.ravel() for part in outputs]).tolist() for outputs in graph.start(inputs, model.graph_outputs)()]))
"""
TEXTS = (
    "clean a dirty kettle",
    "Rinse the kettle with vinegar once a month to remove limescale.",
    "Photosynthesis happens in the chloroplasts of plant cells. " * 6,
)


def matrices(graph):
    """The constant right sides of the integer products of a graph."""
    content = onnx.load(graph).graph
    stored = {tensor.name: tensor for tensor in content.initializer}
    return [onnx.numpy_helper.to_array(stored[node.input[1]]) for node in content.node if node.op_type == "MatMulInteger"]


def product(weights, folder):
    """The file of a graph that multiplies uint8 rows with one matrix."""
    helper, kinds = onnx.helper, onnx.TensorProto
    node = helper.make_node("MatMulInteger", ["rows", "weights"], ["sums"])
    rows = helper.make_tensor_value_info("rows", kinds.UINT8, [None, len(weights)])
    sums = helper.make_tensor_value_info("sums", kinds.INT32, [None, weights.shape[1]])
    graph = helper.make_graph([node], "product", [rows], [sums], [onnx.numpy_helper.from_array(weights, "weights")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), folder / "product.onnx")
    return folder / "product.onnx"


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda folder: folder.name)
def test_no_weights_of_a_shipped_graph_can_saturate(folder):
    """Proved from the weights alone, with a loop that has nothing in common with `pair_sums`."""
    every = matrices(folder / "model.int8.onnx")
    assert len(every) >= 6 * 4
    for weights in every:
        assert weights.dtype == np.int8
        rows = weights.astype(int)
        for first, second in zip(rows[::2], [*rows[1::2], *([0 * rows[0]] if len(rows) % 2 else [])], strict=True):
            same = np.sign(first) * np.sign(second) >= 0
            assert np.abs(first + second)[same].max(initial=0) <= 128
    assert saturating(folder / "model.int8.onnx") == []
    assert read_folder(folder).manifest.quantisation["saturates"] is False


@pytest.mark.programs
def test_processors_without_vnni_give_the_same_numbers():
    """Haswell's kernels add two products in 16 bits: with 8 bits that saturate the difference is .25."""
    if platform.machine() != "x86_64":
        pytest.skip("this machine's programs are not for x86-64, which the emulator runs")
    # The libraries' threads only wait for each other under an emulator.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    outputs = []
    for before in ([], [program("qemu-x86_64", "qemu-x86_64-static"), "-cpu", "Haswell"]):
        command = [*before, sys.executable, "-c", ENCODE, json.dumps(TEXTS)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == 0, done.stderr
        outputs.append([np.array(row) for row in json.loads(done.stdout)])
    for here, there in zip(*outputs, strict=True):
        assert np.abs(here - there).max() < 1e-6


FLOATS = st.floats(-1e3, 1e3, width=32).map(lambda value: value if abs(value) > 1e-30 else 0.0)


@given(arrays.arrays(np.float32, st.tuples(st.integers(1, 9), st.integers(1, 4)), elements=FLOATS))
def test_columns_are_quantised_as_finely_as_saturation_permits(weights):
    whole, scales = quantised(weights)
    assert pair_sums(whole).max() <= MOST
    assert np.abs(whole.astype(int)).max() <= 127
    assert np.abs(whole * scales - weights).max() <= scales.max() * 0.5001
    for column, scale in zip(weights.T.astype(float), scales, strict=True):  # a scale that is smaller by 1 % breaks a bound
        finer = column / (0.99 * scale)
        assert not column.any() or pair_sums(finer[:, None])[0] > MOST or np.abs(finer).max() > 127


def test_an_export_that_could_saturate_is_refused(made, tmp_path, monkeypatch):
    """As if the quantiser had gone back to ONNX Runtime's 8 bits."""
    eight_bits = lambda weights: ((127 * weights / np.abs(weights).max(0)).astype(np.int8), weights[0])  # noqa: E731
    monkeypatch.setattr(quantisation, "quantised", eight_bits)
    with pytest.raises(ModelError, match="would give other numbers on other processors"):
        exporting.export(made()[0], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_older_folder_opens_and_is_named(termweave, tmp_path, monkeypatch):
    """8 bits as they were quantised before: the folder opens as ever, and `models` and `doctor` say what it does."""
    folder = shutil.copytree(SHIPPED[0], tmp_path / "models" / "older")
    write_manifest(folder, replace(read_folder(folder).manifest, name="older", quantisation={"method": "dynamic int8"}))
    monkeypatch.setattr("termweave.support.paths.models", lambda: tmp_path / "models")
    assert load(folder).encode(["a text"], kind="document")[0].weights
    rows = {each["name"]: each["saturates"] for each in json.loads(termweave("models", "--json"))["models"]}
    assert (rows["older"], rows["fast"]) == (True, False)
    findings = {each["name"]: each["advice"] for each in json.loads(termweave("doctor", "--json"))["findings"]}
    assert findings["Your models"].startswith("older: The int8 graph gives other numbers on processors without VNNI")


@pytest.mark.parametrize(("second", "count"), [(2, 1), (1, 0)])
def test_operators_of_which_nothing_is_proved_are_named(tmp_path, second, count):
    assert len(saturating(product(np.array([[127, 1], [second, -128]], np.int8), tmp_path))) == count
