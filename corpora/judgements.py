"""Data sets whose queries and judgements are read once, and joined."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from termweave.support.messages import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from termweave.records import Qrels, Query


@dataclass(frozen=True)
class Judgements:
    """Queries with their judgements.

    Attributes:
        queries: The queries with at least one judgement, in the order of their file.
        qrels: Their judgements.
        notes: Sentences about judgements that were left out.
    """

    queries: list[Query]
    qrels: Qrels
    notes: list[str] = field(default_factory=list)


def joined(queries: Sequence[Query], qrels: Qrels, *, table: str, file: str) -> Judgements:
    """Leave out judgements of unknown queries.

    Args:
        queries: Queries with judgements.
        qrels: The judgements, also those of other queries.
        table: Where the judgements are from, for the note about those that are left out.
        file: Where the queries are from.
    """
    known = {query.id: qrels[query.id] for query in queries}
    lost = qrels.keys() - known.keys()
    judged, on = counted(sum(len(qrels[query]) for query in lost), "judgement"), counted(len(lost), "query", "queries")
    return Judgements(list(queries), known, [f"{judged} of {table} left out: on {on} that {file} lacks."] if lost else [])


class Judged:
    """The part of a data set that has queries and judgements.

    Attributes:
        split: Name of the split whose judgements are used.
    """

    JUDGED: ClassVar[bool] = True
    split: str

    @cached_property
    def _judged(self) -> Judgements:
        """What is read of the split."""
        raise NotImplementedError

    @property
    def relevant_from(self) -> int:
        """The lowest relevant grade."""
        return 1

    @property
    def notes(self) -> list[str]:
        """Sentences about judgements that were left out."""
        return self._judged.notes

    def queries(self) -> list[Query]:
        """The queries with judgements, in the order of their file."""
        return list(self._judged.queries)

    def qrels(self) -> Qrels:
        """The judgements of the queries in `queries`."""
        return self._judged.qrels
