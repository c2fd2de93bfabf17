"""Compute the neighbour sets of rNN from sorted values: the same numbers as `equations`, several times as fast.

This works for neighbour lists without ties and with similarities above 0. Why the shortcuts are correct:

* numpy vectorises sorting of values, not of indices. Floats above 0 sort like their bits, and integers sort 1.5 times as fast.
* S is symmetric, so i and j are on each other's lists if ``S[i, j] >= max(t_i, t_j)``, where t_i is the last value on i's list.
* The c largest values of a long row are in the c groups of columns with the largest maxima, so only these groups are sorted.
* Rows sum to 1, so ``sum max = 2 - sum min``, and only columns where the probe's row is not 0 add to ``sum min``.
* If there are few elements, one matrix product with the lists sums the rows that Eq. 8 averages.
* If there are many, Eq. 5 stores sets as rows of bits: an intersection is an AND and a bit count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from termweave.rerank.neighbours.equations import Rules, Sets, expanded

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from numpy.typing import NDArray

    #: For a probe: columns, and in these columns the minima of its row and every other row, times k_exp.
    _Minima = Callable[[int], tuple[slice | NDArray[np.intp], NDArray[np.float32]]]

#: Columns per group; and the least number of groups per list entry from which grouping is faster.
_GROUP, _GROUPS = 8, 4
#: Number of elements from which sparse computation is faster than products of whole matrices.
_MANY = 96
#: Number of columns up to which sorting a row is as fast as partitioning it.
_SHORT = 256


def fast_sets(
    similarity: NDArray[np.float32], rules: Rules, probes: Sequence[int] = (0,), *, with_shares: bool = True
) -> Sets | None:
    """Compute the overlaps of neighbour sets from symmetric similarities ``(m, m)``.

    None: ties or similarities of 0 and below make the shortcuts invalid, and `exact_sets` must compute the overlaps.
    """
    count = len(similarity)
    columns, averaged = rules.columns(count), rules.averaged(rules.columns(count))
    best = _best(similarity, min(columns + 1, count))
    close = rules.close(columns) if rules.tau > 0 else columns
    if _ambiguous(best, {columns, close, averaged} - {1}):
        return None
    if best[:, -columns].min() <= 0:
        return None  # with weights of 0 or below, rows do not sum to 1, or min and max are swapped
    members = _mutual(similarity, best[:, -columns])
    if rules.tau > 0:
        members = _expanded(members, _mutual(similarity, best[:, -close]), inclusive=rules.inclusive)
    near = similarity >= best[:, -averaged, None] if averaged > 1 else np.eye(count, dtype=np.bool_)
    rows = rules.weights(similarity, members)
    sums = np.einsum("ij->i", rows)
    if sums.min() <= 0 or (rules.tau > 0 and rows.min() < 0):
        return None  # an empty set, or one that has grown by an element of negative similarity
    jaccard = np.empty((len(probes), count), np.float32)
    shared = np.zeros((len(probes), count, count), np.float32) if with_shares else None
    minima = _all_minima(rows, sums, near) if count < _MANY else _some_minima(rows, sums, near, averaged)
    for place, probe in enumerate(probes):
        columns_of, common = minima(probe)
        total = np.einsum("ij->i", common)
        union = 2 * averaged - total
        jaccard[place] = total / union
        if shared is not None:
            shared[place][:, columns_of] = common / union[:, None]
    return Sets(jaccard, shared)


def _best(similarity: NDArray[np.float32], columns: int) -> NDArray[np.float32]:
    """The largest values of each row in ascending order, ``(m, columns)``; negative values are not in order."""
    count = len(similarity)
    groups = count // _GROUP
    values = similarity.view(np.int32)
    if groups >= _GROUPS * columns:
        # Column g + j * groups belongs to group g. The columns after the last full group are always included.
        grouped = values[:, : groups * _GROUP].reshape(count, _GROUP, groups)
        highest = grouped.max(axis=1)
        flat = np.flatnonzero(highest >= np.partition(highest, groups - columns, axis=1)[:, groups - columns, None])
        if len(flat) == columns * count:
            chosen = np.take_along_axis(grouped, (flat % groups).reshape(count, 1, columns), axis=2)
            values = np.concatenate([chosen.reshape(count, -1), values[:, groups * _GROUP :]], axis=1)
    cut = values.shape[1] - columns
    if values.shape[1] > _SHORT:
        values, cut = np.partition(values, cut, axis=1)[:, cut:], 0
    return np.sort(values, axis=1)[:, cut:].view(np.float32).copy()  # a copy, so that the sorted array can be freed


def _ambiguous(best: NDArray[np.float32], sizes: Collection[int]) -> bool:
    """Whether a tie leaves open which element is the last on a neighbour list of one of these lengths."""
    ties = best[:, 1:] == best[:, :-1]
    return bool(ties.any()) and any(size < best.shape[1] and bool(ties[:, -size].any()) for size in sizes)


def _mutual(similarity: NDArray[np.float32], last: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Whether two elements are on each other's lists (Eq. 4), from the last value on each list: bool ``(m, m)``."""
    members = similarity >= last[:, None]
    members &= similarity >= last.copy()  # contiguous values are compared with vector instructions
    return members


def _all_minima(rows: NDArray[np.float32], sums: NDArray[np.float32], near: NDArray[np.bool_]) -> _Minima:
    """Return a function of a probe: the minima of the probe's row and every other row, over all columns. The rows are those of Eq. 8, times k_exp."""
    rows /= sums[:, None]
    around = near.astype(np.float32) @ rows
    return lambda probe: (slice(None), np.minimum(around, around[probe]))


def _some_minima(rows: NDArray[np.float32], sums: NDArray[np.float32], near: NDArray[np.bool_], averaged: int) -> _Minima:
    """Do as `_all_minima`, but only in the columns ``(c,)`` where the probe's row is not 0: minima ``(m, c)``."""
    places = (np.flatnonzero(near) % len(near)).reshape(-1, averaged)

    def minima(probe: int) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        query = (rows.take(places[probe], axis=0) / sums.take(places[probe])[:, None]).sum(axis=0)
        columns = np.flatnonzero(query)
        block = rows.take(columns, axis=1)
        block /= sums[:, None]  # divide, because a sum that was scaled down may be too small for a reciprocal
        around = block.take(places[:, 0], axis=0)
        for entry in range(1, averaged):
            around += block.take(places[:, entry], axis=0)
        return columns, np.minimum(around, query[columns], out=around)

    return minima


def _expanded(members: NDArray[np.bool_], close: NDArray[np.bool_], *, inclusive: bool) -> NDArray[np.bool_]:
    """Expand the sets by Eq. 5, stored as rows of bits; only pairs of an element and one of its members are compared."""
    count = len(members)
    if count < _MANY:
        return expanded(members, close, inclusive=inclusive)
    reference, small = _bits(members), _bits(close)
    elements, others = np.divmod(np.flatnonzero(members), count)
    shared = _counted(reference.take(elements, axis=0) & small.take(others, axis=0))
    size = _counted(small).take(others)
    joins = 3 * shared >= 2 * size if inclusive else 3 * shared > 2 * size
    elements, others = elements[joins], others[joins]
    grown = reference.copy()
    if len(elements):
        first = np.flatnonzero(np.diff(elements, prepend=-1))
        grown[elements[first]] |= np.bitwise_or.reduceat(small.take(others, axis=0), first, axis=0)
    return np.unpackbits(grown.view(np.uint8), axis=1, count=count, bitorder="little").view(np.bool_)


def _counted(rows: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The number of set bits in each row."""
    counts: NDArray[np.int64] = np.einsum("ij->i", np.bitwise_count(rows), dtype=np.int64)
    return counts


def _bits(rows: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Pack rows of flags into rows of 64-bit words."""
    packed = np.packbits(rows, axis=1, bitorder="little")
    words = np.zeros((len(rows), -(-packed.shape[1] // 8) * 8), np.uint8)
    words[:, : packed.shape[1]] = packed
    return words.view(np.uint64)
