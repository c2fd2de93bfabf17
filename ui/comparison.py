"""Two ranked lists side by side: how far they agree, and how far each document moved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Length of the lists that are compared, and of their heads, whose overlap readers care about.
DEPTH, HEAD = 50, 10


@dataclass(frozen=True)
class ListComparison:
    """How two ranked lists agree.

    Attributes:
        head: Number of documents in the head of the longer list, at most `HEAD`.
        shared: Number of documents that are in both heads.
        both: Number of documents that are in both lists.
        correlation: Kendall's tau of those documents: 1 for the same order, -1 for the opposite; None for fewer than two.
        first: Document id -> rank in the first list, from 1.
        second: Document id -> rank in the second list.
    """

    head: int
    shared: int
    both: int
    correlation: float | None
    first: Mapping[str, int]
    second: Mapping[str, int]

    def as_dict(self) -> dict[str, Any]:
        """The JSON values."""
        moved = {
            document: {"first": self.first.get(document), "second": self.second.get(document)}
            for document in (*self.first, *self.second)
        }
        return {"head": self.head, "shared": self.shared, "both": self.both, "correlation": self.correlation, "ranks": moved}


def compare(first: Sequence[str], second: Sequence[str]) -> ListComparison:
    """Compare two lists of distinct document ids, best first."""
    ranks = [{document: rank for rank, document in enumerate(listed, 1)} for listed in (first, second)]
    both = [document for document in first if document in ranks[1]]
    return ListComparison(
        head=min(HEAD, max(len(first), len(second))),
        shared=len(set(first[:HEAD]) & set(second[:HEAD])),
        both=len(both),
        correlation=_tau([ranks[1][document] for document in both]),
        first=ranks[0],
        second=ranks[1],
    )


def _tau(ranks: Sequence[int]) -> float | None:
    """Kendall's tau between the order of a list and the ranks of its elements in another; no two ranks are equal."""
    pairs = len(ranks) * (len(ranks) - 1) // 2
    if not pairs:
        return None
    in_order = sum(early < late for place, early in enumerate(ranks) for late in ranks[place + 1 :])
    return (2 * in_order - pairs) / pairs
