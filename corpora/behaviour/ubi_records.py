"""Single records of the logs ``ubi_queries`` and ``ubi_events``, in all the forms that the schema's versions and OpenSearch's plugin gave them.

The schema is https://github.com/o19s/ubi (1.0 to 1.3). What differs between logs:

* The ids that were shown are ``query_response_hit_ids``; earlier versions wrote ``query_response_object_ids`` or ``query_response_objects_ids``.
* The user's query is a text, or an object with the key ``text``. Events may repeat it, so that no record of the query is needed.
* A position is ``position.ordinal`` or ``position.ordinal.index``; objects may be nested or have dotted names.
* The plugin stores the request as text in ``query``. Its ``from`` is the position of the first id of that page. If the request named no
  ``object_id_field``, the plugin logged Lucene's internal document numbers, which are no ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

import orjson

from termweave.support.normal_form import normal

#: Actions that are more than a look, and all that say: this is what I looked for.
#: "view" is none: some shops mean an opened page with it, others a document on the screen.
CONVERSIONS = frozenset({"add_to_cart", "purchase", "buy", "download", "watch"})
CLICKS = CONVERSIONS | {"click", "click_through", "item_click", "product_click", "result_click"}
#: Actions that say that a document was on the screen.
SHOWN = frozenset({"impression", "item_impression", "product_impression"})
#: A position from here on is not one: models count in 64 bits.
_POSITIONS = 2**31
#: Who did it: (0, id of the client), (1, id of the session) or (2, id of the search); (2, "") if a record names none of them.
Person = tuple[int, str]
#: What the numbers of named persons mean.
PERSONS = ("client", "session")
#: What programs write for an id that they do not have.
_NO_IDS = frozenset({"", "null", "none", "undefined", "nan"})
_HITS = ("query_response_hit_ids", "query_response_object_ids", "query_response_objects_ids")


@dataclass(frozen=True, slots=True)
class SearchRecord:
    """One page of results of one search.

    Attributes:
        search: The id of the search.
        query: What the user typed.
        person: Who searched.
        shown: Document id -> position in the list, from 0.
        internal: Whether the log holds Lucene's document numbers instead of ids of documents; `shown` is empty then.
    """

    search: str
    query: str
    person: Person
    shown: dict[str, int] = field(default_factory=dict)
    internal: bool = False


@dataclass(frozen=True, slots=True)
class EventRecord:
    """One click or impression.

    Attributes:
        search: The id of the search; "" if the event does not say.
        query: What the user typed; "" if the event does not say.
        person: Who clicked or was shown the document.
        document: The id of the document.
        clicked: Whether the event is a click; if not, it is an impression.
        ordinal: The position in the list, from 0 or from 1 as the log counts; None: the event does not say.
        converted: Whether the event is a click that is also a conversion, such as a purchase.
    """

    search: str
    query: str
    person: Person
    document: str
    clicked: bool
    ordinal: int | None
    converted: bool = False


def query_id(text: str) -> str:
    """The id of a query in judgements and runs: a hash of its text, the same in every log."""
    return blake2b(text.encode(), digest_size=6).hexdigest()


def search_record(record: Mapping[str, Any]) -> SearchRecord | None:
    """Read a record of ``ubi_queries``; None: the record has no id or no query."""
    search, query, person = _id(record.get("query_id")), _query(record), _person(record)
    if not search or not query:
        return None
    request = _request(record.get("query"))
    if _names_no_field(request):
        return SearchRecord(search, query, person, internal=True)
    hits: Any = next((record[name] for name in _HITS if record.get(name) is not None), [])
    first = _number(request.get("from")) or 0
    shown: dict[str, int] = {}
    for place, document in enumerate(hits if isinstance(hits, list) else [hits], first):
        if name := _text(document):
            shown.setdefault(name, place)
    return SearchRecord(search, query, person, shown)


def event_record(record: Mapping[str, Any]) -> EventRecord | None:
    """Read a record of ``ubi_events``; None: the record is neither a click nor an impression of a document."""
    action = str(record.get("action_name") or "").lower()
    document = _text(_inside(record, "event_attributes.object.object_id"))
    if action not in CLICKS | SHOWN or not document:
        return None
    ordinal = _inside(record, "event_attributes.position.ordinal")
    if isinstance(ordinal, Mapping):
        ordinal = ordinal.get("index")
    search, person = _id(record.get("query_id")), _person(record)
    return EventRecord(search, _query(record), person, document, action in CLICKS, _number(ordinal), action in CONVERSIONS)


def time_of(record: Mapping[str, Any]) -> float | None:
    """Return the `timestamp` of a record, a date or milliseconds, as seconds since 1970; None: the record has neither."""
    value = record.get("timestamp")
    if isinstance(value, int | float):
        return value / 1000
    try:
        then = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return (then if then.tzinfo else then.replace(tzinfo=UTC)).timestamp()


def _text(value: Any) -> str:
    """Return a text or a whole number as text, and "" for anything else: a text such as "None" would join records that lack the value."""
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""


def _id(value: Any) -> str:
    """Return the id of a search, session or client; "": the value is none, or stands for a missing id, such as "null"."""
    text = _text(value).strip()
    return "" if text.lower() in _NO_IDS else text


def _person(record: Mapping[str, Any]) -> Person:
    names = [_id(record.get(name)) for name in ("client_id", "session_id", "query_id")]
    return next(((rank, name) for rank, name in enumerate(names) if name), (len(PERSONS), ""))


def _query(record: Mapping[str, Any]) -> str:
    """Return the user's query, normalised (`termweave.support.normal_form`) and with single blanks; "": the record has no query."""
    text = record.get("user_query")
    if isinstance(text, Mapping):
        text = text.get("text")
    return " ".join(normal(text).split()) if isinstance(text, str) else ""


def _inside(record: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path, whether the record nests objects or has dotted names; None: the record has no such value."""
    if path in record:
        return record[path]
    head, _, rest = path.partition(".")
    inner = record.get(head)
    return _inside(inner, rest) if rest and isinstance(inner, Mapping) else None


def _number(value: Any) -> int | None:
    """Return a position that is written as a number or as digits; None: the value is no position."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = int(value)
    except (ValueError, OverflowError):
        return None
    return number if 0 <= number < _POSITIONS else None


def _request(query: Any) -> Mapping[str, Any]:
    """Return the search request that the plugin stored as text; {}: the record has no request, or the request is no JSON object."""
    if isinstance(query, str) and query.startswith("{"):
        with suppress(orjson.JSONDecodeError):
            query = orjson.loads(query)
    return query if isinstance(query, Mapping) else {}


def _names_no_field(request: Mapping[str, Any]) -> bool:
    """Whether a search request asked to be logged without naming the field that holds the documents' ids."""
    extensions = request.get("ext")
    ubi = extensions.get("ubi", extensions) if isinstance(extensions, Mapping) else None
    return isinstance(ubi, Mapping) and "object_id_field" in ubi and not ubi["object_id_field"]
