"""The features of a search, in the order of their steps: a new one is a file in `search/features/` and a line here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from termweave.search.features.collapse import Collapse
from termweave.search.features.facets import Facets
from termweave.search.features.minimum_score import ScoreFloor
from termweave.search.features.pin import Pin
from termweave.search.features.sort import Sort
from termweave.search.features.totals import CountedTotals

if TYPE_CHECKING:
    from termweave.search.feature import Feature, Search

FEATURES: tuple[type[Feature[Any]], ...] = (Pin, ScoreFloor, Sort, Collapse, Facets, CountedTotals)


def features_of(options: object, search: Search) -> list[Feature[Any]]:
    """The features that take part in a search with these options."""
    return [each(options, search) for each in FEATURES if each.takes_part(options)]
