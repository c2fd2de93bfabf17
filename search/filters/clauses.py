"""Translate the comparisons of a filter into clauses of the query DSL: a field equals a value, matches a pattern, or is below or above a value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from termweave.catalog import typed_fields
from termweave.catalog.columns import RANGES, Column
from termweave.errors import UsageError
from termweave.support.normal_form import forms

if TYPE_CHECKING:
    from termweave.catalog.layout import DocumentLayout

    Clause = dict[str, Any]

#: A time relative to now, as servers read it: now-7d, now-1M/M.
_RELATIVE = re.compile(r"now(?:[+-]\d+[yMwdhHms])*(?:/[yMwdhHms])?")
_NUMBERS = ("long", "double")
#: Kinds of declared fields that the metadata do not hold as text, and types without patterns.
_NO_TEXTS, _NO_PATTERNS = ("object", "geo_point"), ("ip", "flattened")
_BOUNDS = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}


def stored_field(name: str) -> str:
    """Name of the server's field that holds a metadata entry as text; "id" stays "id"."""
    return name if name == "id" else f"metadata.{name.removeprefix('metadata.')}"


def _field(name: str, layout: DocumentLayout) -> Column | None:
    """The field that a filter compares; None: a metadata entry of an index that termweave built, which can be compared as text only.

    Raises:
        UsageError: The application has no such field, or filters cannot compare the field.
    """
    if layout.application is None:
        column = None if name == "id" else layout.column(name)
        if column is None or (column.obstacle("filter") and column.kind not in _NO_TEXTS and column.path in {"", name}):
            return None
    return layout.usable(name, "filter")


def _compared(name: str, operator: str, value: str, column: Column) -> Clause | None:
    """The clause for documents in which a field compares with a value as `operator` says.

    None: the operator is "=", and the value does not have the type of the field.

    Raises:
        UsageError: The operator is not "=", and the value does not have the type of the field, or the type has no order.
    """
    if column.kind == "range":  # a document passes whose range holds some of what is asked for
        kind, declared = RANGES[column.type]
        column = replace(column, kind=kind, mapping={"type": declared})
    if column.kind == "flat":
        column = replace(column, kind="keyword", ordered=False)
    a_date = column.kind == "date" and (_RELATIVE.fullmatch(value) or typed_fields.date_interval(value))
    if operator != "=" or a_date:
        return column.inside(_bounded(name, operator, value, column))
    converted = column.converted(value)
    if converted is None:
        return None
    if column.kind in _NUMBERS and not column.takes(converted):
        return {"match_none": {}}
    return column.inside(_term(column.field, converted))


def _term(field: str, value: Any) -> Clause:
    """The clause for documents whose field has a value. A text matches in every Unicode form that an application or an earlier version may store."""
    return any_of([{"term": {field: each}} for each in (forms(value) if isinstance(value, str) else [value])])


def none_of(clause: Clause) -> Clause:
    """The clause for documents that do not pass `clause`."""
    return {"bool": {"must_not": [clause]}}


def of_same_objects(clauses: Sequence[Clause]) -> list[Clause]:
    """Clauses for documents that pass all given clauses. All clauses on a nested object must be passed by the same object of a list."""
    parts = list(_parts(clauses))
    if not any("nested" in part for part in parts):
        return list(clauses)
    inside = _by_object(parts)
    joined = [
        {"nested": {"path": path, "query": of[0] if len(of) == 1 else {"bool": {"filter": of}}}} for path, of in inside.items()
    ]
    return [*(part for part in parts if "nested" not in part), *joined]


def _parts(clauses: Sequence[Clause]) -> Iterator[Clause]:
    """Yield the clauses; a clause that joins others by AND is replaced by its parts."""
    for clause in clauses:
        if clause.keys() == {"bool"} and clause["bool"].keys() == {"filter"}:
            yield from _parts(clause["bool"]["filter"])
        else:
            yield clause


def _by_object(clauses: Sequence[Clause]) -> dict[str, list[Clause]]:
    """Path of a nested object -> the queries that the clauses make about this object."""
    inside: dict[str, list[Clause]] = {}
    for nested in (clause["nested"] for clause in clauses if "nested" in clause):
        inside.setdefault(nested["path"], []).append(nested["query"])
    return inside


def any_of(clauses: Sequence[Clause]) -> Clause:
    """The clause for documents that pass at least one of `clauses`.

    Several values of one field become one list, which the server counts as a single clause.
    """
    values: dict[str, list[Any]] = {}
    others: list[Clause] = [
        {"nested": {"path": path, "query": any_of(of)}} for path, of in _by_object(clauses).items()
    ]  # one object passes one of the clauses
    for clause in clauses:
        if "nested" in clause:
            continue
        if same := clause.get("term") or clause.get("terms"):
            ((field, value),) = same.items()
            values.setdefault(field, []).extend(value if isinstance(value, list) else [value])
        else:
            others.append(clause)
    together = [
        {"terms": {field: listed}} if len(listed) > 1 else {"term": {field: listed[0]}} for field, listed in values.items()
    ]
    together += others
    return together[0] if len(together) == 1 else {"bool": {"should": together, "minimum_should_match": 1}}


def exists(name: str, layout: DocumentLayout) -> Clause:
    """The clause for documents that have a metadata entry or field.

    An unknown name is no error, because an application may ask before the first document has the field.
    """
    column = layout.mapped.get(name)
    if layout.application and not (column and column.searched):
        if not layout.may_hold(name):
            return {"exists": {"field": name}}
        column = layout.usable(name, "filter")
    if column is None or not column.searched:
        return {"exists": {"field": stored_field(name)}}
    return column.inside({"exists": {"field": column.field}})


def matching(name: str, pattern: str, layout: DocumentLayout) -> Clause:
    """The clause for documents whose metadata entry or field matches a pattern, in which ``*`` stands for any characters.

    Raises:
        UsageError: The field does not hold short texts; other fields cannot be compared with a pattern.
    """
    column = layout.usable(name, "filter") if layout.application or name in layout.mapped else layout.column(name)
    if column is None or column.kind != "keyword" or column.type in _NO_PATTERNS:
        holds = f"holds {column.words}" if column and column.kind in typed_fields.TYPES else "is not a field of short texts"
        hint = f'For the character itself: {name}="{pattern}".'
        raise UsageError(f"The field {name!r} {holds}, and {pattern!r} is a pattern.", hint)
    escaped = re.sub(r"([?\\])", r"\\\1", pattern)
    return column.inside(any_of([{"wildcard": {column.field: {"value": each}}} for each in forms(escaped)]))


def equal(name: str, value: str, layout: DocumentLayout) -> Clause:
    """The clause for documents whose metadata entry or field equals a value.

    In an index that termweave built, a value that does not have the type of the field is compared as text.

    Raises:
        UsageError: The value does not have the type of an application's field.
    """
    column = _field(name, layout)
    if column is None or column == Column(_typed(name), "keyword"):  # its metadata hold longer texts, too
        return _term(stored_field(name), value)
    clause = _compared(name, "=", value, column)
    if clause and (layout.application or "match_none" not in clause):
        return clause
    if layout.application is None:
        return _term(stored_field(name), value)
    raise _unlike(name, "=", value, column)


def in_range(name: str, operator: str, value: str, layout: DocumentLayout) -> Clause:
    """The clause for documents whose metadata entry or field is below or above a value, as `operator` says.

    Raises:
        UsageError: The value does not have the type of the field, or the type has no order.
    """
    column = _field(name, layout)
    if column is None or column == Column(_typed(name), "keyword"):
        return {"range": {stored_field(name): {_BOUNDS[operator]: value}}}
    clause = _compared(name, operator, value, column)
    assert clause is not None
    return clause


def _bounded(name: str, operator: str, value: str, column: Column) -> Clause:
    """The clause for documents whose field is below or above a value; with "=" for those whose date is within a year, month or day.

    Raises:
        UsageError: The value does not have the type of the field, or the type has no order.
    """
    if column.kind == "date":
        return _dated(name, operator, value, column)
    if column.kind == "boolean":
        raise UsageError(f"The field {name!r} is true or false, which has no order.", f"Write {name}=true or {name}=false.")
    if not column.ordered:
        raise UsageError(f"The field {name!r} is a {column.type}, which has no order.", f"Write {name}=VALUE.")
    if column.kind == "keyword":
        if column.type == "ip" and ("/" in value or column.converted(value) is None):
            raise _unlike(name, operator, value, column)
        # A key of a `flattened` field takes no range with one bound.
        edge = {} if column.type != "flattened" else {"lte": "\U0010ffff"} if operator in {">", ">="} else {"gte": ""}
        return {"range": {column.field: {_BOUNDS[operator]: value, **edge}}}
    number = column.converted(value, "double")
    if number is None:
        raise _unlike(name, operator, value, column)
    whole = column.converted(value, "long")
    number = number if whole is None else whole
    near = column.clamped(number)
    if not column.takes(number):  # all values are on one side of it
        operator = operator[0] + "=" * ((near < number) == (operator[0] == "<"))
    return {"range": {column.field: {_BOUNDS[operator]: near}}}


def _dated(name: str, operator: str, value: str, column: Column) -> Clause:
    """The clause for documents whose date is before, after or within the year, month or day of a value. Errors as in `_bounded`."""
    if _RELATIVE.fullmatch(value):
        if operator == "=":
            raise UsageError(f"{name}={value} asks for one instant.", f"Write {name}>={value}.")
        return {"range": {column.field: {_BOUNDS[operator]: value}}}
    interval = typed_fields.date_interval(value)
    if interval is None:
        raise _unlike(name, operator, value, column)
    # A year, month or day is an interval: "<= 2024" includes its last day, "> 2024" begins after it.
    first, end = map(column.clamped, interval)
    bounds = {"=": {"gte": first, "lt": end}, ">": {"gte": end}, "<=": {"lt": end}}
    # A mapping may have a format of its own, in which the bounds are not written.
    written = {"format": typed_fields.INSTANT} if column.mapping else {}
    return {"range": {column.field: (bounds.get(operator) or {_BOUNDS[operator]: first}) | written}}


def _unlike(name: str, operator: str, value: str, column: Column) -> UsageError:
    """Make the error for a value that does not have the type of its field."""
    if column.kind == "date":
        hint = f"Write {name}{operator}2024, 2024-05 or 2024-05-31; with < and > also now-7d."
        return UsageError(f"The field {name!r} holds dates, and {value!r} is not a date.", hint)
    if column.kind in _NUMBERS and operator != "=":
        hint = f"Write a number: {name}{operator}10."
        if not column.mapping and (_RELATIVE.fullmatch(value) or typed_fields.date_interval(value)):
            hint += f" If its numbers are times, 'termweave index' with --types {name}=epoch-seconds makes dates of them."
        return UsageError(f"The field {name!r} holds numbers, and {value!r} is not a number.", hint)
    return UsageError(f"The field {name!r} holds {column.words}, and {value!r} is not one of these.")


def _typed(name: str) -> str:
    return f"{typed_fields.FIELD}.{name.removeprefix('metadata.')}"
