"""From a folder of sentence-transformers to search results on the real server: scores are its dot products."""

import json

import pytest

import termweave as tw
from termweave.catalog.lineage import read_lineage
from termweave.cli import run
from termweave.encoders.kinds import read_folder
from tests.encoders.kinds.references import terms

pytestmark = pytest.mark.engine
DOCUMENTS = {"cat": "the cat sat. 3.5% on the mat", "dog": "a dog barked", "cell": "mitochondria are in the cell"}
QUERY = "the cat. 5%"


@pytest.fixture
def indexed(opensearch_engine, name, tmp_path):
    """A function: an index of the documents that the command line makes with a model for one output."""
    (tmp_path / "docs.jsonl").write_text(
        "".join(json.dumps({"_id": key, "text": text}) + "\n" for key, text in DOCUMENTS.items())
    )

    def call(path, output):
        models = {"--weights": "none", "--dense": "none", f"--{output}": str(path)}
        options = [word for pair in models.items() for word in pair]
        assert run(["index", str(tmp_path / "docs.jsonl"), name, *options, "--url", opensearch_engine.url, "--quiet"]) == 0
        assert run(["verify", name, "--deep", "--quiet", "--url", opensearch_engine.url]) == 0
        index = tw.connect(opensearch_engine.url).index(name)
        models = read_lineage(opensearch_engine, index.generation).models
        assert {output: model.hash for output, model in models.items()} == {output: read_folder(path).manifest.hash}
        assert index.search("the cat", mode="hybrid", k=1)
        return index

    return call


def test_vectors(made, indexed):
    """The server computes with float32 vectors; 1e-5 is what its own score format keeps."""
    path, reference = made("xlm-roberta", "cls", prompts={"query": "query: ", "document": "passage: "})
    index = indexed(path, "dense")
    cosines = reference.encode_document(list(DOCUMENTS.values())) @ reference.encode_query(QUERY)
    expected = dict(zip(DOCUMENTS, cosines.tolist(), strict=True))
    scores = {hit.id: hit.score for hit in index.search(QUERY, mode="dense", k=3)}
    assert list(scores) == sorted(expected, key=lambda key: -expected[key])
    assert scores == pytest.approx(expected, abs=1e-5)
    assert index.search(QUERY, rerank="rnn", k=3)


@pytest.mark.parametrize("sort", ["bert", "roberta", "table"])
def test_term_weights(sparse_made, inference_free, indexed, sort):
    """Entries of RoBERTa's vocabulary hold dots, percent signs and a letter for the blank (Ġ); each comes back as it was sent."""
    path, reference = inference_free() if sort == "table" else sparse_made(sort)
    index = indexed(path, "weights")
    (query,) = terms(reference, reference.encode_query([QUERY]))
    rows = dict(zip(DOCUMENTS, terms(reference, reference.encode_document(list(DOCUMENTS.values()))), strict=True))
    assert sort != "roberta" or {".", "%", "Ġ."} & query.keys()
    expected = {key: sum(query.get(term, 0) * row[term] for term in row) for key, row in rows.items()}
    assert len({round(value, 3) for value in expected.values()}) > 1  # else any order would do
    hits = index.search(QUERY, mode="weights", k=3, explain=True)
    unit = hits[0].score / expected[hits[0].id]  # the server's scores are in units of the stored impacts, of 8 bits
    in_units = {key: unit * score for key, score in expected.items()}
    assert {hit.id: hit.score for hit in hits} == pytest.approx(in_units, rel=0.02)
    (part,) = hits[0].explanation["parts"]
    assert {share["term"] for share in part["terms"]} == query.keys() & rows[hits[0].id].keys()
