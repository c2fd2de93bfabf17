"""Two towers in one folder of sentence-transformers, and two models side by side: queries and documents have an encoder each."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from termweave.catalog.lineage import Lineage, ModelLineage
from termweave.encoders import DenseEncoder, load
from termweave.encoders import recorded_models as models
from termweave.encoders.kinds import read_folder
from termweave.encoders.kinds.dense import DenseModel
from termweave.encoders.onnx.export import export
from termweave.errors import ModelError, UsageError


def side(reference, texts, kind):
    vectors = reference.encode_query(texts) if kind == "query" else reference.encode_document(texts)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def routed(made, tmp_path_factory):
    """A function: a folder with a router, and the model that saved it."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Router
    from sentence_transformers.sentence_transformer.modules import Normalize

    def make(**parts):
        documents, queries = (list(made(*which, normalise=False)[1].children()) for which in (("bert",), ("roberta", "cls")))
        queries = parts.get("queries", queries)
        router = Router.for_query_document(query_modules=queries, document_modules=parts.get("documents", documents))
        model = SentenceTransformer(modules=[router, Normalize()], device="cpu", prompts={"query": "find: "})
        path = tmp_path_factory.mktemp("saved") / "model"
        model.save(str(path))
        return path, SentenceTransformer(str(path), device="cpu")

    return make


@pytest.mark.parametrize("kind", ["document", "query"])
def test_a_router_of_sentence_transformers(routed, texts, kind):
    path, reference = routed()
    assert np.abs(DenseEncoder.load(path).encode(texts, kind=kind) - side(reference, texts, kind)).max() < 1e-4
    opened = load(weights="none", dense=path).models
    assert opened["dense"].hash != opened["dense_query"].hash
    query = DenseModel.query_folder(read_folder(path))
    assert opened["dense_query"].hash == query.manifest.hash


def test_an_index_finds_both_encoders_in_one_folder(routed):
    """The server gives the entries of a lineage in any order."""
    path, _ = routed()
    opened = load(weights="none", dense=path).models
    named = {output: ModelLineage(opened[output].name, opened[output].hash) for output in ("dense_query", "dense")}
    made = Lineage("docs", "", "", {"name": "docs"}, "", {}, models=named)
    again = models.encoder_of(made, "docs", {"dense": str(path)}).models
    assert {output: model.hash for output, model in again.items()} == {output: model.hash for output, model in opened.items()}
    elsewhere = {**named, "dense_query": ModelLineage("elsewhere", "0" * 16)}
    with pytest.raises(ModelError, match="this host has no model of that name") as error:
        models.encoder_of(replace(made, models=elsewhere), "docs", {"dense": str(path)})
    assert "--dense-query DIR" in error.value.hint


def test_the_hash_of_documents_does_not_depend_on_queries(routed, tmp_path):
    path, _ = routed()
    other = shutil.copytree(path, tmp_path / "model")
    (other / "query_1_Pooling" / "config.json").write_text((other / "document_1_Pooling" / "config.json").read_text())
    one, two = (load(weights="none", dense=folder).models for folder in (path, other))
    assert one["dense"].hash == two["dense"].hash
    assert one["dense_query"].hash != two["dense_query"].hash


def test_older_routers_and_a_shared_transformer(routed, made, texts, tmp_path):
    from sentence_transformers.sentence_transformer.modules import Pooling

    (transformer, pooling, *_) = made("bert")[1].children()
    path, reference = routed(documents=[transformer, pooling], queries=[transformer, Pooling(32, "max")])
    old = shutil.copytree(path, tmp_path / "old")
    (old / "router_config.json").rename(old / "config.json")
    modules = json.loads((old / "modules.json").read_text())
    modules[0]["type"] = "sentence_transformers.models.Asym"
    (old / "modules.json").write_text(json.dumps(modules))
    for folder in (path, old):
        for kind in ("document", "query"):
            given = DenseEncoder.load(folder).encode(texts, kind=kind)
            assert np.abs(given - side(reference, texts, kind)).max() < 1e-4


def test_a_router_is_exported_with_two_graphs(routed, texts, tmp_path):
    from sentence_transformers import SentenceTransformer

    path, reference = routed()
    export(path, tmp_path / "out")
    again = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    before, after = (load(weights="none", dense=folder).models for folder in (path, tmp_path / "out"))
    assert {output: model.hash for output, model in before.items()} == {output: model.hash for output, model in after.items()}
    for kind in ("document", "query"):
        expected = side(reference, texts, kind)
        assert np.abs(side(again, texts, kind) - expected).max() < 1e-6
        for precision, least in (("fp32", 0.99999), ("int8", 0.9)):
            encodings = load(weights="none", dense=tmp_path / "out", precision=precision).encode(texts, kind=kind)
            assert min(encoding.vector @ row for encoding, row in zip(encodings, expected, strict=True)) > least
    graph = next((tmp_path / "out" / "query_0_Transformer").glob("model.int8.onnx"))
    graph.write_bytes(graph.read_bytes()[:-1])
    with pytest.raises(ModelError, match="was altered"):
        load(weights="none", dense=tmp_path / "out")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"structure": {"title": ["document_0_Transformer"]}}, "has routes for 'title'; termweave needs 'document' and 'query'"),
        ({"structure": 7}, "does not describe the modules"),
        ({"structure": {"document": ["nowhere"], "query": ["nowhere"]}}, "does not describe the modules"),
        (
            {
                "types": {"../x": "sentence_transformers.models.Transformer"},
                "structure": {"document": ["../x"], "query": ["../x"]},
            },
            "not inside",
        ),
        (
            {"types": {"x": "sentence_transformers.models.CLIPModel"}, "structure": {"document": ["x"], "query": ["x"]}},
            "lists the modules CLIPModel",
        ),
        (
            {"types": {"x": "sentence_transformers.models.StaticEmbedding"}, "structure": {"document": ["x"], "query": ["x"]}},
            "lists the modules StaticEmbedding",
        ),
    ],
    ids=str,
)
def test_a_router_that_is_not_run_is_one_sentence(routed, tmp_path, changes, sentence):
    path, _ = routed()
    folder = shutil.copytree(path, tmp_path / "model")
    file = folder / "router_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "parameters": {}, **changes}))
    with pytest.raises(ModelError, match=sentence):
        load(weights="none", dense=folder)


def test_two_models_side_by_side(made, texts):
    documents, reference = made("bert")
    queries, query_reference = made("roberta", "cls", prompts={"query": "q: "})
    encoder = load(weights="none", dense=documents, dense_query=queries)
    given = np.stack([encoding.vector for encoding in encoder.encode(texts, kind="query")])
    assert np.abs(given - query_reference.encode_query(texts)).max() < 1e-4
    given = np.stack([encoding.vector for encoding in encoder.encode(texts, kind="document")])
    assert np.abs(given - reference.encode_document(texts)).max() < 1e-4
    assert encoder.models["dense_query"].hash == read_folder(queries).manifest.hash
    assert "dense_query" not in load(weights="none", dense=documents, dense_query=documents).models
    assert "dense_query" not in load(weights="none", dense=documents, dense_query="none").models


def test_weights_and_vectors_of_one_pass_beside_another_query_encoder():
    """The shipped model gives both outputs in one pass; its queries get their vectors elsewhere."""
    shipped = load()
    both = load(dense_query=shipped.models["dense"].folder)
    assert "dense_query" not in both.models
    (plain,), (same,) = (encoder.encode(["a small text"], kind="query") for encoder in (shipped, both))
    assert np.array_equal(plain.vector, same.vector)


def test_what_cannot_be_the_other_tower_is_one_sentence(made, ranked):
    documents, _ = made("bert")
    narrow, _ = made("bert", dense=[(8, torch.nn.Tanh())])
    with pytest.raises(ModelError, match=r"gives 8 numbers, the document encoder .* 32"):
        load(weights="none", dense=documents, dense_query=narrow)
    ranker, _ = ranked("bert")
    with pytest.raises(ModelError, match="is a cross-encoder") as error:
        load(weights="none", dense=documents, dense_query=ranker)
    assert "--dense-query" in error.value.hint
    with pytest.raises(UsageError, match="no model gives vectors of documents"):
        load(weights="none", dense="none", dense_query=documents)
