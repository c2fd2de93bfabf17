"""What sources have in common: what becomes of a bad entry, and, of those that are files, name, fingerprint and size."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from termweave import plugins
from termweave.corpora import files
from termweave.corpora.fields import BadLine
from termweave.corpora.sources import Reading, Skipped, Skips

if TYPE_CHECKING:
    from collections.abc import Iterator

    from termweave.corpora.sources import Progress
    from termweave.records import Document


class EntrySource:
    """Documents that are read entry by entry: a `Source` without the reading itself, which is `entries`."""

    LABEL: ClassVar[str]
    MAPPED: ClassVar[bool] = False
    SEEKS: ClassVar[bool] = False
    #: Goes into fingerprints: raise it when the same bytes come to be read as other documents.
    KIND: ClassVar[str]

    def __init__(self, reading: Reading | None = None) -> None:
        self.reading = reading or Reading()
        self._total: int | None = None
        self.skipped = Skips()

    def entries(self, progress: Progress | None) -> Iterator[tuple[int | None, Document | BadLine]]:
        """Every entry with its 1-based line (None where all of a file is meant), in the source's order: a document, or why it is none."""
        raise NotImplementedError

    @property
    def shown(self) -> str:
        """The source as messages name it."""
        raise NotImplementedError

    @property
    def total(self) -> int | None:
        """Documents that the last whole pass gave; None before one."""
        return self._total

    @property
    def remarks(self) -> list[str]:
        """Sentences on how the source was understood."""
        return []

    def documents(self, progress: Progress | None = None) -> Iterator[Document]:
        """The documents in the source's order, one in memory at a time.

        Raises:
            InputError: An entry is no document, by source and line; with `skip_bad` it is left out and stands in `skipped`.
            TermweaveError: A reader of another package raised something else.
        """
        self.skipped.clear()
        count = 0
        with plugins.blamed(f"The reader of {self.LABEL}", lambda: f"{type(self).__module__}:{type(self).__qualname__}"):
            for line, found in self.entries(progress):
                if isinstance(found, BadLine):
                    shown = found.file or self.shown
                    if not self.reading.skip_bad:
                        raise found.at(shown, line) from None
                    self.skipped.add(Skipped(line, str(found), shown))
                    continue
                count += 1
                yield found
        self._total = count


class FileSource(EntrySource):
    """A file of documents, without the reading itself."""

    def __init__(self, path: Path, reading: Reading | None = None) -> None:
        super().__init__(reading)
        self.path = path

    @classmethod
    def open(cls, spec: str, reading: Reading) -> Self:
        """The file as a source."""
        return cls(Path(spec), reading)

    @property
    def name(self) -> str:
        """The file's name."""
        return self.reading.name or self.path.name

    @property
    def shown(self) -> str:
        """The file as messages name it."""
        return self.reading.name or str(self.path)

    @property
    def kind(self) -> str:
        """`KIND`, and the fields that a user named: other fields make other documents of the same bytes."""
        return f"{self.KIND} {self.reading.fields}" if self.reading.fields else self.KIND

    @property
    def fingerprint(self) -> str:
        """Over the file's bytes as they lie, and the way they are read."""
        return files.fingerprint(self.path, self.kind)

    @property
    def size(self) -> int:
        """Bytes of the file as it lies."""
        return self.path.stat().st_size
