"""Typed metadata: numbers, dates, booleans and short texts of the metadata, stored once more as fields of their own type.

The field ``metadata`` holds all metadata as texts. ``typed`` repeats the entries whose type is known, so that the server can compare,
count and sort them. The types belong to the index: the lineage stores them, and an update keeps them. The same holds for notations:
what `1,234` or `03/04/2025` means, and whether a number is a time, is decided once for all values of an entry.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

#: The object that holds the typed entries of a document.
FIELD = "typed"
#: The types, with the words that messages use.
TYPES = {"long": "whole numbers", "double": "numbers", "date": "dates", "boolean": "true or false", "keyword": "texts"}
#: How the values of an entry are written, where each alone has several readings -> the type. Of rivals one may read a value that the other
#: does not: 12,50 or 24/12/2025.
NOTATIONS = dict.fromkeys(("decimal-comma", "decimal-point"), "double")
NOTATIONS |= dict.fromkeys(("day-month-year", "month-day-year", "epoch-seconds", "epoch-milliseconds"), "date")
RIVALS = {"decimal-comma": "decimal-point", "day-month-year": "month-day-year"}
RIVALS |= {second: first for first, second in RIVALS.items()}
#: What users call the types and notations; the names of the types are understood, too.
DECLARED = {"text": "keyword", "integer": "long", "number": "decimal-point", "date": "date", "boolean": "boolean"}
DECLARED |= dict(zip(NOTATIONS, NOTATIONS, strict=True))
#: The format in which a server reads `date_interval`, whatever format a field of an application has.
INSTANT = "strict_date_optional_time"
#: Longest text that is counted and sorted by, in characters.
LONGEST_KEYWORD = 256
#: Deepest entry that becomes a typed field; OpenSearch allows 20 levels in all.
_DEEPEST = 10
#: A whole number as a number is written: "007" and "1,000" are texts.
_WHOLE = re.compile(r"-?(0|[1-9]\d{0,17})", re.ASCII)
_DECIMAL = re.compile(r"-?(0|[1-9]\d*)?\.\d+([eE][+-]?\d+)?|-?[1-9]\d*[eE][+-]?\d+", re.ASCII)
#: Numbers with marks between thousands: 1.299,00 or 1 299,00; 1,299.00 or 1'299.00.
_COMMA = re.compile(r"[-+]?(?:0|[1-9]\d*|[1-9]\d{0,2}(?:([. \u00a0\u202f])\d{3})(?:\1\d{3})*)(?:,\d+)?")
_POINT = re.compile(r"[-+]?(?:0|[1-9]\d*|[1-9]\d{0,2}(?:([,'\u2019])\d{3})(?:\1\d{3})*)(?:\.\d+)?")
_DATE = re.compile(r"\d{4}([-/])\d\d\1\d\d([T ]\d\d:\d\d(:\d\d([.,]\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?)?", re.ASCII)
#: A date as people write it, perhaps with a time: 24.12.2025 or 12/24/2025 10:30.
_WRITTEN = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2(\d{4})(?:,?[ T](\d\d:\d\d(?::\d\d)?))?", re.ASCII)
#: A date as in mails and feeds (RFC 5322): Wed, 18 Nov 2026 11:06:40 GMT.
_MAIL = re.compile(r"([A-Z][a-z]{2}, )?\d{1,2} [A-Z][a-z]{2} \d{4} \d\d:\d\d(:\d\d)? ([A-Z]{1,3}|[+-]\d{4})", re.ASCII)
#: A date that a filter names: a year, a month, a day, or a time.
_PARTIAL = re.compile(r"(\d{4})(?:[-/](\d\d)(?:[-/](\d\d))?)?", re.ASCII)
#: The first instant of the year 10000, in the date math of servers: neither Python nor `INSTANT` writes it.
_YEAR_10000 = "9999-12-31||+1d"
_LONG = 2**63
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)


def entries(metadata: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, value) for each single value in metadata. A list gives each of its values; null and "" are not values.

    Example:
        >>> list(entries({"year": 1999, "author": {"name": "Ada"}, "tags": ["a", "b"]}))
        [('year', 1999), ('author.name', 'Ada'), ('tags', 'a'), ('tags', 'b')]
    """
    for key, value in metadata.items():
        if isinstance(value, dict):
            yield from entries(value, f"{prefix}{key}.")
            continue
        for each in value if isinstance(value, list | tuple) else (value,):
            if isinstance(each, dict):
                yield from entries(each, f"{prefix}{key}.")
            elif each is not None and not isinstance(each, list | tuple) and each != "":
                yield f"{prefix}{key}", each


def usable(name: str) -> bool:
    """Whether a metadata entry can be a field of its own, by its dotted name: the name has no empty part, and at most ten parts."""
    parts = name.split(".")
    return len(parts) <= _DEEPEST and all(part.strip() for part in parts)


def kind_of(value: Any) -> str:
    """Return the type of one value, told by the way in which the value is written.

    Example:
        >>> [kind_of(value) for value in (3, "3", "007", 2.5, "2024-02-29", "2024-02-30", "true", "blue")]
        ['long', 'long', 'keyword', 'double', 'date', 'keyword', 'boolean', 'keyword']
    """
    return next((kind for kind in ("boolean", "long", "double", "date") if convert(kind, value) is not None), "keyword")


def convert(kind: str, value: Any) -> Any:
    """Convert a value to the form that a typed field stores; None: the value is not of this type, or not in this notation.

    Example:
        >>> convert("decimal-comma", "1.299,00"), convert("date", "24.12.2025"), convert("epoch-seconds", 1795000000)
        (1299.0, '2025-12-24T00:00:00+00:00', '2026-11-18T11:06:40+00:00')
    """
    return _CONVERSIONS[kind](value.strip() if isinstance(value, str) else value)


def typed_values(metadata: Mapping[str, Any], types: Mapping[str, str]) -> dict[str, Any]:
    """Return the typed entries of a document: name -> value, or list of several values. A value of another type is left out.

    Args:
        metadata: Metadata of the document.
        types: Metadata entry -> type or notation.
    """
    values: dict[str, list[Any]] = {}
    for name, value in entries(metadata):
        if name in types and (converted := convert(types[name], value)) is not None:
            values.setdefault(name, []).append(converted)
    return {name: each[0] if len(each) == 1 else each for name, each in values.items()}


def properties(types: Mapping[str, str]) -> dict[str, Any]:
    """Return the mapping of the typed fields: metadata entry -> definition of its field."""
    limit = {"ignore_above": LONGEST_KEYWORD}
    return {name: {"type": kind, **(limit if kind == "keyword" else {})} for name, kind in types.items()}


def date_interval(text: str) -> tuple[str, str] | None:
    """Return the first instant of a year, month, day or time, and the first instant after it; None: the text is not a date.

    Example:
        >>> date_interval("2024-02")
        ('2024-02-01T00:00:00+00:00', '2024-03-01T00:00:00+00:00')
    """
    text = text.strip()
    if (match := _WRITTEN.fullmatch(text)) and match[2] == "." and not match[5]:
        text = f"{match[4]}-{match[3]:>02}-{match[1]:>02}"
    if match := _PARTIAL.fullmatch(text):
        year, month, day = (int(part) if part else None for part in match.groups())
        try:
            first = date(year or 0, month or 1, day or 1)
            end = first + timedelta(days=1 if day else 31 if month else 366)
            end = end if day else end.replace(month=end.month if month else 1, day=1)
        except ValueError:
            return None
        except OverflowError:
            return f"{first}T00:00:00+00:00", _YEAR_10000
        return f"{first}T00:00:00+00:00", f"{end}T00:00:00+00:00"
    if (instant := _date(text)) is None:
        return None
    try:
        return instant, (datetime.fromisoformat(instant) + timedelta(milliseconds=1)).isoformat()
    except OverflowError:
        return instant, _YEAR_10000


def as_text(value: Any) -> str:
    """Return a value as the text that filters compare with."""
    import orjson  # noqa: PLC0415

    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _boolean(value: Any) -> bool | None:
    return {"true": True, "false": False}.get(str(value).lower()) if isinstance(value, bool | str) else None


def _long(value: Any) -> int | None:
    if isinstance(value, str):
        return int(value) if _WHOLE.fullmatch(value) else None
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if -_LONG <= value < _LONG else None


def _double(value: Any) -> float | None:
    if isinstance(value, str):
        value = float(value) if _DECIMAL.fullmatch(value) or _WHOLE.fullmatch(value) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _separated(value: Any, form: re.Pattern[str], point: str) -> float | None:
    """Read a number in which `point` separates the fraction and other marks the thousands; None: the text is no such number. JSON numbers stay as they are."""
    if not isinstance(value, str) or not form.fullmatch(value):
        return None if isinstance(value, str) else _double(value)
    return _double(re.sub(rf"[^-\d{point}]", "", value).replace(point, "."))


def _date(value: Any) -> str | None:
    if not isinstance(value, str):
        return None
    if (match := _WRITTEN.fullmatch(value)) and match[2] == ".":
        return _day_month_year(value)
    if _MAIL.fullmatch(value):
        from email.utils import parsedate_to_datetime  # noqa: PLC0415 - few sources have such dates

        with suppress(ValueError):
            return _instant(str(parsedate_to_datetime(value)))
    return _instant(value.replace(",", ".").replace("/", "-")) if _DATE.fullmatch(value) else None


def _instant(written: str) -> str | None:
    """Convert an ISO 8601 time to UTC, which is assumed if the time names no zone; None: there is no such time."""
    try:
        moment = datetime.fromisoformat(written)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return moment.isoformat(timespec="milliseconds" if moment.microsecond else "seconds")


def _day_month_year(value: Any, *, month_first: bool = False) -> str | None:
    """Read a date whose first number is the day (or the month); a date in another, unambiguous notation is read by `_date`."""
    match = _WRITTEN.fullmatch(value) if isinstance(value, str) else None
    if match is None or (month_first and match[2] == "."):
        return _date(value)
    day, month = (match[3], match[1]) if month_first else (match[1], match[3])
    return _instant(f"{match[4]}-{month:>02}-{day:>02}T{match[5] or '00:00'}")


def _since_1970(value: Any, of_second: int = 1) -> str | None:
    if (number := _double(value)) is None or abs(number) >= _LONG:
        return None
    with suppress(OverflowError):
        return _instant((_FIRST + timedelta(seconds=number / of_second)).isoformat())
    return None


def _keyword(value: Any) -> str | None:
    text = as_text(value)
    return text if len(text) <= LONGEST_KEYWORD else None


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "boolean": _boolean, "long": _long, "double": _double, "date": _date, "keyword": _keyword,
    "decimal-comma": partial(_separated, form=_COMMA, point=","), "decimal-point": partial(_separated, form=_POINT, point="."),
    "day-month-year": _day_month_year, "month-day-year": partial(_day_month_year, month_first=True),
    "epoch-seconds": _since_1970, "epoch-milliseconds": partial(_since_1970, of_second=1000),
}  # fmt: skip


def quoted(value: str) -> str:
    r"""Put a value in double quotes and escape it, so that a filter can compare with a value of any characters.

    Example:
        >>> quoted('27" AND more')
        '"27\\" AND more"'
    """
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
