"""The folder of shards: Parquet files on local disk or at any fsspec URL, each written under a temporary name and renamed when it is whole.

A row is a document or passage with its encoding. Each row has a digest of its text, its term weights and its vector, so that an encoding which
was altered, or belongs to another text, is refused.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from termweave.catalog.layout import source_digest
from termweave.errors import InputError, TermweaveError, UsageError
from termweave.records import Document, Encoding, Passage, TermWeights
from termweave.support import file_locks, private_files
from termweave.support.extras import install
from termweave.support.messages import first_line, without_password

#: The file that makes a folder a folder of shards.
MANIFEST = "termweave-shards.json"
#: The file by which a command keeps others from writing to a folder, and the temporary names of files.
_LOCK = ".lock"
_SCRATCH = re.compile(r"\..+\.[0-9a-f]{12}")
#: Most bytes of the texts and encodings that are read at once. A block of a corpus has a few megabytes.
_MOST = 1 << 30
#: The beginning of an fsspec URL: file systems may stand before each other.
_URL = re.compile(r"(?:[a-z0-9+.-]+::)*(?P<scheme>[a-z][a-z0-9+.-]*)://", re.IGNORECASE)


def is_url(spec: str) -> bool:
    """Whether a folder is named by an fsspec URL such as ``s3://bucket/folder`` or ``simplecache::s3://bucket/folder``.

    An http(s) address is that of a file or an index, and ``ubi:https://...`` is the name of another source.
    """
    url = _URL.match(spec)
    return url is not None and url["scheme"].lower() not in {"http", "https"}


def holds_shards(spec: str) -> bool:
    """Whether there is a folder of shards under this path or URL."""
    if not is_url(spec):
        return (Path(spec) / MANIFEST).is_file()
    return MANIFEST in ShardStore(spec).names()


class ShardStore:
    """A folder of shards.

    Args:
        spec: Path, or fsspec URL.

    Attributes:
        shown: The folder as messages name it, without a password.
        everywhere: The URL, or the absolute path: a process that works in another folder opens the same store by it.

    Raises:
        UsageError: A package is missing, or the URL has a scheme that no installed file system serves.
    """

    def __init__(self, spec: str) -> None:
        self.shown = without_password(spec)
        try:
            import fsspec  # noqa: PLC0415 - only shards need it
            import pyarrow.parquet  # noqa: F401, PLC0415 - checked before any work begins
        except ImportError as error:
            message = f"Shards are Parquet files, and {(error.name or 'pyarrow').partition('.')[0]} is not installed."
            raise UsageError(message, f"Run `{install('shards')}`.") from error
        try:
            if _URL.match(spec):
                self._files, self._root = fsspec.core.url_to_fs(spec)
                self._local, self.everywhere = None, spec
            else:  # fsspec would take "::" in a path for a chain of file systems
                self._local = Path(spec).absolute()
                self._files, self._root = fsspec.filesystem("file"), self._local.as_posix()
                self.everywhere = str(self._local)
        except Exception as error:
            reason = first_line(error) if self.shown == spec or isinstance(error, ImportError) else type(error).__name__
            message = f"{self.shown} cannot be opened: {reason}."
            hint = "Name a folder that this host can reach, and install the package of its file system."
            raise UsageError(message, hint) from error  # an error may quote a part of the password
        self._root = self._root.rstrip("/")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock a local folder while a command writes to it, and remove half-written files: those that a killed command left, and at the end those of this one.

        Raises:
            UsageError: Another command writes to the folder.
        """
        with ExitStack() as locks:
            if self._local:
                with self._written("the folder"):
                    self._local.mkdir(mode=0o700, parents=True, exist_ok=True)
                try:
                    locks.enter_context(file_locks.noted(self._local / _LOCK, f"process {os.getpid()}"))
                except file_locks.Held as other:
                    hint = "Wait until it has ended."
                    raise UsageError(f"Another command encodes to {self.shown} ({other.note}).", hint) from None
            locks.callback(self._remove_scratch)
            self._remove_scratch()
            yield

    def names(self) -> set[str]:
        """Return the names of all files in the folder."""
        with self._readable("the folder"):
            self._files.invalidate_cache()  # another host may have written since
            if not self._files.isdir(self._root):
                return set()
            return {path.rpartition("/")[2] for path in self._files.ls(self._root, detail=False)}

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""
        with self._readable(name):
            return int(self._files.size(self._path(name)) or 0)

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; one that is not there, or cannot be removed, does no harm."""
        for name in names:
            with suppress(Exception):
                self._files.rm_file(self._path(name))

    def read(self, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            InputError: The file is missing or cannot be read.
        """
        with self.reading(name) as stream:
            return bytes(stream.read())

    @contextmanager
    def reading(self, name: str) -> Iterator[Any]:
        """Open a file for reading.

        Raises:
            InputError: The file is missing or damaged.
        """
        with self._readable(name), self._files.open(self._path(name), "rb") as stream:
            yield stream

    def write(self, name: str, content: bytes) -> None:
        """Write a file as a whole.

        Raises:
            TermweaveError: The file cannot be written.
        """
        with self.writing(name) as stream:
            stream.write(content)

    @contextmanager
    def writing(self, name: str) -> Iterator[Any]:
        """Open a file for writing under a temporary name; the file gets its own name when the body has ended without an error.

        Raises:
            TermweaveError: The file cannot be written.
        """
        scratch = f".{name}.{secrets.token_hex(6)}"
        with ExitStack() as failed:
            failed.callback(self.remove, [scratch])
            with self._written(name):
                self._files.makedirs(self._root, exist_ok=True)
                path, local = self._path(scratch), self._local
                stream = private_files.open_private(local / scratch, "wb") if local else self._files.open(path, "wb")
            with self._written(name, OSError), stream:  # other errors are those of the body
                yield stream
            with self._written(name):
                self._files.mv(path, self._path(name))
            failed.pop_all()

    @contextmanager
    def writing_rows(self, name: str, schema: Any) -> Iterator[Any]:
        """Open a Parquet file for writing, whose pages have checksums. It has no statistics of columns, which would repeat texts in the footer.

        Raises:
            TermweaveError: The file cannot be written.
        """
        import pyarrow.parquet as pq  # noqa: PLC0415

        options = {"compression": "zstd", "write_page_checksum": True, "write_statistics": False}
        with self.writing(name) as stream, pq.ParquetWriter(stream, schema, **options) as file:
            yield file

    def tables(self, name: str, schema: Any) -> Iterator[Any]:
        """Yield the row groups of a Parquet file, as Arrow tables.

        Raises:
            InputError: The file is missing or damaged, or has other columns.
        """
        import pyarrow.parquet as pq  # noqa: PLC0415

        with self.reading(name) as stream:
            file = pq.ParquetFile(stream, page_checksum_verification=True)
            if not file.schema_arrow.equals(schema):
                raise self._damaged(name, "it has other columns than a shard of this folder")
            for group in range(file.num_row_groups):
                if file.metadata.row_group(group).total_byte_size > _MOST:
                    raise self._damaged(name, "a block of it is larger than any that termweave writes")
                yield file.read_row_group(group, use_threads=False)

    def encoded_documents(self, name: str, schema: Any, key: bytes) -> Iterator[list[Document]]:
        """Yield the documents of each row group of a shard, with their encodings.

        Raises:
            InputError: The file is missing or damaged, or a text or an encoding is not what was written.
        """
        for table in self.tables(name, schema):
            try:
                documents = documents_of(table)
                encodings = _encodings(table, documents)
                digests = [_digest(*pair, key) for pair in zip(documents, encodings, strict=True)]
            except (ValueError, TypeError, AttributeError) as error:  # a field that is empty, or no JSON
                raise self._damaged(name, f"a field is empty or is not JSON ({first_line(error)})") from error
            for document, digest, stored in zip(documents, digests, table.column("digest").to_pylist(), strict=True):
                if digest != stored:
                    raise self._damaged(name, f"{document.id!r} or its encoding is not what was encoded for this folder")
            yield [replace(document, encoding=encoding) for document, encoding in zip(documents, encodings, strict=True)]

    def _damaged(self, name: str, reason: str) -> InputError:
        """Return the error for a damaged file."""
        hint = "Remove that file and run 'termweave encode' again: it writes what is missing."
        return InputError(f"{name} in {self.shown} is damaged: {reason}.", hint)

    def _remove_scratch(self) -> None:
        self.remove(name for name in self.names() if _SCRATCH.fullmatch(name))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextmanager
    def _written(self, name: str, errors: type[Exception] = Exception) -> Iterator[None]:
        try:
            yield
        except errors as error:
            message = f"{name} cannot be written to {self.shown}: {getattr(error, 'strerror', '') or first_line(error)}."
            hint = "Free some space or check the permissions of that folder, then run the command again: it resumes."
            raise TermweaveError(message, hint) from error

    @contextmanager
    def _readable(self, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            hint = "Run 'termweave encode' again: it writes what is missing."
            raise InputError(f"{self.shown} has no {name}.", hint) from error
        except TermweaveError:
            raise
        except Exception as error:
            hint = "If it is damaged, remove it and run 'termweave encode' again: it writes what is missing."
            raise InputError(f"{name} in {self.shown} cannot be read: {first_line(error)}.", hint) from error


def text_columns() -> Any:
    """Return the Arrow schema of a file of texts without encodings."""
    import pyarrow as pa  # noqa: PLC0415

    return pa.schema([
        ("id", pa.string()), ("line", pa.int64()), ("title", pa.string()), ("text", pa.string()), ("metadata", pa.string()),
        ("parent", pa.string()), ("number", pa.int32()), ("start", pa.int64()), ("end", pa.int64()),
    ])  # fmt: skip


def columns(dimension: int | None) -> Any:
    """Return the Arrow schema of a shard: texts with their encodings.

    Args:
        dimension: Length of the vectors; None: there is no dense model.
    """
    import pyarrow as pa  # noqa: PLC0415

    vector = pa.list_(pa.float32(), dimension) if dimension else pa.null()
    more = [("terms", pa.list_(pa.string())), ("weights", pa.list_(pa.float32())), ("vector", vector), ("digest", pa.int64())]
    return pa.schema([*text_columns(), *pa.schema(more)])


def texts_table(documents: Sequence[Document]) -> Any:
    """Return documents, without encodings, as an Arrow table."""
    import pyarrow as pa  # noqa: PLC0415

    rows = []
    for each in documents:
        row = {"id": each.id, "line": each.line, "title": each.title, "text": each.text}
        row["metadata"] = orjson.dumps(dict(each.metadata)).decode()
        rows.append(row | asdict(each.passage) if each.passage else row)
    return pa.Table.from_pylist(rows, text_columns())


def encoded_table(texts: Any, encodings: Sequence[Encoding], key: bytes, schema: Any) -> Any:
    """Return an Arrow table of texts with their encodings.

    Args:
        texts: The table of the texts.
        encodings: One encoding for each text.
        key: Key of the digests (`ShardManifest.key`).
        schema: The columns of the shard.
    """
    import pyarrow as pa  # noqa: PLC0415

    weights = [encoding.weights for encoding in encodings]
    pairs = zip(documents_of(texts), encodings, strict=True)
    added = {
        "terms": [None if each is None else each.terms for each in weights],
        "weights": [None if each is None else each.weights for each in weights],
        "vector": [encoding.vector for encoding in encodings],
        "digest": [_digest(document, encoding, key) for document, encoding in pairs],
    }
    arrays = [pa.array(values, schema.field(name).type) for name, values in added.items()]
    return pa.table([*texts.columns, *arrays], schema)


def documents_of(table: Any) -> list[Document]:
    """Return the documents of an Arrow table, without their encodings."""
    documents = []
    for row in table.select(text_columns().names).to_pylist():
        part = None if row["parent"] is None else Passage(row["parent"], row["number"], row["start"], row["end"])
        documents.append(Document(row["id"], row["text"], row["title"], orjson.loads(row["metadata"]), row["line"], part))
    return documents


def _encodings(table: Any, documents: Sequence[Document]) -> list[Encoding]:
    """Return the encodings of a row group, without making a Python object for each number.

    Numbers leave Arrow by DLPack: its `to_numpy` imports pandas, which takes 40 MB.
    """
    count = len(documents)
    terms, impacts, vector = (table.column(name).combine_chunks() for name in ("terms", "weights", "vector"))
    weights: list[TermWeights | None] = [None] * count
    if count and terms.null_count < count:
        names, numbers = terms.flatten().to_pylist(), np.from_dlpack(impacts.flatten()).astype(np.float32, copy=False)
        ends = np.from_dlpack(terms.offsets)
        weights = [TermWeights(tuple(names[start:end]), numbers[start:end]) for start, end in pairwise((ends - ends[0]).tolist())]
    vectors: Any = [None] * count
    if count and vector.null_count < count:
        vectors = np.from_dlpack(vector.flatten()).reshape(count, -1)
    return [Encoding(each.content, *parts) for each, *parts in zip(documents, weights, vectors, strict=True)]


def _digest(document: Document, encoding: Encoding, key: bytes) -> int:
    """Return the 64-bit digest of a text and its encoding, under the key of a shard."""
    hashed = blake2b(source_digest(document).to_bytes(8, "little", signed=True), digest_size=8, key=key)
    if encoding.weights is not None:
        hashed.update("\n".join((str(len(encoding.weights)), *encoding.weights.terms)).encode())
        hashed.update(encoding.weights.weights.tobytes())
    if encoding.vector is not None:
        hashed.update(encoding.vector.tobytes())
    return int.from_bytes(hashed.digest(), "little", signed=True)
