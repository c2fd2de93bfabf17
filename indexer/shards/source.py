"""A folder of shards as a source: the reader that recognises it, and the encodings that take the place of models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from termweave import encoders
from termweave.corpora.sources import Derived, Reading, Skips
from termweave.encoders.model_lookup import NONE
from termweave.encoders.text_encoder import ModelInfo, TextEncoder
from termweave.errors import InputError, UsageError
from termweave.indexer.preparation.language_check import LanguageAdvice
from termweave.indexer.shards import manifest, rows
from termweave.indexer.shards.manifest import sample_file, shard_file
from termweave.indexer.shards.store import ShardStore, holds_shards, open_at_once
from termweave.support.messages import counted, few

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from termweave.corpora import Progress, Source
    from termweave.encoders.term_weighting.anchored_terms import Kind
    from termweave.indexer.options import BuildOptions
    from termweave.indexer.preparation.passages import Window
    from termweave.records import Document, Encoding
    from termweave.statistics import CorpusStatistics


class StoredModels(TextEncoder):
    """The models of a folder of shards: they are known, and none is opened.

    Args:
        models: Output -> the model that gave it.
    """

    def __init__(self, models: dict[str, ModelInfo]) -> None:
        super().__init__(None, None)
        self._stored = models

    @property
    def models(self) -> dict[str, ModelInfo]:
        """Output -> the model that gave it."""
        return self._stored

    def only(self, outputs: Collection[str | None]) -> StoredModels:
        """These models with no more than these outputs of "weights" and "dense"."""
        kept = {output: model for output, model in self.models.items() if output.removesuffix("_query") in outputs}
        return StoredModels(kept)

    @property
    def dimension(self) -> int | None:
        """Length of the vectors; None without a dense model."""
        return self.models["dense"].dimension if "dense" in self.models else None

    @property
    def analysis(self) -> str | None:
        """Id of the analysis of the term weights; None without them."""
        return self.models["weights"].analysis if "weights" in self.models else None

    def encode(self, texts: Sequence[str], *, kind: Kind, statistics: CorpusStatistics | None = None) -> list[Encoding]:
        """Refuse to encode.

        Raises:
            UsageError: Always.
        """
        del texts, kind, statistics
        raise UsageError("The texts of a folder of shards are encoded already.", "Name the corpus itself.")


class EncodedFolder:
    """A folder of shards: a `Source` with the name and fingerprint of the corpus that was encoded, and its reader."""

    LABEL: ClassVar[str] = "a folder of shards (`termweave encode`)"
    MAPPED: ClassVar[bool] = False
    SEEKS: ClassVar[bool] = False

    def __init__(self, spec: str) -> None:
        self.store = ShardStore(spec)
        self.plan, self._counted = manifest.read(self.store)
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
        opened = cls(spec)
        opened.check_complete()
        return opened

    def check_complete(self) -> None:
        """Check that all shards are there.

        Raises:
            InputError: Some are missing.
        """
        there = self.store.names()
        missing = [f"{shard:05}" for shard in range(self.plan.shards) if shard_file(shard) not in there]
        if missing or self._counted is None:
            raise InputError(
                f"{self.store.shown} lacks {counted(len(missing), 'shard')} of {self.plan.shards} ({few(missing)}).",
                "Run 'termweave encode' again, with the same options: it encodes what is missing.",
            )

    @property
    def counted(self) -> manifest.Counted:
        """What was counted before the shards were encoded."""
        assert self._counted is not None
        return self._counted

    @property
    def name(self) -> str:
        """Name of the corpus."""
        return self.plan.source["name"]

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the corpus: an index built of shards is the index that is built of their corpus."""
        return self.plan.source["fingerprint"]

    @property
    def total(self) -> int | None:
        """Number of texts."""
        return self.counted.texts

    @property
    def size(self) -> int:
        """Bytes of all shards."""
        return sum(self.store.size(shard_file(shard)) for shard in range(self.plan.shards))

    @property
    def remarks(self) -> list[str]:
        """Sentences about what the shards hold."""
        models = " and ".join(dict.fromkeys(repr(model["name"]) for model in self.plan.models.values()))
        texts = counted(self.counted.texts, "passage" if self.plan.window else "document")
        return [f"{self.store.shown}: {texts} of {self.name} in {counted(self.plan.shards, 'shard')}, encoded by {models}."]

    @property
    def cut(self) -> Window | None:
        """How the texts were cut into passages before they were encoded; None: not at all."""
        return self.plan.window

    def documents(self, progress: Progress | None = None) -> Iterator[Document]:
        """Read all texts in the order of the corpus, without their encodings."""
        yield from self._texts(range(self.plan.shards), progress, encoded=False)

    def encoded(self, shards: Sequence[int] | None = None) -> EncodedTexts:
        """The texts of all shards, or of some, with their encodings."""
        return EncodedTexts(self, range(self.plan.shards) if shards is None else shards)

    def _texts(self, shards: Sequence[int], progress: Progress | None, *, encoded: bool) -> Iterator[Document]:
        size, seen = self.size if progress else 0, 0
        open_at_once(len(shards))
        parts = [self.shard(shard).documents(encoded=encoded) for shard in shards]
        for block in rows.in_order(parts):
            yield from block
            seen += len(block)
            if progress:
                progress(size * seen // max(seen, self.counted.texts))
        if len(shards) == self.plan.shards and seen != self.counted.texts:
            raise InputError(
                f"The shards in {self.store.shown} hold {seen:,} texts, and {self.counted.texts:,} were encoded: one is cut off.",
                "Encode again, into another folder.",
            )

    def shard(self, shard: int) -> rows.ShardFile:
        """The file of a shard."""
        return self._file(shard_file(shard), shard)

    def _file(self, name: str, shard: int) -> rows.ShardFile:
        return rows.ShardFile(self.store, name, manifest.mark(self.plan, self.counted, shard))

    def statistics(self) -> CorpusStatistics | None:
        """The statistics of the term weights; None without them."""
        return manifest.load_statistics(self.store, self.counted)

    def sample(self) -> list[Encoding]:
        """The encodings of the sample of the corpus, in the order that the corpus pass gives it."""
        found: dict[tuple[str, int | None], Encoding] = {}
        for shard in range(self.plan.shards):
            for block in self._file(sample_file(shard), shard).documents(encoded=True):
                pairs = zip(block, encodings_of(block), strict=True)
                found |= {(each.id, each.line): replace(encoding, text=each.content) for each, encoding in pairs}
        if missing := [place for place in self.counted.sample if place not in found]:
            raise InputError(f"The samples in {self.store.shown} lack {missing[0][0]!r}.", "Encode again, into another folder.")
        return [found[place] for place in self.counted.sample]

    def adopted(self, options: BuildOptions) -> BuildOptions:
        """The options with those that were decided when the corpus was encoded.

        Raises:
            UsageError: Another length of passages was asked for.
        """
        if options.passages not in {None, self.cut}:
            was = f"passages of {self.cut.size} words" if self.cut else "whole documents"
            raise UsageError(
                f"{self.store.shown} holds {was}, and --passage-size asks for others.",
                "Leave --passage-size out, or encode again with it.",
            )
        return replace(options, passages=self.cut, skip_bad=self.plan.skip_bad)

    def models(self, options: BuildOptions) -> StoredModels:
        """The models that the shards were encoded with, without those that the options switch off.

        Raises:
            UsageError: The options name another model.
        """
        stored = {
            output: ModelInfo(model["name"], model["hash"], Path(), model["dimension"], model["analysis"], model["max_length"])
            for output, model in self.plan.models.items()
        }
        asked = {"weights": options.weights, "dense": options.dense, "dense_query": options.dense_query}
        kept = {output for output, name in asked.items() if output != "dense_query" and name not in NONE}
        named = {output: name for output, name in asked.items() if name is not None and name not in NONE}
        if named:
            self._refuse_others(stored, _opened(named))
        return StoredModels(stored).only(kept)

    def _refuse_others(self, stored: dict[str, ModelInfo], asked: TextEncoder) -> None:
        """Refuse models that the shards were not encoded with."""
        for output, model in asked.models.items():
            own = stored.get(output)
            if own is None or own.hash != model.hash:
                flag = f"--{output.replace('_', '-')}"
                was = f"encoded with {own.name!r} ({own.hash[:8]})" if own else "encoded without such a model"
                raise UsageError(
                    f"{self.store.shown} was {was}, and {flag} names {model.name!r} ({model.hash[:8]}).",
                    f"Leave {flag} out, or encode again with it, into another folder.",
                )

    def advice(self, options: BuildOptions, signals: tuple[str, ...]) -> LanguageAdvice:
        """What the language of the corpus means for the build, as it was found when the corpus was encoded."""
        notes = () if options.analyzer else tuple(self.plan.notes)
        return LanguageAdvice(options.analyzer or self.plan.analyzer, signals, tuple(self.plan.warnings), None, notes)


def _opened(named: Mapping[str, str | Path]) -> TextEncoder:
    """The models that options name, and no others."""
    weights, dense = named.get("weights", "none"), named.get("dense", "none")
    return encoders.load(weights=weights, dense=dense, dense_query=named.get("dense_query"))


class EncodedTexts(Derived):
    """The texts of some shards, as `rows.EncodedDocument`."""

    def __init__(self, folder: EncodedFolder, shards: Sequence[int]) -> None:
        super().__init__(folder)
        self._folder, self._shards = folder, shards

    def documents(self, progress: Progress | None = None) -> Iterator[Document]:
        """Read the texts with their encodings."""
        yield from self._folder._texts(self._shards, progress, encoded=True)  # noqa: SLF001 - of its own file


def encodings_of(documents: Sequence[Document]) -> list[Encoding]:
    """The encodings that documents bring along: the function that takes the place of a model."""
    return [document.encoding for document in documents if isinstance(document, rows.EncodedDocument) and document.encoding]


def with_encodings(source: Source) -> Source:
    """A folder of shards with the encodings of its texts; any other source as it is."""
    return source.encoded() if isinstance(source, EncodedFolder) else source


def folder_of(source: Source) -> EncodedFolder | None:
    """The source as a folder of shards; None if it is another one."""
    return source if isinstance(source, EncodedFolder) else None


def refuse(source: Source, what: str, instead: str) -> None:
    """Refuse a folder of shards where a corpus is needed.

    Raises:
        UsageError: It is one.
    """
    if isinstance(source, EncodedFolder):
        raise UsageError(f"{source.store.shown} is a folder of shards, and {what}.", instead)
