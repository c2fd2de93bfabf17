"""Read ``book:NAME``: the judged queries of a book as a data set, for `evaluate`, `tune`, gates and training.

``book:NAME:train`` and ``book:NAME:held-out`` are the two halves of a book: learn from the first, measure on the second. The words of a query decide
its half, in whatever spelling, so that it never changes sides, however the book grows. `learn` reads the whole book where no half is
named, and splits the queries itself.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cached_property
from hashlib import sha256
from typing import ClassVar

from termweave.corpora.file_source import JudgementSource
from termweave.corpora.judgements import Judged, Judgements, check_split
from termweave.corpora.sources import DEFAULT_SPLIT, IndexReading
from termweave.engine.client.connection import connect
from termweave.errors import InputError
from termweave.evaluation.book.store import JudgementBook
from termweave.records import Query

#: The halves of a book.
TRAIN, HELD_OUT = "train", "held-out"


class BookDataset(Judged, JudgementSource):
    """A book: a `Dataset` without documents, and the reader that recognises it.

    Args:
        spec: ``book:NAME``; NAME is the index that the book is about.
        book: The book, if it is open already; None: it is opened when it is first read.
        split: "test" for the whole book, or "train" or "held-out" for a half.
    """

    LABEL: ClassVar[str] = "`book:NAME` (data sets only)"
    KIND: ClassVar[str] = "book/1"
    PREFIX: ClassVar[str] = "book:"
    THING: ClassVar[str] = "A book of judgements"
    USE: ClassVar[str] = "Use the book with 'termweave evaluate' and 'termweave tune'."

    def __init__(self, spec: str, book: JudgementBook | None = None, split: str = DEFAULT_SPLIT) -> None:
        super().__init__()
        self.name, self.split, self._book = spec, split, book

    @classmethod
    def open_dataset(cls, spec: str, split: str) -> BookDataset:
        """Open the book as judged queries.

        Raises:
            UsageError: The split is neither the whole book nor one of its halves.
        """
        check_split(spec, split, [DEFAULT_SPLIT, TRAIN, HELD_OUT])
        return cls(spec, split=split)

    def splits(self) -> list[str]:
        """Return the names of the splits: "test" (all judgements), and the two halves."""
        return [DEFAULT_SPLIT, HELD_OUT, TRAIN]

    @cached_property
    def _judged(self) -> Judgements:
        """The queries of the split that have a grade, in the order of the book, and for each document the median of the judges' grades.

        Raises:
            InputError: Nobody has graded a document for a query of the split.
        """
        book = self._book or JudgementBook(connect(IndexReading().settings_for(None)), self.name.removeprefix(self.PREFIX))
        qrels = book.qrels()
        whole = self.split == DEFAULT_SPLIT
        queries = [
            Query(each.id, each.text)
            for each in book.queries()
            if each.id in qrels and (whole or half_of(each.text) == self.split)
        ]
        if not queries:
            of = "" if whole else f" in its half {self.split!r}"
            raise InputError(f"{self.name} holds no grade{of}.", "Judge queries on the page Judge of 'termweave serve'.")
        return Judgements(queries, {each.id: qrels[each.id] for each in queries})


def folded(text: str) -> str:
    """Return a text without case and accents, so that different spellings of a query become equal."""
    return "".join(each for each in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(each))


def half_of(text: str) -> str:
    """Return the half that a query belongs to: the same half for the same words, whatever their order, case, accents, spaces and punctuation."""
    words = " ".join(sorted(set(re.findall(r"\w+", folded(text))))) or text.strip()
    return TRAIN if sha256(words.encode("utf-8", "surrogatepass")).digest()[0] % 2 else HELD_OUT
