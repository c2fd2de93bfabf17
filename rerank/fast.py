"""rNN without index lists: the same numbers as `exact`, for lists without ties and weights above 0.

Why it may be done so:

* S is symmetric, so "each is on the other's list" is ``S[i, j] >= max(t_i, t_j)``, t_i being the last value on i's list.
* `np.partition` with one cut is vectorised by numpy, with two it is not: the second cut is made in what the first left.
* Rows sum to 1, so ``sum max = 2 - sum min``, and only columns where the query's row is not 0 add to ``sum min``.
* For Eq. 5 sets are rows of bits: an intersection is an AND and a count of bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from termweave.rerank.rules import Rules, Sets

if TYPE_CHECKING:
    from numpy.typing import NDArray


def sets(similarity: NDArray[np.float32], rules: Rules) -> Sets | None:
    """R* and J from symmetric similarities ``(m, m)``; None where the short cuts do not hold and `exact` has to do it."""
    listed, best = _listed(similarity, rules.columns)
    if listed is None:
        return None
    members = listed & listed.T
    if rules.tau > 0:
        close, _ = (listed, best) if rules.close == rules.columns else _listed(similarity, rules.close, best)
        if close is None:
            return None
        members = _expanded(members, close & close.T, inclusive=rules.inclusive)
    rows = rules.weights(similarity) * members
    # A set with a weight of 0 or below: rows no longer sum to 1, or min and max change places.
    if rows.min() < 0 or (sums := rows.sum(axis=1)).min() <= 0:
        return None
    averaged = rules.averaged
    if averaged == 1:
        query = rows[0] / sums[0]
        columns = np.flatnonzero(query)
        around = rows[:, columns] / sums[:, None]
    else:
        near, _ = _listed(similarity, averaged, best)
        if near is None:
            return None
        entries = (np.flatnonzero(near) % len(near)).reshape(len(near), averaged)
        share = 1 / (averaged * sums)
        query = share[entries[0]] @ rows[entries[0]]
        columns = np.flatnonzero(query)
        scaled = rows[:, columns] * share[:, None]
        around = scaled[entries[:, 0]]
        for entry in range(1, averaged):
            around += scaled[entries[:, entry]]
    common = np.minimum(around, query[columns]).sum(axis=1)
    return Sets(members, (common / (2 - common)).astype(np.float32))


def _listed(
    similarity: NDArray[np.float32], columns: int, best: NDArray[np.float32] | None = None
) -> tuple[NDArray[np.bool_] | None, NDArray[np.float32]]:
    """Who is on whose list: bool ``(m, m)``, or None where a tie at the cut leaves that open; and the lists' values.

    `best` holds the values of longer lists, where they are known: the cut is then made among those few.
    """
    values = similarity if best is None else best
    cut = values.shape[1] - columns
    top = np.partition(values, cut, axis=1)[:, cut:]
    listed = similarity >= top[:, :1]
    if np.count_nonzero(listed) != columns * len(listed):
        return None, top
    return listed, top


def _expanded(members: NDArray[np.bool_], close: NDArray[np.bool_], *, inclusive: bool) -> NDArray[np.bool_]:
    """Eq. 5 on rows of bits; only pairs of an element and its member are looked at."""
    count = len(members)
    reference, small = _bits(members), _bits(close)
    elements, others = np.nonzero(members)
    shared = np.bitwise_count(reference[elements] & small[others]).sum(axis=1, dtype=np.int64)
    size = np.count_nonzero(close, axis=1)[others]
    joins = 3 * shared >= 2 * size if inclusive else 3 * shared > 2 * size
    elements, others = elements[joins], others[joins]
    grown = reference.copy()
    if len(elements):
        first = np.flatnonzero(np.diff(elements, prepend=-1))
        grown[elements[first]] |= np.bitwise_or.reduceat(small[others], first, axis=0)
    return np.unpackbits(grown.view(np.uint8), axis=1, count=count, bitorder="little").view(np.bool_)


def _bits(rows: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Rows of flags as rows of 64-bit words."""
    packed = np.packbits(rows, axis=1, bitorder="little")
    words = np.zeros((len(rows), -(-packed.shape[1] // 8) * 8), np.uint8)
    words[:, : packed.shape[1]] = packed
    return words.view(np.uint64)
