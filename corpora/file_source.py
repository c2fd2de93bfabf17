"""Base classes of sources: how bad entries are handled, and the name, fingerprint and size of files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from termweave import plugins
from termweave.corpora.formats import lines
from termweave.corpora.formats.fields import BadLine
from termweave.corpora.sources import OpenedSource, Progress, Reader, Reading, Skipped, Skips
from termweave.errors import UsageError

if TYPE_CHECKING:
    from termweave.records import Document


class EntrySource(OpenedSource):
    """A source that is read entry by entry. Subclasses implement `entries`."""

    LABEL: ClassVar[str]
    #: Part of the fingerprint: change it when the same bytes are read as different documents.
    KIND: ClassVar[str]

    def __init__(self, reading: Reading | None = None) -> None:
        self.reading = reading or Reading()
        self._total: int | None = None
        self.skipped = Skips()

    def entries(self, progress: Progress | None) -> Iterator[tuple[int | None, Document | BadLine]]:
        """Read all entries in the source's order.

        Yields:
            Line of the entry, from 1 (None for a whole file), and its document, or the reason why the entry is no document.
        """
        raise NotImplementedError

    @property
    def shown(self) -> str:
        """Name of the source in messages."""
        return self.name

    @property
    def total(self) -> int | None:
        """Number of documents in the last complete pass; None: no pass was complete yet."""
        return self._total

    def documents(self, progress: Progress | None = None) -> Iterator[Document]:
        """Read the documents in the source's order, one at a time, with normalised texts (`termweave.support.normal_form`).

        Raises:
            InputError: An entry is not a document; the message names source and line. With `skip_bad` the entry is added to `skipped` instead.
            TermweaveError: A reader of another package raised another exception.
        """
        self.skipped.clear()
        count = 0
        with plugins.blamed(f"The reader of {self.LABEL}", lambda: f"{type(self).__module__}:{type(self).__qualname__}"):
            for line, entry in self.entries(progress):
                if isinstance(entry, BadLine):
                    shown = entry.file or self.shown
                    if not self.reading.skip_bad:
                        raise entry.at(shown, line, entry=self.ENTRY) from None
                    self.skipped.add(Skipped(line, str(entry), shown, self.ENTRY))
                    continue
                count += 1
                yield entry.normal
        self._total = count


class FileSource(EntrySource, Reader):
    """A source that is a single file or folder. Subclasses implement `entries`."""

    def __init__(self, path: Path, reading: Reading | None = None) -> None:
        super().__init__(reading)
        self.path = path

    @classmethod
    def open(cls, spec: str, reading: Reading) -> Self:
        """Open the file as a source."""
        return cls(Path(spec), reading)

    @property
    def name(self) -> str:
        """Name of the file; for a temporary copy, the name of its origin."""
        return self.reading.name or self.path.name

    @property
    def shown(self) -> str:
        """Name of the file in messages."""
        return self.reading.name or str(self.path)

    @property
    def kind(self) -> str:
        """`KIND` and the fields that the user named: with other fields the same bytes are different documents."""
        return f"{self.KIND} {self.reading.fields}" if self.reading.fields else self.KIND

    @property
    def fingerprint(self) -> str:
        """Hash of the file's bytes and of the way they are read."""
        return lines.fingerprint(self.path, self.kind)

    @property
    def size(self) -> int:
        """Size of the file on disk, in bytes."""
        return self.path.stat().st_size


class JudgementSource(EntrySource, Reader):
    """A `Dataset` without documents, and the reader that recognises it by the beginning of its name."""

    JUDGED: ClassVar[bool] = True
    name, fingerprint, size = "", "", 0
    #: Grade 1, or one click, is the lowest sign of relevance.
    relevant_from = 1
    #: What the names begin with: "book:".
    PREFIX: ClassVar[str]
    #: What it is, with its article, and the sentence that says where it is used.
    THING: ClassVar[str]
    USE: ClassVar[str]

    @classmethod
    def recognises(cls, spec: str) -> bool:
        """Whether the name begins with the prefix."""
        return spec.startswith(cls.PREFIX)

    @classmethod
    def open(cls, spec: str, reading: Reading) -> Self:
        """Raise an error that says what to name instead of judgements.

        Raises:
            UsageError: Judgements are not a corpus.
        """
        del spec, reading
        raise UsageError(f"{cls.THING} has no documents.", f"Name the corpus. {cls.USE}")

    def entries(self, progress: Progress | None) -> Iterator[tuple[int | None, Document | BadLine]]:
        """Raise an error that asks for a corpus, because judgements have no documents.

        Raises:
            UsageError: Judgements are not a corpus.
        """
        del progress
        raise UsageError(f"{self.THING} has no documents.", "Name the corpus.")
