"""rNN by the rules as they are written, ties, negative weights and empty sets included; `fast` is held to this."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from termweave.rerank.rules import Rules, Sets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from termweave.rerank.rules import Normalisation

#: Signed numbers whose sum is at most this part of the sum of their sizes cancel: what rounding leaves of 0 divides nothing.
_CANCELLED = 1e-6


def sets(similarity: NDArray[np.float32], rules: Rules, probes: Sequence[int] = (0,)) -> Sets:
    """J, and who adds how much to it, from the similarities ``(m, m)`` of all elements."""
    columns = rules.columns(len(similarity))
    nearest = np.argsort(-similarity, axis=1, kind="stable")[:, :columns]
    members = _mutual(nearest)
    if rules.tau > 0:
        members = expanded(members, _mutual(nearest[:, : rules.close(columns)]), inclusive=rules.inclusive)
    rows = rules.weights(similarity, members)
    sums = _summed(rows)
    nothing = sums == 0
    rows /= np.where(nothing, np.float32(1), sums)[:, None]
    rows[nothing] = 0
    # A set without members is a row of zeros; one whose weights sum to 0 has no shares at all.
    undefined = nothing & members.any(axis=1)
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
    """The sum of each row ``(m, n)``: float32 ``(m,)``, 0 where what is positive and what is negative cancel."""
    sums = rows.sum(axis=1)
    return np.where(np.abs(sums) <= _CANCELLED * np.abs(rows).sum(axis=1), np.float32(0), sums)


def _mutual(nearest: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Who is on whose list, both ways (Eq. 4): ``(m, columns)`` -> bool ``(m, m)``."""
    elements = len(nearest)
    listed = np.zeros((elements, elements), np.bool_)
    np.put_along_axis(listed, nearest, values=True, axis=1)
    return listed & listed.T


def expanded(members: NDArray[np.bool_], close: NDArray[np.bool_], *, inclusive: bool) -> NDArray[np.bool_]:
    """Eq. 5: R*(i) = R(i) and the close set of every member that shares more than two thirds of it with R(i).

    R(i) stays the reference, never the growing set. Counts below 2^24 are exact in float32.
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
    """Eq. 11 of every row with the probe's: J ``(m,)``, and what each element adds to it ``(m, m)``.

    Reading: 0 where both sets are empty, or where a set's weights sum to 0 or were averaged from such a set: the authors'
    program divides by 0 there and sorts the NaN first.
    """
    common = np.minimum(rows, rows[probe])
    union = np.maximum(rows, rows[probe]).sum(axis=1)
    without = undefined | undefined[probe] | (union == 0)
    common[without] = 0
    union[without] = 1
    return common.sum(axis=1) / union, common / union[:, None]
