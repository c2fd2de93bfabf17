"""Read Parquet files: one document per row, streamed. Needs pyarrow (`pip install 'termweave[parquet]'`).

Values become JSON values: dates and times ISO 8601 (to the microsecond, those with a time zone in UTC), decimals their digits, maps
objects, NaN and infinities null. A binary column is read as text if it is the id, the title or the text, because old programs do not
mark strings. Other binary columns are left out: images do not belong into an index.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from termweave.catalog.source_fields import ID_KEYS, TEXT_KEYS, TITLE_KEY
from termweave.corpora.file_source import FileSource
from termweave.corpora.formats import lines
from termweave.corpora.formats.compression import decompressed
from termweave.corpora.formats.fields import BadLine, Mapper, attempted, described, json_value, too_long
from termweave.errors import InputError, UsageError
from termweave.support.extras import needed
from termweave.support.messages import first_line

if TYPE_CHECKING:
    from termweave.corpora.sources import Progress, Reading
    from termweave.records import Document

_MAGIC = b"PAR1"
#: What pyarrow raises for a damaged file beside its own exceptions: RuntimeError where its C++ throws, the last one for the name of a column.
_DAMAGED = (OSError, RuntimeError, UnicodeDecodeError)
#: Number of rows that are Python objects at the same time.
_ROWS = 256


class Parquet(FileSource):
    """A Parquet file: a `Source`, and the reader that recognises it."""

    LABEL: ClassVar[str] = "a Parquet file"
    MAPPED: ClassVar[bool] = True
    SEEKS: ClassVar[bool] = True
    KIND: ClassVar[str] = "parquet/1"
    ENTRY = "row"

    def __init__(self, path: Path, reading: Reading | None = None) -> None:
        super().__init__(path, reading)
        needed("pyarrow.parquet", "parquet", f"{self.shown} is a Parquet file, and pyarrow")
        self._names: list[str] = self._schema.names
        fields, names, columns = self.reading.fields, self._names, f"columns: {', '.join(map(repr, self._names))}."
        if twice := {name for name in names if names.count(name) > 1}:
            raise UsageError(f"{self.shown} has two columns called {min(twice)!r}.", "Rename one of them.")
        if absent := [name for name in fields.named() if name not in names]:
            raise UsageError(f"{self.shown} has no column {absent[0]!r}.", f"C{columns[1:]}")
        if not fields.text and not {*TEXT_KEYS, TITLE_KEY, fields.title} & {*names}:
            raise UsageError(f"No column of {self.shown} has a usual name for the text.", f"Name it with --text-field; {columns}")

    @classmethod
    def recognises(cls, spec: str) -> bool:
        """Whether a file begins with Parquet's magic number, compressed or not."""
        path = Path(spec)
        if not path.is_file():
            return False
        with decompressed(path) as stream:
            return stream.peek(len(_MAGIC))[: len(_MAGIC)] == _MAGIC

    @property
    def remarks(self) -> list[str]:
        """Sentences about which columns are read as what, and about binary columns that are left out."""
        columns = [name for name in self._names if name not in self._binary]
        remarks = [f"{described(columns, self.reading.fields, self.ENTRY)}."]
        if self._binary:
            names = ", ".join(map(repr, sorted(self._binary)))
            remarks.append(f"binary columns are left out of the metadata ({names}); convert columns with text to strings.")
        return [f"{self.shown}: {remark}" for remark in remarks]

    def entries(self, progress: Progress | None) -> Iterator[tuple[int, Document | BadLine]]:
        """Read the rows in the file's order."""
        import pyarrow as pa  # noqa: PLC0415

        mapper, number = Mapper(self.reading.fields), 0
        columns = [name for name in self._names if name not in self._binary]
        try:
            with self._open() as table:
                total = table.metadata.num_rows
                for group in range(table.num_row_groups):  # one by one: all before a damaged group are read
                    for batch in table.iter_batches(_ROWS, row_groups=[group], columns=columns, use_threads=False):
                        for row in _rows(batch.cast(_readable(batch.schema), safe=False)):
                            number += 1
                            yield number, row if isinstance(row, BadLine) else attempted(_document, mapper, row, number)
                        if progress:  # bytes on disk, as if all rows had as many
                            progress(self.size * number // total)
        except (pa.ArrowException, *_DAMAGED) as error:
            message = f"{self.shown} is damaged after row {number:,}: {first_line(error)}."
            raise InputError(message, "Write or download the file again.") from error
        if progress:
            progress(self.size)
        mapper.finish()

    def _open(self) -> Any:
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.parquet as pq  # noqa: PLC0415

        try:
            # A row group can have gigabytes: with these options its pages are read one by one, and none in advance.
            table = pq.ParquetFile(self.path, buffer_size=1 << 20, pre_buffer=False)
            table.schema_arrow.names  # noqa: B018 - decodes the names
        except (pa.ArrowException, *_DAMAGED) as error:
            message = f"{self.shown} is damaged or cut short: {first_line(error)}."
            raise InputError(message, "Write or download the file again.") from error
        return table

    @cached_property
    def _schema(self) -> Any:
        with self._open() as table:
            return table.schema_arrow

    @cached_property
    def _binary(self) -> set[str]:
        """Names of columns that contain bytes and are not id, title or text."""
        fields = self.reading.fields
        mapped = {fields.title or TITLE_KEY, *(fields.text or TEXT_KEYS), *((fields.id,) if fields.id else ID_KEYS)}
        return {field.name for field in self._schema if field.name not in mapped and _holds_bytes(field.type)}


def _readable(schema: Any) -> Any:
    """Return the schema with types of times that Python can represent on every host.

    Times are to the microsecond; times with a zone become UTC, because then their strings compare as the times do.
    """
    import pyarrow as pa  # noqa: PLC0415

    for number, field in enumerate(schema):
        kind = field.type
        if pa.types.is_timestamp(kind):
            schema = schema.set(number, field.with_type(pa.timestamp("us", kind.tz and "UTC")))
        elif pa.types.is_duration(kind):
            schema = schema.set(number, field.with_type(pa.duration("us")))
        elif pa.types.is_time64(kind):
            schema = schema.set(number, field.with_type(pa.time64("us")))
    return schema


def _rows(batch: Any) -> Iterator[dict[str, Any] | BadLine]:
    """Convert the rows of a batch to Python objects; in place of a row that cannot be converted, the reason is given."""
    try:
        yield from batch.to_pylist(maps_as_pydicts="lossy")
    except (ValueError, OverflowError):  # raised before the first row: the list is made as a whole
        for number in range(batch.num_rows):
            try:
                (row,) = batch.slice(number, 1).to_pylist(maps_as_pydicts="lossy")
            except UnicodeDecodeError as wrong:
                yield BadLine(f"byte 0x{wrong.object[wrong.start]:02x} in a string is not UTF-8")
            except (ValueError, OverflowError) as error:  # dates beyond the year 9999
                yield BadLine(first_line(error))
            else:
                yield row


def _document(mapper: Mapper, row: dict[str, Any], number: int) -> Document:
    document = mapper.document({name: json_value(value) for name, value in row.items()}, number)
    if len(document.text) > lines.MAX_LINE:
        raise too_long()
    return document


def _holds_bytes(kind: Any) -> bool:
    """Whether values of an Arrow type contain bytes."""
    from pyarrow import types  # noqa: PLC0415

    if types.is_dictionary(kind):
        return _holds_bytes(kind.value_type)
    tests = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view)
    parts = (kind.field(number).type for number in range(kind.num_fields))
    return any(is_bytes(kind) for is_bytes in tests) or any(map(_holds_bytes, parts))
