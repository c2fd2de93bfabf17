"""Count and sort candidates by a metadata field: `--facet FIELD` and `--sort FIELD`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from termweave.errors import UsageError
from termweave.search.paging import MAX_DEPTH
from termweave.signals import typed_fields
from termweave.support.messages import few

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from termweave.engine import Engine
    from termweave.search.ranking.order import Place
    from termweave.search.retrieval.candidates import Candidates
    from termweave.signals import DocumentLayout

#: Values that a facet shows, most frequent first, and values that each shard counts.
VALUES, _OF_SHARD = 10, 10_000
_MIDNIGHT = re.compile(r"T00:00:00(\.000)?Z$")


@dataclass(frozen=True)
class FacetValue:
    """One value of a facet.

    Attributes:
        value: The value, as text.
        count: How many candidates have it.
    """

    value: str
    count: int


def check_order(text: str) -> tuple[str, str]:
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


def facets(
    engine: Engine, index: str, layout: DocumentLayout, candidates: Candidates, names: Sequence[str]
) -> dict[str, tuple[FacetValue, ...]]:
    """Count the values of fields among the candidates of a query.

    Args:
        engine: The server.
        index: The generation that answered.
        layout: Its layout.
        candidates: The candidates.
        names: The fields.

    Returns:
        Field -> its most frequent values. A document with several values counts for each.
    """
    fields = {name: _column(name.removeprefix("metadata."), layout) for name in names}
    documents = sorted({document for ranked in candidates.lists.values() for document in ranked.scores})
    if not documents:
        return dict.fromkeys(names, ())
    aggregations = {
        str(at): {"terms": {"field": field, "size": VALUES, "shard_size": _OF_SHARD}} for at, field in enumerate(fields.values())
    }
    body = {"size": 0, "query": _among(documents), "aggs": aggregations}
    answer = engine.request("POST", f"/{index}/_search", body=body)["aggregations"]
    return {name: tuple(_value(bucket) for bucket in answer[str(at)]["buckets"]) for at, name in enumerate(fields)}


def ordered(engine: Engine, index: str, layout: DocumentLayout, places: Sequence[Place], order: str) -> list[Place]:
    """Sort ranked documents by a field, documents without it last; equal ones keep their order.

    Args:
        engine: The server.
        index: The generation that answered.
        layout: Its layout.
        places: The documents, best first; those beyond the 10,000th are left out.
        order: As `check_order`.
    """
    name, direction = check_order(order)
    field = _column(name, layout)
    kept = list(places[:MAX_DEPTH])
    if not kept:
        return []
    body = {
        "size": len(kept),
        "query": _among([place.id for place in kept]),
        "sort": [{field: {"order": direction, "missing": "_last"}}],
        "_source": False,
        "docvalue_fields": ["id"],
        "track_total_hits": False,
    }
    if field == "id":
        return sorted(kept, key=lambda place: place.id, reverse=direction == "desc")
    hits = engine.request("POST", f"/{index}/_search", body=body)["hits"]["hits"]
    steps: dict[str, int] = {}
    step, last = 0, None
    for hit in hits:
        step, last = step + (hit["sort"] != last), hit["sort"]
        steps.setdefault(hit["fields"]["id"][0], step)
    return sorted(kept, key=lambda place: steps.get(place.id, len(hits) + 1))


def _column(name: str, layout: DocumentLayout) -> str:
    """The field of the server that counts and sorts an entry.

    Raises:
        UsageError: The index has no such typed field.
    """
    if name == "id" or name in layout.extra:
        return name
    if name in layout.types:
        return f"{typed_fields.FIELD}.{name}"
    if layout.types:
        hint = f"These can be counted and sorted: {few(sorted(layout.types), 10)}. Texts of more than 256 characters cannot."
    else:
        hint = (
            "The index has no typed metadata: its source has none, or it was built by an earlier version and must be built again."
        )
    raise UsageError(f"The index has no field {name!r} that can be counted or sorted.", hint)


def _among(documents: Sequence[str]) -> dict[str, Any]:
    """The query for documents; a document in passages counts once, with its first passage."""
    first = [{"term": {"passage": 1}}, {"bool": {"must_not": [{"exists": {"field": "passage"}}]}}]
    return {"bool": {"filter": [{"terms": {"id": list(documents)}}, {"bool": {"should": first, "minimum_should_match": 1}}]}}


def _value(bucket: Mapping[str, Any]) -> FacetValue:
    text = str(bucket.get("key_as_string", bucket["key"]))
    return FacetValue(_MIDNIGHT.sub("", text), bucket["doc_count"])
