"""What a training on a book is, where its runs lie, and which queries it learns from. Light: the pages read it, too."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from termweave.evaluation.book.reader import HELD_OUT, TRAIN, half_of
from termweave.records import Query
from termweave.support import paths

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from termweave.evaluation.book.store import JudgementBook
    from termweave.settings import Settings

#: The file of a run that has ended.
RESULT = "result.json"
#: The fewest queries to learn from, and to measure with; with fewer, every difference is noise.
FEWEST_LEARNED, FEWEST_MEASURED = 12, 10
#: The largest loss of nDCG@10 on the held-out half: the 95 % interval of the difference must exclude a larger one.
MARGIN = 0.01


@dataclass(frozen=True)
class TrainingTask:
    """A training on the book of an index.

    Attributes:
        settings: How the server is reached.
        name: Name of the index.
        source: Its corpus.
        reading: Keywords of `corpora.open_source`.
        models: Models in place of those that the index names.
        resume: Whether a run that was stopped goes on; otherwise it is deleted.
    """

    settings: Settings
    name: str
    source: str
    reading: Mapping[str, Any] = field(default_factory=dict)
    models: Mapping[str, str | None] = field(default_factory=dict)
    resume: bool = False


def home(name: str) -> Path:
    """The folder of the runs for an index."""
    return paths.state() / "trained" / name


def unfinished(name: str) -> Path | None:
    """The newest run that was stopped after its first checkpoint or while it built; None if there is none."""
    place = home(name)
    runs = sorted(place.iterdir(), reverse=True) if place.is_dir() else []
    return next((each for each in runs if (each / "model" / "run.json").is_file() and not (each / RESULT).is_file()), None)


def counts(book: JudgementBook) -> tuple[int, int]:
    """How many queries there are to learn from, and to measure with."""
    return len(answered_queries(book, TRAIN)), len(answered_queries(book, HELD_OUT))


def answered_queries(book: JudgementBook, half: str) -> list[tuple[Query, dict[str, int]]]:
    """The queries of one half of a book that have a relevant document, with their grades."""
    qrels = book.qrels()
    return [
        (Query(each.id, each.text), dict(qrels[each.id]))
        for each in book.queries()
        if half_of(each.text) == half and any(grade > 0 for grade in qrels.get(each.id, {}).values())
    ]
