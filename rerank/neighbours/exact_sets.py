"""Neighbour sets of rNN, computed element by element as the equations are written.

Handles ties, negative weights and empty sets. `fast_sets` is tested against this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from termweave.rerank.neighbours.rules import Rules, Sets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from termweave.rerank.neighbours.rules import Normalisation

#: Signed weights cancel if their sum is at most this part of the sum of their sizes. A row that cancels is not scaled: the sum is
#: only a rounding error.
_CANCELLED = 1e-6


def exact_sets(similarity: NDArray[np.float32], rules: Rules, probes: Sequence[int] = (0,)) -> Sets:
    """Compute the overlaps of neighbour sets from the similarities ``(m, m)``: J of each probe with each element, and its parts."""
    columns = rules.columns(len(similarity))
    nearest = np.argsort(-similarity, axis=1, kind="stable")[:, :columns]
    members = _mutual(nearest)
    if rules.tau > 0:
        members = expanded(members, _mutual(nearest[:, : rules.close(columns)]), inclusive=rules.inclusive)
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
    """Rows divided by their maximum or mean; a zero divisor leaves the row as it is."""
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
    """Whether two elements are on each other's lists (Eq. 4): lists ``(m, columns)`` -> bool ``(m, m)``."""
    elements = len(nearest)
    listed = np.zeros((elements, elements), np.bool_)
    np.put_along_axis(listed, nearest, values=True, axis=1)
    return listed & listed.T


def expanded(members: NDArray[np.bool_], close: NDArray[np.bool_], *, inclusive: bool) -> NDArray[np.bool_]:
    """Eq. 5: R*(i) is R(i) with the close set of every member that shares more than two thirds of that set with R(i).

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
    """Eq. 11 of every row with the probe's row: J ``(m,)``, and the part of it that each element adds ``(m, m)``.

    Reading: J is 0 if both sets are empty, or if the weights of a set, or of a set averaged into it, sum to 0. The authors'
    program divides by 0 there, and sorts the NaN first.
    """
    common = np.minimum(rows, rows[probe])
    union = np.maximum(rows, rows[probe]).sum(axis=1)
    without = undefined | undefined[probe] | (union == 0)
    common[without] = 0
    union[without] = 1
    return common.sum(axis=1) / union, common / union[:, None]
