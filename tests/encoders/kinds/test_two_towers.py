"""Two towers: queries and documents have an encoder each, in one folder or in two."""

import json
import shutil
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

from termweave.catalog.lineage import Lineage, ModelLineage
from termweave.encoders import load
from termweave.encoders.kinds import read_folder
from termweave.encoders.kinds.dense import DenseModel
from termweave.encoders.manifest import write_manifest
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


def two_towers(documents, queries, path):
    """A folder with an encoder for documents and another one for queries."""
    shutil.copytree(documents, path)
    shutil.copytree(queries, path / "query")
    write_manifest(path / "query", read_folder(queries).manifest)
    manifest = read_folder(documents).manifest
    write_manifest(path, replace(manifest, settings={**manifest.settings, "query_folder": "query"}))
    return path


@pytest.mark.parametrize("layout", ["router", "folder"])
def test_both_encoders_are_run_and_exported(routed, made, texts, tmp_path, layout):
    if layout == "router":
        path, reference = routed()
        expected = {kind: side(reference, texts, kind) for kind in ("document", "query")}
    else:
        (documents, reference), (queries, of_queries) = made("bert"), made("roberta", "cls", prompts={"query": "q: "})
        path = two_towers(documents, queries, tmp_path / "towers")
        expected = {"document": reference.encode_document(texts), "query": of_queries.encode_query(texts)}
    export(path, out := tmp_path / "out")
    for kind, rows in expected.items():
        for folder, precision in ((path, None), (out, "fp32"), (out, "int8")):
            encodings = load(weights="none", dense=folder, precision=precision).encode(texts, kind=kind)
            vectors = np.stack([encoding.vector for encoding in encodings])
            if precision == "int8":
                assert (vectors * rows).sum(axis=1).min() > 0.9
            else:
                assert np.abs(vectors - rows).max() < 1e-4
        if layout == "router":
            assert np.abs(side(SentenceTransformer(str(out), device="cpu"), texts, kind) - rows).max() < 1e-6
    before, after = (
        {output: model.hash for output, model in load(weights="none", dense=folder).models.items()} for folder in (path, out)
    )
    assert before == after
    assert before["dense"] != before["dense_query"] == DenseModel.query_folder(read_folder(path)).manifest.hash
    graph = next(out.glob("query*/model.int8.onnx"))
    graph.write_bytes(graph.read_bytes()[:-1])
    with pytest.raises(ModelError, match="was altered"):
        load(weights="none", dense=out)


def test_older_routers_and_a_shared_transformer(routed, made, texts, tmp_path):
    (transformer, pooling, *_) = made("bert")[1].children()
    path, reference = routed((transformer, pooling), (transformer, Pooling(32, "max")))
    old = shutil.copytree(path, tmp_path / "old")
    (old / "router_config.json").rename(old / "config.json")
    modules = json.loads((old / "modules.json").read_text())
    modules[0]["type"] = "sentence_transformers.models.Asym"
    (old / "modules.json").write_text(json.dumps(modules))
    assert of_vectors(path, reference, texts) < 1e-4
    assert of_vectors(old, reference, texts) < 1e-4


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


def both(name, kind):
    """A router with one module for documents and queries."""
    return {"types": {name: f"sentence_transformers.models.{kind}"}, "structure": {"document": [name], "query": [name]}}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"structure": {"title": ["document_0_Transformer"]}}, "has routes title, not 'document' and 'query'"),
        ({"structure": {"document": ["nowhere"], "query": ["nowhere"]}}, "does not describe the modules"),
        (both("../x", "Transformer"), "not inside"),
        (both("x", "CLIPModel"), "lists the modules CLIPModel"),
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
