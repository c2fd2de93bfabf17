"""The clauses of comparisons: an entry of the metadata, or a field of an application, equals, matches, or lies below or above a value."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from termweave.catalog import typed_fields
from termweave.catalog.layout import Column
from termweave.errors import UsageError
from termweave.support.messages import few

if TYPE_CHECKING:
    from collections.abc import Sequence

    from termweave.catalog.layout import DocumentLayout

    Clause = dict[str, Any]

#: A time relative to now, as servers read it: now-7d, now-1M/M.
_RELATIVE = re.compile(r"now(?:[+-]\d+[yMwdhHms])*(?:/[yMwdhHms])?")
#: A whole number of 19 digits: metadata hold it as a number in JSON and as a text elsewhere, so that `convert` leaves the text alone.
_NINETEEN = re.compile(r"-?[1-9]\d{18}", re.ASCII)
_BOUNDS = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}


def stored_field(name: str) -> str:
    """The field that holds an entry as text."""
    return name if name == "id" else f"metadata.{_entry(name)}"


def _entry(name: str) -> str:
    """The key of an entry of the metadata."""
    return name.removeprefix("metadata.")


def _application_field(name: str, layout: DocumentLayout) -> Column | None:
    """The field of an application that an entry names; None for an index that termweave built.

    Raises:
        UsageError: The mapping of the application has no such field.
    """
    if layout.application is None:
        return None
    if (column := layout.column(name)) is None:
        nested = next(
            (each for each, kind in layout.application.types.items() if kind == "nested" and name.startswith(f"{each}.")), ""
        )
        hint = f'Write a clause of the query DSL: {{"nested": {{"path": "{nested}", "query": CLAUSE}}}}.' if nested else ""
        hint = hint or layout.nearest(name) or f"It has {few(layout.sortable, 10) or 'none'}."
        raise UsageError(f"The mapping of the index has no field {name!r} that filters can use.", hint)
    return column


def _converted(kind: str, value: str) -> Any:
    """A value as a field of a type holds it; None if it is not of this type."""
    whole = typed_fields.convert("long", int(value)) if _NINETEEN.fullmatch(value) else None
    return typed_fields.convert(kind, value if whole is None else whole)


def _compared(name: str, operator: str, value: str, column: Column) -> Clause:
    """Compare a field of an application with a value.

    Raises:
        UsageError: The field cannot be compared, or the value does not have its type.
    """
    if column.kind == "text":
        raise UsageError(
            f"The field {name!r} is analysed text without a keyword among its subfields, so that filters cannot compare it.",
            f'Write a clause of the query DSL: {{"match": {{"{name}": VALUE}}}}.',
        )
    if column.kind not in typed_fields.TYPES:
        raise UsageError(
            f"The field {name!r} is a {column.kind}, which filters cannot compare.",
            "Map it as a number, too." if column.kind == "rank_feature" else "Write a clause of the query DSL.",
        )
    if operator != "=" or column.kind == "date":
        clause = _bounded(name, operator, value, column)
        # An application may store dates in a format of its own, in which the bounds are not written.
        ((_, bounds),) = clause["range"].items()
        return {"range": {column.field: bounds | {"format": typed_fields.INSTANT}}} if column.kind == "date" else clause
    converted = _converted(column.kind, value)
    if converted is None:
        raise UsageError(f"The field {name!r} holds {typed_fields.TYPES[column.kind]}, and {value!r} is not one of these.")
    return {"term": {column.field: converted}}


def none_of(clause: Clause) -> Clause:
    """A document passes where a clause does not."""
    return {"bool": {"must_not": [clause]}}


def any_of(clauses: Sequence[Clause]) -> Clause:
    """A document passes where one of the clauses does. The values of a field are one list, which the server counts as one clause."""
    values: dict[str, list[Any]] = {}
    others = []
    for clause in clauses:
        if "term" in clause:
            ((field, value),) = clause["term"].items()
            values.setdefault(field, []).append(value)
        else:
            others.append(clause)
    together = [
        {"terms": {field: listed}} if len(listed) > 1 else {"term": {field: listed[0]}} for field, listed in values.items()
    ]
    together += others
    return together[0] if len(together) == 1 else {"bool": {"should": together, "minimum_should_match": 1}}


def exists(name: str, layout: DocumentLayout) -> Clause:
    """A document has an entry. One that nobody knows is no error: an application may ask before the first document has it."""
    if layout.application is not None and not layout.application.may_hold(name):
        return {"exists": {"field": name}}
    column = _application_field(name, layout)
    return {"exists": {"field": column.field if column else stored_field(name)}}


def matching(name: str, pattern: str, layout: DocumentLayout) -> Clause:
    """An entry matches a pattern with ``*``.

    Raises:
        UsageError: The entry is not a short text, which alone has patterns.
    """
    column = _application_field(name, layout) or layout.column(name)
    if column is None or column.kind != "keyword":
        holds = (
            f"holds {typed_fields.TYPES[column.kind]}"
            if column and column.kind in typed_fields.TYPES
            else "is not a field of short texts"
        )
        raise UsageError(
            f"The field {name!r} {holds}, and {pattern!r} is a pattern.", f'For the character itself: {name}="{pattern}".'
        )
    escaped = re.sub(r"([?\\])", r"\\\1", pattern)
    return {"wildcard": {column.field: {"value": escaped}}}


def _relative(name: str, operator: str, value: str, column: Column) -> Clause | None:
    """The clause for a date relative to now; None for another value.

    Raises:
        UsageError: The operator asks for one instant.
    """
    if column.kind != "date" or not _RELATIVE.fullmatch(value):
        return None
    if operator == "=":
        raise UsageError(f"{name}={value} asks for one instant.", f"Write {name}>={value}.")
    return {"range": {column.field: {_BOUNDS[operator]: value}}}


def equal(name: str, value: str, layout: DocumentLayout) -> Clause:
    """An entry equals a value. A value of another type than the field's is compared as text."""
    if (column := _application_field(name, layout)) is not None:
        return _compared(name, "=", value, column)
    kind = layout.types.get(_entry(name), "keyword")
    _relative(name, "=", value, Column("", kind))  # refuses now-7d
    if name == "id" or kind == "keyword":
        return {"term": {stored_field(name): value}}
    if kind == "date":
        interval = typed_fields.date_interval(value)
        return (
            {"range": {_typed(name): {"gte": interval[0], "lt": interval[1]}}}
            if interval
            else {"term": {stored_field(name): value}}
        )
    converted = _converted(kind, value)
    return {"term": {stored_field(name): value}} if converted is None else {"term": {_typed(name): converted}}


def in_range(name: str, operator: str, value: str, layout: DocumentLayout) -> Clause:
    """An entry is below or above a value.

    Raises:
        UsageError: The value does not have the type of the field, or the type has no order.
    """
    if (column := _application_field(name, layout)) is not None:
        return _compared(name, operator, value, column)
    kind = layout.types.get(_entry(name))
    if name in layout.extra and kind != "date":  # a server reads "<= 2024" as up to the end of its first day
        return {"range": {name: {_BOUNDS[operator]: value}}}
    if name == "id" or kind in {None, "keyword"}:
        return {"range": {stored_field(name): {_BOUNDS[operator]: value}}}
    return _bounded(name, operator, value, Column(_typed(name), kind))


def _bounded(name: str, operator: str, value: str, column: Column) -> Clause:
    """A field is below, above or (dates) at a value.

    Raises:
        UsageError: The value does not have the type of the field, or the type has no order.
    """
    kind = column.kind
    if (relative := _relative(name, operator, value, column)) is not None:
        return relative
    if kind == "keyword":
        return {"range": {column.field: {_BOUNDS[operator]: value}}}
    if kind == "boolean":
        raise UsageError(f"The field {name!r} is true or false, which has no order.", f"Write {name}=true or {name}=false.")
    if kind == "date":
        interval = typed_fields.date_interval(value)
        if interval is None:
            raise UsageError(
                f"The field {name!r} holds dates, and {value!r} is not a date.",
                f"Write {name}{operator}2024, 2024-05 or 2024-05-31; with < and > also now-7d.",
            )
        # A year, month or day is an interval: "<= 2024" includes its last day, "> 2024" begins after it.
        bounds = {"=": {"gte": interval[0], "lt": interval[1]}, ">": {"gte": interval[1]}, "<=": {"lt": interval[1]}}
        return {"range": {column.field: bounds.get(operator) or {_BOUNDS[operator]: interval[0]}}}
    number = _converted("double", value)
    if number is None:
        raise UsageError(
            f"The field {name!r} holds numbers, and {value!r} is not a number.", f"Write a number: {name}{operator}10."
        )
    whole = _converted("long", value)
    return {"range": {column.field: {_BOUNDS[operator]: number if whole is None else whole}}}


def _typed(name: str) -> str:
    return f"{typed_fields.FIELD}.{_entry(name)}"
