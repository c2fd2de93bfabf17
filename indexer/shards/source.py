"""A folder of shards: the manifest, which says what the folder holds and how it was encoded, and the folder as a source that brings encodings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Annotated, Any, ClassVar

import orjson
from pydantic import Field, TypeAdapter, ValidationError

from termweave.corpora.sources import Encodings, OpenedSource, Progress, Reader, Reading, Skips
from termweave.errors import InputError, UsageError
from termweave.indexer.shards.store import MANIFEST, ShardStore, columns, holds_shards
from termweave.records import Document, ModelInfo  # noqa: TC001
from termweave.statistics import CorpusStatistics
from termweave.support.messages import counted, few

#: The format that this version writes and reads.
_FORMAT = 2
#: The files of the statistics of the corpus, and of its sample, whose texts are cut as the sample cuts them.
STATISTICS, SAMPLE = "statistics.bin", "sample.parquet"
#: What the command that begins a folder decides, and what may not change until the folder is finished.
_PLANNED = ("fingerprint", "models", "passages", "skip_bad", "analyzer")


@dataclass(frozen=True)
class ShardManifest:
    """The contents of a folder of shards.

    Attributes:
        source: Name of the corpus.
        fingerprint: Fingerprint of the corpus.
        models: Output -> the model.
        passages: Size and stride of the passages; {} if texts are not cut.
        skip_bad: Whether entries that cannot be read, and the second of two documents with one id, were left out.
        analyzer: The server's analyzer that suits the language.
        termweave: Version that began the folder.
        texts: Number of documents or passages.
        shards: Number of shards.
        statistics: Hash of the statistics; "" without term weights.
        notes: What a user should know.
        warnings: What a user should not miss.
    """

    source: str
    fingerprint: str
    models: Mapping[str, ModelInfo]
    passages: Mapping[str, Annotated[int, Field(ge=1, le=1_000_000)]]
    skip_bad: bool
    analyzer: str
    termweave: str
    texts: Annotated[int, Field(ge=1, le=10**10)] = 1
    shards: Annotated[int, Field(ge=1, le=999_999)] = 1
    statistics: str = ""
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()

    @classmethod
    def read(cls, store: ShardStore) -> ShardManifest:
        """Read the manifest of a folder.

        Raises:
            InputError: The manifest is damaged, or has the format of another version.
        """
        try:
            content = store.read(MANIFEST)
            stored_format = orjson.loads(content)["format"]
            if stored_format == _FORMAT:
                return TypeAdapter(cls).validate_json(content, strict=True)  # a number is not read from a text
        except (ValueError, KeyError, TypeError) as error:  # pydantic's error is a ValueError
            first = error.errors()[0] if isinstance(error, ValidationError) else None
            reason = f": {'.'.join(map(str, first['loc']))}: {first['msg']}" if first else ""
            raise InputError(f"{MANIFEST} in {store.shown} is damaged{reason}.", "Encode again, into another folder.") from error
        hint = "Install the version that wrote it, or encode again."
        raise InputError(
            f"{store.shown} has shards of format {stored_format!r}, which this version of termweave does not read.", hint
        )

    def write(self, store: ShardStore) -> None:
        """Write the manifest of a folder."""
        content = {"format": _FORMAT, **asdict(self)}
        for model in content["models"].values():
            del model["folder"]  # it is that of one host
        store.write(MANIFEST, orjson.dumps(content, option=orjson.OPT_INDENT_2))

    @property
    def files(self) -> list[str]:
        """Names of the files of all shards, in the order of the corpus."""
        return [f"shard-{number:06}.parquet" for number in range(self.shards)]

    @property
    def dimension(self) -> int | None:
        """Length of the vectors; None: there is no dense model."""
        return self.models["dense"].dimension if "dense" in self.models else None

    def key(self, file: str) -> bytes:
        """Return the key of the digests in a file: a row of another shard, corpus, model or statistics does not have the same digest."""
        models = {output: model.hash for output, model in self.models.items()}
        whole = [self.fingerprint, models, self.passages, self.skip_bad, self.texts, self.statistics, file]
        return blake2b(orjson.dumps(whole, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()

    def refuse_other(self, planned: ShardManifest, folder: str) -> None:
        """Check that a folder was begun with this plan, so that a command may go on with it.

        Raises:
            UsageError: Corpus, models or options differ.
        """
        pairs = [(name, _described(self, name), _described(planned, name)) for name in _PLANNED]
        if different := [f"{name} was {old} and is {new}" for name, old, new in pairs if old != new]:
            hint = "Repeat the command that began the folder to finish it, or name another folder with --out."
            raise UsageError(f"{folder} has shards of another corpus, model or option: {'; '.join(different)}.", hint)

    def load_statistics(self, store: ShardStore) -> CorpusStatistics | None:
        """Load the statistics of the corpus; None: the shards have no term weights.

        Raises:
            InputError: The statistics are damaged, or are not those that the manifest names.
        """
        if not self.statistics:
            return None
        try:
            statistics = CorpusStatistics.from_bytes(store.read(STATISTICS))
        except ValueError:
            statistics = None
        if statistics is None or statistics.hash != self.statistics:
            hint = "Encode again, into another folder."
            raise InputError(f"{STATISTICS} in {store.shown} is damaged, or is that of another folder.", hint)
        return statistics


def _described(manifest: ShardManifest, name: str) -> str:
    """Return a value of a manifest in words, for a message."""
    value: Any = getattr(manifest, name)
    if name == "fingerprint":
        return f"that of {manifest.source} ({value[:8]})"
    if name == "models":
        return ", ".join(f"{output} {model.name} ({model.hash[:8]})" for output, model in value.items())
    return {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value or "none")


class EncodedFolder(OpenedSource, Reader):
    """A folder of shards: a `Source` with the name and fingerprint of the corpus that was encoded, and its reader."""

    LABEL: ClassVar[str] = "a folder of shards (`termweave encode`)"
    name = fingerprint = ""
    total: int | None = None

    def __init__(self, spec: str) -> None:
        self._store = ShardStore(spec)
        self._manifest = stored = ShardManifest.read(self._store)
        # Those of the corpus: an index built of shards is the index that is built of their corpus.
        self.name, self.fingerprint, self.total = stored.source, stored.fingerprint, stored.texts
        self.skipped = Skips()

    @classmethod
    def recognises(cls, spec: str) -> bool:
        """Whether a path or fsspec URL is a folder of shards."""
        return holds_shards(spec)

    @classmethod
    def open(cls, spec: str, reading: Reading) -> EncodedFolder:
        """Open a folder of shards as a source.

        Raises:
            InputError: Shards are missing.
        """
        del reading
        folder = cls(spec)
        present = folder._store.names()
        if missing := [file for file in folder._manifest.files if file not in present]:
            message = (
                f"{folder._store.shown} lacks {counted(len(missing), 'shard')} of {folder._manifest.shards} ({few(missing)})."
            )
            raise InputError(message, "Run 'termweave encode' again, with the same options: it encodes what is missing.")
        return folder

    @property
    def size(self) -> int:
        """Size of all shards in bytes."""
        return sum(self._store.size(file) for file in self._manifest.files)

    @property
    def remarks(self) -> list[str]:
        """A sentence about the texts in the shards and their models, in a list."""
        stored = self._manifest
        models = " and ".join(dict.fromkeys(repr(model.name) for model in stored.models.values()))
        texts = counted(stored.texts, "passage" if stored.passages else "document")
        return [f"{self._store.shown}: {texts} of {stored.source}, encoded by {models}."]

    @cached_property
    def encodings(self) -> Encodings:
        """The encodings that the documents bring: their models, statistics and sample."""
        stored = self._manifest
        return Encodings(
            models=stored.models,
            statistics=stored.load_statistics(self._store),
            sample=[document.encoding for document in self._texts(SAMPLE) if document.encoding],
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
            message = f"The shards in {self._store.shown} hold {seen:,} texts, and {self._manifest.texts:,} were encoded: a shard is cut off."
            raise InputError(message, "Encode again, into another folder.")

    def _texts(self, file: str) -> Iterator[Document]:
        stored = self._manifest
        for block in self._store.encoded_documents(file, columns(stored.dimension), stored.key(file)):
            yield from block
