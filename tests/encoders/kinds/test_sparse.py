"""Sparse encoders of other makers: terms that a text does not hold, and an index that scores by their dot products."""

import json
import shutil
import uuid

import pytest

import termweave as tw
from termweave.cli import run
from termweave.encoders import TermWeighter, load
from termweave.encoders.kinds import read_folder
from termweave.errors import ModelError
from termweave.statistics import CorpusStatistics
from tests.encoders.kinds.references import terms


def test_a_text_gets_terms_that_it_does_not_hold_whatever_the_corpus(sparse_made, texts):
    encoder = load(weights=sparse_made()[0], dense="none")
    one, other = (
        encoder.encode(texts[:1], kind="document", statistics=statistics)[0].weights.as_dict()
        for statistics in (None, CorpusStatistics(encoder.analysis, 1, 1.0, {}))
    )
    assert one == other
    assert set(one) - set(encoder.analyse(texts[:1])[0])


def test_the_sum_and_the_max_are_different_graphs(sparse_made, texts, tmp_path):
    path = shutil.copytree(sparse_made()[0], tmp_path / "model")
    file = path / "1_SpladePooling" / "config.json"
    first = TermWeighter.load(path).encode(texts[-1:])[0].weights.sum()
    file.write_text(json.dumps(json.loads(file.read_text()) | {"pooling_strategy": "sum"}))
    assert TermWeighter.load(path).encode(texts[-1:])[0].weights.sum() > 1.5 * first
    file.write_text(json.dumps(json.loads(file.read_text()) | {"pooling_strategy": "middle"}))
    with pytest.raises(ModelError, match="'middle'"):
        TermWeighter.load(path)


def test_a_model_of_the_hub_comes_with_all_its_modules(served, sparse_made):
    path, _ = sparse_made()
    served.files = {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
    assert load("hf:team/model", "none").models["weights"].hash == read_folder(path).manifest.hash


@pytest.mark.engine
@pytest.mark.parametrize("sort", ["bert", "roberta", "table"])
def test_an_index_of_a_sparse_model_scores_by_its_dot_products(sparse_made, inference_free, opensearch_engine, tmp_path, sort):
    """Entries of RoBERTa's vocabulary hold dots, percent signs and a letter for the blank (Ġ); each comes back as it was sent."""
    path, reference = inference_free() if sort == "table" else sparse_made(sort)
    documents = {"cat": "the cat sat. 3.5% on the mat", "dog": "a dog barked", "cell": "mitochondria are in the cell"}
    source = tmp_path / "docs.jsonl"
    source.write_text("".join(json.dumps({"_id": key, "text": text}) + "\n" for key, text in documents.items()))
    name = f"tw-sparse-{uuid.uuid4().hex[:12]}"
    arguments = ["index", str(source), name, "--weights", str(path), "--dense", "none", "--url", opensearch_engine.url]
    try:
        assert run([*arguments, "--quiet"]) == 0
        index = tw.connect(opensearch_engine.url).index(name)
        (query,) = terms(reference, reference.encode_query(["the cat. 5%"]))
        rows = dict(zip(documents, terms(reference, reference.encode_document(list(documents.values()))), strict=True))
        assert sort != "roberta" or {".", "%", "Ġ."} & query.keys()
        expected = {key: sum(query.get(term, 0) * row[term] for term in row) for key, row in rows.items()}
        hits = index.search("the cat. 5%", mode="weights", k=3, explain=True)
        assert {hit.id for hit in hits} == set(documents)
        unit = hits[0].score / expected[hits[0].id]  # the server's scores are in units of the stored impacts, of 8 bits
        for hit in hits:
            assert hit.score == pytest.approx(unit * expected[hit.id], rel=0.02)
        assert len({round(value, 3) for value in expected.values()}) > 1  # else any order would do
        assert index.search("the cat", mode="hybrid", k=1)
        (part,) = (part for part in hits[0].explanation["parts"] if part["name"] == "weights")
        assert {share["term"] for share in part["terms"]} == query.keys() & rows[hits[0].id].keys()
        assert run(["verify", name, "--deep", "--quiet", "--url", opensearch_engine.url]) == 0
    finally:
        run(["delete", name, "--yes", "--quiet", "--url", opensearch_engine.url])
