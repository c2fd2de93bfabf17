"""Read files of queries without judgements, for `search --queries`.

The format is recognised by content: JSON lines as in BEIR's ``queries.jsonl``, or lines of id, tab, text with an optional header. For a
BEIR folder its ``queries.jsonl`` is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from termweave.corpora.formats import lines as files
from termweave.corpora.formats.fields import BadLine, checked_id, text_line
from termweave.corpora.readers.beir import QUERIES, QUERY_ID_KEYS, QUERY_TEXT_KEYS, query_of
from termweave.errors import InputError, UsageError
from termweave.records import Query

if TYPE_CHECKING:
    from collections.abc import Iterator

_TABBED = "A line is: query id, tab, text; or one JSON object with _id and text."
_HEADER_IDS = {*QUERY_ID_KEYS, "query-id"}


def read(spec: str) -> list[Query]:
    """Read all queries of a file, in its order.

    Args:
        spec: Path of a file, compressed or not, or of a BEIR folder; ``-`` for standard input.

    Raises:
        UsageError: The file does not exist.
        InputError: A line is not a query, or repeats an id. The message names the line.
    """
    if (copy := files.spooled(spec)) is not None:
        try:
            return _checked(copy, "standard input" if spec == "-" else spec)
        finally:
            files.discard(copy)
    path = Path(spec)
    if path.is_dir():
        path = files.plain_or_packed(path, QUERIES) or path / QUERIES
    if not path.is_file():
        raise UsageError(f"The file of queries {str(path)!r} does not exist.", _TABBED)
    return _checked(path, str(path))


def _checked(path: Path, name: str) -> list[Query]:
    """The queries of a file, whose ids must be unique."""
    queries: list[Query] = []
    seen: dict[str, int] = {}
    for number, query in _lines(path, name):
        if (before := seen.setdefault(query.id, number)) != number:
            raise BadLine(f"the id {query.id!r} is already on line {before}", "Give every query its own id.").at(name, number)
        queries.append(query)
    if not queries:
        raise InputError(f"{name} contains no query.", _TABBED)
    return queries


def _lines(path: Path, name: str) -> Iterator[tuple[int, Query]]:
    """The queries of a file with their line numbers, without a header line."""
    tabbed: bool | None = None
    for number, line in files.lines(path):
        first = tabbed is None
        if first:
            tabbed = not (line or b"").startswith((b"{", b"["))
        try:
            query = _tabbed(line) if tabbed else query_of(line)
        except BadLine as bad:
            raise bad.at(name, number, skips=False) from None
        if not (first and tabbed and query.id.lower() in _HEADER_IDS and query.text.lower() in QUERY_TEXT_KEYS):
            yield number, query


def _tabbed(line: bytes | None) -> Query:
    """The query on a line of id, tab, text."""
    identity, tab, query = text_line(line, _TABBED).partition("\t")
    if not tab or not identity.strip():
        raise BadLine("an id, a tab and a text are expected", _TABBED)
    return Query(checked_id(identity.strip()), query.strip())
