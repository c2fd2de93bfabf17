"""Pages: how far they go, and how far the signals are asked for them.

Vectors are found by an approximate search, which finds others when it is asked for more. So a page behind the candidates is what a
deeper search adds to the pages before it: no document is on two pages, none is left out.
"""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING

from termweave.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: `index.max_result_window`, and the k that k-NN allows.
MAX_DEPTH = 10_000
#: k-NN looks for so many passages a document wanted, and for so many times more where they are of too few documents.
_SPREAD = 4


def reachable(k: int, start: int, candidates: int) -> int:
    """Rank of the last hit of a page of `k` behind `start`.

    Raises:
        UsageError: A number that cannot be meant, or further than an engine goes.
    """
    if not all(isinstance(each, Integral) for each in (k, start, candidates)):
        raise UsageError(f"k, start and candidates are whole numbers; they are {k!r}, {start!r} and {candidates!r}.")
    if k < 1 or start < 0 or candidates < 1:
        raise UsageError(f"k and candidates begin at 1, start at 0; they are {k}, {candidates} and {start}.")
    last = start + k
    if last > MAX_DEPTH:
        raise UsageError(
            f"Hit {last:,} cannot be reached.", f"An engine gives {MAX_DEPTH:,} candidates at most: lower -k or --from."
        )
    return last


def depths(candidates: int) -> Iterator[int]:
    """How far signals are asked, in turn, until a page is full: the same steps for every page."""
    depth = candidates
    while depth < MAX_DEPTH:
        yield depth
        depth *= 10
    yield MAX_DEPTH


def further(passages: int) -> int:
    """How far k-NN looks for passages of enough documents."""
    return min(MAX_DEPTH, passages * _SPREAD)
