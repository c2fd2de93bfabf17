"""The plan of a search: it begins with the signals, and each feature adds what it needs; and the depths at which signals search for a page.

Vector search is approximate: a deeper search finds other documents. So a page beyond the candidates shows the documents that a deeper
search adds to the pages before it. No document is on two pages, and none is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from termweave.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from typing import Any

    from termweave.rerank.rerankers import Need
    from termweave.signals.modes import Mode

#: `index.max_result_window`, and the largest k of k-NN searches.
MAX_DEPTH = 10_000
#: Passages that k-NN looks for per document, and the factor by which it looks further if they belong to too few documents.
_SPREAD = 4


@dataclass(frozen=True, slots=True)
class Retrieval:
    """A plan of retrieval: what each signal is asked for, for each query.

    Attributes:
        signals: Names of the signals to search with.
        depth: How many documents each signal returns.
        window: How many of each list count in the fusion; None: `depth`.
        where: Filters of the query DSL; all must match.
        needs: What a reranker needs of the candidates.
        server_fusion: The mode that the server fuses itself; None: the client fuses.
        pin: Ids of documents that come first, before those that a query's own pins name.
        ordered: Whether a feature gives the documents an order of its own: then none comes first.
        floor: Whether weak documents are left out.
        counts: Whether the answer has numbers of documents.
        explained: Whether each score is explained.
        stored: Names of stored fields that are read of each hit of the page, besides those that it shows.
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
        """This plan, with explained scores.

        Raises:
            UsageError: The server fuses.
        """
        from termweave.search.retrieval.hybrid_query import unexplained  # noqa: PLC0415 - not needed by `--help`

        if self.server_fusion is not None:
            raise unexplained()
        return replace(self, explained=True, stored={*self.stored, "title", "text"})

    def checked(self) -> Retrieval:
        """This plan, when all features have had their say.

        Raises:
            UsageError: What they ask for excludes each other.
        """
        if self.pin and self.ordered:
            raise UsageError("Sorted documents have an order of their own, so none can be put first.", "Remove --sort or --pin.")
        return self

    @property
    def lists(self) -> list[str]:
        """The lists that are ranked: one of each signal, or one that the server fused."""
        from termweave.signals.fusion import FusedList  # noqa: PLC0415 - not needed by `--help`

        return list(self.signals) if self.server_fusion is None else [FusedList.name]

    @property
    def searched(self) -> list[str]:
        """The signals, and those that a reranker needs beside them."""
        from termweave.rerank.rerankers import SIGNAL  # noqa: PLC0415 - not needed by `--help`

        beside = sorted(need.removeprefix(SIGNAL) for need in self.needs if need.startswith(SIGNAL))
        return list(dict.fromkeys((*self.signals, *beside)))


def depths(candidates: int) -> Iterator[int]:
    """The depths at which the signals search, in turn, until a page is full: the same steps for every page."""
    depth = candidates
    while depth < MAX_DEPTH:
        yield depth
        depth *= 10
    yield MAX_DEPTH


def further(passages: int) -> int:
    """The number of passages that k-NN looks for next, to find passages of enough documents."""
    return min(MAX_DEPTH, passages * _SPREAD)
