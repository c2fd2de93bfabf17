"""`/search`: one box, one or two configurations, and for each hit the parts of its score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from termweave.errors import TermweaveError
from termweave.search.ranking.fusion import METHODS
from termweave.search.render import pictures
from termweave.search.results import explanation
from termweave.signals.typed_fields import as_text
from termweave.ui import parameters, searching
from termweave.ui.addresses import PageAddress
from termweave.ui.pages import score_bars
from termweave.ui.rendering import page, status_of
from termweave.ui.workspace import workspace_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from termweave.records import Hit
    from termweave.search import Index
    from termweave.search.render.html import Picture
    from termweave.ui.pages.score_bars import ScoreBar
    from termweave.ui.searching import SearchSide
    from termweave.ui.workspace import Workspace

#: Characters of a passage: beside another list there is less room.
_ALONE, _BESIDE = 420, 260
_API = frozenset(each.name for each in parameters.SEARCH)
_SLIDERS = frozenset(each.name for each in parameters.CANDIDATES_PAGE)


@dataclass(frozen=True)
class HitCard:
    """A hit as the page shows it.

    Attributes:
        hit: The hit.
        title: Its title, or its id.
        picture: Its shaded passage.
        bars: The parts of its score.
        place: Its rank in words.
        moved: Its rank in the other list: a number, None where it is not in that list, "" where there is no other list.
        metadata: Its other fields, as names and texts.
        neighbours: Titles of its neighbours, with their ids.
    """

    hit: Hit
    title: str
    picture: Picture
    bars: Sequence[ScoreBar]
    place: str
    moved: int | str | None
    metadata: Sequence[tuple[str, str]]
    neighbours: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class ShownList:
    """One list of the page: its configuration, its cards, and the addresses of its neighbours."""

    side: SearchSide
    label: str
    cards: Sequence[HitCard]


def show(request: Request) -> Response:
    """Answer a request of the page. A mistake is shown on the page, above the form, which keeps what was typed."""
    workspace = workspace_of(request)
    address = PageAddress("/search", request.query_params)
    context: dict[str, Any] = {
        "address": address,
        "given": {each.name: request.query_params.get(each.name, "") for each in parameters.PAGE},
        "lists": (),
        "comparison": None,
        "wanted": None,
        "error": None,
        "json": address.at("/api/search", _API),
        "sliders": address.at("/sliders", _SLIDERS),
        "typing": _Suggestions(workspace),
        "names": (),
        "index": "",
        "more": False,
        "empty": False,
    }
    status = 200
    try:
        context["names"] = workspace.names()
        values = parameters.read(request.query_params, parameters.PAGE)
        context["index"] = workspace.chosen(values["index"])
        context["typing"] = _Suggestions(workspace, context["index"])
        context["values"] = values
        if values["q"].strip():
            context |= _results(workspace, values)
    except TermweaveError as error:
        context["error"], status = error, status_of(error)
    context.setdefault("values", {each.name: each.default for each in parameters.PAGE})
    return page(request, "search.html", context, status)


def _results(workspace: Workspace, values: Mapping[str, Any]) -> dict[str, Any]:
    seconds = ("", "2") if values["compare"] else ("",)
    options = searching.shown(values, {"k", "from", "facet", "sort"}) | {"explain": True}
    sides = [searching.answer(workspace, values, second, **options) for second in seconds]
    comparison = searching.heads(workspace, values) if values["compare"] else None
    wanted = _wanted(workspace, values, seconds) if values["id"] else None
    width = _BESIDE if values["compare"] else _ALONE
    lists = []
    for place, side in enumerate(sides):
        other = None if comparison is None else (comparison.second, comparison.first)[place]
        label = ("Left" if place == 0 else "Right") if values["compare"] else ""
        best = score_bars.best_of(side.answer.hits)
        cards = _cards(side.index, side.answer.hits, best, width, other)
        lists.append(ShownList(side, label, cards))
    return {
        "lists": lists,
        "comparison": comparison,
        "wanted": wanted,
        "more": any(len(side.answer.hits) == values["k"] for side in sides),
        "empty": not any(side.answer.hits for side in sides),
    }


def _wanted(workspace: Workspace, values: Mapping[str, Any], seconds: Sequence[str]) -> list[HitCard]:
    """The document that the user asks about, explained for each configuration."""
    cards = []
    for second in seconds:
        hit = searching.explained(workspace, values, second)
        index = searching.ranking(workspace, values, second)[0]
        cards += _cards(index, [hit], score_bars.best_of([hit]), _ALONE, None)
    return cards


def _cards(index: Index, hits: Sequence[Hit], best: float, width: int, other: Mapping[str, int] | None) -> list[HitCard]:
    """The cards of hits.

    Args:
        index: The index that was searched.
        hits: The hits, explained.
        best: As `score_bars.of_hit`.
        width: Characters of a passage.
        other: Document id -> rank in the other list; None: there is no other list.
    """
    bars = [score_bars.of_hit(hit, best) for hit in hits]
    near = [[document for bar in of_hit for document in bar.neighbours] for of_hit in bars]
    named = searching.titles(index, {document for documents in near for document in documents})
    return [
        HitCard(
            hit=hit,
            title=str(hit.fields.get("title") or hit.id),
            picture=pictures.of_hit(hit, width)[0],
            bars=bars[place],
            place=explanation.place(hit),
            moved="" if other is None else other.get(hit.id),
            metadata=[(name, _shown(value)) for name, value in (hit.fields.get("metadata") or {}).items()],
            neighbours=[(document, named.get(document, document)) for document in near[place]],
        )
        for place, hit in enumerate(hits)
    ]


def _shown(value: Any) -> str:
    """A value of the metadata as people write it: a list with commas, and everything else that is not a text as JSON."""
    if isinstance(value, list) and not any(isinstance(each, list | dict) for each in value):
        return ", ".join(map(as_text, value))
    return as_text(value)


class _Suggestions:
    """What the boxes of the form offer, for a given index; an index that cannot be opened offers nothing."""

    def __init__(self, workspace: Workspace, name: str = "") -> None:
        self._workspace, self._name = workspace, name

    @property
    def _index(self) -> Index | None:
        try:
            return self._workspace.index(self._name) if self._name else None
        except TermweaveError:
            return None

    def modes(self) -> list[str]:
        """Modes of the index: profiles, hybrid with each fusion, and each signal."""
        index = self._index
        if index is None:
            return ["hybrid"]
        fused = [f"hybrid@{name}" for name in METHODS]
        return [*index.lineage.profiles, "hybrid", *index.signals, *fused]

    def rerankers(self) -> list[str]:
        """Rerankers that the page may use."""
        return ["none", "rnn", "rnn@dense", *self._workspace.options.rerankers]

    def facets(self) -> list[str]:
        """Fields that can be counted."""
        index = self._index
        return [] if index is None else index.layout.sortable[:12]

    def places(self) -> list[str]:
        """Indices, and the generations of this one."""
        from termweave.indexer.generations import generations  # noqa: PLC0415 - imports wait until a page needs them

        index = self._index
        if index is None:
            return []
        try:
            listed = generations.list_generations(self._workspace.engine, index.lineage.name)
        except TermweaveError:
            listed = []
        return [*self._workspace.names(), *(each.index for each in listed if each.complete)]
