"""Queries without judgements: a file of them, for `search --queries`.

Recognised by content: JSON lines as in BEIR's ``queries.jsonl``, or lines of id, tab, text (a header is optional). A BEIR folder
stands for its queries.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from termweave.corpora import files
from termweave.corpora.beir import QUERIES, QUERY_ID_KEYS, QUERY_TEXT_KEYS, query_of
from termweave.corpora.fields import BadLine, text_line
from termweave.errors import InputError, UsageError
from termweave.records import Query

if TYPE_CHECKING:
    from collections.abc import Iterator

_TABBED = "A line is: query id, tab, text; or one JSON object with _id and text."
_HEADER_IDS = {*QUERY_ID_KEYS, "query-id"}


def read(spec: str) -> list[Query]:
    """All queries of a file, in its order.

    Args:
        spec: A path, plain or packed, a BEIR folder, or ``-`` for standard input.

    Raises:
        UsageError: There is no such file.
        InputError: A line is no query, or an id stands there twice; the line is named.
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
        raise UsageError(f"There is no file of queries {str(path)!r}.", _TABBED)
    return _checked(path, str(path))


def _checked(path: Path, name: str) -> list[Query]:
    queries: list[Query] = []
    seen: dict[str, int] = {}
    for number, query in _lines(path, name):
        if (before := seen.setdefault(query.id, number)) != number:
            raise BadLine(f"the id {query.id!r} stands on line {before} already", "Give every query its own id.").at(name, number)
        queries.append(query)
    if not queries:
        raise InputError(f"{name} holds no query.", _TABBED)
    return queries


def _lines(path: Path, name: str) -> Iterator[tuple[int, Query]]:
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
    identity, tab, query = text_line(line, _TABBED).partition("\t")
    if not tab or not identity.strip():
        raise BadLine("no tab between an id and a text, or no text behind it", _TABBED)
    return Query(identity.strip(), query.strip())
