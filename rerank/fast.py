"""rNN without sorting: the same numbers as `exact`, for lists without ties and with similarities above 0.

Why it may be done so:

* S is symmetric, so "each is on the other's list" is ``S[i, j] >= max(t_i, t_j)``, t_i being the last value on i's list.
* `np.partition` with one cut is vectorised by numpy, with two it is not: the second cut is made in what the first left.
* The c largest of a long row lie in the c groups of columns with the largest maxima: only those are partitioned.
* Rows sum to 1, so ``sum max = 2 - sum min``, and only columns where the probe's row is not 0 add to ``sum min``.
* For Eq. 5 sets are rows of bits: an intersection is an AND and a count of bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from termweave.rerank.rules import Rules, Sets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

#: Elements from which on lists of indices are quicker than whole matrices, whose operations are fewer.
_MANY = 128
#: Columns in a group, and the least number of groups for each column of a list that make looking at groups first pay.
_GROUP, _GROUPS = 8, 4


def sets(similarity: NDArray[np.float32], rules: Rules, probes: Sequence[int] = (0,), *, with_shares: bool = True) -> Sets | None:
    """J from symmetric similarities ``(m, m)``; None where the short cuts do not hold and `exact` has to do it."""
    count = len(similarity)
    columns = rules.columns(count)
    best = _best(similarity, columns)
    if best[:, 0].min() <= 0:
        return None  # weights of 0 or below: rows would not sum to 1, or min and max change places
    rows = _rows(similarity, rules, best)
    if rows is None:
        return None
    near = np.arange(count)[:, None]
    if (averaged := rules.averaged(columns)) > 1:
        nearest = rows.from_on(_last(best, averaged))
        if len(nearest) != averaged * count:
            return None
        near = nearest.reshape(count, averaged)
    jaccard = np.empty((len(probes), count), np.float32)
    shared = np.zeros((len(probes), count, count), np.float32) if with_shares else None
    for place, probe in enumerate(probes):
        columns_of, common, total = _common(rows, near, probe)
        union = 2 * averaged - total
        jaccard[place] = total / union
        if shared is not None:
            shared[place][:, columns_of] = common / union[:, None]
    return Sets(jaccard, shared)


def _rows(similarity: NDArray[np.float32], rules: Rules, best: NDArray[np.float32]) -> _Rows | None:
    """Eq. 4, 5 and 7; None where a tie at a cut leaves a list open, or a set is empty."""
    count, columns = best.shape
    cut = best[:, :1]
    listed = similarity >= cut
    if rules.tau == 0 and count > _MANY:
        return _Lists.of(similarity, listed, cut, rules)
    if np.count_nonzero(listed) != columns * count:
        return None
    members = listed & listed.T
    if rules.tau > 0:
        close = similarity >= _last(best, rules.close(columns))
        if np.count_nonzero(close) != rules.close(columns) * count:
            return None
        members = _expanded(members, close & close.T, inclusive=rules.inclusive)
    return _Matrix.of(similarity, members, rules)


class _Rows(Protocol):
    """The weighted vectors v of Eq. 7, each scaled to sum 1, and the similarities they come from."""

    def from_on(self, cut: NDArray[np.float32]) -> NDArray[np.intp]:
        """Row by row, the elements as similar as `cut` ``(m, 1)`` at least."""
        ...

    def total(self, elements: NDArray[np.intp]) -> NDArray[np.float32]:
        """Sum of the rows of some elements: ``(m,)``."""
        ...

    def block(self, columns: NDArray[np.intp]) -> NDArray[np.float32]:
        """Some columns of all rows: ``(m, len(columns))``."""
        ...


@dataclass(frozen=True, slots=True)
class _Matrix:
    """Rows as one matrix ``(m, m)``, scaled where they are looked at."""

    similarity: NDArray[np.float32]
    rows: NDArray[np.float32]
    scale: NDArray[np.float32]

    @classmethod
    def of(cls, similarity: NDArray[np.float32], members: NDArray[np.bool_], rules: Rules) -> _Matrix | None:
        """None where a set is empty, or has grown by an element of negative similarity."""
        rows = rules.weights(similarity) * members
        sums = np.einsum("ij->i", rows)
        if sums.min() <= 0 or (rules.tau > 0 and rows.min() < 0):
            return None
        return cls(similarity, rows, 1 / sums)

    def from_on(self, cut: NDArray[np.float32]) -> NDArray[np.intp]:
        """As `_Rows` says."""
        return np.flatnonzero(self.similarity >= cut) % len(self.similarity)

    def total(self, elements: NDArray[np.intp]) -> NDArray[np.float32]:
        """As `_Rows` says."""
        total: NDArray[np.float32] = self.scale.take(elements) @ self.rows.take(elements, axis=0)
        return total

    def block(self, columns: NDArray[np.intp]) -> NDArray[np.float32]:
        """As `_Rows` says."""
        return self.rows.take(columns, axis=1) * self.scale[:, None]


@dataclass(frozen=True, slots=True)
class _Lists:
    """Rows as the columns of each element's list ``(m, columns)`` and the values there, 0 for those that are not mutual."""

    at: NDArray[np.intp]
    similar: NDArray[np.float32]
    values: NDArray[np.float32]

    @classmethod
    def of(
        cls, similarity: NDArray[np.float32], listed: NDArray[np.bool_], cut: NDArray[np.float32], rules: Rules
    ) -> _Lists | None:
        """None where a tie at the cut leaves a list open, or a set is empty."""
        count = len(similarity)
        columns = rules.columns(count)
        flat = np.flatnonzero(listed)
        if len(flat) != columns * count:
            return None
        at = flat.reshape(count, columns) - np.arange(0, count * count, count)[:, None]
        similar = similarity.take(flat).reshape(count, columns)
        values = rules.weights(similar) * (similar >= cut.take(at))
        sums = np.einsum("ij->i", values)
        if sums.min() <= 0:
            return None
        values /= sums[:, None]
        return cls(at, similar, values)

    def from_on(self, cut: NDArray[np.float32]) -> NDArray[np.intp]:
        """As `_Rows` says."""
        return self.at.take(np.flatnonzero(self.similar >= cut))

    def total(self, elements: NDArray[np.intp]) -> NDArray[np.float32]:
        """As `_Rows` says."""
        at, values = self.at[elements].ravel(), self.values[elements].ravel()
        return np.bincount(at, values, minlength=len(self.at)).astype(np.float32)

    def block(self, columns: NDArray[np.intp]) -> NDArray[np.float32]:
        """As `_Rows` says; what belongs to other columns falls into one more, which is cut off."""
        count, width = len(self.at), len(columns) + 1
        place = np.full(count, width - 1)
        place[columns] = np.arange(width - 1)
        block = np.zeros(count * width, np.float32)
        block[place.take(self.at) + np.arange(0, count * width, width)[:, None]] = self.values
        return block.reshape(count, width)[:, :-1]


def _common(rows: _Rows, near: NDArray[np.intp], probe: int) -> tuple[NDArray[np.intp], NDArray[np.float32], NDArray[np.float32]]:
    """Eq. 8, times k_exp, and what the probe has in common with every element: columns (c,), minima ``(m, c)``, sums (m,)."""
    query = rows.total(near[probe])
    columns = np.flatnonzero(query)
    block = rows.block(columns)
    around = block.take(near[:, 0], axis=0)
    for entry in range(1, near.shape[1]):
        around += block.take(near[:, entry], axis=0)
    common = np.minimum(around, query[columns])
    return columns, common, np.einsum("ij->i", common)


def _last(best: NDArray[np.float32], columns: int) -> NDArray[np.float32]:
    """The last value of shorter lists, from the values of longer ones: ``(m, 1)``."""
    cut = best.shape[1] - columns
    return np.partition(best, cut, axis=1)[:, cut : cut + 1] if cut else best[:, :1]


def _best(similarity: NDArray[np.float32], columns: int) -> NDArray[np.float32]:
    """The largest values of each row, the smallest of them first: ``(m, columns)``."""
    count = len(similarity)
    groups = count // _GROUP
    values = similarity
    if groups >= _GROUPS * columns:
        # Column g + j * groups belongs to group g; what is left over at the end is looked at in any case.
        grouped = similarity[:, : groups * _GROUP].reshape(count, _GROUP, groups)
        highest = grouped.max(axis=1)
        flat = np.flatnonzero(highest >= np.partition(highest, groups - columns, axis=1)[:, groups - columns, None])
        if len(flat) == columns * count:
            held = np.take_along_axis(grouped, (flat % groups).reshape(count, 1, columns), axis=2)
            values = np.concatenate([held.reshape(count, -1), similarity[:, groups * _GROUP :]], axis=1)
    cut = values.shape[1] - columns
    return np.partition(values, cut, axis=1)[:, cut:]


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
