"""Soft labels the way the program of paper 002's authors computes them, beside Algorithm 1 as printed (`methods/coder.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

#: Smoothed scores below it count as irrelevant.
_LEAST = 0.1


def program_labels(
    scores: NDArray[np.float32],
    relevant: Sequence[int],
    *,
    boost: float = 1.0,
    keep: int | None = None,
    normalize: Literal["max-min", "std"] | None = "max-min",
) -> NDArray[np.float64]:
    """Turn smoothed scores into a distribution, positions and cut-offs included.

    The program works in half precision; this function works in double precision, so that values agree to about 1e-3.

    Args:
        scores: r'' of each candidate, ``(N,)``.
        relevant: Judged candidates; only their number is used.
        boost: b, for the first ``len(relevant)`` places of the sorted scores.
        keep: n_max.
        normalize: f_n over the candidates that are left.

    Returns:
        float64 ``(N,)``, sum 1. Where no score reaches .1 the judged candidates share the probability.
    """
    values = np.asarray(scores, np.float64)
    shares = np.zeros(len(values))
    order = np.argsort(-values, kind="stable")
    order = order[values[order] >= _LEAST][:keep]
    best = values[order]
    if len(order) and normalize is not None:
        spread = np.ptp(best) if normalize == "max-min" else best.std()
        best = (best - best.min()) / (spread or 1.0)
    best[: len(relevant)] *= boost
    left = best >= _LEAST
    if not left.any():
        shares[list(relevant)] = 1.0 / len(relevant)
        return shares
    shares[order[left]] = np.exp(best[left] - best[left].max())
    distribution: NDArray[np.float64] = shares / shares.sum()
    return distribution
