"""Fusion against ranx, a library of its own (Bassani and Romelli, CIKM 2022). A method is one line of `METHODS`."""

from __future__ import annotations

import os
import warnings

import numpy as np
import pytest

from termweave.search.fusion import Ranked, fuse

#: What we call it -> our function of lists and weights; ranx's normalisation, method and parameters for weights (a, b).
METHODS = {
    "weighted sum of min-max": (fuse, "min-max", "wsum", lambda weights: {"weights": weights}),
}


@pytest.fixture(scope="module")
def ranx():
    """Without compiling: its kernels take 20 s to compile and milliseconds to run."""
    patch = pytest.MonkeyPatch()
    patch.setitem(os.environ, "NUMBA_DISABLE_JIT", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import ranx
        except ImportError:
            pytest.skip("ranx is not installed (dependency group test)")
        yield ranx
    patch.undo()


def lists(seed):
    """Two lists of different length and scale with common documents; in some, equal scores."""
    random = np.random.default_rng(seed)
    drawn = []
    for low, high in ((-5, 30), (0.2, 0.9)):
        documents = random.choice(120, size=int(random.integers(2, 60)), replace=False)
        scores = np.round(random.uniform(low, high, len(documents)), int(random.integers(1, 8)))
        scores[0] = high  # a list of equal scores is all 1 here and all 0 in ranx: a definition, not a number
        drawn.append({f"d{document:03}": float(score) for document, score in zip(documents, scores, strict=True)})
    return drawn


@pytest.mark.parametrize("weights", [(0.5, 0.5), (0.7, 0.3), (1.0, 0.0)])
@pytest.mark.parametrize("method", METHODS)
def test_fused_scores_are_those_of_ranx(ranx, method, weights):
    ours, norm, theirs, parameters = METHODS[method]
    drawn = {f"q{seed}": lists(seed) for seed in range(40)}
    runs = [ranx.Run({query: both[side] for query, both in drawn.items()}) for side in (0, 1)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = ranx.fuse(runs=runs, norm=norm, method=theirs, params=parameters(weights)).to_dict()
    for query, (first, second) in drawn.items():
        ranked = {"a": Ranked.of(list(first.items())), "b": Ranked.of(list(second.items()))}
        found = dict(ours(ranked, {"a": weights[0], "b": weights[1]}))
        assert found.keys() == expected[query].keys()
        for document, score in found.items():
            assert score == pytest.approx(float(expected[query][document]), abs=1e-9)
