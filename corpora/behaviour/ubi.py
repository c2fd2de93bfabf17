"""Logs in the schema of User Behavior Insights (https://github.com/o19s/ubi, 1.0 to 1.3): ``ubi_queries`` and ``ubi_events``.

A record of ``ubi_queries`` says what a user searched for and which ids were shown; where a record lists no ids, events named ``impression``
give them. A record of ``ubi_events`` with the id of a document is a click if its action is a kind of click. What differs between logs:

* The ids that were shown are ``query_response_hit_ids``; earlier versions wrote ``query_response_object_ids`` or ``query_response_objects_ids``.
* The user's query is a text, or an object with the key ``text``. Events may repeat it, so that no record of the query is needed.
* A position is ``position.ordinal`` or ``position.ordinal.index``; objects may be nested or have dotted names.
* The plugin of OpenSearch stores the request as text in ``query``. Its ``from`` is the position of the first id of that page. If the request
  named no ``object_id_field``, the plugin logged Lucene's internal document numbers, which are no ids.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from termweave.corpora.behaviour import click_model
from termweave.support.messages import clipped, counted
from termweave.support.normal_form import normal

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
#: With fewer pairs that were shown at several positions, a remark says that positions cannot be told from attraction.
_FEWEST_MOVED = 10
#: A click counts as at most 1 / this many: one click at a position that hardly anybody looks at is no proof.
_LEAST = 0.05
#: Grades from 1: a document whose attraction is at least these shares has grade 2 and 3.
_GRADES = (1 / 3, 2 / 3)
#: Characters of a client's id in a remark.
_NAMED = 60

#: Id of a search, or of one without an id the person and the query.
_Key = str | tuple[Person, str]


@dataclass
class LoggedSearch:
    """One search of one user: a page of it, or all pages and events together.

    Attributes:
        id: The id of the search; "" for one that only events tell.
        query: What the user typed.
        person: Who searched: of the persons that records of the search name, that of lowest rank (a client before a session).
        listed: Document id -> position from 0, in the list of results that the log of queries gives.
        internal: Whether the log holds Lucene's document numbers instead of ids of documents; `listed` is empty then.
        seen: Document id -> ordinal of its first impression, from 0 or from 1 as the log counts.
        clicked: Document id -> ordinal of the first click on it that has an ordinal; None: no click has one.
        converted: Ids of the documents that were bought, downloaded or the like.
    """

    id: str
    query: str
    person: Person
    listed: dict[str, int] = field(default_factory=dict)
    internal: bool = False
    seen: dict[str, int] = field(default_factory=dict)
    clicked: dict[str, int | None] = field(default_factory=dict)
    converted: set[str] = field(default_factory=set)


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


def search_record(record: Mapping[str, Any]) -> LoggedSearch | None:
    """Read a record of ``ubi_queries``; None: the record has no id or no query."""
    search, query, person = _id(record.get("query_id")), _query(record), _person(record)
    if not search or not query:
        return None
    request = _request(record.get("query"))
    if _names_no_field(request):
        return LoggedSearch(search, query, person, internal=True)
    hits: Any = next((record[name] for name in _HITS if record.get(name) is not None), [])
    first = _number(request.get("from")) or 0
    shown: dict[str, int] = {}
    for place, document in enumerate(hits if isinstance(hits, list) else [hits], first):
        if name := _text(document):
            shown.setdefault(name, place)
    return LoggedSearch(search, query, person, shown)


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


@dataclass(frozen=True)
class Behaviour:
    """Clicks and impressions of the users of a log, by query and document.

    Attributes:
        pairs: The pairs (query, document); `impressions.pair` holds positions in this list.
        impressions: How often each pair was shown and clicked at each position.
        unplaced: Number of clicks on documents whose position neither a list nor an event gives; these clicks are left out.
        lost: Number of events that belong to no search in the log of queries and do not say who searched for what.
        internal: Number of searches whose list of shown documents holds Lucene's document numbers instead of ids; such a list is left out.
        first: Time of the earliest record in seconds since 1970; -infinity if a record has no time.
        last: Time of the latest record; infinity if a record has no time.
        busiest: The client or session with most clicks, the number of its clicks, and that of all clicks; None: no record names a client or session.
    """

    pairs: list[tuple[str, str]]
    impressions: click_model.Impressions
    unplaced: int
    lost: int
    internal: int
    first: float = -inf
    last: float = inf
    busiest: tuple[Person, int, int] | None = None

    def model(self, *, corrected: bool) -> click_model.PositionModel:
        """Return the click model: fitted to the log if `corrected`, else the one that takes clicks and impressions as they are."""
        return click_model.fit(self.impressions) if corrected else click_model.raw(self.impressions)

    def clicks(self, model: click_model.PositionModel) -> NDArray[np.float64]:
        """Return the clicks of each pair of query and document, ``(pairs,)``.

        Each click is divided by the probability that its position is looked at, at least `_LEAST`; in a model without correction this is 1.
        """
        position = np.minimum(self.impressions.position, len(model.examined) - 1)
        weighted = self.impressions.clicked / np.maximum(model.examined[position], _LEAST)
        return np.bincount(self.impressions.pair, weights=weighted, minlength=len(self.pairs)).astype(np.float64)

    def qrels(self, model: click_model.PositionModel) -> dict[str, dict[str, int]]:
        """Return query -> document -> grade for queries with a click: 0 for a document that was not clicked, else 1 to 3 by its attraction."""
        grades: dict[str, dict[str, int]] = {}
        clicked = self.clicks(model)
        for number, (query, document) in enumerate(self.pairs):
            attraction = float(model.attractive[number])
            grades.setdefault(query, {})[document] = 1 + sum(attraction >= least for least in _GRADES) if clicked[number] else 0
        return {query: of for query, of in grades.items() if any(of.values())}

    def remarks(self, model: click_model.PositionModel, *, corrected: bool) -> list[str]:
        """Sentences about events that were left out, and about what the log can prove."""
        sentences = []
        if self.unplaced:
            sentences.append(f"{counted(self.unplaced, 'click')} on documents without a known position left out.")
        if self.lost:
            lost = "neither the query_id of a logged search, nor a query with the id of a client or session"
            sentences.append(f"{counted(self.lost, 'event')} left out, with {lost}.")
        (kind, name), clicks, total = self.busiest or ((0, ""), 0, 0)
        if 2 * clicks > total > 1:
            share = f"made {clicks:,} of {counted(total, 'click')}; its clicks count once for each query and document"
            sentences.append(f"The {PERSONS[kind]} {clipped(name, _NAMED)!r} {share}.")
        if self.internal:
            reason = "the search requests named no object_id_field, so the server logged its internal document numbers"
            sentences.append(f"{counted(self.internal, 'list')} of shown documents left out: {reason}.")
        if corrected and model.moved < _FEWEST_MOVED:
            few = f"Only {counted(model.moved, 'pair')} of query and document stood at several positions"
            assumed = "how often users look at a position is mostly the assumption 1 / position. The split 'raw' has plain counts"
            sentences.append(f"{few}: {assumed}.")
        elif corrected:
            looked = ", ".join(f"{value:.2f}" for value in model.examined[:5])
            sentences.append(f"Positions 1 to {min(5, len(model.examined))} are looked at in the proportion {looked}.")
        return sentences


def behaviour_of(queries: Iterable[Mapping[str, Any]], events: Iterable[Mapping[str, Any]]) -> Behaviour:
    """Join records of queries with records of events, and count how often each document was shown and clicked."""
    searches: dict[_Key, LoggedSearch] = {}
    internal = lost = 0
    first, last = inf, -inf

    def timed(entries: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        nonlocal first, last
        for entry in entries:
            time = time_of(entry)
            first, last = min(first, -inf if time is None else time), max(last, inf if time is None else time)
            yield entry

    for entry in timed(queries):
        if (page := search_record(entry)) is not None:
            search = searches.setdefault(page.id, page)
            search.person = min(search.person, page.person)
            search.listed = page.listed | search.listed
            internal += page.internal
    for entry in timed(events):
        if (event := event_record(entry)) is not None:
            lost += not _note(event, searches)
    return replace(_summed(searches.values(), lost, internal), first=first, last=last)


def _note(event: EventRecord, searches: dict[_Key, LoggedSearch]) -> bool:
    """Enter an event in its search, found by the search's id, else by person and query, or in a new search; return False if the event tells none."""
    key = event.search or (event.person, event.query)
    if key not in searches and event.query and event.person[1]:
        searches[key] = LoggedSearch("", event.query, event.person)
    search = searches.get(key)
    if search is None:
        return False
    search.person = min(search.person, event.person)
    if event.clicked:
        if search.clicked.get(event.document) is None:
            search.clicked[event.document] = event.ordinal
        if event.converted:
            search.converted.add(event.document)
    elif event.ordinal is not None:
        search.seen.setdefault(event.document, event.ordinal)
    return True


def _summed(searches: Collection[LoggedSearch], lost: int, internal: int) -> Behaviour:
    """Count each person once for each query and document, at the position where the person first clicked the document, else was first shown it."""
    numbers: dict[tuple[str, str], int] = {}
    rows: defaultdict[tuple[int, int], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    unplaced = 0
    # The ordinals of a log count from 0 or from 1: the smallest one tells, because something always stands first.
    ordinals = (ordinal for search in searches for ordinal in (*search.seen.values(), *search.clicked.values()))
    first = min(1, min((ordinal for ordinal in ordinals if ordinal is not None), default=1))
    of_persons: defaultdict[Person, list[LoggedSearch]] = defaultdict(list)
    for search in searches:
        of_persons[search.person].append(search)
    for theirs in of_persons.values():
        once: dict[int, tuple[int, bool, bool]] = {}
        for search in theirs:
            stated = search.clicked | search.seen
            shown = {document: ordinal - first for document, ordinal in stated.items() if ordinal is not None} | search.listed
            unplaced += len(search.clicked.keys() - shown.keys())
            for document, place in shown.items():
                pair = numbers.setdefault((search.query, document), len(numbers))
                at, clicked, converted = once.get(pair, (place, False, False))
                now = document in search.clicked
                once[pair] = (place if now and not clicked else at, clicked or now, converted or document in search.converted)
        for pair, (place, clicked, converted) in once.items():
            row = rows[pair, place]
            row[0] += 1
            row[1] += clicked
            row[2] += converted
    keys = np.array(list(rows), np.int64).reshape(-1, 2)
    values = np.array(list(rows.values())).reshape(-1, 3)
    impressions = click_model.Impressions(keys[:, 0], keys[:, 1], *values.T)
    clicks = {person: sum(len(search.clicked) for search in theirs) for person, theirs in of_persons.items()}
    person = max(((rank, name) for rank, name in clicks if rank < len(PERSONS)), key=clicks.__getitem__, default=None)
    busiest = None if person is None else (person, clicks[person], sum(clicks.values()))
    return Behaviour(list(numbers), impressions, unplaced, lost, internal, busiest=busiest)
