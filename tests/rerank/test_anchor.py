"""The anchor of a ranker: its features, where they come from, and what is refused."""

import json

import numpy as np
import pytest

from termweave.encoders import hub
from termweave.encoders.kinds.ranker import anchor_of
from termweave.encoders.manifest import Manifest
from termweave.errors import ModelError, UsageError
from termweave.records import Encoding
from termweave.rerank.candidate_features import neighbourhood_features
from termweave.rerank.ranker import CrossEncoderReranker, anchor_shares
from termweave.rerank.rerankers import RerankRequest

QUERY = np.array([1.0, 0.0], dtype=np.float32)
VECTORS = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]], dtype=np.float32)


def request(vectors=VECTORS, query=QUERY):
    return RerankRequest(Encoding("words", vector=query), ["a", "b", "c"], [0.9, 0.5, 0.1], vectors)


def manifest(weights, kind="first-stage"):
    return Manifest("m", "ranker", ("scores",), "0" * 16, 64, anchor={"kind": kind, "weights": weights})


def needs_vectors(model):
    return "vectors" in CrossEncoderReranker(str(model)).needs


def test_the_share_is_the_weighted_sum_of_the_features():
    jaccard = neighbourhood_features(QUERY, VECTORS)[1]
    found = anchor_shares({"score": 10.0, "cosine": 2.0, "jaccard": 3.0}, request())
    expected = [
        10 * score + 2 * cosine + 3 * j for score, cosine, j in zip((0.9, 0.5, 0.1), (1.0, 0.6, 0.0), jaccard, strict=True)
    ]
    assert found == pytest.approx(expected, abs=1e-6)


def test_the_score_alone_needs_no_vectors():
    assert anchor_shares({"score": 2.0}, request(None, None)) == pytest.approx([1.8, 1.0, 0.2])
    assert anchor_shares({}, request(None, None)) == [0.0, 0.0, 0.0]
    with pytest.raises(UsageError, match="no dense model"):
        anchor_shares({"score": 2.0, "cosine": 1.0}, request(None, None))


@pytest.mark.parametrize("weights", [{"colour": 1.0}, {"score": "x"}, {"score": float("nan")}, ["score"]])
def test_a_malformed_anchor_is_refused(weights):
    with pytest.raises(ModelError, match="anchor"):
        anchor_of(manifest(weights))


def test_a_ranker_says_whether_it_needs_vectors(tmp_path, monkeypatch):
    for name, weights, needs in (("words", {"score": 1.0}, False), ("both", {"score": 1.0, "jaccard": 0.5}, True)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "termweave.json").write_bytes(manifest(weights).to_bytes())
        assert needs_vectors(folder) is needs
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "termweave.json").write_text(json.dumps({"schema": 1}))
    assert not needs_vectors(tmp_path / "broken")
    assert not needs_vectors("nowhere")
    monkeypatch.setattr(hub, "fetch", lambda name: tmp_path / name.rpartition("/")[2])
    assert needs_vectors("hf:owner/both")
    assert not needs_vectors("hf:owner/words")


def test_a_model_that_arrives_later_is_found_without_a_restart(tmp_path):
    assert not needs_vectors(tmp_path / "later")
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "termweave.json").write_bytes(manifest({"score": 1.0, "cosine": 0.5}).to_bytes())
    assert needs_vectors(tmp_path / "later")
