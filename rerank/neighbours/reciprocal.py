"""Reciprocal nearest neighbours (rNN): rerank candidates by the near neighbours that they share with the query.

Paper 002: evidence-based label smoothing and reranking by reciprocal nearest neighbours. Equation numbers are the paper's. Where
the paper leaves a choice open, the text says "Reading" (method notes, section 3.3).

The context of one query has m = N + 1 elements: 0 is the query, 1..N are its candidates. They are compared by inner product.

1. Every element lists the k + 1 elements that are most similar to it, itself competing like any other (ties: lower index first). Reading: in
   Eq. 3 the element itself is one of k; the authors' program, for which their k was chosen, lists k further elements.
2. R(i): the elements on i's list that have i on theirs (Eq. 4).
3. With tau > 0, R(i) grows by the smaller set R(c, tau k) of each member c that lies mostly inside R(i) (Eq. 5).
4. v_i: the similarities to the members of R*(i) (Eq. 7), averaged over i's k_exp nearest (Eq. 8). Reading: each row is
   scaled to sum 1 before, as in the authors' program; the paper does not print it.
5. J(c) = sum_j min(v_0j, v_cj) / sum_j max(v_0j, v_cj) (Eq. 11); score(c) = weight * s(0, c) + (1 - weight) * J(c) (Eq. 1).

Example:
    Two of three candidates have the same direction, which is near the query's. The third has another direction.

    >>> import numpy as np
    >>> query = np.array([1.0, 0.0], np.float32)
    >>> candidates = np.array([[0.8, 0.6], [0.8, 0.6], [0.0, 1.0]], np.float32)
    >>> scores = reciprocal(query, candidates, rules=Rules(k=1, k_exp=1))
    >>> scores.shape, bool(scores[0] > scores[2])
    ((3,), True)

Soft evidence (`evidence`, Algorithm 1) says how similar each candidate is to the candidates known to be relevant. Each relevant candidate l is the
probe once, in the query's place, and line 5 averages the mixed similarity s*(l, c) over all l. Relevance feedback ranks by this average; lines 6 to 9
(`labels`) turn it into training labels for a list-wise loss.

    The first of the three candidates is known to be relevant. The second has the same direction, the third another one.

    >>> scores = evidence(query, candidates, [0], rules=Rules(k=1, k_exp=1))
    >>> bool(scores[1] > scores[2])
    True
    >>> labels(scores, [0], keep=2).round(3).tolist()
    [0.5, 0.5, 0.0]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from termweave.errors import UsageError
from termweave.rerank.neighbours.equations import Rules, Sets, exact_sets, fast_sets, normalised

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DEFAULT = Rules()


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """Similarities and neighbour overlaps of the candidates of one query.

    Attributes:
        similarity: s(0, c), float32 ``(N,)``: inner products with the query, row-normalised if `Rules.normalize` is set.
        jaccard: J(c), float32 ``(N,)``; 0 if both sets are empty (hubs) or one has no weight (zero vectors).
        shared: float32 ``(N, m)``: the part of J(c) that each element of the context adds (the query, the N candidates, relevant
            documents); rows sum to `jaccard`.
    """

    similarity: NDArray[np.float32]
    jaccard: NDArray[np.float32]
    shared: NDArray[np.float32]

    def neighbours(self, candidate: int) -> list[int]:
        """The candidates whose share in this candidate's J is above 0, without the candidate itself, largest share first."""
        shares = self.shared[candidate, 1 : len(self.jaccard) + 1]
        ordered = np.argsort(-shares, kind="stable")[: np.count_nonzero(shares)].tolist()
        return [other for other in ordered if other != candidate]


def reciprocal(
    query: NDArray[np.float32], vectors: NDArray[np.float32], *, weight: float = 0.9, rules: Rules = _DEFAULT
) -> NDArray[np.float32]:
    """Score candidates by a mix of their similarity to the query and J, the overlap of their neighbour sets (Eq. 1 with similarities).

    Args:
        query: float32 ``(d,)``.
        vectors: float32 ``(N, d)``, the candidates in first-stage order.
        weight: lambda, the share of the plain similarity, in [0, 1].
        rules: The parameters of the neighbour sets.

    Returns:
        float32 ``(N,)``: final scores in the order of the candidates.

    Raises:
        UsageError: `weight` is outside its range, the shapes do not fit, or a vector is not finite.
    """
    similarity, sets = compare(query, vectors, rules, with_shares=False)
    return mix(similarity[0, 1:], sets.jaccard[0, 1:], weight)


def reciprocal_batch(
    queries: Sequence[NDArray[np.float32]] | NDArray[np.float32],
    candidates: Sequence[NDArray[np.float32]] | NDArray[np.float32],
    *,
    weight: float = 0.9,
    rules: Rules = _DEFAULT,
) -> list[NDArray[np.float32]]:
    """Score the candidates of several queries, as `reciprocal` does for one.

    Contexts are computed one by one, so that each stays in the processor's cache. The scores equal those of `reciprocal` to the
    last bit.

    Args:
        queries: Q vectors ``(d,)``, or one array ``(Q, d)``.
        candidates: Q arrays ``(N, d)``; N may differ, and may be 0.
        weight: lambda, the share of the plain similarity, in [0, 1].
        rules: The parameters of the neighbour sets.

    Returns:
        Q arrays float32 ``(N,)``.

    Raises:
        UsageError: The arguments are refused by `reciprocal`, or the numbers of queries and lists differ.
    """
    if len(queries) != len(candidates):
        raise UsageError(f"rNN needs a list of candidates for each query, and got {len(candidates)} for {len(queries)} queries.")
    return [reciprocal(query, vectors, weight=weight, rules=rules) for query, vectors in zip(queries, candidates, strict=True)]


def neighbourhood(
    query: NDArray[np.float32], vectors: NDArray[np.float32], rules: Rules = _DEFAULT, relevant: NDArray[np.float32] | None = None
) -> Neighbourhood:
    """Compute the two parts of a score of `reciprocal`, similarity and J, before they are mixed, and each element's share in J.

    Args:
        query: float32 ``(d,)``.
        vectors: float32 ``(N, d)``, the candidates in first-stage order.
        rules: The parameters of the neighbour sets.
        relevant: float32 ``(L, d)``, relevant documents that are not candidates; they follow the candidates in the context. Each of them is the probe
            once, in place of the query, and the result is the mean over all of them (Algorithm 1, line 5). None: the query is the probe.

    Raises:
        UsageError: The shapes do not fit, or a vector is not finite.
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
    """Mix similarity and J by Eq. 1: ``weight * similarity + (1 - weight) * jaccard``.

    Raises:
        UsageError: The weight does not lie in [0, 1].
    """
    if not 0 <= weight <= 1:
        raise UsageError(f"The weight of rNN is a number from 0 to 1, not {weight}.")
    return np.float32(weight) * similarity + np.float32(1 - weight) * jaccard


def compare(
    query: NDArray[np.float32],
    vectors: NDArray[np.float32],
    rules: Rules,
    probes: Sequence[int] = (0,),
    *,
    with_shares: bool = True,
) -> tuple[NDArray[np.float32], Sets]:
    """Compute the similarities ``(m, m)`` of a context (the query and its candidates), and the overlaps of its neighbour sets.

    The similarities are row-normalised if `Rules.normalize` is set.

    Args:
        query: float32 ``(d,)``, element 0.
        vectors: float32 ``(N, d)``, elements 1..N.
        rules: The parameters.
        probes: The elements that every other element is compared with; 0 is the query.
        with_shares: Compute the part of J that each element adds, too.

    Raises:
        UsageError: The shapes do not fit, or a vector is not finite.
    """
    query, vectors = np.asarray(query, np.float32), np.asarray(vectors, np.float32)
    if query.ndim != 1 or vectors.ndim != 2 or vectors.shape[1] != query.shape[0]:
        raise UsageError(f"rNN needs a query (d,) and vectors (N, d), not {query.shape} and {vectors.shape}.")
    elements = np.concatenate([query[None, :], vectors])
    with np.errstate(over="ignore", invalid="ignore"):
        similarity = _products(elements)
        # The sum of squared lengths is not finite if a number is NaN, infinite or too large.
        finite = math.isfinite(similarity.trace())
    if not finite:
        raise UsageError("rNN got a vector with NaN, infinity, or numbers too large for float32.", "The model may be damaged.")
    if len(vectors) == 0:
        return similarity, Sets(np.zeros((len(probes), 1), np.float32), None)
    sets = fast_sets(similarity, rules, probes, with_shares=with_shares) if rules.normalize is None else None
    if sets is None:  # ties, weights below 0, or rows that are not symmetric: compute element by element
        similarity = normalised(similarity, rules.normalize)
        sets = exact_sets(similarity, rules, probes)
    return similarity, sets


def _products(elements: NDArray[np.float32]) -> NDArray[np.float32]:
    """The inner products ``(m, m)`` of vectors. Equal vectors get exactly equal products, because each distinct vector is multiplied once.

    If copies were multiplied, too, their products could differ in the last bit: BLAS may sum the last rows in another order, in another thread.
    """
    if len(set(elements[:, :1].ravel().tolist())) == len(elements):  # no two begin alike
        return elements @ elements.T
    places: dict[bytes, int] = {}
    copies = [places.setdefault(element.tobytes(), len(places)) for element in elements]
    distinct = elements[np.unique(copies, return_index=True)[1]]
    products: NDArray[np.float32] = (distinct @ distinct.T)[np.ix_(copies, copies)]
    return products


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
        raise UsageError(f"There is no candidate {outside[0]} among {count}.", "Positions of candidates are counted from 0.")
    return places
