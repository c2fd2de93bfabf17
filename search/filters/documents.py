"""Ask the index about the filters of a search: which documents pass, and which of the filters' fields and values occur at all."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from termweave.catalog import typed_fields
from termweave.engine import EngineResponseError
from termweave.search.filters.clauses import any_of
from termweave.support.normal_form import normal

if TYPE_CHECKING:
    from termweave.catalog.layout import DocumentLayout
    from termweave.engine import Engine
    from termweave.search.opening import OpenGeneration

_BOUNDS = ("gt", "gte", "lt", "lte", "from", "to")
#: A number, or a date with the day first. As text these sort wrongly; years and ISO 8601 dates sort correctly, among others of their kind.
_UNORDERED = re.compile(r"(?!\d{4}$)-?\d+(\.\d+)?|\d{1,2}([./-])\d{1,2}\2\d{2,4}")
_TIME = re.compile(r"\d{4}(-\d\d){0,2}|now.*")
#: A year, and the first number that is probably a time in seconds since 1970.
_YEARS, _SECONDS = range(1971, 2101), 10**9
#: Query clauses whose keys are names of fields.
_FIELD_CLAUSES = frozenset({"term", "terms", "range", "prefix", "wildcard", "regexp", "fuzzy", "match", "match_phrase"})
#: Number of documents whose values of a field are read, and number of values that a remark shows.
_SAMPLE, _SHOWN = 20, 3


@dataclass(frozen=True)
class Unmet:
    """A value that a filter looks for and no document has.

    Attributes:
        field: Name of the field.
        value: The value that the filter looks for.
        others: Some values that documents have in this field, in the form in which filters compare them.
    """

    field: str
    value: str
    others: tuple[str, ...]


def documents_passing(
    engine: Engine, index: str, layout: DocumentLayout, documents: Sequence[str], where: Sequence[Mapping[str, Any]]
) -> tuple[str, ...]:
    """The ids of the documents that are in the index and pass all filters, each once, in the order given.

    Args:
        engine: The server.
        index: The concrete index.
        layout: Signals and fields of the index.
        documents: Ids of the documents in the source.
        where: Filters of the query DSL.
    """
    if not documents:
        return ()
    query = {"bool": {"filter": [layout.with_ids(documents), *where]}}
    if layout.application is None:  # any passage may pass
        body = {"size": 0, "query": query, "aggs": {"ids": {"terms": {"field": "id", "size": len(documents)}}}}
        passing = {bucket["key"] for bucket in engine.search(index, body)["aggregations"]["ids"]["buckets"]}
    else:
        body = {"size": len(documents), "query": query, "_source": False}
        passing = {hit["_id"] for hit in engine.search(index, body)["hits"]["hits"]}
    return tuple(dict.fromkeys(document for document in documents if document in passing))


def absent(generation: OpenGeneration, names: Sequence[str]) -> list[str]:
    """The names of the given stored fields that no document has. One request is sent; [] if the server refuses it."""
    if not names:
        return []
    aggregations = {str(at): {"filter": {"exists": {"field": name}}} for at, name in enumerate(names)}
    counts = _aggregated(generation, aggregations)
    return [name for at, name in enumerate(names) if counts and not counts[str(at)]["doc_count"]]


def unmet(generation: OpenGeneration, where: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[Unmet]]:
    """Find the fields and values of filters that no document has, with one request.

    Fields are taken from clauses on one field (term, terms, range ...), and values from "term" clauses and "terms" clauses with forms of one value.

    Returns:
        The fields that no document has, and the values that no document has in an existing field.
    """
    leaves = [leaf for clause in where for leaf in _leaves(clause)]
    names = list(dict.fromkeys(name for _, name, _ in leaves))
    if not names:
        return [], []
    terms = [(name, values) for kind, name, value in leaves if (values := _one_value(kind, name, value))]
    sample = {"top_hits": {"size": _SAMPLE, "_source": [name for name, _ in terms]}}
    aggregations = {
        **{f"field {at}": {"filter": {"exists": {"field": name}}, "aggs": {"sample": sample}} for at, name in enumerate(names)},
        **{f"term {at}": {"filter": any_of([{"term": {name: each}} for each in same])} for at, (name, same) in enumerate(terms)},
    }
    counts = _aggregated(generation, aggregations)
    if not counts:
        return [], []
    documents = {name: counts[f"field {at}"] for at, name in enumerate(names)}
    missing = [name for name in names if not documents[name]["doc_count"]]
    unmatched = []
    for at, (name, (value, *_)) in enumerate(terms):
        if name not in missing and not counts[f"term {at}"]["doc_count"]:
            hits = documents[name]["sample"]["hits"]["hits"]
            entries = (entry for hit in hits for entry in typed_fields.entries(hit["_source"]))
            others = dict.fromkeys(typed_fields.as_text(other) for field, other in entries if field == name)
            unmatched.append(Unmet(as_metadata(name), typed_fields.as_text(value), tuple(islice(others, _SHOWN))))
    return [as_metadata(name) for name in missing], unmatched


def passing(
    generation: OpenGeneration, alone: Sequence[Mapping[str, Any]], together: Sequence[Mapping[str, Any]]
) -> tuple[list[int], int] | None:
    """Count the documents that pass each filter of `alone`, and the documents that pass all of `together`; None: the server refused to count."""
    # A passage counts for its document: a filter on a document's id or metadata passes all its passages or none.
    documents = {"cardinality": {"field": "id", "precision_threshold": 40_000}}
    one = {"aggs": {"documents": documents}} if generation.layout.application is None else {}
    clauses = {**{str(at): clause for at, clause in enumerate(alone)}, "all": {"bool": {"filter": list(together)}}}
    counted = _aggregated(generation, {name: {"filter": clause, **one} for name, clause in clauses.items()})
    if not counted:
        return None
    counts = {name: each["documents"]["value"] if one else each["doc_count"] for name, each in counted.items()}
    return [counts[str(at)] for at in range(len(alone))], counts["all"]


def lists_of_objects(generation: OpenGeneration, where: Sequence[Mapping[str, Any]], paths: Sequence[str]) -> list[str]:
    """The paths at which a document that passes the filters has a list of several objects. Up to a hundred documents are read."""
    body = {"size": 100, "query": {"bool": {"filter": list(where)}}, "_source": list(paths), "track_total_hits": False}
    with suppress(EngineResponseError):
        sources = [hit["_source"] for hit in generation.engine.search(generation.index, body)["hits"]["hits"]]
        return [path for path in paths if any(_several(source, path.split(".")) for source in sources)]
    return []


def _several(value: Any, path: Sequence[str]) -> bool:
    """Whether a list with more than one object is at a path inside a value, or on the way to the path's end."""
    if isinstance(value, list):
        inner = [each for each in value if isinstance(each, dict)]
        return len(inner) > 1 or any(_several(each, path) for each in inner)
    return isinstance(value, dict) and bool(path) and _several(value.get(path[0]), path[1:])


def _aggregated(generation: OpenGeneration, aggregations: Mapping[str, Any]) -> dict[str, Any]:
    """The results of aggregations over all documents. {}: the server refused, and the remark that would use the results is left out."""
    body = {"size": 0, "aggs": aggregations}
    with suppress(EngineResponseError):
        counts: dict[str, Any] = generation.engine.search(generation.index, body)["aggregations"]
        return counts
    return {}


def compared_as_texts(where: Any, *, years: bool = False) -> list[str]:
    """The metadata entries that a range filter compares with a number or date, although the server compares them as text (10 before 9).

    Args:
        where: The clauses of the filters.
        years: Report comparisons with years and ISO 8601 dates, too. Texts sort these correctly, unless an entry mixes them with other values.
    """
    forms = [_UNORDERED, *([_TIME] if years else [])]
    texts = ((name, str(bound)) for name, bound in _ranges(where) if name.startswith("metadata."))
    return list(dict.fromkeys(name for name, bound in texts if any(form.fullmatch(bound) for form in forms)))


def times_as_numbers(generation: OpenGeneration, where: Any) -> list[str]:
    """The fields of whole numbers that a filter compares with a year, although they hold times in seconds since 1970. One request is sent."""
    names = list(dict.fromkeys(name for name, bound in _ranges(where) if name.startswith(typed_fields.FIELD) and bound in _YEARS))
    lowest = _aggregated(generation, {name: {"min": {"field": name}} for name in names}) if names else {}
    return [as_metadata(name) for name in names if lowest and (lowest[name]["value"] or 0) >= _SECONDS]


def _ranges(where: Any) -> Iterator[tuple[str, Any]]:
    """Yield the field and one bound of each range filter, at any depth of the clauses."""
    if isinstance(where, dict):
        clause = where.get("range")
        for name, bounds in clause.items() if isinstance(clause, dict) else ():
            yield from ((name, bounds[bound]) for bound in _BOUNDS if isinstance(bounds, dict) and bound in bounds)
    for each in where.values() if isinstance(where, dict) else where if isinstance(where, list | tuple) else ():
        yield from _ranges(each)


def as_metadata(name: str) -> str:
    """The name by which users know a field: a typed field is named as its metadata entry."""
    inner = name.removeprefix(f"{typed_fields.FIELD}.")
    return name if inner == name else f"metadata.{inner}"


def _leaves(clause: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield kind, field and value of each clause on one field that must match: of a clause itself, or of the clauses in a `bool`."""
    for kind, body in clause.items():
        if not isinstance(body, dict):
            continue
        if kind in _FIELD_CLAUSES:
            yield from ((kind, name, value) for name, value in body.items() if name not in {"boost", "_name"})
        elif kind == "bool":
            for inner in (body.get("filter", ()), body.get("must", ())):
                for part in inner if isinstance(inner, list | tuple) else [inner]:
                    yield from _leaves(part) if isinstance(part, dict) else ()


def _one_value(kind: str, name: str, value: Any) -> list[Any]:
    """The Unicode forms of the only value that a "term" or "terms" clause looks for; [] for other clauses, for several values, and for ids."""
    if kind == "term":
        value = [value["value"] if isinstance(value, dict) else value]
    single = (
        name != "id" and kind in {"term", "terms"} and isinstance(value, list) and len({normal(str(each)) for each in value}) == 1
    )
    return value if single else []
