"""From a folder of sentence-transformers to search results on the real server."""

import json
import uuid

import numpy as np
import pytest

import termweave as tw
from termweave.catalog.lineage import read_lineage
from termweave.cli import run
from termweave.encoders.kinds import read_folder
from termweave.signals.dense import VECTOR_FIELD, from_half

pytestmark = pytest.mark.engine

DOCUMENTS = {
    "cat": "The cat sat on the mat and purred.",
    "dog": "A dog barked at the postman.",
    "leaf": "Photosynthesis happens in the chloroplasts of plant cells.",
    "cell": "The mitochondrion is the powerhouse of the cell.",
    "city": "Zürich is a city in Switzerland, and so is Genève.",
    "path": "os.path joins path components with the right separator.",
}
QUERIES = ["where does photosynthesis happen", "a city in the alps", "the cat"]


@pytest.fixture(scope="module")
def built(made, opensearch_engine, tmp_path_factory):
    """Two indices of six documents: vectors alone beside the text, and beside the shipped term weights."""
    path, reference = made("xlm-roberta", "cls", prompts={"query": "query: ", "document": "passage: "})
    source = tmp_path_factory.mktemp("source") / "docs.jsonl"
    source.write_text("".join(json.dumps({"_id": key, "text": text}) + "\n" for key, text in DOCUMENTS.items()))
    names = {weights: f"tw-dense-{weights}-{uuid.uuid4().hex[:12]}" for weights in ("none", "shipped")}
    for weights, name in names.items():
        arguments = ["index", str(source), name, "--dense", str(path), "--weights", weights, "--url", opensearch_engine.url]
        assert run([*arguments, "--quiet"]) == 0
    yield path, reference, names
    for name in names.values():
        run(["delete", name, "--yes", "--quiet", "--url", opensearch_engine.url])


def test_scores_are_the_dot_products_of_sentence_transformers(built, opensearch_engine):
    """The server computes with float32 vectors; 1e-5 is what its own score format keeps."""
    _, reference, names = built
    index = tw.connect(opensearch_engine.url).index(names["none"])
    keys, vectors = list(DOCUMENTS), reference.encode_document(list(DOCUMENTS.values()))
    for query in QUERIES:
        expected = dict(zip(keys, (vectors @ reference.encode_query(query)).tolist(), strict=True))
        hits = index.search(query, mode="dense", k=6)
        assert {hit.id for hit in hits} == set(keys)
        for hit in hits:
            assert hit.score == pytest.approx(expected[hit.id], abs=1e-5)
        assert [hit.id for hit in hits] == sorted(keys, key=lambda key: -expected[key])


def test_stored_half_floats_are_the_vectors(built, opensearch_engine):
    _, reference, names = built
    body = {"size": 6, "docvalue_fields": [VECTOR_FIELD], "_source": False, "query": {"match_all": {}}}
    vectors = dict(zip(DOCUMENTS, reference.encode_document(list(DOCUMENTS.values())), strict=True))
    hits = opensearch_engine.request("POST", f"/{names['none']}/_search", body=body)["hits"]["hits"]
    assert len(hits) == 6
    for hit in hits:
        stored = from_half(hit["fields"][VECTOR_FIELD][0])
        assert np.abs(stored - vectors[hit["_id"]]).max() < 1e-3


@pytest.mark.parametrize("weights", ["none", "shipped"])
@pytest.mark.parametrize("rerank", [None, "rnn"])
def test_hybrid_search_with_and_without_term_weights(built, opensearch_engine, weights, rerank):
    path, _, names = built
    index = tw.connect(opensearch_engine.url).index(names[weights])
    hits = index.search("where does photosynthesis happen in plant cells", mode="hybrid", rerank=rerank, k=3)
    assert "leaf" in [hit.id for hit in hits]
    models = read_lineage(opensearch_engine, index.generation).models
    assert models["dense"].hash == read_folder(path).manifest.hash
    assert ("weights" in models) == (weights == "shipped")
