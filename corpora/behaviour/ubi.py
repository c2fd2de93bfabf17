"""Logs in the schema of User Behavior Insights (https://github.com/o19s/ubi): ``ubi_queries`` and ``ubi_events``.

A record of ``ubi_queries`` says what a user searched for and which ids were shown; where a record lists no ids, events named ``impression``
give them. A record of ``ubi_events`` with the id of a document is a click if its action is a kind of click. `ubi_records` reads single records.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.corpora.behaviour import click_model
from termweave.corpora.behaviour.ubi_records import PERSONS, event_record, search_record, time_of
from termweave.support.messages import clipped, counted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from termweave.corpora.behaviour.ubi_records import EventRecord, Person

#: With fewer pairs that were shown at several positions, a remark says that positions cannot be told from attraction.
_FEWEST_MOVED = 10
#: A click counts as at most 1 / this many: one click at a position that hardly anybody looks at is no proof.
_LEAST = 0.05
#: Grades from 1: a document whose attraction is at least these shares has grade 2 and 3.
_GRADES = (1 / 3, 2 / 3)
#: Characters of a client's id in a remark.
_NAMED = 60

#: Id of a search, or of one without an id the person and the query.
_Key = str | tuple["Person", str]


@dataclass
class _Search:
    """One search of one user.

    Attributes:
        query: What the user typed.
        person: Who searched: of the persons that records of the search name, that of lowest rank (a client before a session).
        listed: Document id -> position from 0, in the list of results that the log of queries gives.
        seen: Document id -> ordinal of its first impression, from 0 or from 1 as the log counts.
        clicked: Document id -> ordinal of the first click on it that has an ordinal; None: no click has one.
        converted: Ids of the documents that were bought, downloaded or the like.
    """

    query: str
    person: Person
    listed: dict[str, int] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    clicked: dict[str, int | None] = field(default_factory=dict)
    converted: set[str] = field(default_factory=set)


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

    def clicks(self) -> NDArray[np.float64]:
        """Return the number of clicks of each pair of query and document, ``(pairs,)``."""
        return np.bincount(self.impressions.pair, weights=self.impressions.clicked, minlength=len(self.pairs)).astype(np.float64)

    def corrected_clicks(self, model: click_model.PositionModel) -> NDArray[np.float64]:
        """Return the clicks of each pair, ``(pairs,)``, each click divided by the probability that its position is looked at (at least `_LEAST`)."""
        position = np.minimum(self.impressions.position, len(model.examined) - 1)
        weighted = self.impressions.clicked / np.maximum(model.examined[position], _LEAST)
        return np.bincount(self.impressions.pair, weights=weighted, minlength=len(self.pairs)).astype(np.float64)

    def qrels(self, model: click_model.PositionModel) -> dict[str, dict[str, int]]:
        """Return query -> document -> grade for queries with a click: 0 for a document that was not clicked, else 1 to 3 by its attraction."""
        grades: dict[str, dict[str, int]] = {}
        clicked = self.clicks()
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
            lost = "without the query_id of a logged search, and without a query and who typed it"
            sentences.append(f"{counted(self.lost, 'event')} left out: {lost}.")
        (kind, name), clicks, total = self.busiest or ((0, ""), 0, 0)
        if 2 * clicks > total > 1:
            share = f"made {clicks:,} of {counted(total, 'click')}; it counts once for each query and document"
            sentences.append(f"The {PERSONS[kind]} {clipped(name, _NAMED)!r} {share}.")
        if self.internal:
            reason = "the search requests named no object_id_field, and the server logged its internal document numbers"
            sentences.append(f"{counted(self.internal, 'list')} of shown documents left out: {reason}.")
        if corrected and model.moved < _FEWEST_MOVED:
            few = f"Only {counted(model.moved, 'pair')} of query and document stood at several positions"
            assumed = "how often a position is looked at is mostly the assumption 1 / position. Raw counts: the split 'raw'"
            sentences.append(f"{few}: {assumed}.")
        elif corrected:
            looked = ", ".join(f"{value:.2f}" for value in model.examined[:5])
            sentences.append(f"Positions 1 to {min(5, len(model.examined))} are looked at in the proportion {looked}.")
        return sentences


def behaviour_of(queries: Iterable[Mapping[str, Any]], events: Iterable[Mapping[str, Any]]) -> Behaviour:
    """Join records of queries with records of events, and count how often each document was shown and clicked."""
    searches: dict[_Key, _Search] = {}
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
            search = searches.setdefault(page.search, _Search(page.query, page.person))
            search.person = min(search.person, page.person)
            search.listed = page.shown | search.listed
            internal += page.internal
    for entry in timed(events):
        if (event := event_record(entry)) is not None:
            lost += not _note(event, searches)
    return replace(_summed(searches.values(), lost, internal), first=first, last=last)


def _note(event: EventRecord, searches: dict[_Key, _Search]) -> bool:
    """Enter an event in its search, found by the search's id, else by person and query, or in a new search; return False if the event tells none."""
    key = event.search or (event.person, event.query)
    if key not in searches and event.query and event.person[1]:
        searches[key] = _Search(event.query, event.person)
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


def _summed(searches: Collection[_Search], lost: int, internal: int) -> Behaviour:
    """Count each person once for each query and document, at the position where the person first clicked the document, else was first shown it."""
    numbers: dict[tuple[str, str], int] = {}
    rows: defaultdict[tuple[int, int], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    unplaced = 0
    # The ordinals of a log count from 0 or from 1: the smallest one tells, because something always stands first.
    ordinals = (ordinal for search in searches for ordinal in (*search.seen.values(), *search.clicked.values()))
    first = min(1, min((ordinal for ordinal in ordinals if ordinal is not None), default=1))
    of_persons: defaultdict[Person, list[_Search]] = defaultdict(list)
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
