"""Sparse encoders of other makers give the weights that sentence-transformers gives."""

import json
import uuid
from dataclasses import replace

import numpy as np
import pytest

import termweave as tw
from termweave.cli import run
from termweave.encoders import TermWeighter, load
from termweave.encoders.kinds import read_folder
from termweave.encoders.onnx import export as exporting
from termweave.errors import ModelError
from termweave.statistics import CorpusStatistics

STATISTICS = CorpusStatistics("bert-pieces.1", 1, 1.0, {})


def weights_of(reference, vectors, vocabulary):
    """Term -> weight of each row of a SparseEncoder; special tokens are no terms."""
    special = set(reference.tokenizer.all_special_ids)
    return [
        {vocabulary[place]: float(row[place]) for place in np.flatnonzero(row > 0) if place not in special}
        for row in vectors.to_dense().numpy()
    ]


@pytest.mark.parametrize("architecture", ["bert", "distilbert", "roberta", "xlm-roberta", "mpnet", "modernbert"])
def test_weights_are_those_of_sentence_transformers(made_with_head, texts, architecture):
    path, reference = made_with_head("SparseEncoder", architecture)
    vocabulary = {number: token for token, number in reference.tokenizer.get_vocab().items()}
    expected = weights_of(reference, reference.encode_document(texts), vocabulary)
    encodings = TermWeighter.load(path).encode(texts)  # such a model knows no corpus
    again = TermWeighter.load(path).encode(
        texts, statistics=replace(STATISTICS, analysis=load(weights=path, dense="none").analysis)
    )
    assert [weights.as_dict() for weights in again] == [weights.as_dict() for weights in encodings]
    for weights, reference_weights in zip(encodings, expected, strict=True):
        given = weights.as_dict()
        for term in given.keys() | reference_weights.keys():
            assert given.get(term, 0.0) == pytest.approx(reference_weights.get(term, 0.0), abs=1e-4)
    own = set(load(weights=path, dense="none").analyse([texts[0]])[0])
    assert set(encodings[0].as_dict()) - own  # terms that the text does not hold


def test_the_sum_and_the_max_are_different_graphs(made_with_head, texts):
    path, _ = made_with_head("SparseEncoder")
    file = path / "1_SpladePooling" / "config.json"
    first = TermWeighter.load(path).encode(texts[-1:], statistics=STATISTICS)[0].as_dict()
    file.write_text(json.dumps(json.loads(file.read_text()) | {"pooling_strategy": "sum"}))
    second = TermWeighter.load(path).encode(texts[-1:], statistics=STATISTICS)[0].as_dict()
    assert sum(second.values()) > 1.5 * sum(first.values())
    file.write_text(json.dumps(json.loads(file.read_text()) | {"pooling_strategy": "middle"}))
    with pytest.raises(ModelError, match="'middle'"):
        TermWeighter.load(path)


def test_a_model_of_the_hub_comes_with_all_its_modules(served, made_with_head):
    path, _ = made_with_head("SparseEncoder")
    served.files = {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
    assert load("hf:team/model", "none").models["weights"].hash == read_folder(path).manifest.hash


def test_it_gives_no_vectors(made_with_head):
    path, _ = made_with_head("SparseEncoder")
    with pytest.raises(ModelError, match="is a sparse encoder: it gives term weights, not vectors"):
        load(weights="none", dense=path)


def test_export(made_with_head, texts, tmp_path):
    path, _ = made_with_head("SparseEncoder")
    parity = exporting.export(path, tmp_path / "out")
    assert parity.int8_rank_correlation > 0.8
    assert parity.int8_cosine_min is None
    fp32, int8 = (
        load(weights=tmp_path / "out", dense="none", precision=precision).encode(texts, kind="query", statistics=STATISTICS)
        for precision in ("fp32", "int8")
    )
    plain = TermWeighter.load(path).encode(texts, kind="query", statistics=STATISTICS)
    assert [encoding.weights.as_dict() for encoding in fp32] == [weights.as_dict() for weights in plain]
    assert [encoding.weights.as_dict() for encoding in int8] != [weights.as_dict() for weights in plain]


@pytest.mark.engine
@pytest.mark.parametrize("sort", ["bert", "roberta", "table"])
def test_an_index_of_a_sparse_model_scores_by_its_dot_products(made_with_head, inference_free, opensearch_engine, tmp_path, sort):
    """Entries of RoBERTa's vocabulary hold dots, percent signs and a letter for the blank (Ġ); each comes back as it was sent."""
    path, reference = inference_free() if sort == "table" else made_with_head("SparseEncoder", sort)
    documents = {"cat": "the cat sat. 3.5% on the mat", "dog": "a dog barked", "cell": "mitochondria are in the cell"}
    source = tmp_path / "docs.jsonl"
    source.write_text("".join(json.dumps({"_id": key, "text": text}) + "\n" for key, text in documents.items()))
    name = f"tw-sparse-{uuid.uuid4().hex[:12]}"
    arguments = ["index", str(source), name, "--weights", str(path), "--dense", "none", "--url", opensearch_engine.url]
    try:
        assert run([*arguments, "--quiet"]) == 0
        index = tw.connect(opensearch_engine.url).index(name)
        vocabulary = {number: token for token, number in reference.tokenizer.get_vocab().items()}
        (asked,) = weights_of(reference, reference.encode_query(["the cat. 5%"]), vocabulary)
        rows = weights_of(reference, reference.encode_document(list(documents.values())), vocabulary)
        assert sort != "roberta" or {".", "%", "Ġ."} & asked.keys()
        expected = {key: sum(asked.get(term, 0) * row[term] for term in row) for key, row in zip(documents, rows, strict=True)}
        hits = index.search("the cat. 5%", mode="weights", k=3, explain=True)
        assert {hit.id for hit in hits} == set(documents)
        unit = hits[0].score / expected[hits[0].id]  # the server's scores are in units of the stored impacts, of 8 bits
        for hit in hits:
            assert hit.score == pytest.approx(unit * expected[hit.id], rel=0.02)
        assert len({round(value, 3) for value in expected.values()}) == 3
        assert index.search("the cat", mode="hybrid", k=1)
        (part,) = (part for part in hits[0].explanation["parts"] if part["name"] == "weights")
        assert {share["term"] for share in part["terms"]} == {
            term for term in asked if term in rows[list(documents).index(hits[0].id)]
        }
        assert run(["verify", name, "--deep", "--quiet", "--url", opensearch_engine.url]) == 0
    finally:
        run(["delete", name, "--yes", "--quiet", "--url", opensearch_engine.url])
