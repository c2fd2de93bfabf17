"""Fusion against ranx, a library of its own (Bassani and Romelli, CIKM 2022). A method is one line of `METHODS`."""

import os
import warnings

import numpy as np
import pytest

from termweave.signals.fusion import Ranked, fuse

#: Our method -> ranx's normalisation and method. Ours are weighted means in [0, 1] and count an absent document as the lowest
#: of the list; ranx's are sums, and leave it out. What lies between is a scale and a shift a query, which the tests work out.
METHODS = {"min-max": ("min-max", "wsum"), "z-score": ("zmuv", "wsum"), "sum": (None, "wsum"), "rrf": (None, "rrf")}


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


def between(method, drawn, weights):
    """Scale and shift from our score to ranx's."""
    scale = shift = 0.0
    for scores, weight in zip(drawn, weights, strict=True):
        values = np.array(list(scores.values()))
        low, apart, deviation = values.min(), np.ptp(values), values.std()
        if method == "rrf":
            scale += 1 / 61
        elif method == "z-score":
            scale, shift = scale + weight * apart / deviation, shift + weight * (low - values.mean()) / deviation
        elif method == "sum":
            scale, shift = scale + weight * apart, shift + weight * low
        else:
            scale += weight
    return scale, shift


@pytest.mark.parametrize(
    ("method", "weights"),
    [(method, weights) for method in METHODS for weights in ((0.5, 0.5), (0.7, 0.3)) if method != "rrf" or weights == (0.5, 0.5)],
)
def test_fused_scores_are_those_of_ranx(ranx, method, weights):
    """Its rrf has no weights, and breaks ties in another way."""
    norm, theirs = METHODS[method]
    drawn = {f"q{seed}": lists(seed) for seed in range(40)}
    runs = [ranx.Run({query: both[side] for query, both in drawn.items()}) for side in (0, 1)]
    params = {"k": 60} if theirs == "rrf" else {"weights": weights}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = ranx.fuse(runs=runs, norm=norm, method=theirs, params=params).to_dict()
    compared = 0
    for query, (first, second) in drawn.items():
        if method == "rrf" and any(len(set(each.values())) < len(each) for each in (first, second)):
            continue
        ranked = {"a": Ranked.from_scores(list(first.items())), "b": Ranked.from_scores(list(second.items()))}
        found = dict(fuse(ranked, {"a": weights[0], "b": weights[1]}, method).ranking)
        assert found.keys() == expected[query].keys()
        scale, shift = between(method, (first, second), weights)
        for document, score in found.items():
            if method in {"min-max", "rrf"} or (document in first and document in second):
                assert score * scale + shift == pytest.approx(float(expected[query][document]), abs=1e-6)
                compared += 1
    assert compared > 300
