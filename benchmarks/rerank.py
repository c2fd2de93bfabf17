"""rNN against a straightforward transcription of the equations, one thread, d = 768, in one process.

The transcription goes query by query over index lists and dense rows, as the method's published program does.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import time

import numpy as np

from termweave.rerank import reciprocal


def transcription(query: np.ndarray, vectors: np.ndarray, k: int, k_exp: int, tau: float, weight: float) -> np.ndarray:
    """Eq. 3 to 11 as they stand, row by row."""
    elements = np.concatenate([query[None], vectors])
    similarity = elements @ elements.T
    count = len(elements)
    k = min(k, count - 1)
    ranked = np.argsort(-similarity, axis=1, kind="stable")
    rows = np.zeros_like(similarity)
    for i in range(count):
        forward = ranked[i, : k + 1]
        members = forward[np.where(ranked[forward, : k + 1] == i)[0]]
        grown = members
        if tau > 0:
            columns = min(round(tau * (k + 1)) + 2, k + 1)
            for c in members:
                near = ranked[c, :columns]
                close = near[np.where(ranked[near, :columns] == c)[0]]
                if len(np.intersect1d(close, members)) > 2 / 3 * len(close):
                    grown = np.append(grown, close)
            grown = np.unique(grown)
        values = similarity[i, grown]
        rows[i, grown] = values / values.sum()
    if k_exp > 1:
        rows = np.stack([rows[ranked[i, :k_exp]].mean(axis=0) for i in range(count)])
    jaccard = np.array([np.minimum(rows[0], row).sum() / np.maximum(rows[0], row).sum() for row in rows])
    return weight * similarity[0, 1:] + (1 - weight) * jaccard[1:]


def median_ms(call, seconds: float = 1.0) -> float:
    call()
    times = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(times) < 3:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return float(np.median(times)) * 1000


def main() -> None:
    random = np.random.default_rng(0)
    print(f"{'N':>5} {'tau':>5} {'transcription ms':>17} {'termweave ms':>13} {'ratio':>6}")
    for count in (60, 200, 1000):
        for tau in (0.0, 0.5):
            centre = random.normal(size=768)
            vectors = (centre + random.normal(size=(count + 1, 768))).astype(np.float32)
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            query, candidates = vectors[0], vectors[1:]
            options = {"k": 20, "k_exp": 3, "tau": tau, "weight": 0.5}
            np.testing.assert_allclose(
                reciprocal(query, candidates, **options), transcription(query, candidates, **options), atol=1e-5
            )
            slow = median_ms(lambda q=query, c=candidates, o=options: transcription(q, c, **o))
            fast = median_ms(lambda q=query, c=candidates, o=options: reciprocal(q, c, **o))
            print(f"{count:>5} {tau:>5} {slow:>17.3f} {fast:>13.3f} {slow / fast:>6.1f}")


if __name__ == "__main__":
    main()
