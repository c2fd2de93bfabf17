"""The plan of a search, to which each feature adds what it needs, and the depths at which the signals search until a page is full.

Vector search is approximate: a deeper search may find other documents among the best. So a page beyond the candidates shows the documents that a deeper
search adds to the earlier pages. No document is on two pages, and none is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from termweave.errors import UsageError

if TYPE_CHECKING:
    from termweave.rerank.rerankers import Need
    from termweave.signals.modes import Mode

#: `index.max_result_window`, and the largest k of k-NN searches.
MAX_DEPTH = 10_000
#: Passages that k-NN looks for per document, and the factor by which it looks further if they belong to too few documents.
_SPREAD = 4


@dataclass(frozen=True, slots=True)
class Retrieval:
    """The plan of a search: what each signal is asked for, for each query.

    Attributes:
        signals: Names of the signals to search with.
        depth: How many documents each signal returns.
        window: How many documents of each list count in the fusion; None: `depth`.
        where: Filters of the query DSL; all must match.
        needs: Names of the data that rerankers need of the candidates.
        server_fusion: The mode that the server fuses itself; None: the client fuses.
        pin: Ids of pinned documents, which come first, before the documents that the rewriting of a query pins.
        ordered: Whether a feature, such as `sort`, orders the documents; then no pinned document comes first.
        floor: Whether documents with low scores are left out.
        counts: Whether the answer says how many documents there are.
        explained: Whether each score is explained.
        stored: Names of stored fields that are read of each hit on the page, besides the fields that the hit shows.
    """

    signals: Sequence[str]
    depth: int
    window: int | None = None
    where: Sequence[Mapping[str, Any]] = ()
    needs: Collection[Need] = ()
    server_fusion: Mode | None = None
    pin: Sequence[str] = ()
    ordered: bool = False
    floor: bool = False
    counts: bool = False
    explained: bool = False
    stored: Collection[str] = ()

    def with_explanations(self) -> Retrieval:
        """Return this plan with explanations of the scores.

        Raises:
            UsageError: The server fuses, so that scores cannot be explained.
        """
        if self.server_fusion is not None:
            raise unexplained()
        return replace(self, explained=True, stored={*self.stored, "title", "text"})

    @property
    def searched(self) -> list[str]:
        """Names of the signals that are searched: those of the mode, and those that only a reranker needs."""
        from termweave.rerank.rerankers import SIGNAL  # noqa: PLC0415 - not needed by `--help`

        beside = sorted(need.removeprefix(SIGNAL) for need in self.needs if need.startswith(SIGNAL))
        return list(dict.fromkeys((*self.signals, *beside)))


def unexplained() -> UsageError:
    """Make the error for a request to explain scores that the server fused."""
    hint = "Remove --server-fusion or --explain."
    return UsageError("With --server-fusion the server returns only the final score, which cannot be explained.", hint)


def depths(candidates: int) -> Iterator[int]:
    """Yield the depths at which the signals search, one after the other, until a page is full; the steps are the same for every page."""
    depth = candidates
    while depth < MAX_DEPTH:
        yield depth
        depth *= 10
    yield MAX_DEPTH


def further(passages: int) -> int:
    """The larger number of passages that k-NN looks for next, if it found passages of too few documents."""
    return min(MAX_DEPTH, passages * _SPREAD)
