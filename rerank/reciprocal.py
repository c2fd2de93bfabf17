"""Reciprocal nearest neighbours: reranking by how many close neighbours a candidate shares with the query.

Paper 002: evidence-based label smoothing and reranking by reciprocal nearest neighbours. Equation numbers are the
paper's, readings where it is silent those of the project's method notes (section 3.3).

The context of one query is m = N + 1 elements: 0 is the query, 1..N its candidates, all compared by inner product.

1. Every element lists its k + 1 most similar elements, itself competing like any other (ties: lower index first).
2. R(i): the elements on i's list that have i on theirs (Eq. 4).
3. With tau > 0, R(i) grows by the smaller set R(c, tau k) of each member c that lies mostly inside R(i) (Eq. 5).
4. v_i: the similarities to the members of R*(i), scaled to sum 1 (Eq. 7), averaged over i's k_exp nearest (Eq. 8).
5. J(c) = sum_j min(v_0j, v_cj) / sum_j max(v_0j, v_cj) (Eq. 11); score(c) = weight * s(0, c) + (1 - weight) * J(c) (Eq. 1).

Example:
    Two of three candidates point the same way as each other and roughly as the query; the third is alone.

    >>> import numpy as np
    >>> query = np.array([1.0, 0.0], np.float32)
    >>> candidates = np.array([[0.8, 0.6], [0.8, 0.6], [0.0, 1.0]], np.float32)
    >>> scores = reciprocal(query, candidates, k=1, k_exp=1)
    >>> scores.shape, bool(scores[0] > scores[2])
    ((3,), True)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from termweave.errors import UsageError
from termweave.rerank import exact, fast
from termweave.rerank.rules import Rules, Sets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from termweave.rerank.rules import Normalisation, WeightFunction

_DEFAULT = Rules()


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """What the neighbours of query and candidates say.

    Attributes:
        similarity: s(0, c), float32 ``(N,)``: inner products with the query, row-normalised where asked for.
        jaccard: J(c), float32 ``(N,)``; 0 where both sets are empty (hubs) or one has no weight (zero vectors).
        shared: float32 ``(N, m)``: what each element adds to J(c): the query, the N candidates, what else is in the context;
            rows sum to `jaccard`.
    """

    similarity: NDArray[np.float32]
    jaccard: NDArray[np.float32]
    shared: NDArray[np.float32]

    def neighbours(self, candidate: int) -> list[int]:
        """The other candidates that are in the averaged sets of both the query and this one, what adds most to J first."""
        shares = self.shared[candidate, 1 : len(self.jaccard) + 1]
        ordered = np.argsort(-shares, kind="stable")[: np.count_nonzero(shares)].tolist()
        return [other for other in ordered if other != candidate]


def reciprocal(
    query: NDArray[np.float32],
    vectors: NDArray[np.float32],
    *,
    k: int = 10,
    k_exp: int = 3,
    tau: float = 0.0,
    weight: float = 0.75,
    weight_function: WeightFunction = "linear",
    weight_parameter: float = 1.0,
    normalize: Normalisation | None = None,
    inclusive: bool = False,
    clamp: bool = False,
) -> NDArray[np.float32]:
    """Score candidates by the mixed distance, Eq. 1 with similarities.

    Args:
        query: float32 ``(d,)``.
        vectors: float32 ``(N, d)``, the candidates in first-stage order.
        k: Neighbours an element lists besides itself; at most N count.
        k_exp: Entries of the list, itself included, that are averaged (Eq. 8); 1 averages nothing.
        tau: Size of the sets that expand R, as a share of k, in [0, 1]; 0 expands nothing.
        weight: lambda, the share of the plain similarity, in [0, 1].
        weight_function: "linear" or "exp"; this and what follows as `Rules` says.
        weight_parameter: For "exp".
        normalize: Rows of similarities divided by their "max" or "mean", or None.
        inclusive: Expand at an overlap of exactly two thirds too.
        clamp: Take negative weights as 0, which keeps J in [0, 1].

    Returns:
        float32 ``(N,)``: final scores in the order of the candidates.

    Raises:
        UsageError: A parameter outside its range, shapes that do not fit, or a vector that is not finite.
    """
    rules = Rules(k, k_exp, tau, weight_function, weight_parameter, normalize, inclusive, clamp)
    return _mixed(query, vectors, weight, rules)


def reciprocal_batch(
    queries: Sequence[NDArray[np.float32]] | NDArray[np.float32],
    candidates: Sequence[NDArray[np.float32]] | NDArray[np.float32],
    *,
    weight: float = 0.75,
    rules: Rules = _DEFAULT,
) -> list[NDArray[np.float32]]:
    """`reciprocal` for several queries, each with a list of candidates of its own.

    Contexts are worked on one by one, so that what is in work stays in the processor's cache; scores are those of
    `reciprocal`, bit by bit.

    Args:
        queries: Q vectors ``(d,)``, or one array ``(Q, d)``.
        candidates: Q arrays ``(N, d)``; N may differ, and may be 0.
        weight: lambda, the share of the plain similarity, in [0, 1].
        rules: The other parameters.

    Returns:
        Q arrays float32 ``(N,)``.

    Raises:
        UsageError: As `reciprocal`, or not as many lists as queries.
    """
    if len(queries) != len(candidates):
        raise UsageError(f"rNN got {len(queries)} queries and {len(candidates)} lists of candidates; it needs one list a query.")
    return [_mixed(query, vectors, weight, rules) for query, vectors in zip(queries, candidates, strict=True)]


def neighbourhood(
    query: NDArray[np.float32],
    vectors: NDArray[np.float32],
    rules: Rules = _DEFAULT,
    relevant: NDArray[np.float32] | None = None,
) -> Neighbourhood:
    """The two parts of `reciprocal` before they are mixed, and what J comes from. Arguments and errors as there.

    With `relevant`, float32 ``(L, d)``, documents that are known to be relevant and no candidates: they join the context
    behind the candidates, and each in turn takes the query's place as the probe; what comes back is the mean over them
    (Algorithm 1, line 5).
    """
    count = len(vectors)
    context, probes = vectors, [0]
    if relevant is not None and len(relevant):
        context = np.concatenate([vectors, relevant])
        probes = list(range(count + 1, count + 1 + len(relevant)))
    similarity, sets = compare(query, context, rules, probes)
    shared = np.zeros((1, 1, 1), np.float32) if sets.shared is None else sets.shared
    candidates = slice(1, count + 1)
    parts = similarity[probes, candidates], sets.jaccard[:, candidates], shared[:, candidates]
    return Neighbourhood(*(part[0] if len(probes) == 1 else part.mean(axis=0) for part in parts))


def mix(similarity: NDArray[np.float32], jaccard: NDArray[np.float32], weight: float) -> NDArray[np.float32]:
    """Eq. 1: ``weight * similarity + (1 - weight) * jaccard``.

    Raises:
        UsageError: The weight does not lie in [0, 1].
    """
    if not 0 <= weight <= 1:
        raise UsageError(f"The rNN weight must lie in [0, 1]; it is {weight}.")
    return np.float32(weight) * similarity + np.float32(1 - weight) * jaccard


def compare(
    query: NDArray[np.float32],
    vectors: NDArray[np.float32],
    rules: Rules,
    probes: Sequence[int] = (0,),
    *,
    with_shares: bool = True,
) -> tuple[NDArray[np.float32], Sets]:
    """Similarities ``(m, m)`` of a context, row-normalised where asked for, and the sets of its elements.

    Args:
        query: float32 ``(d,)``, element 0.
        vectors: float32 ``(N, d)``, elements 1..N.
        rules: The parameters.
        probes: The elements that all others are compared with.
        with_shares: Whether it is wanted what each element adds to J.

    Raises:
        UsageError: Shapes that do not fit, or a vector that is not finite.
    """
    query, vectors = np.asarray(query, np.float32), np.asarray(vectors, np.float32)
    if query.ndim != 1 or vectors.ndim != 2 or vectors.shape[1] != query.shape[0]:
        raise UsageError(f"rNN needs a query (d,) and vectors (N, d); it got {query.shape} and {vectors.shape}.")
    # One product of an array with itself (syrk): equal vectors get equal similarities to the last bit, so that they tie. In tiles,
    # or with the query's row apart, the sums run in other orders and do not (tried: this line a tenth quicker, and ties lost).
    elements = np.concatenate([query[None, :], vectors])
    with np.errstate(over="ignore", invalid="ignore"):
        similarity = elements @ elements.T
        finite = math.isfinite(similarity.trace())  # squared lengths: NaN, infinity and what is too long all show here
    if not finite:
        raise UsageError(
            "rNN got a vector with NaN, infinity, or numbers too large for float32.",
            "Find the text whose encoding is not finite; the model may be damaged.",
        )
    if len(vectors) == 0:
        return similarity, Sets(np.zeros((len(probes), 1), np.float32), None)
    sets = fast.sets(similarity, rules, probes, with_shares=with_shares) if rules.normalize is None else None
    if sets is None:  # ties, weights below 0, rows that are no longer symmetric: element by element
        similarity = exact.normalised(similarity, rules.normalize)
        sets = exact.sets(similarity, rules, probes)
    return similarity, sets


def _mixed(query: NDArray[np.float32], vectors: NDArray[np.float32], weight: float, rules: Rules) -> NDArray[np.float32]:
    similarity, sets = compare(query, vectors, rules, with_shares=False)
    return mix(similarity[0, 1:], sets.jaccard[0, 1:], weight)
