"""Candidates of many queries, a few queries in each request, and which queries were too long for the server."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from termweave.evaluation.report.wording import label, queries
from termweave.search.batch import QUERIES
from termweave.support.batching import in_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from termweave.errors import UsageError
    from termweave.rerank.rerankers import Need
    from termweave.search import Index
    from termweave.search.retrieval.candidates import Candidates
    from termweave.search.rewriting.configuration import Rewriting


class CandidateFetcher:
    """Fetches the candidates of every query from an index, once.

    Args:
        index: The index that is searched.
        signals: Names of the signals to search with.
        depth: Number of candidates from each signal.
        needs: What rerankers need of the candidates: vectors, texts.
        rewrite: How queries are rewritten; None: not at all.

    Attributes:
        shortened: Signal -> number of queries so far that lost terms to the server's clause limit.
        refused: Text of a query -> why it was not searched.
    """

    def __init__(
        self, index: Index, signals: Sequence[str], *, depth: int, needs: Collection[Need] = (), rewrite: Rewriting | None = None
    ) -> None:
        self.shortened: Counter[str] = Counter()
        self.refused: dict[str, UsageError] = {}
        self._index = index
        self._signals = signals
        self._depth = depth
        self._needs = needs
        self._rewrite = rewrite

    def candidates(self, texts: Sequence[str], progress: Callable[[int, int], None]) -> Iterator[Candidates]:
        """Yield the candidates of each query, in order; `progress` is called with (queries done, total)."""
        done = 0
        for part in in_parts(texts, QUERIES):
            for candidates in self._index.candidates(
                part, self._signals, depth=self._depth, needs=self._needs, rewrite=self._rewrite
            ):
                self.shortened.update(name for name, clause in candidates.clauses.items() if clause.dropped)
                if (rewritten := candidates.query.rewritten) and rewritten.refusal:
                    self.refused[rewritten.typed] = rewritten.refusal
                yield candidates
            done += len(part)
            progress(done, len(texts))

    def notes(self) -> list[str]:
        """Return a remark for each signal in which queries lost terms, and one on queries that were not searched."""
        refusals = list(self.refused.values())
        also = f" So do {queries(len(refusals) - 1)} like it." if len(refusals) > 1 else ""
        refused = [f"{refusals[0].message} It finds nothing.{also}"] if refusals else []
        return refused + [
            f"{queries(count)} lost terms in {label(name)}: the server allows no more clauses "
            "in a query (indices.query.bool.max_clause_count)."
            for name, count in sorted(self.shortened.items())
        ]
