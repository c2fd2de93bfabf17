"""Read ``book:NAME``: the judged queries of a book as a data set, for `evaluate`, `tune` and gates."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

from termweave.corpora.file_source import JudgementSource
from termweave.corpora.sources import DEFAULT_SPLIT, IndexReading
from termweave.engine.client.connection import connect
from termweave.errors import InputError, UsageError
from termweave.evaluation.book.store import JudgementBook
from termweave.records import Qrels, Query


class BookDataset(JudgementSource):
    """A book: a `Dataset` without documents, and the reader that recognises it.

    Args:
        spec: ``book:NAME``; NAME is the index that the book is about.
        book: The book, if it is open already.
    """

    LABEL: ClassVar[str] = "`book:NAME` (data sets only)"
    KIND: ClassVar[str] = "book/1"
    PREFIX: ClassVar[str] = "book:"
    NO_DOCUMENTS: ClassVar[tuple[str, str]] = (
        "A book of judgements has no documents.",
        "Name the corpus; use the book with 'termweave evaluate' and 'termweave tune'.",
    )

    def __init__(self, spec: str, book: JudgementBook | None = None) -> None:
        super().__init__()
        self.name, self.split, self._book = spec, DEFAULT_SPLIT, book

    @classmethod
    def open_dataset(cls, spec: str, split: str) -> BookDataset:
        """Open the book as judged queries."""
        if split != DEFAULT_SPLIT:
            raise UsageError(f"{spec} has no split {split!r}.", f"Write {spec}.")
        return cls(spec)

    @property
    def shown(self) -> str:
        """The book in messages."""
        return self.name

    @property
    def notes(self) -> list[str]:
        """Books have no remarks."""
        return []

    def splits(self) -> list[str]:
        """All judgements are one split."""
        return [DEFAULT_SPLIT]

    def queries(self) -> list[Query]:
        """The queries with a grade, in the order of the book."""
        return [Query(each.id, each.text) for each in self._judged[0] if each.id in self._judged[1]]

    def qrels(self) -> Qrels:
        """The median of the judges' grades."""
        return self._judged[1]

    @cached_property
    def _judged(self) -> tuple[list[Query], Qrels]:
        """The queries and grades, read once.

        Raises:
            InputError: Nobody has graded a document.
        """
        book = self._book or JudgementBook(connect(IndexReading().settings_for(None)), self.name.removeprefix(self.PREFIX))
        queries, qrels = [Query(each.id, each.text) for each in book.queries()], book.qrels()
        if not qrels:
            raise InputError(f"{self.name} holds no grade.", "Judge queries: 'termweave serve', then the page Judge.")
        return queries, qrels
