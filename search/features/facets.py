"""Count the values of fields among the documents of an answer: `--facet kind`.

`--facet kind:20` counts the 20 most frequent values, and `--facet price:10/50` counts three ranges: below 10, from 10 to below 50, from 50 on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

from termweave.catalog.layout import among
from termweave.catalog.typed_fields import INSTANT, date_interval, quoted
from termweave.declared_settings import Setting
from termweave.errors import UsageError
from termweave.search.feature import Feature, Ranking
from termweave.search.retrieval.plan import MAX_DEPTH, Retrieval
from termweave.support.arguments import field_names
from termweave.support.messages import clipped

if TYPE_CHECKING:
    from termweave.catalog.columns import Column

#: Values that a facet shows unless it names another number, most frequent first, the most that it can name, and values that each shard counts.
VALUES, _MOST_VALUES, _OF_SHARD = 10, 1_000, 10_000
#: Characters of a value on a line below the hits.
_SHOWN = 40
_SIZE = re.compile(r"\d{1,9}", re.ASCII)
_MIDNIGHT = re.compile(r"T00:00:00(\.000)?Z$")


@dataclass(frozen=True)
class FacetValue:
    """One value, or one range of values, of a facet.

    Attributes:
        value: The value as text; for a range "below 10", "10 to 50" or "from 50".
        count: Number of documents that have the value.
        filter: The filter expression that exactly these documents pass.
    """

    value: str
    count: int
    filter: str


@dataclass(frozen=True)
class Facet:
    """A request for a facet: a field, and which of its values or ranges are counted.

    Attributes:
        name: Name of the metadata entry.
        size: How many values are counted at most, the most frequent first.
        bounds: Numbers or dates at which a range ends and the next begins, lowest first; (): single values are counted.
    """

    name: str
    size: int = VALUES
    bounds: tuple[str, ...] = ()


def parse(text: str) -> Facet:
    """Read a value of `--facet`: "kind", "kind:20" or "price:10/50"; "price:10/" has one bound.

    Raises:
        UsageError: The text does not name a field, or asks for too many values.
    """
    name, colon, rest = text.strip().removeprefix("metadata.").rpartition(":")
    if not colon or not (_SIZE.fullmatch(rest) or "/" in rest):
        name, rest = text.strip().removeprefix("metadata."), ""
    bounds = tuple(each.strip() for each in rest.split("/") if each.strip()) if "/" in rest else ()
    size = int(rest) if rest and not bounds else VALUES
    if not name or not 1 <= size <= _MOST_VALUES:
        hint = f"Write kind, kind:20 for up to {_MOST_VALUES:,} values, or price:10/50 for ranges."
        raise UsageError(f"{text!r} does not say what to count.", hint)
    return Facet(name, size, bounds)


def _checked(value: object) -> list[str]:
    names = field_names("facets")(value)
    for name in names:
        parse(name)
    return names


@dataclass(frozen=True, kw_only=True)
class FacetOptions:
    """The fields whose values are counted.

    Attributes:
        facets: Fields whose values are counted among the documents that are listed on all pages (`Answer.facets`): "kind", "kind:20" for
            20 values, "price:10/50" for ranges.
    """

    facets: Annotated[
        Sequence[str],
        Setting(
            "Count the values of this metadata field among the listed documents; repeatable. FIELD:20 shows 20 values, FIELD:10/50 the ranges "
            "below 10, from 10 and from 50.",
            "FIELD",
            flag="--facet",
            repeatable=True,
            control="",
            convert=_checked,
        ),
    ] = ()


class Facets(Feature[FacetOptions]):
    """Counts values among the documents that the first round lists, so that every page shows the same numbers.

    `Totals` says how many documents that are.
    """

    part = "facets"

    def plan(self, plan: Retrieval) -> Retrieval:
        """Ask for totals, too, which say among how many documents values are counted."""
        return replace(plan, counts=True)

    def count(self, rounds: Sequence[Ranking]) -> dict[str, tuple[FacetValue, ...]]:
        """Field, as the user named it -> the counted values. A document with several values counts once for each of them."""
        generation = self.search.generation
        parsed = {name: parse(name) for name in self.options.facets}
        columns = [(facet, generation.layout.usable(facet.name)) for facet in parsed.values()]
        aggregations = {str(at): _aggregation(*each) for at, each in enumerate(columns)}
        documents = sorted(place.id for place in rounds[0].places)[:MAX_DEPTH]
        if not documents:
            return dict.fromkeys(parsed, ())
        body = {"size": 0, "query": among(documents, generation.layout), "aggs": aggregations}
        answer = generation.engine.search(generation.index, body)["aggregations"]
        return {name: _values(*columns[at], answer[str(at)]["buckets"]) for at, name in enumerate(parsed)}

    @staticmethod
    def json(part: Mapping[str, Sequence[FacetValue]]) -> Any:
        """Field -> its counted values, as JSON."""
        return {name: [asdict(value) for value in values] for name, values in part.items()}

    @staticmethod
    def lines(part: Mapping[str, Sequence[FacetValue]]) -> Iterator[str]:
        """One line of text for each field, with its values and their counts."""
        for name, values in part.items():
            counts = ", ".join(f"{clipped(each.value, _SHOWN)} {each.count:,}" for each in values) or "no values"
            yield f"{name}, among the listed documents: {counts}"


def _aggregation(facet: Facet, column: Column) -> dict[str, Any]:
    """The server's aggregation that counts a facet.

    Raises:
        UsageError: The field's type has no ranges, or a bound does not have the type of the field.
    """
    if not facet.bounds:
        # An application may store dates in a format of its own, which filters do not read.
        written = {"format": INSTANT} if column.kind == "date" else {}
        return {"terms": {"field": column.field, "size": facet.size, "shard_size": _OF_SHARD, **written}}
    if column.kind not in {"long", "double", "date"}:
        hint = f"Count its values: --facet {facet.name}."
        raise UsageError(f"The field {facet.name!r} holds {column.words}, which have no ranges.", hint)
    dates = column.kind == "date"
    bounds = [(date_interval(each) or [None])[0] if dates else column.converted(each, "double") for each in facet.bounds]
    if None in bounds or any(low >= high for low, high in pairwise(bounds)):  # type: ignore[operator]  # None ends before
        hint = f"Write {facet.name}:{'2020/2024-05' if dates else '10/50'}."
        shown = "/".join(facet.bounds)
        raise UsageError(f"The bounds {shown} of the facet {facet.name!r} must be {column.words}, lowest first.", hint)
    edges = [None, *map(column.clamped, bounds), None]
    ranges = [{"from": low, "to": high} for low, high in pairwise(edges)]
    ranges = [{name: edge for name, edge in each.items() if edge is not None} for each in ranges]
    if dates:
        return {"date_range": {"field": column.field, "format": INSTANT, "ranges": ranges}}
    return {"range": {"field": column.field, "ranges": ranges}}


def _values(facet: Facet, column: Column, buckets: Sequence[Mapping[str, Any]]) -> tuple[FacetValue, ...]:
    if not facet.bounds:
        keys = column.shown([bucket.get("key_as_string", bucket["key"]) for bucket in buckets])
        texts = [_MIDNIGHT.sub("", str(key)) for key in keys]
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
