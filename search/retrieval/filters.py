"""What a search's filters do: whom they let pass, and whether there is anything to filter by."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import orjson

from termweave.engine import EngineResponseError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from termweave.engine import Engine
    from termweave.errors import EngineError

_BOUNDS = ("gt", "gte", "lt", "lte", "from", "to")
#: A number or a day before its year; years and dates in ISO 8601 stand in the order of texts, too.
_UNORDERED = re.compile(r"(?!\d{4}$)-?\d+(\.\d+)?|\d{1,2}([./-])\d{1,2}\2\d{2,4}")
#: Clauses whose keys are names of fields.
_OF_A_FIELD = frozenset({"term", "terms", "range", "prefix", "wildcard", "regexp", "fuzzy", "match", "match_phrase"})
#: Documents whose values of a field are looked at, and how many of those are named.
_SAMPLE, _SHOWN = 20, 3


@dataclass(frozen=True)
class Unmet:
    """A value that a filter wants and no document has.

    Attributes:
        field: Where.
        value: It.
        others: Some that documents do have there, as filters compare them.
    """

    field: str
    value: str
    others: tuple[str, ...]


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


def advise(error: EngineError, where: Sequence[Mapping[str, Any]]) -> None:
    """Say of an error of a search what to do, where it may be that the engine does not take a filter."""
    if where and not error.hint:
        said = "Where that is about the filter, mend it: it is a clause of OpenSearch's query DSL"
        error.hint = f'{said}, {{"term": {{FIELD: VALUE}}}} for one.'


def unmet(engine: Engine, index: str, where: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[Unmet]]:
    """What filters look at and no document has, in one request.

    Only clauses that are about one field (term, terms, range ...) are looked at, and of values those of "term" clauses on metadata.

    Returns:
        The fields that no document has; the values that no document has in a field that there is.
    """
    names = list(dict.fromkeys(name for clause in where for name in _fields(clause)))
    if not names:
        return [], []
    terms = [(name, value) for clause in where for name, value in _terms(clause)]
    sample = {"top_hits": {"size": _SAMPLE, "_source": [name for name, _ in terms]}}
    aggregations = {
        **{f"field {at}": {"filter": {"exists": {"field": name}}, "aggs": {"sample": sample}} for at, name in enumerate(names)},
        **{f"term {at}": {"filter": {"term": {name: value}}} for at, (name, value) in enumerate(terms)},
    }
    try:
        found = engine.request("POST", f"/{index}/_search", body={"size": 0, "aggs": aggregations})["aggregations"]
    except EngineResponseError:  # the search itself was answered: a remark that cannot be had is none
        return [], []
    has = {name: found[f"field {at}"] for at, name in enumerate(names)}
    missing = [name for name in names if not has[name]["doc_count"]]
    strange = []
    for at, (name, value) in enumerate(terms):
        if name not in missing and not found[f"term {at}"]["doc_count"]:
            others = dict.fromkeys(
                other for hit in has[name]["sample"]["hits"]["hits"] for other in _values(hit["_source"], name)
            )
            strange.append(Unmet(name, _text(value), tuple(islice(others, _SHOWN))))
    return missing, strange


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


def _terms(clause: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The fields of the metadata that a clause wants to have one value, and which."""
    said = clause.get("term")
    for name, value in said.items() if isinstance(said, dict) else ():
        if name.startswith("metadata."):
            yield name, value["value"] if isinstance(value, dict) else value


def _values(stored: Any, name: str, path: str = "") -> Iterator[str]:
    """The values of a field in a `_source`, as the engine compares them; those of a list one by one."""
    if isinstance(stored, dict):
        for key, value in stored.items():
            yield from _values(value, name, f"{path}.{key}" if path else key)
    elif isinstance(stored, list):
        for value in stored:
            yield from _values(value, name, path)
    elif path == name and stored is not None:
        yield _text(stored)


def _text(value: Any) -> str:
    """A value as the engine compares it."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()
