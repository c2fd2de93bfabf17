"""Pages of hits: how far they reach, and how deep the signals search for them.

Vector search is approximate: a deeper search finds other documents. So a page beyond the candidates shows the documents that a deeper
search adds to the pages before it. No document is on two pages, and none is left out.
"""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING

from termweave.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: `index.max_result_window`, and the largest k of k-NN searches.
MAX_DEPTH = 10_000
#: Passages that k-NN looks for per document, and the factor by which it looks further if they belong to too few documents.
_SPREAD = 4


def reachable(k: int, start: int, candidates: int) -> int:
    """Rank of the last hit of a page.

    Args:
        k: Hits on the page.
        start: Hits before it.
        candidates: Documents that each signal gives.

    Raises:
        UsageError: A number is out of range, or the page reaches further than a server allows.
    """
    if not all(isinstance(each, Integral) for each in (k, start, candidates)):
        raise UsageError(f"k, start and candidates are whole numbers; they are {k!r}, {start!r} and {candidates!r}.")
    if k < 1 or start < 0 or candidates < 1:
        raise UsageError(f"k and candidates begin at 1, start at 0; they are {k}, {candidates} and {start}.")
    if candidates > MAX_DEPTH:
        raise UsageError(f"A signal gives at most {MAX_DEPTH:,} candidates, not {candidates:,}.", "Lower --candidates.")
    last = start + k
    if last > MAX_DEPTH:
        raise UsageError(
            f"Hit {last:,} cannot be reached.", f"A server gives at most {MAX_DEPTH:,} candidates: lower -k or --from."
        )
    return last


def depths(candidates: int) -> Iterator[int]:
    """How deep the signals search, in turn, until a page is full: the same steps for every page."""
    depth = candidates
    while depth < MAX_DEPTH:
        yield depth
        depth *= 10
    yield MAX_DEPTH


def further(passages: int) -> int:
    """How many passages k-NN looks for next, to find passages of enough documents."""
    return min(MAX_DEPTH, passages * _SPREAD)
