"""Soft evidence: how similar each candidate is to the candidates known to be relevant, and training labels made from these similarities.

Paper 002, Algorithm 1. The context is one query (element 0) and its N candidates. Each relevant candidate l is the probe once, and
line 5 averages the mixed similarity s*(l, c) over all l. Relevance feedback ranks by this average. Lines 6 to 9 turn it into labels
for a list-wise loss.

Example:
    The first of three candidates is known to be relevant. The second has the same direction, the third another one.

    >>> import numpy as np
    >>> query = np.array([1.0, 0.0], np.float32)
    >>> candidates = np.array([[0.8, 0.6], [0.8, 0.6], [0.0, 1.0]], np.float32)
    >>> scores = evidence(query, candidates, [0], rules=Rules(k=1, k_exp=1))
    >>> bool(scores[1] > scores[2])
    True
    >>> labels(scores, [0], keep=2).round(3).tolist()
    [0.5, 0.5, 0.0]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from termweave.errors import UsageError
from termweave.rerank.neighbours.equations import Rules
from termweave.rerank.neighbours.reciprocal import compare, mix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_DEFAULT = Rules()


def evidence(
    query: NDArray[np.float32],
    vectors: NDArray[np.float32],
    relevant: Sequence[int],
    *,
    grades: Sequence[float] | None = None,
    weight: float = 0.75,
    rules: Rules = _DEFAULT,
) -> NDArray[np.float32]:
    """The mixed similarity s*(l, c) of every candidate c, averaged over the relevant candidates l (Algorithm 1, line 5).

    Args:
        query: float32 ``(d,)``.
        vectors: float32 ``(N, d)``, all candidates, including the relevant ones.
        relevant: Positions of the relevant candidates, from 0 to N - 1; at least one.
        grades: A factor for each relevant candidate; None: 1 for each. Reading: the sum is divided by the number of relevant candidates, not by the
            sum of the factors.
        weight: lambda, the share of the plain similarity, in [0, 1].
        rules: The parameters of the neighbour sets, as for `reciprocal`.

    Returns:
        float32 ``(N,)``, in the order of the candidates, including the relevant ones.

    Raises:
        UsageError: The arguments are refused by `reciprocal`, there is no relevant candidate, a position does not exist, or the
            number of grades is wrong.
    """
    probes = _positions(relevant, len(vectors))
    factors = np.ones(len(probes), np.float32) if grades is None else np.asarray(grades, np.float32)
    if factors.shape != (len(probes),):
        raise UsageError(f"There must be one grade for each of {len(probes)} relevant candidates, not {factors.size}.")
    similarity, sets = compare(query, vectors, rules, (probes + 1).tolist(), with_shares=False)
    mixed = mix(similarity[probes + 1], sets.jaccard, weight)
    averaged: NDArray[np.float32] = (factors @ mixed)[1:] / np.float32(len(probes))
    return averaged


def labels(
    scores: NDArray[np.float32],
    relevant: Sequence[int],
    *,
    boost: float = 1.0,
    keep: int | None = None,
    normalize: Literal["max-min", "std"] | None = "max-min",
) -> NDArray[np.float64]:
    """Turn the scores of `evidence` into a distribution over the candidates (Algorithm 1, lines 6 to 9).

    Args:
        scores: ``(N,)``, the scores of the candidates.
        relevant: Positions of the relevant candidates.
        boost: b, the factor of the relevant candidates' normalised scores.
        keep: n_max, the number of best candidates that get a label; relevant candidates always get one. None: all.
            Reading: the best by `scores`; equal scores by position.
        normalize: f_n, which scales the scores: "max-min" (Eq. 13), "std" (Eq. 14, of the population); None: the scores stay. Equal scores become 0.

    Returns:
        float64 ``(N,)``, which sums to 1.

    Raises:
        UsageError: A position does not exist, or a parameter is outside its range.
    """
    places = _positions(relevant, len(scores))
    if normalize not in {"max-min", "std", None} or (keep is not None and keep < 1) or not 0 < boost < np.inf:
        hint = "normalize must be 'max-min', 'std' or None, keep at least 1 or None, and boost above 0."
        raise UsageError(f"Labels cannot be made with normalize={normalize!r}, keep={keep}, boost={boost}.", hint)
    values = np.asarray(scores, np.float64)
    if normalize is not None:
        spread = np.ptp(values) if normalize == "max-min" else values.std()
        values = (values - values.min()) / (spread or 1.0)
    labelled = np.zeros(len(values), np.bool_)
    labelled[np.argsort(-np.asarray(scores), kind="stable")[:keep]] = True
    labelled[places] = True
    factors = np.ones(len(values))
    factors[places] = boost
    powers = np.where(labelled, values * factors, -np.inf)
    shares = np.exp(powers - powers.max())
    distribution: NDArray[np.float64] = shares / shares.sum()
    return distribution


def _positions(relevant: Sequence[int], count: int) -> NDArray[np.intp]:
    """Return the positions of the relevant candidates as an array, after a check.

    Raises:
        UsageError: There are no positions, or a position does not exist.
    """
    places = np.asarray(relevant, np.intp)
    if places.ndim != 1 or not len(places):
        raise UsageError("Soft evidence needs at least one relevant candidate.", "Give their positions among the candidates.")
    outside = places[(places < 0) | (places >= count)]
    if len(outside):
        hint = "Give the relevant candidates as positions among the candidates, counted from 0."
        raise UsageError(f"There is no candidate {outside[0]} among {count}.", hint)
    return places
