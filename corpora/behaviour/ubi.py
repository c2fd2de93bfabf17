"""Logs in the schema of User Behavior Insights (https://github.com/o19s/ubi): ``ubi_queries`` and ``ubi_events``.

A record of ``ubi_queries`` holds the user's query and the ids that were shown for it (``query_response_hit_ids``); where it has none, events
named ``impression`` say what was shown. A record of ``ubi_events`` with a ``query_id`` and the ``object_id`` of a document is a click if its
action is one of `CLICKS`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.corpora.behaviour import click_model
from termweave.support.messages import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

#: Actions that say: this is what I looked for.
CLICKS = frozenset(
    {"click", "item_click", "product_click", "result_click", "add_to_cart", "purchase", "buy", "download", "watch"}
)
#: Actions that say that a document was on the screen.
SHOWN = frozenset({"impression", "item_impression", "product_impression"})
#: The largest share of the pairs that may stand still before a remark says that positions cannot be told from attraction.
_FEWEST_MOVED = 10
#: Grades from 1: a document whose attraction is at least these shares has grade 2 and 3.
_GRADES = (1 / 3, 2 / 3)


@dataclass
class _Search:
    """One search of one user: the query, the ids that were shown, and those that were clicked."""

    query: str = ""
    shown: dict[str, int] = field(default_factory=dict)
    clicked: dict[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Behaviour:
    """What users did, by query and document.

    Attributes:
        pairs: The pairs (query, document), in the order of the impressions' numbers.
        impressions: What was shown and clicked.
        unplaced: Clicks on documents that no list and no event gives a position; they are left out.
        lost: Events of searches that the log of queries does not hold.
    """

    pairs: list[tuple[str, str]]
    impressions: click_model.Impressions
    unplaced: int
    lost: int

    def model(self, *, corrected: bool) -> click_model.PositionModel:
        """The click model: fitted, or the one that takes raw counts."""
        return click_model.fit(self.impressions) if corrected else click_model.raw(self.impressions)

    def clicks(self) -> NDArray[np.float64]:
        """Clicks of each pair."""
        return np.bincount(self.impressions.pair, weights=self.impressions.clicked, minlength=len(self.pairs)).astype(np.float64)

    def corrected_clicks(self, model: click_model.PositionModel) -> NDArray[np.float64]:
        """Clicks of each pair, each divided by the probability that its position is looked at."""
        position = np.minimum(self.impressions.position, len(model.examined) - 1)
        weighted = self.impressions.clicked / np.maximum(model.examined[position], 1e-3)
        return np.bincount(self.impressions.pair, weights=weighted, minlength=len(self.pairs)).astype(np.float64)

    def qrels(self, model: click_model.PositionModel) -> dict[str, dict[str, int]]:
        """Query -> document -> grade, for queries with a click: 0 for a document without one, 1 to 3 by its attraction."""
        grades: dict[str, dict[str, int]] = {}
        clicked = self.clicks()
        for number, (query, document) in enumerate(self.pairs):
            attraction = float(model.attractive[number])
            grades.setdefault(query, {})[document] = 1 + sum(attraction >= least for least in _GRADES) if clicked[number] else 0
        return {query: of for query, of in grades.items() if any(of.values())}

    def remarks(self, model: click_model.PositionModel, *, corrected: bool) -> list[str]:
        """What a user should know of the log."""
        sentences = []
        if self.unplaced:
            sentences.append(f"{counted(self.unplaced, 'click')} on documents without a known position left out.")
        if self.lost:
            sentences.append(f"{counted(self.lost, 'event')} of searches that the log of queries does not hold left out.")
        if corrected and model.moved < _FEWEST_MOVED:
            sentences.append(
                f"Only {counted(model.moved, 'pair')} of query and document stood at several positions: how often a position is looked at is "
                "mostly the assumption 1 / position. Raw counts: the split 'raw', or click_counts=raw in training."
            )
        elif corrected:
            looked = ", ".join(f"{value:.2f}" for value in model.examined[:5])
            sentences.append(f"Positions 1 to {min(5, len(model.examined))} are looked at in the proportion {looked}.")
        return sentences


def read(queries: Iterable[Mapping[str, Any]], events: Iterable[Mapping[str, Any]]) -> Behaviour:
    """Join queries and events, and sum what was shown and clicked."""
    searches: dict[str, _Search] = {}
    for record in queries:
        identity, text = record.get("query_id"), record.get("user_query")
        if isinstance(identity, str) and isinstance(text, str) and text.strip():
            search = searches.setdefault(identity, _Search())
            search.query = " ".join(text.split())
            for place, document in enumerate(_list(record.get("query_response_hit_ids"))):
                search.shown.setdefault(str(document), place)
    lost = sum(not _note(event, searches) for event in events)
    return _summed(searches.values(), lost)


def query_id(text: str) -> str:
    """The id of a query in judgements and runs: a hash of its text, the same in every log."""
    return blake2b(text.encode(), digest_size=6).hexdigest()


def _note(event: Mapping[str, Any], searches: Mapping[str, _Search]) -> bool:
    """Enter an event; False if its search is unknown."""
    action = str(event.get("action_name") or "").lower()
    attributes = event.get("event_attributes") or {}
    thing = attributes.get("object") or {}
    document = thing.get("object_id")
    if document is None or action not in CLICKS | SHOWN:
        return True
    search = searches.get(str(event.get("query_id")))
    if search is None:
        return False
    ordinal = (attributes.get("position") or {}).get("ordinal")
    place = ordinal if isinstance(ordinal, int) and not isinstance(ordinal, bool) and ordinal >= 0 else None
    if action in CLICKS:
        search.clicked.setdefault(str(document), place)
    elif place is not None:
        search.shown.setdefault(str(document), place)
    return True


def _summed(searches: Iterable[_Search], lost: int) -> Behaviour:
    numbers: dict[tuple[str, str], int] = {}
    rows: defaultdict[tuple[int, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
    unplaced = 0
    for search in searches:
        if not search.query:
            continue
        for document, place in search.clicked.items():
            if document not in search.shown and place is not None:
                search.shown[document] = place
            unplaced += document not in search.shown
        for document, place in search.shown.items():
            row = rows[numbers.setdefault((search.query, document), len(numbers)), place]
            row[0] += 1
            row[1] += document in search.clicked
    keys = np.array(list(rows), np.int64).reshape(-1, 2)
    values = np.array(list(rows.values())).reshape(-1, 2)
    return Behaviour(list(numbers), click_model.Impressions(keys[:, 0], keys[:, 1], values[:, 0], values[:, 1]), unplaced, lost)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
