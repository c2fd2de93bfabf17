"""Count, sort and collapse candidates by a metadata field: `--facet FIELD`, `--sort FIELD` and `--collapse FIELD`.

`--facet kind:20` counts the 20 most frequent values, and `--facet price:10/50` three ranges: below 10, from 10 to below 50, from 50 on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from termweave.catalog.typed_fields import INSTANT, TYPES, convert, date_interval
from termweave.engine.client.payloads import ALL_SHARDS
from termweave.errors import UsageError
from termweave.search.paging import MAX_DEPTH
from termweave.search.retrieval.filter_grammar import quoted
from termweave.support.messages import few

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from termweave.catalog.layout import Column, DocumentLayout
    from termweave.engine import Engine
    from termweave.search.ranking.order import Place
    from termweave.search.retrieval.candidates import Candidates

#: Values that a facet shows unless it names another number, most frequent first, the most that it can name, and values that each shard counts.
VALUES, _MOST_VALUES, _OF_SHARD = 10, 1_000, 10_000
_SIZE = re.compile(r"\d{1,9}", re.ASCII)
_MIDNIGHT = re.compile(r"T00:00:00(\.000)?Z$")


@dataclass(frozen=True)
class FacetValue:
    """One value, or one range of values, of a facet.

    Attributes:
        value: The value, as text; of a range "below 10", "10 to 50" or "from 50".
        count: How many candidates have it.
        filter: The filter expression for it.
    """

    value: str
    count: int
    filter: str


@dataclass(frozen=True)
class Facet:
    """What is counted.

    Attributes:
        name: The entry of the metadata.
        size: How many of its values, the most frequent first.
        bounds: Where its ranges begin, lowest first; (): single values are counted.
    """

    name: str
    size: int = VALUES
    bounds: tuple[str, ...] = ()


def parse_collapse(text: str) -> tuple[str, int]:
    """Read what `--collapse` names: "brand" keeps the best document of each brand, "brand:2" the best two.

    Raises:
        UsageError: The text does not name a field, or keeps none.
    """
    name, colon, kept = text.strip().removeprefix("metadata.").rpartition(":")
    if not colon or not _SIZE.fullmatch(kept):
        name, kept = text.strip().removeprefix("metadata."), "1"
    if not name or not int(kept):
        raise UsageError(f"{text!r} does not say what to collapse by.", "Write brand, or brand:2 for the best two of each brand.")
    return name, int(kept)


def groups(engine: Engine, index: str, layout: DocumentLayout, documents: Sequence[str], name: str) -> dict[str, Any]:
    """Document -> its value of a field, the first of several; a document without one is left out.

    Args:
        engine: The server.
        index: The generation that answered.
        layout: Its layout.
        documents: Ids, at most 10,000.
        name: The field.
    """
    field = _column(name, layout).field
    if field == "id" or not documents:
        return {document: document for document in documents}
    body = {
        "size": len(documents),
        "query": _among(documents, layout),
        "_source": False,
        "docvalue_fields": ["id", field],
        "track_total_hits": False,
    }
    hits = engine.request("POST", f"/{index}/_search", params=ALL_SHARDS, body=body)["hits"]["hits"]
    return {hit["fields"]["id"][0]: hit["fields"][field][0] for hit in hits if field in hit["fields"]}


def parse_order(text: str) -> tuple[str, str]:
    """The field and the direction of an order: "year" or "year:asc" ascends, "year:desc" descends.

    Raises:
        UsageError: The text does not name a field.
    """
    name, colon, direction = text.rpartition(":")
    if not colon or direction not in {"asc", "desc"}:
        name, direction = text, "asc"
    if not name.strip():
        raise UsageError(f"{text!r} does not name a field to sort by.", "Write year, or year:desc for the highest first.")
    return name.removeprefix("metadata."), direction


def parse_facet(text: str) -> Facet:
    """Read what `--facet` names: "kind", "kind:20" or "price:10/50"; "price:10/" has one bound.

    Raises:
        UsageError: The text does not name a field, or too many values.
    """
    name, colon, rest = text.strip().removeprefix("metadata.").rpartition(":")
    if not colon or not (_SIZE.fullmatch(rest) or "/" in rest):
        name, rest = text.strip().removeprefix("metadata."), ""
    bounds = tuple(each.strip() for each in rest.split("/") if each.strip()) if "/" in rest else ()
    size = int(rest) if rest and not bounds else VALUES
    if not name or not 1 <= size <= _MOST_VALUES:
        raise UsageError(
            f"{text!r} does not say what to count.",
            f"Write kind, kind:20 for up to {_MOST_VALUES:,} values, or price:10/50 for ranges.",
        )
    return Facet(name, size, bounds)


def facets(
    engine: Engine, index: str, layout: DocumentLayout, candidates: Candidates, names: Sequence[str]
) -> dict[str, tuple[FacetValue, ...]]:
    """Count the values of fields among the candidates of a query.

    Args:
        engine: The server.
        index: The generation that answered.
        layout: Its layout.
        candidates: The candidates.
        names: The fields, as `parse_facet`.

    Returns:
        Each of `names` -> its values. A document with several values counts for each.
    """
    parsed = {name: parse_facet(name) for name in names}
    asked = {name: (facet, _aggregation(facet, _column(facet.name, layout))) for name, facet in parsed.items()}
    documents = sorted(candidates.documents)
    if not documents:
        return dict.fromkeys(names, ())
    aggregations = {str(at): aggregation for at, (_, aggregation) in enumerate(asked.values())}
    body = {"size": 0, "query": _among(documents, layout), "aggs": aggregations}
    answer = engine.request("POST", f"/{index}/_search", params=ALL_SHARDS, body=body)["aggregations"]
    return {name: _values(facet, answer[str(at)]["buckets"]) for at, (name, (facet, _)) in enumerate(asked.items())}


def ordered(engine: Engine, index: str, layout: DocumentLayout, places: Sequence[Place], order: str) -> list[Place]:
    """Sort ranked documents by a field, documents without it last; equal ones keep their order.

    Args:
        engine: The server.
        index: The generation that answered.
        layout: Its layout.
        places: The documents, best first; those beyond the 10,000th are left out.
        order: As `parse_order`.
    """
    name, direction = parse_order(order)
    field = _column(name, layout).field
    kept = list(places[:MAX_DEPTH])
    if not kept:
        return []
    body = {
        "size": len(kept),
        "query": _among([place.id for place in kept], layout),
        "sort": [{field: {"order": direction, "missing": "_last"}}],
        "_source": False,
        "docvalue_fields": ["id"],
        "track_total_hits": False,
    }
    if field == "id":
        return sorted(kept, key=lambda place: place.id, reverse=direction == "desc")
    hits = engine.request("POST", f"/{index}/_search", params=ALL_SHARDS, body=body)["hits"]["hits"]
    steps: dict[str, int] = {}
    step, last = 0, None
    for hit in hits:
        step, last = step + (hit["sort"] != last), hit["sort"]
        steps.setdefault(hit["fields"]["id"][0], step)
    return sorted(kept, key=lambda place: steps.get(place.id, len(hits) + 1))


def _column(name: str, layout: DocumentLayout) -> Column:
    """The field of the server that counts and sorts an entry.

    Raises:
        UsageError: The index has no such typed field.
    """
    column = layout.column(name)
    if column is not None and column.kind in TYPES and column.doc_values:
        return column
    if layout.application is not None:
        hint = f"Its mapping has {few(layout.sortable, 10) or 'none'}; a text needs a subfield of type keyword, and every field its doc_values."
    elif layout.types:
        hint = f"These can be counted and sorted: {few(sorted(layout.types), 10)}. Texts of more than 256 characters cannot."
    else:
        hint = (
            "The index has no typed metadata: its source has none, or it was built by an earlier version and must be built again."
        )
    raise UsageError(f"The index has no field {name!r} that can be counted or sorted.", hint)


def first_passages(layout: DocumentLayout) -> dict[str, Any]:
    """The clause for whole documents, and for the first passage of those that are cut into passages."""
    if layout.application is not None:  # its documents are whole, and a field `passage` is its own
        return {"match_all": {}}
    whole = {"bool": {"must_not": [{"exists": {"field": "passage"}}]}}
    return {"bool": {"should": [{"term": {"passage": 1}}, whole], "minimum_should_match": 1}}


def _among(documents: Sequence[str], layout: DocumentLayout) -> dict[str, Any]:
    """The query for documents; a document in passages counts once, with its first passage."""
    return {"bool": {"filter": [{"terms": {"id": list(documents)}}, first_passages(layout)]}}


def _aggregation(facet: Facet, column: Column) -> dict[str, Any]:
    """The aggregation of a facet.

    Raises:
        UsageError: The field has no order, or a bound does not have its type.
    """
    if not facet.bounds:
        # An application may store dates in a format of its own, which filters do not read.
        written = {"format": INSTANT} if column.kind == "date" else {}
        return {"terms": {"field": column.field, "size": facet.size, "shard_size": _OF_SHARD, **written}}
    if column.kind not in {"long", "double", "date"}:
        raise UsageError(
            f"The field {facet.name!r} holds {TYPES[column.kind]}, which have no ranges.",
            f"Count its values: --facet {facet.name}.",
        )
    bounds = [_bound(each, column.kind) for each in facet.bounds]
    if None in bounds or any(low >= high for low, high in pairwise(bounds)):  # type: ignore[operator]  # None ends before
        raise UsageError(
            f"The bounds {'/'.join(facet.bounds)} of the facet {facet.name!r} are not {TYPES[column.kind]}, lowest first.",
            f"Write {facet.name}:{'2020/2024-05' if column.kind == 'date' else '10/50'}.",
        )
    edges = [None, *bounds, None]
    ranges = [{"from": low, "to": high} for low, high in pairwise(edges)]
    ranges = [{name: edge for name, edge in each.items() if edge is not None} for each in ranges]
    if column.kind == "date":
        return {"date_range": {"field": column.field, "format": INSTANT, "ranges": ranges}}
    return {"range": {"field": column.field, "ranges": ranges}}


def _bound(text: str, kind: str) -> str | float | None:
    """A bound as the server takes it; None if it does not have the type of the field."""
    if kind != "date":
        number: float | None = convert("double", text)
        return number
    interval = date_interval(text)
    return interval[0] if interval else None


def _values(facet: Facet, buckets: Sequence[Mapping[str, Any]]) -> tuple[FacetValue, ...]:
    if not facet.bounds:
        texts = [_MIDNIGHT.sub("", str(bucket.get("key_as_string", bucket["key"]))) for bucket in buckets]
        return tuple(
            FacetValue(text, bucket["doc_count"], f"{facet.name}={quoted(text)}")
            for text, bucket in zip(texts, buckets, strict=True)
        )
    name, values = facet.name, []
    for (low, high), bucket in zip(pairwise(["", *facet.bounds, ""]), buckets, strict=True):
        edges = [f"{name}>={low}"] * bool(low) + [f"{name}<{high}"] * bool(high)
        text = f"{low} to {high}" if low and high else f"from {low}" if low else f"below {high}"
        values.append(FacetValue(text, bucket["doc_count"], " AND ".join(edges)))
    return tuple(values)
