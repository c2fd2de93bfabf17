"""Pages of hits: how far they reach, and how deep the signals search for them.

Vector search is approximate: a deeper search finds other documents. So a page beyond the candidates shows the documents that a deeper
search adds to the pages before it. No document is on two pages, and none is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: `index.max_result_window`, and the largest k of k-NN searches.
MAX_DEPTH = 10_000
#: Passages that k-NN looks for per document, and the factor by which it looks further if they belong to too few documents.
_SPREAD = 4


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
