"""A job: what a process needs to know to count or encode shards of a corpus, as values that JSON holds."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from termweave import __version__, corpora, encoders
from termweave.corpora.formats import download, index_address
from termweave.errors import UsageError
from termweave.indexer.options import BuildOptions
from termweave.indexer.preparation import language_check, length_check
from termweave.indexer.preparation.corpus_pass import beginning, blocks
from termweave.indexer.preparation.passages import Window, in_passages
from termweave.indexer.shards import manifest
from termweave.indexer.shards.manifest import EncodingPlan
from termweave.indexer.shards.store import ShardStore, holds_shards
from termweave.signals import signal_class
from termweave.support.messages import without_password

if TYPE_CHECKING:
    from collections.abc import Mapping

    from termweave.corpora import Source
    from termweave.encoders import TextEncoder

#: Most documents in a block, which is encoded at once and is a row group of a shard.
BLOCK = 256
#: The signals that need what models give; those that an index of the shards will have are chosen when it is built.
_SIGNALS = ("weights", "dense")


@dataclass(frozen=True)
class EncodingJob:
    """How a corpus is encoded into shards.

    Attributes:
        source: The SOURCE argument.
        folder: The folder of shards: a path or an fsspec URL.
        shards: Number of shards.
        reading: Keyword arguments of `corpora.open_source`.
        options: Fields of `BuildOptions`: weights, dense, dense_query, skip_bad; and "passages", size and stride.
        threads: Texts that a process encodes at a time; None: one for each core.
    """

    source: str
    folder: str
    shards: int
    reading: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    threads: int | None = None

    @classmethod
    def of(cls, source: str, folder: str, shards: int, reading: Mapping[str, Any], options: BuildOptions) -> EncodingJob:
        """A job of what the command line gave. Paths become absolute, because a process may work in another folder.

        Raises:
            UsageError: The source cannot be read by several processes.
        """
        _refuse_stream(source)
        if not folder.strip():
            raise UsageError("--out names no folder.", "Name the folder of the shards: --out ./shards. Is a variable empty?")
        values = {name: getattr(options, name) for name in ("weights", "dense", "dense_query")}
        chosen = {name: value if value is None else _absolute(str(value)) for name, value in values.items()}
        window = options.passages.parameters() if options.passages else {}
        whole = {**chosen, "skip_bad": options.skip_bad, "passages": window}
        return cls(_absolute(source), _absolute(folder, new=True), shards, reading, whole)

    def to_json(self) -> bytes:
        """The job as JSON."""
        return orjson.dumps(asdict(self))

    @classmethod
    def from_json(cls, content: bytes) -> EncodingJob:
        """Read `to_json`."""
        return cls(**orjson.loads(content))

    def open(self) -> OpenJob:
        """Open corpus, models and folder, and begin the folder or continue it.

        Raises:
            UsageError: Corpus, model or folder cannot be used, or the folder has shards of another plan.
            InputError: One of the first documents cannot be read.
        """
        store = ShardStore(self.folder)
        options = BuildOptions(**{**self.options, "passages": Window.of(self.options["passages"])})
        source = corpora.open_source(self.source, skip_bad=options.skip_bad, **self.reading)
        encoder, plan = _plan(source, self.shards, options, self.threads)
        begun, counted = manifest.begin(store, plan)
        return OpenJob(store, in_passages(source, options.passages), encoder, begun, counted)


@dataclass
class OpenJob:
    """A job with everything open.

    Attributes:
        store: The folder of shards.
        source: The documents, or their passages.
        encoder: The models whose outputs are stored.
        plan: What the shards hold.
        counted: What is known when all shards are counted; None before.
    """

    store: ShardStore
    source: Source
    encoder: TextEncoder
    plan: EncodingPlan
    counted: manifest.Counted | None


def _plan(source: Source, shards: int, options: BuildOptions, threads: int | None) -> tuple[TextEncoder, EncodingPlan]:
    """Choose the models as a build does, by the language of the first documents."""

    def load(weights: str | Path | None) -> TextEncoder:
        return encoders.load(weights=weights, dense=options.dense, dense_query=options.dense_query, threads=threads)

    encoder = load(options.weights)
    possible = tuple(name for name in _SIGNALS if signal_class(name).needs in encoder.models)
    if not possible:
        raise UsageError("Without a model there is nothing to encode.", "Name a model, or index the corpus itself.")
    advice = language_check.advise(source, encoder, options, possible)
    if advice.weights:
        encoder = load(advice.weights)
    encoder = encoder.only({signal_class(name).needs for name in advice.signals})
    if not encoder.models:
        raise UsageError(
            f"No model knows the language of {source.name}, so there is nothing to encode.",
            "Name a model with --weights or --dense, or index the corpus itself: it gets the words of its language.",
        )
    texts = [document.content for document in map(beginning, next(blocks(in_passages(source, options.passages).documents()), []))]
    long = length_check.warnings(encoder, texts, passages=options.passages is not None) if texts else []
    models = {
        output: {
            "name": model.name,
            "hash": model.hash,
            "dimension": model.dimension,
            "analysis": model.analysis,
            "max_length": model.max_length,
        }
        for output, model in encoder.models.items()
    }
    return encoder, EncodingPlan(
        source={"name": source.name, "fingerprint": source.fingerprint},
        shards=shards,
        block=BLOCK,
        models=models,
        passages=options.passages.parameters() if options.passages else {},
        skip_bad=options.skip_bad,
        analyzer=advice.analyzer,
        termweave=__version__,
        notes=list(advice.notes),
        warnings=[*advice.warnings, *long],
    )


def _refuse_stream(source: str) -> None:
    """Refuse a source that processes would read differently, or cannot read at all.

    Raises:
        UsageError: It is one.
    """
    if source == "-":
        raise UsageError("Several processes cannot read standard input.", "Write it to a file, and encode that.")
    if index_address.is_address(source):
        raise UsageError(
            f"{without_password(source)} is an index, which may change between two processes.",
            "Index it directly ('termweave index'), or export it to a file and encode that.",
        )
    if download.is_address(source):
        raise UsageError(f"{download.shown(source)} would be fetched by every process.", "Download it, and encode the file.")
    if holds_shards(source):
        raise UsageError(
            f"{without_password(source)} is a folder of shards: it is encoded already.",
            "Index it: 'termweave index FOLDER NAME'.",
        )


def _absolute(path: str, *, new: bool = False) -> str:
    """The absolute path of a file or folder that exists, or will; other names stay as they are."""
    if "://" in path or not (new or Path(path).exists()):
        return path
    return str(Path(path).absolute())
