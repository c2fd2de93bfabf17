"""What a search's filters do: whom they let pass, and whether there is anything to filter by."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from termweave.engine import EngineResponseError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from termweave.engine import Engine

_BOUNDS = ("gt", "gte", "lt", "lte", "from", "to")
#: A number or a day before its year; years and dates in ISO 8601 stand in the order of texts, too.
_UNORDERED = re.compile(r"(?!\d{4}$)-?\d+(\.\d+)?|\d{1,2}([./-])\d{1,2}\2\d{2,4}")
#: Clauses whose keys are names of fields.
_OF_A_FIELD = frozenset({"term", "terms", "range", "prefix", "wildcard", "regexp", "fuzzy", "match", "match_phrase"})


def passes(engine: Engine, index: str, document: str, where: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a document passes all filters.

    Args:
        engine: Where the index is.
        index: The concrete index.
        document: Source id.
        where: Filters of the query DSL.
    """
    body = {"query": {"bool": {"filter": [{"term": {"id": document}}, *where]}}}
    return bool(engine.request("POST", f"/{index}/_count", body=body)["count"])


def missing(engine: Engine, index: str, where: Sequence[Mapping[str, Any]]) -> list[str]:
    """The fields that filters look at and that no document has, in one request.

    Only clauses that are about one field (term, terms, range ...) are looked at.
    """
    names = list(dict.fromkeys(name for clause in where for name in _fields(clause)))
    if not names:
        return []
    asked = {str(number): {"exists": {"field": name}} for number, name in enumerate(names)}
    body = {"size": 0, "aggs": {"with": {"filters": {"filters": asked}}}}
    try:
        buckets = engine.request("POST", f"/{index}/_search", body=body)["aggregations"]["with"]["buckets"]
    except EngineResponseError:  # the search itself was answered: a remark that cannot be had is none
        return []
    return [name for number, name in enumerate(names) if not buckets[str(number)]["doc_count"]]


def compared_as_texts(where: Any) -> list[str]:
    """The entries of the metadata of which filters ask a range of numbers or dates: the engine has them as texts, 10 before 9."""
    if isinstance(where, list | tuple):
        return list(dict.fromkeys(name for each in where for name in compared_as_texts(each)))
    if not isinstance(where, dict):
        return []
    said = where.get("range")
    ranges = said.items() if isinstance(said, dict) else ()
    return [
        name
        for name, bounds in ranges
        if name.startswith("metadata.") and any(_UNORDERED.fullmatch(str(bounds.get(each))) for each in _BOUNDS)
    ] + compared_as_texts(list(where.values()))


def _fields(clause: Mapping[str, Any]) -> list[str]:
    return [
        name
        for kind, said in clause.items()
        if kind in _OF_A_FIELD and isinstance(said, dict)
        for name in said
        if name not in {"boost", "_name"}
    ]
