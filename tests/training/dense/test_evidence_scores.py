"""Evidence scores of many lists: equal to Algorithm 1 one by one, the same in parallel, cached, resumable."""

import numpy as np
import pytest

from termweave.rerank.neighbours.equations import Rules
from termweave.rerank.neighbours.reciprocal import evidence
from termweave.training.dense import evidence_scores as evidence_module
from termweave.training.dense.evidence_scores import EvidenceSettings, evidence_scores, list_evidence
from termweave.training.dense.list_targets import NOTHING, nearest

SETTINGS = EvidenceSettings(weight=0.4, context=12, rules=Rules(k=5, k_exp=2))


@pytest.fixture(scope="module")
def data():
    generator = np.random.default_rng(0)
    documents = generator.normal(size=(90, 16)).astype(np.float32)
    documents /= np.linalg.norm(documents, axis=1, keepdims=True)
    relevant = [frozenset({row % 90, (7 * row) % 90}) for row in range(300)]
    queries = np.stack([documents[sorted(judged)].mean(axis=0) for judged in relevant]) + 0.1
    return queries, documents, nearest(queries, documents, 20).with_relevant(relevant), relevant


def test_scores_are_those_of_algorithm_1(data, tmp_path):
    queries, documents, lists, relevant = data
    scores = evidence_scores(*data, EvidenceSettings(0.4, 0, Rules(k=5, k_exp=2)), tmp_path, workers=1)
    for row in (0, 17, 299):
        own = lists.documents[row]
        places = [place for place, document in enumerate(own.tolist()) if document in relevant[row]]
        expected = evidence(queries[row], documents[own], places, weight=0.4, rules=Rules(k=5, k_exp=2))
        np.testing.assert_array_equal(scores[row], expected)


def test_only_the_context_and_the_judged_documents_get_a_score(data):
    queries, documents, _, _ = data
    candidates = np.append(nearest(queries[:1], documents, 20).documents[0], [NOTHING, NOTHING])
    judged = [int(candidates[18])]
    scores = list_evidence(queries[0], documents, candidates, judged, SETTINGS)
    assert np.isfinite(scores).tolist() == [place < 12 or place == 18 for place in range(22)]
    context = candidates[[*range(12), 18]]
    expected = evidence(queries[0], documents[context], [12], weight=0.4, rules=SETTINGS.rules)
    np.testing.assert_array_equal(scores[[*range(12), 18]], expected)


def test_processes_give_what_one_process_gives_and_the_cache_is_read(data, tmp_path, monkeypatch):
    one = evidence_scores(*data, SETTINGS, tmp_path / "one", workers=1)
    two = evidence_scores(*data, SETTINGS, tmp_path / "two", workers=2)
    np.testing.assert_array_equal(one, two)
    monkeypatch.setattr(evidence_module, "_block", None)  # nothing is computed again
    np.testing.assert_array_equal(evidence_scores(*data, SETTINGS, tmp_path / "two"), one)
    with pytest.raises(TypeError):
        evidence_scores(*data, EvidenceSettings(0.5, 12, Rules(k=5, k_exp=2)), tmp_path / "two", workers=1)


def test_a_killed_run_goes_on_with_the_blocks_that_are_missing(data, tmp_path, monkeypatch):
    whole = evidence_scores(*data, SETTINGS, tmp_path / "whole", workers=1)
    computed, real = [], evidence_module._block

    def killed(folder, settings, work):
        if len(computed) == 2:
            raise KeyboardInterrupt
        computed.append(work[0])
        return real(folder, settings, work)

    monkeypatch.setattr(evidence_module, "_block", killed)
    with pytest.raises(KeyboardInterrupt):
        evidence_scores(*data, SETTINGS, tmp_path / "killed", workers=1)
    again = []
    monkeypatch.setattr(
        evidence_module, "_block", lambda folder, settings, work: (again.append(work[0]), real(folder, settings, work))[1]
    )
    resumed = evidence_scores(*data, SETTINGS, tmp_path / "killed", workers=1)
    np.testing.assert_array_equal(resumed, whole)
    assert (computed, again) == ([0, 128], [256])
