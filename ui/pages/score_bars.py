"""The bars of an explanation: the share of each signal, reranker and word in the score. They sum to the score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from termweave.search.results import explanation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from termweave.records import Hit


@dataclass(frozen=True)
class WordBar:
    """A word of the query and its share in the final score."""

    word: str
    share: float


@dataclass(frozen=True)
class ScoreBar:
    """A part of a score.

    Attributes:
        name: The signal or the reranker.
        kind: "words", "meaning" or "rerank": what the part counts, and its colour.
        share: What it adds to the final score.
        about: The line of `search --explain` about it.
        words: The words of a signal that counts words; their shares sum to `share`.
        start: Where the bar of the page begins, in percent of the best score of the list.
        width: Its length in percent.
        neighbours: For rNN, the ids of the documents with which the hit shares its neighbourhood.
    """

    name: str
    kind: str
    share: float
    about: str
    words: tuple[WordBar, ...] = ()
    start: float = 0.0
    width: float = 0.0
    neighbours: tuple[str, ...] = ()


def of_hit(hit: Hit, best: float) -> list[ScoreBar]:
    """The bars of an explained hit, the largest share first.

    Args:
        hit: The hit.
        best: `best_of` of the list, to which all bars are scaled.
    """
    explained = hit.explanation or {"parts": []}
    parts = sorted(explained["parts"], key=lambda part: -part["share"])
    bars, start = [], 0.0
    for part, (share, name, about) in zip(parts, explanation.as_rows(explained, terms=20), strict=True):
        width = 100 * max(0.0, share) / best if best > 0 else 0.0
        words = _words(part) if share > 0 else ()
        neighbours = tuple(part.get("neighbours", ()))
        bars.append(ScoreBar(name, _kind(part), share, about, words, start, width, neighbours))
        start += width
    return bars


def best_of(hits: Sequence[Hit]) -> float:
    """The sum of the positive shares of the hit that has most of them; bars of all hits fit into it."""
    return max(
        (sum(max(0.0, part["share"]) for part in (hit.explanation or {"parts": []})["parts"]) for hit in hits), default=0.0
    )


def _kind(part: Mapping[str, Any]) -> str:
    if "rank" not in part:
        return "rerank"
    return "words" if part["terms"] else "meaning"


def _words(part: Mapping[str, Any]) -> tuple[WordBar, ...]:
    """The words of a signal, in the unit of the final score, the largest share first."""
    if not part.get("terms") or part["score"] <= 0:
        return ()
    factor = part["share"] / part["score"]
    return tuple(sorted((WordBar(each["word"], each["share"] * factor) for each in part["terms"]), key=lambda bar: -bar.share))
