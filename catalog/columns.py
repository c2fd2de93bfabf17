"""Columns: what each field of an index can be used for, whether termweave, the user's `--mapping` or an application declared the field.

Filters, facets, sorting, rules, web pages and messages ask this module; no other module reads an index mapping for them.
"""

from __future__ import annotations

import dataclasses
import math
import re
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_network
from typing import Any

from termweave.catalog.typed_fields import TYPES, convert

#: Type of a field in a mapping -> how its values are read: as one of `TYPES`, or as one of the others that `_WHY` explains.
_KINDS = {
    **dict.fromkeys(("keyword", "constant_keyword", "wildcard", "ip", "version", "icu_collation_keyword"), "keyword"),
    **dict.fromkeys(("byte", "short", "integer", "long", "unsigned_long", "token_count"), "long"),
    **dict.fromkeys(("half_float", "float", "double", "scaled_float"), "double"),
    **dict.fromkeys(("date", "date_nanos"), "date"),
    **dict.fromkeys(("text", "match_only_text", "search_as_you_type"), "text"),
    **dict.fromkeys(("flat_object", "flattened"), "flat"),
    **dict.fromkeys(("object", "nested"), "object"),
}
#: Type of a field of ranges -> how its edges are read, and their own type.
RANGES = {
    "integer_range": ("long", "integer"), "long_range": ("long", "long"), "float_range": ("double", "float"),
    "double_range": ("double", "double"), "date_range": ("date", "date"), "ip_range": ("keyword", "ip"),
}  # fmt: skip
#: What a field is used for -> the words of messages.
USES = {"filter": "compared by filters", "sort": "counted or sorted", "read": "read by rerankers"}
#: What each use takes besides `TYPES`.
_MORE = {"filter": {"range", "flat"}, "sort": set[str](), "read": {"geo_point", "rank_feature"}}
_WHY = {
    "text": "is analysed text without a keyword among its subfields",
    "object": "is an object and no value",
    "flat": "is an object and no value",
    "range": "holds ranges, which only filters read",
    "mixed": "has another type in another index of the name",
}
#: Type -> the lowest and the highest value that a server takes in a query.
_LIMITS: dict[str, tuple[Any, Any]] = {
    "integer": (-(2**31), 2**31 - 1), "long": (-(2**63), 2**63 - 1), "unsigned_long": (0, 2**64 - 1), "half_float": (-65504, 65504),
    "float": (-3.4028234e38, 3.4028234e38), "date_nanos": ("1970-01-01T00:00:00+00:00", "2262-04-11T23:47:16+00:00"),
}  # fmt: skip
#: A whole number of 19 digits or more: metadata hold it as a number in JSON and as a text elsewhere, so that `convert` leaves the text alone.
_MANY_DIGITS = re.compile(r"-?[1-9]\d{18,38}", re.ASCII)
#: Types of fewer digits than a double -> how `struct` packs them.
_PACKED = {"half_float": "e", "float": "f"}


@dataclasses.dataclass(frozen=True)
class Column:
    """A field of an index on the server, by which the values of a metadata entry are filtered, counted and sorted.

    Attributes:
        field: Name of the field on the server.
        kind: How the field's values are read: as one of `termweave.catalog.typed_fields.TYPES`; or "text" for analysed text, "object", "flat" for an
            object without a mapping of its entries, "range", or the type of the mapping, such as "geo_point".
        mapping: The field's definition in the mapping of the index; {}: termweave made the field for a typed metadata entry.
        path: Dotted path of the values in a `_source`; "": `DocumentLayout.paths` tells where the values lie.
        nested: Path of the nested object that contains the field; "": the field is in no nested object.
        ordered: Whether the server compares its values with < and >.
    """

    field: str
    kind: str
    mapping: Mapping[str, Any] = dataclasses.field(default_factory=dict, compare=False)
    path: str = dataclasses.field(default="", compare=False)
    nested: str = ""
    ordered: bool = True

    @property
    def type(self) -> str:
        """The field's type in the mapping of the index."""
        return str(self.mapping.get("type", self.kind))

    @property
    def number(self) -> str:
        """The type of numbers that a rule reads from the documents themselves, as the server returns no values of such a field; "" for all other fields."""
        return "double" if self.kind == "rank_feature" else ""

    @property
    def words(self) -> str:
        """The kind of the field's values as messages name it, such as "whole numbers"."""
        return "IP addresses" if self.type == "ip" else TYPES.get(self.kind, "texts")

    @property
    def searched(self) -> bool:
        """Whether a query finds the field's values: the field is indexed, or its values are kept by document (doc values)."""
        return not (_off(self.mapping, "index") and not self.doc_values) and not _off(self.mapping, "enabled")

    @property
    def doc_values(self) -> bool:
        """Whether the server keeps the field's values by document (doc values): counting, sorting and rerankers need them, filters do not."""
        if self.kind == "text":
            return str(self.mapping.get("fielddata")).lower() == "true"
        return not _off(self.mapping, "doc_values")

    def obstacle(self, use: str) -> str:
        """Say why the field cannot serve a use (a key of `USES`), as the end of a sentence that begins with the field's name; "": it can."""
        if self.type == "flat_object" and self.kind == "keyword" and use == "sort":
            return "lies in a flat_object, whose entries OpenSearch neither counts nor sorts"
        counted = use != "filter" and ((self.kind == "text" and self.doc_values) or self.type == "flattened")
        if not (self.kind in TYPES or self.kind in _MORE[use] or counted):
            return _WHY.get(self.kind, f"is a {self.type}")
        if not self.searched:
            return "is neither indexed nor kept by document"
        if self.nested and use != "filter":
            return f"lies in the nested object {self.nested!r}"
        return "" if use == "filter" or self.doc_values else "is not kept by document (doc_values)"

    def converted(self, text: str, kind: str = "") -> Any:
        """Convert a text to the value that the field, or a field of the given kind, holds; None: the text is not a value of that type."""
        if self.type == "ip":
            with suppress(ValueError):
                return ip_network(text, strict=False) and text
            return None
        value = int(text) if _MANY_DIGITS.fullmatch(text) else text
        whole = isinstance(value, int) and (kind or self.kind) == "long"  # perhaps beyond what the field holds: see `clamped`
        return value if whole else convert(kind or self.kind, value)

    def inside(self, clause: dict[str, Any]) -> dict[str, Any]:
        """Return a query clause for the field, put into a `nested` clause if the field lies in a nested object."""
        return {"nested": {"path": self.nested, "query": clause}} if self.nested else clause

    def takes(self, value: Any) -> bool:
        """Whether the server accepts a value in a query of this field; it refuses values out of the range of the field's type."""
        low, high = _LIMITS.get(self.type, (value, value))
        return bool(low <= value <= high)

    def clamped(self, value: Any) -> Any:
        """Return the value nearest to the given one that the field can hold."""
        if not self.takes(value):
            lowest, highest = _LIMITS[self.type]
            return min(max(value, lowest), highest)
        packed = _PACKED.get(self.type)
        return struct.unpack(packed, struct.pack(packed, value))[0] if packed else value

    def shown(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return doc values in the form in which they were written: numbers with the digits of their type, a constant as the mapping has it."""
        if self.type == "constant_keyword" and "value" in self.mapping:  # OpenSearch 3.6.0 gives the name of the index
            return [self.mapping["value"]] * len(values)
        if self.type == "scaled_float":
            factor = float(self.mapping.get("scaling_factor", 1))
            return [round(value * factor) / factor for value in values]
        return [_shortest(value, _PACKED[self.type]) for value in values] if self.type in _PACKED else values


def unlisted(mapping: Mapping[str, Any]) -> bool:
    """Whether documents may hold fields that a mapping, of an index or of an object in it, neither lists nor adds."""
    return str(mapping.get("dynamic")).lower() in {"false", "runtime"} or _off(mapping, "enabled")


def _off(mapping: Mapping[str, Any], name: str) -> bool:
    return str(mapping.get(name)).lower() == "false"


def _shortest(value: float, packed: str) -> float:
    """Return the number with the fewest digits that a field of less precision (`packed`, a format of `struct`) stores as the given number."""
    stored = struct.pack(packed, value)
    tried = (float(f"{value:.{digits}g}") for digits in range(1, 10))
    return next((each for each in tried if math.isfinite(each) and struct.pack(packed, each) == stored), value)


def columns(mappings: Mapping[str, Any], leave_out: Collection[str] = (), unordered: Collection[str] = ()) -> dict[str, Column]:
    """Return dotted name -> column for the fields of a mapping, with subfields and aliases of fields.

    A text field that has a keyword subfield is compared, counted and sorted by that keyword.

    Args:
        mappings: The mapping of an index.
        leave_out: Fields at the top of the mapping that are left out.
        unordered: Types that the server does not compare with < and >.
    """
    fields: dict[str, Column] = {}
    for column, subfields in walk(_top(mappings, leave_out), unordered):
        exact = [each for each in subfields if column.kind == "text" and each.kind == "keyword" and not each.obstacle("filter")]
        fields[column.field] = min(exact, key=lambda each: each.type != "keyword") if exact else column
        fields |= {each.field: each for each in subfields}
    targets = {name: column for name, column in fields.items() if column.kind != "alias"}
    aliases = ((name, targets.get(column.mapping.get("path", ""))) for name, column in fields.items() if column.kind == "alias")
    return targets | {name: target for name, target in aliases if target}


def text_fields(mappings: Mapping[str, Any], leave_out: Collection[str] = ()) -> list[str]:
    """Return the sorted names of fields and subfields in which a `match` query finds words; fields of nested objects are left out."""
    fields = (each for column, subfields in walk(_top(mappings, leave_out)) for each in (column, *subfields))
    return sorted(each.field for each in fields if each.kind == "text" and not each.nested and not _off(each.mapping, "index"))


def _top(mappings: Mapping[str, Any], leave_out: Collection[str]) -> dict[str, Any]:
    """Return name -> definition for the fields at the top of a mapping, runtime fields included, except those to leave out."""
    fields = {**(mappings.get("properties") or {}), **(mappings.get("runtime") or {})}
    return {name: each for name, each in fields.items() if name not in leave_out}


def walk(
    properties: Mapping[str, Any], unordered: Collection[str] = (), prefix: str = "", nested: str = ""
) -> Iterator[tuple[Column, list[Column]]]:
    """Yield each field of an object, and of the objects in it, with the field's subfields.

    A field whose type is in `unordered` is marked as one that < and > cannot compare.
    """
    for name, mapping in properties.items():
        path = f"{prefix}{name}"
        inside = path if mapping.get("type") == "nested" else nested
        subfields = {f"{path}.{each}": subfield for each, subfield in (mapping.get("fields") or {}).items()}
        column, *others = (
            Column(field, _kind(each), each, path, inside, each.get("type", "object") not in unordered)
            for field, each in {path: mapping, **subfields}.items()
        )
        yield column, others
        if column.kind == "object":
            yield from walk(mapping.get("properties") or {}, unordered, f"{path}.", inside)


def _kind(mapping: Mapping[str, Any]) -> str:
    """Return the kind of a field's values (`Column.kind`), given the field's definition in a mapping."""
    declared: str = mapping.get("type", "object")
    return "range" if declared in RANGES else _KINDS.get(declared, declared)
