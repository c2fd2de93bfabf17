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

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from termweave.errors import UsageError
from termweave.rerank import exact, fast
from termweave.rerank.rules import Normalisation, Rules, WeightFunction

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """What the neighbours of query and candidates say.

    Attributes:
        similarity: s(0, c), float32 ``(N,)``: inner products with the query, row-normalised where asked for.
        jaccard: J(c), float32 ``(N,)``; 0 where a set is empty (zero vectors, hubs).
        members: bool ``(N + 1, N + 1)``: row i holds R*(i), element 0 being the query.
    """

    similarity: NDArray[np.float32]
    jaccard: NDArray[np.float32]
    members: NDArray[np.bool_]


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
        weight_function: "linear": v = s; "exp": v = exp(weight_parameter * s) - 1.
        weight_parameter: For "exp".
        normalize: Divide each row of similarities by its maximum or mean before anything else.
        inclusive: Expand at an overlap of exactly two thirds too (Eq. 5 as printed; the authors' program does not).
        clamp: Take negative weights of Eq. 7 as 0, which keeps J in [0, 1].

    Returns:
        float32 ``(N,)``: final scores in the order of the candidates.

    Raises:
        UsageError: A parameter outside its range, or shapes that do not fit; the message holds the values.
    """
    if not 0 <= weight <= 1:
        raise UsageError(f"The rNN weight must lie in [0, 1]; it is {weight}.")
    found = neighbourhood(
        query,
        vectors,
        k=k,
        k_exp=k_exp,
        tau=tau,
        weight_function=weight_function,
        weight_parameter=weight_parameter,
        normalize=normalize,
        inclusive=inclusive,
        clamp=clamp,
    )
    return np.float32(weight) * found.similarity + np.float32(1 - weight) * found.jaccard


def neighbourhood(
    query: NDArray[np.float32],
    vectors: NDArray[np.float32],
    *,
    k: int = 10,
    k_exp: int = 3,
    tau: float = 0.0,
    weight_function: WeightFunction = "linear",
    weight_parameter: float = 1.0,
    normalize: Normalisation | None = None,
    inclusive: bool = False,
    clamp: bool = False,
) -> Neighbourhood:
    """The two parts of `reciprocal` before they are mixed, and the sets they come from. Arguments as there."""
    _check(query, vectors, k, k_exp, tau)
    if weight_function not in {"linear", "exp"} or normalize not in {None, "max", "mean"}:
        raise UsageError(
            f"rNN has no weight function {weight_function!r} or no normalisation {normalize!r}.",
            "Weight functions: linear, exp; normalisations: None, max, mean.",
        )
    if len(vectors) == 0:
        nothing = np.zeros(0, np.float32)
        return Neighbourhood(nothing, nothing, np.zeros((1, 1), np.bool_))
    elements = np.concatenate([query[None, :], vectors]).astype(np.float32, copy=False)
    similarity = elements @ elements.T
    rules = Rules(min(k, len(vectors)) + 1, k_exp, tau, weight_function, weight_parameter, inclusive, clamp)
    found = fast.sets(similarity, rules) if normalize is None else None
    if found is None:  # ties, weights below 0, rows that are no longer symmetric: element by element
        similarity = exact.normalised(similarity, normalize)
        found = exact.sets(similarity, rules)
    return Neighbourhood(similarity[0, 1:], found.jaccard[1:], found.members)


def _check(query: NDArray[np.float32], vectors: NDArray[np.float32], k: int, k_exp: int, tau: float) -> None:
    if query.ndim != 1 or vectors.ndim != 2 or vectors.shape[1] != query.shape[0]:
        raise UsageError(f"rNN needs a query (d,) and vectors (N, d); it got {query.shape} and {vectors.shape}.")
    if k < 1 or k_exp < 1:
        raise UsageError(f"rNN needs k and k_exp of at least 1; they are {k} and {k_exp}.")
    if not 0 <= tau <= 1:
        raise UsageError(f"rNN needs tau in [0, 1]; it is {tau}.")
    if not (np.isfinite(query).all() and np.isfinite(vectors).all()):
        raise UsageError(
            "rNN got a vector with NaN or infinity.", "Find the text whose encoding is not finite; the model may be damaged."
        )
