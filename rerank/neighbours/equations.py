"""The parameters of rNN, with their checks, and the overlaps of its neighbour sets, computed in two ways.

`exact_sets` follows the paper's equations element by element, and handles ties, negative weights and empty sets. `fast_sets` computes the same
numbers from sorted values, several times as fast, for neighbour lists without ties and with similarities above 0; it is tested against
`exact_sets`. Why its shortcuts are correct:

* numpy vectorises sorting of values, not of indices. Floats above 0 sort like their bits, and integers sort 1.5 times as fast.
* S is symmetric, so i and j are on each other's lists if ``S[i, j] >= max(t_i, t_j)``, where t_i is the last value on i's list.
* The c largest values of a long row are in the c groups of columns with the largest maxima, so only these groups are sorted.
* Rows sum to 1, so ``sum max = 2 - sum min``, and only columns where the probe's row is not 0 add to ``sum min``.
* If there are few elements, one matrix product with the lists sums the rows that Eq. 8 averages.
* If there are many, Eq. 5 stores sets as rows of bits: an intersection is an AND and a bit count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from termweave.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    #: For a probe: columns, and in these columns the minima of its row and every other row, times k_exp.
    _Minima = Callable[[int], tuple[slice | NDArray[np.intp], NDArray[np.float32]]]

WeightFunction = Literal["linear", "exp"]
Normalisation = Literal["max", "mean"]

#: The largest exponent that is computed directly; exp overflows float32 above 88.7.
_LARGEST_EXPONENT = 80.0
#: The largest weight parameter. With a larger one only the nearest neighbour would count, and products would overflow float32.
_LARGEST_PARAMETER = 1e6
#: Signed weights cancel if their sum is at most this part of the sum of their sizes. A row that cancels is not scaled: the sum is
#: only a rounding error.
_CANCELLED = 1e-6
#: Columns per group; and the least number of groups per list entry from which grouping is faster.
_GROUP, _GROUPS = 8, 4
#: Number of elements from which sparse computation is faster than products of whole matrices.
_MANY = 96
#: Number of columns up to which sorting a row is as fast as partitioning it.
_SHORT = 256


@dataclass(frozen=True, slots=True)
class Rules:
    """The parameters of rNN: how neighbours are found and weighted.

    Attributes:
        k: Number of neighbours on an element's list besides the element itself; at most N, the number of candidates.
        k_exp: Number of entries of the list, the element itself included, whose rows are averaged (Eq. 8); 1 averages nothing.
        tau: Size of the sets that expand R (the reciprocal neighbours), as a share of k, in [0, 1] (Eq. 5); 0 expands nothing.
        weight_function: Turns a similarity s into a weight v (Eq. 7). "linear": v = s; "exp": v = exp(weight_parameter * s) - 1.
        weight_parameter: Factor of s in the weight function "exp", above 0 and at most a million.
        normalize: Divide each row of similarities by its "max" or "mean" before anything else; None: keep the similarities.
        inclusive: Expand at an overlap of exactly two thirds too (Eq. 5 as printed; the authors' program does not).
        clamp: Take negative weights of Eq. 7 as 0, which keeps J in [0, 1].

    Raises:
        UsageError: A parameter is outside its range.
    """

    k: int = 10
    k_exp: int = 3
    tau: float = 0.0
    weight_function: WeightFunction = "linear"
    weight_parameter: float = 1.0
    normalize: Normalisation | None = None
    inclusive: bool = False
    clamp: bool = False

    def __post_init__(self) -> None:
        if not all(hasattr(count, "__index__") and count >= 1 for count in (self.k, self.k_exp)):
            raise UsageError(f"k and k_exp of rNN are whole numbers from 1, not {self.k!r} and {self.k_exp!r}.")
        if not 0 <= self.tau <= 1:
            raise UsageError(f"tau of rNN is a number from 0 to 1, not {self.tau}.")
        if self.weight_function not in {"linear", "exp"}:
            raise UsageError(f"rNN has no weight function {self.weight_function!r}.", "Known: linear, exp.")
        if not 0 < self.weight_parameter <= _LARGEST_PARAMETER:
            raise UsageError(f"weight_parameter of rNN is above 0, at most {_LARGEST_PARAMETER:g}, not {self.weight_parameter}.")
        if self.normalize not in {None, "max", "mean"}:
            raise UsageError(f"rNN has no normalisation {self.normalize!r}.", "Known: None, max, mean.")

    def columns(self, elements: int) -> int:
        """Length of a neighbour list: the element itself plus k neighbours, at most the number of elements."""
        return min(self.k + 1, elements)

    def averaged(self, columns: int) -> int:
        """Number of list entries whose rows Eq. 8 averages."""
        return min(self.k_exp, columns)

    def close(self, columns: int) -> int:
        """Length of the shorter neighbour list, whose sets expand R (Eq. 5).

        Reading: round(tau (k + 1)) + 2, half to even, at most `columns`.
        """
        return min(round(self.tau * columns) + 2, columns)

    def weights(self, similarity: NDArray[np.float32], members: NDArray[np.bool_]) -> NDArray[np.float32]:
        """Weights f_w of Eq. 7: ``(m, m)``, 0 for elements that are not members of the set. Rows are scaled to sum 1 later.

        If exp would overflow, a row is divided by the largest exponential of its members; the later scaling removes that factor.
        (The largest of the whole row would not do: a hub that is not a member would round all members to 0.)
        """
        weights = members.astype(np.float32)
        weights *= similarity
        if self.weight_function == "exp":
            parameter = np.float32(self.weight_parameter)
            top = weights.max(axis=1, keepdims=True)
            high = parameter * top > _LARGEST_EXPONENT
            if high.any():
                below = np.where(members, parameter * (weights - top), -np.inf)
                scaled = np.exp(below) - np.where(members, np.exp(-parameter * top), 0)
                weights = np.where(high, scaled, np.expm1(parameter * np.where(high, 0, weights)))
            else:
                weights = np.expm1(parameter * weights)
        return np.maximum(weights, 0) if self.clamp else weights


@dataclass(frozen=True, slots=True)
class Sets:
    """How far neighbour sets overlap, in a context of m elements (the query and its candidates).

    Attributes:
        jaccard: J, the overlap, of each probe's set with each element's set, float32 ``(probes, m)``. A probe is an element that all others are
            compared with, mostly the query.
        shared: float32 ``(probes, m, m)``: the part of J that each element j adds, ``min(v_pj, v_cj) / sum_j max(v_pj, v_cj)``; sums to
            `jaccard` over the last axis. None: these parts were not requested.
    """

    jaccard: NDArray[np.float32]
    shared: NDArray[np.float32] | None


def exact_sets(similarity: NDArray[np.float32], rules: Rules, probes: Sequence[int] = (0,)) -> Sets:
    """Compute the overlaps of neighbour sets from the similarities ``(m, m)``: J of each probe with each element, and J's parts."""
    columns = rules.columns(len(similarity))
    nearest = np.argsort(-similarity, axis=1, kind="stable")[:, :columns]
    members = _mutual(nearest)
    if rules.tau > 0:
        members = _expanded(members, _mutual(nearest[:, : rules.close(columns)]), inclusive=rules.inclusive)
    rows = rules.weights(similarity, members)
    sums = _summed(rows)
    weightless = sums == 0
    rows /= np.where(weightless, np.float32(1), sums)[:, None]
    rows[weightless] = 0
    # A set without members is a row of zeros. A set with members whose weights sum to 0 is undefined.
    undefined = weightless & members.any(axis=1)
    averaged = rules.averaged(columns)
    if averaged > 1:
        around = nearest[:, :averaged]
        rows = rows[around].mean(axis=1, dtype=np.float32)
        undefined = undefined[around].any(axis=1)
    pairs = [_jaccard(rows, undefined, probe) for probe in probes]
    return Sets(np.stack([jaccard for jaccard, _ in pairs]), np.stack([shared for _, shared in pairs]))


def normalised(similarity: NDArray[np.float32], how: Normalisation | None) -> NDArray[np.float32]:
    """Divide each row by its maximum or mean, as `normalize` says; a row whose divisor is 0 stays as it is."""
    if how is None:
        return similarity
    rows = similarity.max(axis=1) if how == "max" else _summed(similarity) / len(similarity) + np.float32(1e-8)
    divisor = np.where(rows == 0, np.float32(1), rows).astype(np.float32)
    return (similarity / divisor[:, None]).astype(np.float32)


def _summed(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """The sum of each row ``(m, n)``, float32 ``(m,)``; exactly 0 if positive and negative values cancel."""
    sums = rows.sum(axis=1)
    return np.where(np.abs(sums) <= _CANCELLED * np.abs(rows).sum(axis=1), np.float32(0), sums)


def _mutual(nearest: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Whether two elements are on each other's neighbour lists (Eq. 4): from lists ``(m, columns)`` to bool ``(m, m)``."""
    elements = len(nearest)
    listed = np.zeros((elements, elements), np.bool_)
    np.put_along_axis(listed, nearest, values=True, axis=1)
    return listed & listed.T


def _expanded(members: NDArray[np.bool_], close: NDArray[np.bool_], *, inclusive: bool) -> NDArray[np.bool_]:
    """Expand each set R(i) by Eq. 5: add the close set of every member that shares more than two thirds of its close set with R(i).

    The sets are compared with R(i), not with the growing set. Counts below 2^24 are exact in float32.
    """
    small = close.astype(np.float32)
    shared = members.astype(np.float32) @ small.T
    size = small.sum(axis=1)
    enough = 3 * shared >= 2 * size if inclusive else 3 * shared > 2 * size
    joins = (members & enough).astype(np.float32)
    grown: NDArray[np.bool_] = members | (joins @ small > 0)
    return grown


def _jaccard(
    rows: NDArray[np.float32], undefined: NDArray[np.bool_], probe: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Compare every row with the probe's row (Eq. 11): J ``(m,)``, and the part of J that each element adds ``(m, m)``.

    Reading: J is 0 if both sets are empty, or if the weights of a set, or of a set averaged into it, sum to 0. The authors'
    program divides by 0 there, and sorts the NaN first.
    """
    common = np.minimum(rows, rows[probe])
    union = np.maximum(rows, rows[probe]).sum(axis=1)
    without = undefined | undefined[probe] | (union == 0)
    common[without] = 0
    union[without] = 1
    return common.sum(axis=1) / union, common / union[:, None]


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
    members = _mutual_by_value(similarity, best[:, -columns])
    if rules.tau > 0:
        members = _grown(members, _mutual_by_value(similarity, best[:, -close]), inclusive=rules.inclusive)
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


def _mutual_by_value(similarity: NDArray[np.float32], last: NDArray[np.float32]) -> NDArray[np.bool_]:
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


def _grown(members: NDArray[np.bool_], close: NDArray[np.bool_], *, inclusive: bool) -> NDArray[np.bool_]:
    """Expand the sets by Eq. 5, stored as rows of bits; only pairs of an element and one of its members are compared."""
    count = len(members)
    if count < _MANY:
        return _expanded(members, close, inclusive=inclusive)
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
