"""The documents of a live generation as a source: they can be encoded again with other models although the corpus is not at hand."""

from __future__ import annotations

from hashlib import blake2b
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar

from termweave.catalog.layout import source_digest, stored_document
from termweave.corpora.file_source import EntrySource
from termweave.corpora.index.point_in_time import sequence_numbers
from termweave.errors import InputError
from termweave.indexer.preparation.passages import Window, spans
from termweave.indexer.stored_documents import scan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from termweave.catalog.generations import LiveGeneration
    from termweave.corpora.formats.fields import BadLine
    from termweave.corpora.sources import Progress
    from termweave.engine import Engine
    from termweave.records import Document

_PAGE = 200
_READ = ("id", "title", "text", "metadata", "metadata_long", "passage", "passage_start", "passage_end", "source_digest")


class LiveDocuments(EntrySource):
    """The documents of a generation, in the order of their ids, each compared with the digest that was stored with it.

    Passages are joined to the text that they were cut from; the white space between two passages becomes a paragraph break.

    Args:
        engine: The server.
        live: The generation.
    """

    LABEL: ClassVar[str] = "the documents of an index"
    KIND: ClassVar[str] = "live/1"
    ENTRY = "document"
    trial = True

    def __init__(self, engine: Engine, live: LiveGeneration) -> None:
        super().__init__()
        self._engine, self._live = engine, live
        self._window = Window.from_lineage(live.lineage.passages)

    @property
    def name(self) -> str:
        """Name of the corpus that the generation was built from."""
        return self._live.lineage.source["name"]

    @property
    def shown(self) -> str:
        """The source in messages."""
        return f"the index {self._live.lineage.name}"

    @property
    def fingerprint(self) -> str:
        """Hash of the generation and of its last change."""
        made = self._live.lineage
        state = f"{self.KIND} {self._live.index} {made.source['fingerprint']} {made.updated} {self._changes()}"
        return blake2b(state.encode(), digest_size=16).hexdigest()

    @property
    def total(self) -> int:
        """Number of documents."""
        return self._live.lineage.documents

    @property
    def size(self) -> int:
        """Number of documents: progress counts those, for want of bytes."""
        return self.total

    def entries(self, progress: Progress | None) -> Iterator[tuple[int | None, Document | BadLine]]:
        """Read all documents.

        Raises:
            InputError: A stored document differs from its digest, or passages cannot be joined to a text that is cut alike.
        """
        body = {"_source": {"includes": list(_READ)}}
        stored = (hit["_source"] for hit in scan(self._engine, self._live.index, {"match_all": {}}, body, _PAGE))
        for number, (identity, parts) in enumerate(groupby(stored, key=lambda source: source.get("id")), start=1):
            documents = []
            for part in parts:
                document = stored_document(part)
                if source_digest(document) != part.get("source_digest"):
                    raise InputError(
                        f"The document {identity!r} of {self._live.index} differs from what was sent.",
                        f"Look with 'termweave verify {self._live.lineage.name}', and build the index again.",
                    )
                documents.append(document)
            yield None, documents[0] if documents[0].passage is None else self._joined(documents)
            if progress is not None:
                progress(number)

    def _joined(self, passages: list[Document]) -> Document:
        """The document that these passages were cut from."""
        text = ""
        positions = [passage.passage for passage in passages if passage.passage is not None]
        for passage, position in zip(passages, positions, strict=True):
            text = text.ljust(position.start, "\n")[: position.start] + passage.text
        first = passages[0]
        if self._window is None or spans(text, self._window) != [(each.start, each.end) for each in positions]:
            raise InputError(
                f"The passages of {first.source_id!r} in {self._live.index} do not show how its text was cut.",
                "Build the index again from its corpus.",
            )
        return type(first)(first.source_id, text, first.title, first.metadata)

    def _changes(self) -> int:
        """Number of changes of the generation so far, deletions included."""
        return sum(each["max_seq_no"] for each in sequence_numbers(self._engine, self._live.index).values())
