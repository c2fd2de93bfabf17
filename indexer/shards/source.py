"""A folder of shards as a source, which brings the encodings of its documents."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from termweave.corpora.sources import Encodings, OpenedSource, Reader, Reading, Skips
from termweave.errors import InputError
from termweave.indexer.shards import manifest, rows
from termweave.indexer.shards.store import ShardStore, holds_shards
from termweave.support.messages import counted, few

if TYPE_CHECKING:
    from collections.abc import Iterator

    from termweave.corpora.sources import Progress
    from termweave.records import Document


class EncodedFolder(OpenedSource, Reader):
    """A folder of shards: a `Source` with the name and fingerprint of the corpus that was encoded, and its reader."""

    LABEL: ClassVar[str] = "a folder of shards (`termweave encode`)"

    def __init__(self, spec: str) -> None:
        self._store = ShardStore(spec)
        self._manifest = manifest.read(self._store)
        self.skipped = Skips()

    @classmethod
    def recognises(cls, spec: str) -> bool:
        """Whether a path or fsspec URL is a folder of shards."""
        return holds_shards(spec)

    @classmethod
    def open(cls, spec: str, reading: Reading) -> EncodedFolder:
        """Open the folder.

        Raises:
            InputError: Shards are missing.
        """
        del reading
        folder = cls(spec)
        present, wanted = folder._store.names(), folder._manifest.files
        if missing := [file for file in wanted if file not in present]:
            raise InputError(
                f"{folder._store.shown} lacks {counted(len(missing), 'shard')} of {len(wanted)} ({few(missing)}).",
                "Run 'termweave encode' again, with the same options: it encodes what is missing.",
            )
        return folder

    @property
    def name(self) -> str:
        """Name of the corpus."""
        return self._manifest.source

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the corpus: an index built of shards is the index that is built of their corpus."""
        return self._manifest.fingerprint

    @property
    def total(self) -> int | None:
        """Number of texts."""
        return self._manifest.texts

    @property
    def size(self) -> int:
        """Bytes of all shards."""
        return sum(self._store.size(file) for file in self._manifest.files)

    @property
    def remarks(self) -> list[str]:
        """A sentence about what the shards hold."""
        stored = self._manifest
        models = " and ".join(dict.fromkeys(repr(model.name) for model in stored.models.values()))
        texts = counted(stored.texts, "passage" if stored.passages else "document")
        return [f"{self._store.shown}: {texts} of {stored.source}, encoded by {models}."]

    @cached_property
    def encodings(self) -> Encodings:
        """The models, statistics and sample of the encodings that the documents have."""
        stored = self._manifest
        return Encodings(
            models=stored.models,
            statistics=stored.load_statistics(self._store),
            sample=[document.encoding for document in self._texts(manifest.SAMPLE) if document.encoding],
            passages=stored.passages,
            skip_bad=stored.skip_bad,
            analyzer=stored.analyzer,
            notes=stored.notes,
            warnings=stored.warnings,
        )

    def documents(self, progress: Progress | None = None) -> Iterator[Document]:
        """Read all texts with their encodings, in the order of the corpus."""
        seen = done = 0
        for file in self._manifest.files:
            for document in self._texts(file):
                seen += 1
                yield document
            done += self._store.size(file) if progress else 0
            if progress:
                progress(done)
        if seen != self._manifest.texts:
            raise InputError(
                f"The shards in {self._store.shown} hold {seen:,} texts, and {self._manifest.texts:,} were encoded: one is cut off.",
                "Encode again, into another folder.",
            )

    def _texts(self, file: str) -> Iterator[Document]:
        stored = self._manifest
        for block in rows.encoded_documents(self._store, file, rows.columns(stored.dimension), stored.key(file)):
            yield from block
