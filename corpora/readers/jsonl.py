"""Read JSON lines: one object per line. `termweave.corpora.formats.fields` decides which key is what."""

from __future__ import annotations

import json
import re
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import orjson

from termweave.catalog.source_fields import Fields, take
from termweave.corpora.file_source import FileSource
from termweave.corpora.formats import exports
from termweave.corpora.formats import lines as files
from termweave.corpora.formats.fields import BadLine, Mapper, attempted, described, lacks_named, not_utf8, too_long

if TYPE_CHECKING:
    from collections.abc import Iterator

    from termweave.corpora.sources import Progress
    from termweave.records import Document


def parse(line: bytes | None) -> dict[str, Any]:
    """Parse the object on a line.

    Raises:
        BadLine: The line is not a JSON object; the reason says what it is.
    """
    if line is None:
        raise too_long()
    try:
        entry = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise _diagnosis(line, error) from None
    if not isinstance(entry, dict):
        kinds = {list: "an array", str: "a string", bool: "true or false", int: "a number", float: "a number", type(None): "null"}
        advice = " (`jq -c '.[]'` puts each object on a line of its own)" if isinstance(entry, list) else ""
        raise BadLine(f"{kinds[type(entry)]} where an object should be{advice}")
    return entry


def _diagnosis(line: bytes, error: orjson.JSONDecodeError) -> BadLine:
    """Say what is wrong with a line that orjson cannot parse."""
    try:
        text = line.decode()
    except UnicodeDecodeError as wrong:
        return not_utf8(wrong)
    if "\0" in text:
        return BadLine(f"a NUL byte at column {text.index(chr(0)) + 1}")

    def not_json(literal: str) -> None:
        raise ValueError(literal)

    if text.replace(" ", "") in {"{", "[", "[{"} or text.rstrip().endswith(("{", ",")):
        is_array = text.lstrip().startswith("[")
        values, kind = ("jq -c '.[]'", "array") if is_array else ("jq -c .", "object")
        return BadLine(f"broken JSON: an {kind} over several lines (`{values}` puts each object on a line of its own)")
    reason, column = error.msg, error.pos + 1
    try:
        json.loads(text, parse_constant=not_json)
        # The standard library accepts what orjson refuses: half of a surrogate pair, and numbers too large for a double.
        if "surrogate" in reason:
            return BadLine(f"half of a surrogate pair (\\ud800 to \\udfff) at column {column} is not a character")
    except json.JSONDecodeError as wrong:
        reason, column = f"{wrong.msg[:1].lower()}{wrong.msg[1:]}", wrong.pos + 1
    except ValueError as literal:
        reason = f"{literal} is not a JSON number"
    except RecursionError:
        reason = "nested too deeply"
    return BadLine(f"broken JSON at column {column}: {reason}")


class JsonLines(FileSource):
    """A file of documents as JSON lines: a `Source`, and the reader that recognises it."""

    LABEL: ClassVar[str] = "JSON lines"
    MAPPED: ClassVar[bool] = True
    KIND: ClassVar[str] = "jsonl/1"

    @classmethod
    def recognises(cls, spec: str) -> bool:
        """Whether a file begins with a JSON object. An empty file is a corpus without documents."""
        path = Path(spec)
        if not path.is_file():
            return False
        start = files.head(path)
        # Arrays and UTF-16 files are recognised, too: reading them ends with an error that names the problem.
        return start[:1] in {b"{", b"[", b""} or files.is_utf16(start)

    @property
    def kind(self) -> str:
        """What the fingerprint depends on besides the bytes."""
        return f"{super().kind} {self._export}" if self._export else super().kind

    @property
    def remarks(self) -> list[str]:
        """A sentence about which fields of the first document are read as what."""
        fields = self._fields
        _, entry = next(exports.documents(self._export, lambda: islice(self._parsed(), 2)), (0, BadLine("")))
        if isinstance(entry, BadLine):  # reading the documents says what is wrong
            return []
        names = [*entry, *(name for name in fields.named() if "." in name and take(dict(entry), name) is not None)]
        export = f"{self._export}; " if self._export else ""
        known = f"{self.shown}: {export}on its first {self.ENTRY}, {described(names, fields, self.ENTRY)}."
        return [] if lacks_named(names, fields) else [known]

    @cached_property
    def _export(self) -> str:
        """What the first line shows that the file is."""
        entry = next((entry for _, entry in self._parsed(whole=False)), None)
        return exports.export_of(entry) if isinstance(entry, dict) else ""

    @cached_property
    def _fields(self) -> Fields:
        """The fields that the user named, as the documents have them: ``_id`` for ``_id.$oid``, ``title`` for ``_source.title`` of a hit."""
        wrapped = r"\.\$(oid|uuid|date|number\w+)$" + (r"|^_source\." if self._export == exports.HITS else "")
        named = self.reading.fields
        id_, title, *text = (name and re.sub(wrapped, "", name) for name in (named.id, named.title, *named.text))
        return Fields(id_, title, tuple(filter(None, text)))

    def _parsed(self, progress: Progress | None = None, *, whole: bool = True) -> Iterator[tuple[int, dict[str, Any] | BadLine]]:
        """The objects on the lines that are not blank."""
        for number, line in files.lines(self.path, progress):
            try:
                entry = parse(line)
            except BadLine as bad:
                yield number, bad
            else:
                yield number, exports.plain(entry) if whole and line and b'"$' in line else entry

    def entries(self, progress: Progress | None) -> Iterator[tuple[int, Document | BadLine]]:
        """Read the lines that are not blank."""
        mapper = Mapper(self._fields)
        for number, entry in exports.documents(self._export, lambda: self._parsed(progress)):
            yield number, entry if isinstance(entry, BadLine) else attempted(mapper.document, entry, number)
        mapper.finish()
