"""What a corpus and a data set are to the rest of termweave, and what a reader has to offer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from termweave.records import Document, Qrels, Query

#: The split of a data set that is named without one.
DEFAULT_SPLIT = "test"
#: Called while documents are read with the bytes consumed so far, out of `Source.size` (of a .gz: packed bytes).
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Fields:
    """Which fields of an entry are what, where the names that readers know by themselves do not say it.

    Attributes:
        id: The field that holds the id; None: the first that is called like one.
        title: The field that holds the title; None: ``title``.
        text: The fields that hold the text, joined by line ends in this order; (): the first that is called like one.
    """

    id: str | None = None
    title: str | None = None
    text: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.named())

    def named(self) -> tuple[str, ...]:
        """All fields that were named."""
        return tuple(name for name in (self.id, self.title, *self.text) if name)


@dataclass(frozen=True, slots=True)
class Reading:
    """How a source is to be read.

    Attributes:
        name: What it is called, where its path is that of a temporary copy.
        skip_bad: Leave bad entries out instead of raising.
        fields: Only for a reader that is `MAPPED`.
    """

    name: str | None = None
    skip_bad: bool = False
    fields: Fields = field(default_factory=Fields)


@dataclass(frozen=True, slots=True)
class Skipped:
    """An entry that could not be read and was left out.

    Attributes:
        line: 1-based line in the file (row of a Parquet file, entry of a set); None where all of the file is meant.
        reason: A clause: what is wrong with it.
        file: The file, as messages name it.
    """

    line: int | None
    reason: str
    file: str = ""

    def __str__(self) -> str:
        return f"{place(self.file, self.line)}: {self.reason}"


def place(file: str, line: int | None) -> str:
    """Where something stands, as messages say it: ``corpus.jsonl, line 7``."""
    return ", ".join(part for part in (file, "" if line is None else f"line {line}") if part)


@dataclass(slots=True)
class Skips:
    """What the last pass over a source left out: all of it counted, the first entries kept.

    A source of ten million broken lines must not fill the memory with reasons; hence `kept` is bounded by `LIMIT`.
    Iterating gives what was kept.
    """

    LIMIT: ClassVar[int] = 1000
    count: int = 0
    kept: list[Skipped] = field(default_factory=list)

    def add(self, skipped: Skipped) -> None:
        """Count an entry, and keep it while there is room."""
        self.count += 1
        if len(self.kept) < self.LIMIT:
            self.kept.append(skipped)

    def clear(self) -> None:
        """Forget everything: a new pass begins."""
        self.count = 0
        self.kept.clear()

    def __iter__(self) -> Iterator[Skipped]:
        return iter(self.kept)

    def __bool__(self) -> bool:
        return self.count > 0


class Source(Protocol):
    """Where documents come from."""

    @property
    def name(self) -> str:
        """Short, for messages and an index's `_meta`."""

    @property
    def fingerprint(self) -> str:
        """Hexadecimal digits over the documents' bytes: another content, another fingerprint."""

    @property
    def total(self) -> int | None:
        """Documents, where they are known: without reading, or because one pass has been through."""

    @property
    def size(self) -> int:
        """Bytes to read, packed as they lie."""

    @property
    def skipped(self) -> Skips:
        """What the last pass over `documents` left out; always empty without `skip_bad`."""

    def documents(self, progress: Progress | None = None) -> Iterator[Document]:
        """All documents in the source's order, streaming; every call starts at the beginning.

        Args:
            progress: Told the bytes consumed so far, every few hundred kilobytes and at the end.

        Raises:
            InputError: An entry cannot be read, and bad ones are not to be skipped.
        """


class Derived:
    """A source whose documents come from another one's; it is as large, and called like that one unless it says otherwise."""

    def __init__(self, source: Source) -> None:
        self._source = source

    @property
    def name(self) -> str:
        """As the other one says."""
        return self._source.name

    @property
    def fingerprint(self) -> str:
        """As the other one says."""
        return self._source.fingerprint

    @property
    def total(self) -> int | None:
        """As the other one says."""
        return self._source.total

    @property
    def size(self) -> int:
        """As the other one says."""
        return self._source.size

    @property
    def skipped(self) -> Skips:
        """As the other one says."""
        return self._source.skipped


class Opened(Source, Protocol):
    """A source as a reader gives it."""

    @property
    def remarks(self) -> list[str]:
        """Sentences on how it was understood and what was passed over as no document: columns found, files of other kinds."""


class Dataset(Source, Protocol):
    """A corpus with questions and judgements."""

    @property
    def split(self) -> str:
        """Which part of the judgements is meant."""

    @property
    def relevant_from(self) -> int:
        """The lowest grade that counts as relevant where a measure knows only yes and no (MRR, recall)."""

    @property
    def notes(self) -> list[str]:
        """Sentences on what was left out of the judgements and why; empty where nothing was."""

    def splits(self) -> list[str]:
        """All splits there are."""

    def queries(self) -> list[Query]:
        """The queries with at least one judgement in the split, in the file's order."""

    def qrels(self) -> Qrels:
        """The judgements of the split, explicit zeros included; exactly the queries of `queries`."""


class Reader(Protocol):
    """What an entry point in the group `termweave.readers` names: usually the source class itself.

    A reader that has data sets, too, offers `open_dataset(spec, split) -> Dataset` (see `DatasetReader`).

    Attributes:
        LABEL: What it reads, with its article, for messages.
        MAPPED: Its entries have named fields, and `Fields` says which is what.
        SEEKS: It jumps in the file: a packed one is unpacked to disk first.
    """

    LABEL: ClassVar[str]
    MAPPED: ClassVar[bool]
    SEEKS: ClassVar[bool]

    @classmethod
    def recognises(cls, spec: str) -> bool:
        """Whether this reader is the one for a path or name; looks at the content, reads little.

        Raises:
            TermweaveError: A file that no reader could read: it may not be opened, or is packed and damaged.
        """

    @classmethod
    def open(cls, spec: str, reading: Reading) -> Opened:
        """The source; errors in single entries wait until `documents`.

        Args:
            spec: The path or name that `recognises` said yes to.
            reading: How.

        Raises:
            UsageError: It lacks a field that was named, or what reads it is not installed.
            InputError: It is damaged so that nothing of it can be read.
        """


class DatasetReader(Reader, Protocol):
    """A reader that knows questions and judgements."""

    @classmethod
    def open_dataset(cls, spec: str, split: str) -> Dataset:
        """The data set with one split chosen.

        Raises:
            UsageError: There is no such split.
        """
