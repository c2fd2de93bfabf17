"""JSON lines: one object a line, plain or packed. Which key is what: see `termweave.corpora.fields`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import orjson

from termweave.corpora import files
from termweave.corpora.fields import BadLine, Mapper, not_utf8, too_long
from termweave.corpora.filesource import FileSource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from termweave.corpora.sources import Progress
    from termweave.records import Document


def parse(line: bytes | None) -> dict[str, Any]:
    """The object on a line.

    Raises:
        BadLine: There is none, and what is there instead.
    """
    if line is None:
        raise too_long()
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise _diagnosis(line, error) from None
    if not isinstance(found, dict):
        kinds = {list: "an array", str: "a string", bool: "true or false", int: "a number", float: "a number", type(None): "null"}
        advice = " (`jq -c '.[]'` puts each object on a line of its own)" if isinstance(found, list) else ""
        raise BadLine(f"{kinds[type(found)]} where an object should be{advice}")
    return found


def _diagnosis(line: bytes, error: orjson.JSONDecodeError) -> BadLine:
    """What is wrong with a line that orjson refused, in words that help to find it."""
    try:
        text = line.decode()
    except UnicodeDecodeError as wrong:
        return not_utf8(wrong)
    if "\0" in text:
        return BadLine(f"a NUL byte at column {text.index(chr(0)) + 1}")

    def not_json(literal: str) -> None:
        raise ValueError(literal)

    if text.replace(" ", "") in {"{", "[", "[{"}:
        values = "jq -c '.[]'" if "[" in text else "jq -c ."
        kind = "array" if "[" in text else "object"
        return BadLine(
            f"broken JSON: an {kind} that goes on over several lines (`{values}` puts each object on a line of its own)"
        )
    reason, column = error.msg, error.pos + 1
    try:
        json.loads(text, parse_constant=not_json)
        # The standard library reads what orjson refuses: half of a surrogate pair, and numbers beyond a double.
        if "surrogate" in reason:
            return BadLine(f"half of a surrogate pair (\\ud800 to \\udfff) at column {column} is no character")
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
        """A file that begins with a JSON object, or that would if it were UTF-8; an empty one is a corpus without documents."""
        path = Path(spec)
        if not path.is_file():
            return False
        start = files.head(path)
        # "[" and UTF-16 are recognised to be refused by name when they are read, not as something unknown.
        return start[:1] in {b"{", b"[", b""} or files.is_utf16(start)

    def entries(self, progress: Progress | None) -> Iterator[tuple[int, Document | BadLine]]:
        """The lines that hold something."""
        mapper = Mapper(self.reading.fields)
        for number, line in files.lines(self.path, progress):
            try:
                yield number, mapper.document(parse(line), number)
            except BadLine as bad:
                yield number, bad
        mapper.finish()
