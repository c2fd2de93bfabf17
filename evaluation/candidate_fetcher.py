"""The candidates of a set's queries, a few a request, and which of the queries were too long for the server."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from termweave.evaluation.wording import label, queries
from termweave.search.batch import QUERIES
from termweave.sequences import in_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from termweave.search import Index
    from termweave.search.candidates import Candidates


class Asked:
    """Asks an index for the candidates of every query, once.

    Args:
        index: It.
        signals: Names of the signals to ask.
        depth: Candidates a signal.
        with_vectors: Bring the candidates' vectors along.

    Attributes:
        shortened: Signal -> how many of the queries lost terms to the server's clause limit, so far.
    """

    def __init__(self, index: Index, signals: Sequence[str], *, depth: int, with_vectors: bool) -> None:
        self.shortened: Counter[str] = Counter()
        self._index = index
        self._signals = signals
        self._depth = depth
        self._with_vectors = with_vectors

    def candidates(self, texts: Sequence[str], progress: Callable[[int, int], None]) -> Iterator[Candidates]:
        """One `Candidates` a query, in order; `progress` is called with (queries done, all)."""
        done = 0
        for part in in_parts(texts, QUERIES):
            for each in self._index.candidates(part, self._signals, depth=self._depth, with_vectors=self._with_vectors):
                self.shortened.update(name for name, clause in each.clauses.items() if clause.dropped)
                yield each
            done += len(part)
            progress(done, len(texts))

    def notes(self) -> list[str]:
        """What to say of the queries that lost terms."""
        return [
            f"{queries(count)} lost terms in {label(name)}: the server allows no more clauses "
            "a query (indices.query.bool.max_clause_count)."
            for name, count in sorted(self.shortened.items())
        ]
