"""Read ``book:NAME``: the judged queries of a book as a data set, for `evaluate`, `tune` and gates."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from termweave.corpora.file_source import EntrySource
from termweave.corpora.sources import DEFAULT_SPLIT, IndexReading
from termweave.engine.client.connection import connect
from termweave.errors import InputError, UsageError
from termweave.evaluation.book.store import JudgementBook
from termweave.records import Qrels, Query

if TYPE_CHECKING:
    from collections.abc import Iterator

    from termweave.corpora.formats.fields import BadLine
    from termweave.corpora.sources import Progress, Reading
    from termweave.records import Document

PREFIX = "book:"
_NO_DOCUMENTS = "A book of judgements has no documents."


class BookDataset(EntrySource):
    """A book: a `Dataset` without documents, and the reader that recognises it.

    Args:
        spec: ``book:NAME``; NAME is the index that the book is about.
        book: The book, if it is open already.
    """

    LABEL: ClassVar[str] = "`book:NAME` (data sets only)"
    KIND: ClassVar[str] = "book/1"

    def __init__(self, spec: str, book: JudgementBook | None = None) -> None:
        super().__init__()
        self.name, self.split, self._book = spec, DEFAULT_SPLIT, book

    @classmethod
    def recognises(cls, spec: str) -> bool:
        """Whether the spec begins with ``book:``."""
        return spec.startswith(PREFIX)

    @classmethod
    def open(cls, spec: str, reading: Reading) -> BookDataset:
        """Refuse to be a corpus.

        Raises:
            UsageError: Always.
        """
        del spec, reading
        raise UsageError(_NO_DOCUMENTS, "Name the corpus; use the book with 'termweave evaluate' and 'termweave tune'.")

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
    def fingerprint(self) -> str:
        """Books are no corpus, and nothing is built of them."""
        return ""

    @property
    def size(self) -> int:
        """Books have no documents."""
        return 0

    @property
    def relevant_from(self) -> int:
        """Grade 1 is the lowest that counts as relevant."""
        return 1

    @property
    def notes(self) -> list[str]:
        """Books have no remarks."""
        return []

    def entries(self, progress: Progress | None) -> Iterator[tuple[int | None, Document | BadLine]]:
        """Refuse to be read as a corpus."""
        del progress
        raise UsageError(_NO_DOCUMENTS, "Name the corpus.")

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
        book = self._book or JudgementBook(connect(IndexReading().settings_for(None)), self.name.removeprefix(PREFIX))
        queries, qrels = [Query(each.id, each.text) for each in book.queries()], book.qrels()
        if not qrels:
            raise InputError(f"{self.name} holds no grade.", "Judge queries: 'termweave serve', then the page Judge.")
        return queries, qrels
