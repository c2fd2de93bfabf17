"""The encoding of a corpus into a folder of shards: one pass that counts and cuts it, then each shard by itself, on any host.

The first pass is that of a build: it counts the statistics, leaves out what a build leaves out, and draws the sample. It writes the texts
into files of some thousand, so that whoever encodes a shard needs only the folder and the models. A shard gets its file name when it is whole:
the command that repeats a stopped one encodes the missing shards.

Shards are encoded by Ray Data (extra `ray`), which keeps an actor on each core of this host or of a cluster, and restarts an actor that died.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from termweave import __version__, encoders
from termweave.catalog.layout import signal_class
from termweave.encoders.recorded_models import remember
from termweave.errors import ModelError, TermweaveError, UsageError
from termweave.indexer.ledger.ledger import temporary_ledger
from termweave.indexer.preparation import language_advice
from termweave.indexer.preparation.corpus_pass import BuildProgress, length_warnings, read_corpus
from termweave.indexer.preparation.passages import in_passages
from termweave.indexer.shards.source import SAMPLE, STATISTICS, ShardManifest
from termweave.indexer.shards.store import MANIFEST, ShardStore, columns, documents_of, encoded_table, text_columns, texts_table
from termweave.support import private_files
from termweave.support.extras import install
from termweave.support.messages import first_line
from termweave.support.paths import expanded, written_as_path

if TYPE_CHECKING:
    from termweave.corpora import Source
    from termweave.indexer.options import BuildOptions
    from termweave.records import Document, Encoding


#: The name of the stage in which shards are encoded, for progress.
ENCODING = "Encoding"
#: The beginning of the names of files with texts that are still to be encoded.
_TEXTS = "texts-of-"
#: Least texts in a shard: few enough that all processes are busy, and that little is lost with one that is killed.
_SHARD = 1_024
#: The signals that need what models give; those that an index of the shards will have are chosen when it is built.
_SIGNALS = ("weights", "dense")


@dataclass(frozen=True)
class Encoded:
    """The result of `termweave encode`.

    Attributes:
        folder: The folder of shards.
        manifest: What the folder holds.
        shards: How many shards this run encoded.
        texts: How many texts this run encoded.
    """

    folder: str
    manifest: ShardManifest
    shards: int
    texts: int


@dataclass
class ShardEncoder:
    """Encodes shards of a folder, one after the other; each process of Ray makes one.

    Attributes:
        folder: The folder of shards: a path or an fsspec URL.
        weights: Name or folder of the weights model; None: the shipped model; "none": no term weights.
        dense: Name or folder of the dense model; None: the shipped model; "none": no vectors.
    """

    folder: str
    weights: str | None
    dense: str | None
    _encode: Callable[[str], int] | None = None

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        """Encode the shard whose file a row names; an error of termweave is returned as a row, because Ray would wrap an exception."""
        try:
            self._encode = self._encode or self.encoding()
            return {"texts": [self._encode(str(batch["file"][0]))], "message": [""], "hint": [""]}
        except TermweaveError as error:
            return {"texts": [0], "message": [error.message], "hint": [error.hint]}

    def encoding(self) -> Callable[[str], int]:
        """Open folder and models, and return the function that encodes the shard of a file, writes it, and returns its number of texts.

        Raises:
            ModelError: This host has other models than the folder was begun with.
        """
        store = ShardStore(self.folder)
        begun = ShardManifest.read(store)
        encoder = encoders.load(self.weights, self.dense, threads=1)
        for output, model in encoder.models.items():
            if output in begun.models and begun.models[output].hash != model.hash:
                hint = "Copy that model to this host."
                raise ModelError(f"{model.name!r} of this host is not the model that {store.shown} was begun with.", hint)
        encode_texts = partial(encoder.encode, kind="document", statistics=begun.load_statistics(store))

        def encode(file: str) -> int:
            blocks = store.tables(_texts_of(file), text_columns())
            count = _write_encoded(store, begun, file, encode_texts, blocks)
            store.remove([_texts_of(file)])
            return count

        return encode


def encode_corpus(source: Source, folder: str, options: BuildOptions, progress: BuildProgress = lambda *_: None) -> Encoded:
    """Count a corpus and encode it into a folder of shards, or finish what another command began.

    Args:
        source: The corpus.
        folder: A path, or an fsspec URL.
        options: weights, dense, dense_query, analyzer, passages and skip_bad are used.
        progress: Called with (stage, done, total).

    Raises:
        UsageError: Nothing can be encoded, the folder holds something else, or another command writes to it.
        InputError: The corpus cannot be read.
        TermweaveError: A shard cannot be encoded or written.
    """
    source.refuse_encodings("it need not be encoded again", "Index it: 'termweave index FOLDER NAME'.")
    store = ShardStore(folder)
    with store.locked():
        encoder, shards, planned = _plan(source, folder, options)
        remember(encoder.models.values())
        files = store.names()
        begun = ShardManifest.read(store) if MANIFEST in files else None
        if begun is not None:
            begun.refuse_other(planned, store.shown)
        needed = {SAMPLE, STATISTICS} if begun is not None and begun.statistics else {SAMPLE}
        if begun is None or needed - files or any({file, _texts_of(file)}.isdisjoint(files) for file in begun.files):
            begun = _counted(store, in_passages(source, options.passages), encoder, planned, progress)
        missing = [file for file in begun.files if file not in files]
        done, texts = begun.shards - len(missing), 0
        progress(ENCODING, done, begun.shards)
        for count in encode_on_ray(shards, missing) if missing else ():
            done, texts = done + 1, texts + count
            progress(ENCODING, done, begun.shards)
        store.remove(file for file in store.names() if file.startswith(_TEXTS))  # a killed process leaves those of a whole shard
    return Encoded(store.shown, begun, len(missing), texts)


def _plan(source: Source, folder: str, options: BuildOptions) -> tuple[encoders.TextEncoder, ShardEncoder, ShardManifest]:
    """Choose the models as a build does, by the language of the first documents; returns the encoder, the encoder of shards, and the planned manifest."""
    names: dict[str, Any] = {"weights": options.weights, "dense": options.dense, "dense_query": options.dense_query}
    encoder = encoders.load(**names)
    possible = tuple(name for name in _SIGNALS if signal_class(name).needs in encoder.models)
    advice = language_advice.advise(source, encoder, options, possible)
    names, encoder = {**names, **advice.instead}, advice.encoder
    if not encoder.models:
        hint = "Name a model with --weights or --dense, or index the corpus itself: it gets the words of its language."
        raise UsageError(
            f"There is no model, or none that knows the language of {source.name}: there is nothing to encode.", hint
        )
    spreads = {"dense": encoder.dense_spread(), "weights": encoder.weights_spread()}
    models = {output: replace(model, spread=spreads.get(output, 0.0)) for output, model in encoder.models.items()}
    weights, dense = (_absolute(names[output]) if output in encoder.models else "none" for output in ("weights", "dense"))
    planned = ShardManifest(
        source=source.name,
        fingerprint=source.fingerprint,
        models=models,
        passages=options.passages.parameters() if options.passages else {},
        skip_bad=options.skip_bad,
        analyzer=advice.analyzer,
        termweave=__version__,
        notes=advice.notes,
        warnings=advice.warnings,
    )
    return encoder, ShardEncoder(folder, weights, dense), planned


def _counted(
    store: ShardStore, source: Source, encoder: encoders.TextEncoder, planned: ShardManifest, progress: BuildProgress
) -> ShardManifest:
    """Read the corpus once: count the statistics, write the texts of all shards, and at last write and return the manifest.

    Raises:
        UsageError: The folder has shards and no manifest.
        InputError: The corpus cannot be read.
    """
    files = store.names()
    if MANIFEST not in files and (left := sorted(name for name in files if name.startswith("shard-"))):
        message = f"{store.shown} has files of shards, such as {left[0]}, but no {MANIFEST} that says of which corpus they are."
        raise UsageError(message, "Name another folder with --out, or remove these files.")
    texts = _TextFiles(store, files)
    with temporary_ledger() as ledger:
        corpus = read_corpus(source, encoder, ledger, skip_bad=planned.skip_bad, progress=progress, keep=texts.add)
    texts.close()
    if corpus.statistics:
        store.write(STATISTICS, corpus.statistics.to_bytes())
    long = length_warnings(encoder, [each.content for each in corpus.sample], passages=bool(planned.passages))
    counted = replace(
        planned,
        texts=texts.texts,
        shards=texts.count,
        statistics=corpus.statistics.hash if corpus.statistics else "",
        notes=(*planned.notes, *corpus.notes),
        warnings=(*planned.warnings, *corpus.warnings, *long),
    )
    encode = partial(encoder.encode, kind="document", statistics=corpus.statistics)
    _write_encoded(store, counted, SAMPLE, encode, [texts_table(corpus.sample)])
    counted.write(store)
    return counted


def _write_encoded(
    store: ShardStore, begun: ShardManifest, file: str, encode: Callable[[list[str]], Sequence[Encoding]], blocks: Iterable[Any]
) -> int:
    """Encode tables of texts and write them as a file; returns the number of texts."""
    schema, count = columns(begun.dimension), 0
    with store.writing_rows(file, schema) as shard:
        for texts in blocks:
            contents = [document.content for document in documents_of(texts)]
            shard.write_table(encoded_table(texts, encode(contents), begun.key(file), schema))
            count += len(contents)
    return count


class _TextFiles:
    """Writes the texts of a corpus into files, as soon as there are enough for a shard; for a shard that is encoded already, no file is written.

    Args:
        store: The folder.
        files: Names of the files that the folder has.
    """

    def __init__(self, store: ShardStore, files: Collection[str]) -> None:
        self.count = self.texts = 0
        self._store, self._files = store, files
        self._blocks: list[list[Document]] = []

    def add(self, block: list[Document]) -> None:
        """Add a block of texts."""
        if block:
            self._blocks.append(block)
        if sum(map(len, self._blocks)) >= _SHARD:
            self.close()

    def close(self) -> None:
        """Write the texts that were added since the last file, as the texts of one shard."""
        if not self._blocks:
            return
        file = f"shard-{self.count:06}.parquet"
        self.count += 1
        self.texts += sum(map(len, self._blocks))
        if file not in self._files:
            with self._store.writing_rows(_texts_of(file), text_columns()) as shard:
                for block in self._blocks:
                    shard.write_table(texts_table(block))
        self._blocks.clear()


def _texts_of(file: str) -> str:
    """Return the name of the file with the texts of a shard that is still to be encoded."""
    return _TEXTS + file


def _absolute(path: str | Path | None) -> str | None:
    """Return the absolute path of a model folder, because another process may work in another folder; the name of a model is returned as it is."""
    if path is None:
        return None
    written = isinstance(path, Path) or written_as_path(path)
    return str(expanded(path).absolute()) if written else str(path)


def encode_on_ray(encoder: ShardEncoder, files: Sequence[str]) -> Iterator[int]:
    """Encode shards on the Ray cluster of $RAY_ADDRESS, else on a Ray cluster of this host that ends with the work.

    Yields:
        The number of texts of each shard, when it is whole.

    Raises:
        UsageError: Ray is not installed.
        TermweaveError: The cluster cannot be reached or started, or a shard cannot be encoded.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        ray: Any = import_module("ray")  # it is large, and only a cluster needs it
        data: Any = import_module("ray.data")
    except ImportError as error:
        raise UsageError("Ray is not installed.", f"Run `{install('ray')}`.") from error
    address = os.environ.get("RAY_ADDRESS")
    with tempfile.TemporaryDirectory(dir=private_files.scratch()) as empty:
        try:
            local = {} if address else {"include_dashboard": False}
            with contextlib.chdir(empty):  # workers import from the folder that Ray is started in
                ray.init(address=address or "local", log_to_driver=False, logging_level="ERROR", **local)
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            message = f"The Ray cluster {address or 'on this host'} does not start: {first_line(error)}."
            raise TermweaveError(message, "Correct $RAY_ADDRESS." if address else "") from error
        try:
            data.DataContext.get_current().enable_progress_bars = False
            logging.getLogger("ray.data").setLevel(logging.ERROR)
            cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
            rows_of_files = data.from_items([{"file": file} for file in files], override_num_blocks=len(files))
            encoded = rows_of_files.map_batches(
                ShardEncoder,
                fn_constructor_args=(ShardStore(encoder.folder).everywhere, encoder.weights, encoder.dense),
                batch_size=1,
                compute=data.ActorPoolStrategy(size=min(cores, len(files))),
                num_cpus=1,
            )
            for row in encoded.iter_rows():
                if row["message"]:
                    raise TermweaveError(row["message"], row["hint"])
                yield row["texts"]
        except ray.exceptions.RayError as error:
            hint = "Run the same command again: it does what is missing."
            raise TermweaveError(f"The cluster failed: {first_line(error)}.", hint) from error
        finally:
            ray.shutdown()
