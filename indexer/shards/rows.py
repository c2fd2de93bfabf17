"""Rows of shards: documents or passages with their encodings, as Arrow tables and back.

Each row has a digest of its text, its term weights and its vector, so that an encoding which was altered, or belongs to another text, is
refused.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from termweave.catalog.layout import source_digest
from termweave.errors import InputError
from termweave.records import Document, Encoding, Passage, TermWeights
from termweave.support.messages import first_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from termweave.indexer.shards.store import ShardStore


#: Most bytes of the texts and encodings that are read at once. A block of a corpus has a few megabytes.
_MOST = 1 << 30


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


def writer(stream: Any, schema: Any) -> Any:
    """Open a Parquet writer whose pages have checksums. It writes no statistics of columns, which would repeat texts in the footer."""
    import pyarrow.parquet as pq  # noqa: PLC0415

    return pq.ParquetWriter(stream, schema, compression="zstd", write_page_checksum=True, write_statistics=False)


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


def tables(store: ShardStore, name: str, schema: Any) -> Iterator[Any]:
    """Yield the row groups of a Parquet file of a store, as Arrow tables.

    Raises:
        InputError: The file is missing or damaged, or has other columns.
    """
    import pyarrow.parquet as pq  # noqa: PLC0415

    with store.reading(name) as stream:
        file = pq.ParquetFile(stream, page_checksum_verification=True)
        if not file.schema_arrow.equals(schema):
            raise damaged(store, name, "it has other columns than a shard of this folder")
        for group in range(file.num_row_groups):
            if file.metadata.row_group(group).total_byte_size > _MOST:
                raise damaged(store, name, "a block of it is larger than any that termweave writes")
            yield file.read_row_group(group, use_threads=False)


def documents_of(table: Any) -> list[Document]:
    """Return the documents of an Arrow table, without their encodings."""
    documents = []
    for row in table.select(text_columns().names).to_pylist():
        part = None if row["parent"] is None else Passage(row["parent"], row["number"], row["start"], row["end"])
        documents.append(Document(row["id"], row["text"], row["title"], orjson.loads(row["metadata"]), row["line"], part))
    return documents


def encoded_documents(store: ShardStore, name: str, schema: Any, key: bytes) -> Iterator[list[Document]]:
    """Yield the documents of each row group of a shard, with their encodings.

    Raises:
        InputError: The file is missing or damaged, or a text or an encoding is not what was written.
    """
    for table in tables(store, name, schema):
        try:
            documents = documents_of(table)
            encodings = _encodings(table, documents)
            digests = [_digest(*pair, key) for pair in zip(documents, encodings, strict=True)]
        except (ValueError, TypeError, AttributeError) as error:  # a field that is empty, or no JSON
            raise damaged(store, name, f"a field is empty or is not JSON ({first_line(error)})") from error
        for document, digest, stored in zip(documents, digests, table.column("digest").to_pylist(), strict=True):
            if digest != stored:
                raise damaged(store, name, f"{document.id!r} or its encoding is not what was encoded for this folder")
        yield [replace(document, encoding=encoding) for document, encoding in zip(documents, encodings, strict=True)]


def damaged(store: ShardStore, name: str, reason: str) -> InputError:
    """Return the error for a damaged file of a store."""
    hint = "Remove that file and run 'termweave encode' again: it writes what is missing."
    return InputError(f"{name} in {store.shown} is damaged: {reason}.", hint)


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
