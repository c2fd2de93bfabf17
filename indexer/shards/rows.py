"""Rows of shard files: documents or passages with their encodings, as Arrow tables and back."""

from __future__ import annotations

import io
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from termweave.errors import InputError
from termweave.indexer.ledger.entries import LedgerEntry
from termweave.records import Document, Encoding, Passage, TermWeights
from termweave.signals.layout import source_digest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from termweave.indexer.shards.store import ShardStore

#: The columns that hold a text without its encoding.
_TEXT = ("id", "line", "title", "text", "metadata", "parent", "number", "start", "end", "source_digest")
_ENCODING = ("terms", "weights", "vector")
#: The key of a file's mark.
_MARK = b"termweave"


@dataclass(frozen=True, slots=True)
class EncodedDocument(Document):
    """A document or passage with its encoding.

    Attributes:
        encoding: What the models made of it.
    """

    encoding: Encoding | None = None


def schema(dimension: int | None, mark: str) -> Any:
    """The columns of a shard.

    Args:
        dimension: Length of the vectors; None without a dense model.
        mark: What the file says of itself, so that another file is not taken for it (`manifest.mark`).
    """
    import pyarrow as pa  # noqa: PLC0415

    vector = pa.list_(pa.float32(), dimension) if dimension else pa.null()
    kinds = {
        "id": pa.string(), "line": pa.int64(), "title": pa.string(), "text": pa.string(), "metadata": pa.string(),
        "parent": pa.string(), "number": pa.int32(), "start": pa.int64(), "end": pa.int64(), "source_digest": pa.int64(),
        "terms": pa.list_(pa.string()), "weights": pa.list_(pa.float32()), "vector": vector,
    }  # fmt: skip
    return pa.schema(list(kinds.items()), metadata={_MARK: mark.encode()})


def entries_schema() -> Any:
    """The columns of a file of entries."""
    import pyarrow as pa  # noqa: PLC0415

    return pa.schema([("id", pa.string()), ("line", pa.int64()), ("source", pa.int64()), ("parent", pa.string())])


@contextmanager
def writer(stream: Any, columns: Any) -> Iterator[Any]:
    """A Parquet writer whose pages have checksums. Statistics, which nothing here asks for, would repeat texts in the footer."""
    import pyarrow.parquet as pq  # noqa: PLC0415

    with pq.ParquetWriter(stream, columns, compression="zstd", write_page_checksum=True, write_statistics=False) as made:
        yield made


def table(documents: Sequence[Document], encodings: Sequence[Encoding], columns: Any) -> Any:
    """Documents and their encodings as a table."""
    import pyarrow as pa  # noqa: PLC0415

    parts = [document.passage for document in documents]
    weights = [encoding.weights for encoding in encodings]
    vectors = [encoding.vector for encoding in encodings]
    values: dict[str, Any] = {
        "id": [document.id for document in documents],
        "line": [document.line for document in documents],
        "title": [document.title for document in documents],
        "text": [document.text for document in documents],
        "metadata": [orjson.dumps(dict(document.metadata)).decode() for document in documents],
        "parent": [part and part.parent for part in parts],
        "number": [part and part.number for part in parts],
        "start": [part and part.start for part in parts],
        "end": [part and part.end for part in parts],
        "source_digest": [source_digest(document) for document in documents],
        "terms": [None if each is None else each.terms for each in weights],
        "weights": [None if each is None else each.weights for each in weights],
        "vector": vectors,
    }
    return pa.table({name: pa.array(values[name], columns.field(name).type) for name in columns.names}, schema=columns)


def entries_table(entries: Sequence[LedgerEntry]) -> Any:
    """Entries of the ledger as a table."""
    import pyarrow as pa  # noqa: PLC0415

    rows = [(entry.id, entry.line, entry.source, entry.parent) for entry in entries]
    columns = entries_schema()
    return pa.table([pa.array([row[place] for row in rows], field.type) for place, field in enumerate(columns)], schema=columns)


class ShardFile:
    """A Parquet file of a store, read row group by row group.

    Many files are read in turns. A footer that pyarrow has read takes 11 KB for each row group, 40 MB for a million documents, so that it is kept
    packed between two row groups and read again for each: that is a few milliseconds.

    Args:
        store: The folder.
        name: The file.
        mark: What the file must say of itself; "": anything.
    """

    def __init__(self, store: ShardStore, name: str, mark: str = "") -> None:
        self._store, self._name, self._mark = store, name, mark.encode()

    def groups(self, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """The row groups as tables.

        Raises:
            InputError: The file is missing or damaged.
        """
        import pyarrow.parquet as pq  # noqa: PLC0415

        with self._store.reading(self._name) as stream:
            file = pq.ParquetFile(stream, page_checksum_verification=True)
            if self._mark and (file.schema_arrow.metadata or {}).get(_MARK) != self._mark:
                raise self._damaged("it is another shard, or one of another folder")
            if missing := [name for name in columns or () if name not in file.schema_arrow.names]:
                raise self._damaged(f"it has no column {missing[0]!r}")
            count, footer = file.num_row_groups, _packed(file.metadata)
            del file
            for number in range(count):
                yield _row_group(stream, footer, number, columns)

    def _damaged(self, how: str) -> InputError:
        return InputError(
            f"{self._name} in {self._store.shown} is damaged: {how}.",
            "Remove that file and run 'termweave encode' again: it writes what is missing.",
        )

    def entries(self) -> Iterator[list[LedgerEntry]]:
        """The entries of each row group."""
        for group in self.groups():
            yield [LedgerEntry(row["id"], row["line"], row["source"], row["parent"]) for row in group.to_pylist()]

    def documents(self, *, encoded: bool) -> Iterator[list[Document]]:
        """The documents of each row group, with their encodings if `encoded`; without, each is compared with its digest.

        Raises:
            InputError: The file is missing or damaged.
        """
        # Many shards are read in turns: `map` keeps no block of the shards that wait.
        yield from map(partial(self._documents, encoded=encoded), self.groups([*_TEXT, *(_ENCODING if encoded else ())]))

    def _documents(self, group: Any, *, encoded: bool) -> list[Document]:
        """The documents of a row group."""
        encodings = _encodings(group) if encoded else [None] * group.num_rows
        documents: list[Document] = []
        for row, encoding in zip(group.select(_TEXT).to_pylist(), encodings, strict=True):
            document = _document(row, encoding)
            if not encoded and source_digest(document) != row["source_digest"]:
                raise self._damaged(f"the text {row['id']!r} is another than was encoded")
            documents.append(document)
        return documents


def _packed(footer: Any) -> bytes:
    """A footer as a small file without rows, compressed."""
    whole = io.BytesIO()
    footer.write_metadata_file(whole)
    return zlib.compress(whole.getvalue(), 1)


def _row_group(stream: Any, footer: bytes, number: int, columns: Sequence[str] | None) -> Any:
    import pyarrow.parquet as pq  # noqa: PLC0415

    metadata = pq.read_metadata(io.BytesIO(zlib.decompress(footer)))
    return pq.ParquetFile(stream, metadata=metadata, page_checksum_verification=True).read_row_group(
        number, columns=columns, use_threads=False
    )


def in_order(parts: Sequence[Iterator[list[Any]]]) -> Iterator[list[Any]]:
    """Blocks of a corpus in its order: block number b comes from part b % len(parts); the first part that has ended is the end."""
    while True:
        for part in parts:
            block = next(part, None)
            if block is None:
                return
            yield block


def _document(row: dict[str, Any], encoding: Encoding | None) -> EncodedDocument:
    part = None if row["parent"] is None else Passage(row["parent"], row["number"], row["start"], row["end"])
    return EncodedDocument(row["id"], row["text"], row["title"], orjson.loads(row["metadata"]), row["line"], part, encoding)


def _encodings(group: Any) -> list[Encoding]:
    """The encodings of a row group, without Python objects for each number.

    Numbers leave Arrow by DLPack: its `to_numpy` imports pandas, which takes 40 MB.
    """
    count = group.num_rows
    terms, weights, vector = (group.column(name).combine_chunks() for name in _ENCODING)
    found: list[TermWeights | None] = [None] * count
    if count and terms.null_count < count:
        names = terms.flatten().to_pylist()
        impacts: NDArray[Any] = np.from_dlpack(weights.flatten())
        ends = np.from_dlpack(terms.offsets)
        found = [TermWeights(tuple(names[start:end]), impacts[start:end]) for start, end in pairwise((ends - ends[0]).tolist())]
    vectors: Any = [None] * count
    if count and vector.null_count < count:
        vectors = np.from_dlpack(vector.flatten()).reshape(count, -1)
    return [Encoding("", weight, row) for weight, row in zip(found, vectors, strict=True)]
