"""Two towers in one folder of sentence-transformers: queries and documents have an encoder each."""

import json
import shutil
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from termweave.catalog.lineage import Lineage, ModelLineage
from termweave.encoders import load
from termweave.encoders.kinds import read_folder
from termweave.encoders.kinds.dense import DenseModel
from termweave.encoders.onnx.export import export
from termweave.encoders.recorded_models import encoder_of
from termweave.errors import ModelError
from tests.encoders.kinds.references import of_vectors


def side(reference, texts, kind):
    vectors = reference.encode_query(texts) if kind == "query" else reference.encode_document(texts)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def routed(made, tmp_path_factory):
    """A function: a folder with a router, and the model that saved it."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Router
    from sentence_transformers.sentence_transformer.modules import Normalize

    @cache
    def make(documents=None, queries=None):
        documents = documents or tuple(made("bert", normalise=False)[1].children())
        queries = queries or tuple(made("roberta", "cls", normalise=False)[1].children())
        router = Router.for_query_document(query_modules=list(queries), document_modules=list(documents))
        model = SentenceTransformer(modules=[router, Normalize()], device="cpu", prompts={"query": "find: "})
        path = tmp_path_factory.mktemp("saved") / "model"
        model.save(str(path))
        return path, SentenceTransformer(str(path), device="cpu")

    return make


def test_a_router_of_sentence_transformers(routed, texts):
    path, reference = routed()
    assert of_vectors(path, reference, texts) < 1e-4
    models = load(weights="none", dense=path).models
    assert models["dense"].hash != models["dense_query"].hash == DenseModel.query_folder(read_folder(path)).manifest.hash


def test_an_index_finds_both_encoders_in_one_folder(routed):
    """The server gives the entries of a lineage in any order."""
    path, _ = routed()
    models = load(weights="none", dense=path).models
    recorded = {output: ModelLineage(models[output].name, models[output].hash) for output in ("dense_query", "dense")}
    lineage = Lineage("docs", "", "", {"name": "docs"}, "", {}, models=recorded)
    again = encoder_of(lineage, "docs", {"dense": str(path)}).models
    assert {output: model.hash for output, model in again.items()} == {output: model.hash for output, model in models.items()}
    elsewhere = {**recorded, "dense_query": ModelLineage("elsewhere", "0" * 16)}
    with pytest.raises(ModelError, match=r"this host has no model of that name.*dense_query='DIR'"):
        encoder_of(replace(lineage, models=elsewhere), "docs", {"dense": str(path)})


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
    path, reference = routed((transformer, pooling), (transformer, Pooling(32, "max")))
    old = shutil.copytree(path, tmp_path / "old")
    (old / "router_config.json").rename(old / "config.json")
    modules = json.loads((old / "modules.json").read_text())
    modules[0]["type"] = "sentence_transformers.models.Asym"
    (old / "modules.json").write_text(json.dumps(modules))
    assert of_vectors(path, reference, texts) < 1e-4
    assert of_vectors(old, reference, texts) < 1e-4


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


def both(name, kind):
    """A router with one module for documents and queries."""
    return {"types": {name: f"sentence_transformers.models.{kind}"}, "structure": {"document": [name], "query": [name]}}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"structure": {"title": ["document_0_Transformer"]}}, "has routes for 'title'; termweave needs 'document' and 'query'"),
        ({"structure": 7}, "does not describe the modules"),
        ({"structure": {"document": ["nowhere"], "query": ["nowhere"]}}, "does not describe the modules"),
        (both("../x", "Transformer"), "not inside"),
        (both("x", "CLIPModel"), "lists the modules CLIPModel"),
        (both("x", "StaticEmbedding"), "lists the modules StaticEmbedding"),
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
