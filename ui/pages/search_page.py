"""The page `/search`: searches one query in one or two ways, side by side, and shows the parts of each hit's score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote, urlencode

from termweave.errors import TermweaveError
from termweave.evaluation.book.store import JudgementBook, check_judge
from termweave.evaluation.measures import per_query
from termweave.records import Hit, Run
from termweave.search.results import explanation, pictures
from termweave.signals.fusion import METHODS
from termweave.support.messages import clipped
from termweave.ui import parameters, searching
from termweave.ui.pages import judge_page
from termweave.ui.rendering import PageAddress, page, page_address, status_of
from termweave.ui.searching import DEPTH, SearchSide
from termweave.ui.workspace import NoIndexYet, Workspace, workspace_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from termweave.search import Index
    from termweave.search.results.pictures import Picture
    from termweave.signals.modes import Mode

    #: A piece of a text, the weight of its word, and the weight as a share of the heaviest.
    ShadedRun: TypeAlias = tuple[str, float, float]

#: Characters of a passage: beside another list there is less room.
_ALONE, _BESIDE = 420, 260
#: Fields of the metadata that stand beside a hit, and characters of each; the others open with "Why".
_FACTS, _VALUE = 6, 60
#: Ranks of the measure of rated hits.
_RANKS = 10
_API = frozenset(each.name for each in parameters.SEARCH)


@dataclass(frozen=True)
class ScoreBar:
    """A part of the score of a hit, drawn as a bar.

    Attributes:
        name: Name of the signal or the reranker that gave this part.
        kind: "words", "meaning" or "rerank": what the part counts, and its colour.
        share: The amount that this part adds to the final score.
        about: The line of `search --explain` about this part.
        words: Words of the query, the largest share first, each with "word" and "share" in the final score; the shares sum to `share`. Empty for
            a signal that compares vectors and for a reranker.
        start: Where the bar begins, in percent of the longest row of bars in the list.
        width: Length of the bar, in the same percent.
        neighbours: For the reranker rNN, ids of the documents with which the hit shares nearest neighbours.
    """

    name: str
    kind: str
    share: float
    about: str
    words: Sequence[Mapping[str, Any]] = ()
    start: float = 0.0
    width: float = 0.0
    neighbours: tuple[str, ...] = ()


@dataclass(frozen=True)
class HitCard:
    """A hit as the page shows it.

    Attributes:
        hit: The hit.
        title: The title in pieces with a shade each, as `Picture.runs` gives them; empty: the hit has no title, and the page shows its id.
        passage: The passage in shaded pieces, without the title.
        bars: The parts of the score.
        place: The rank of the hit in words.
        moved: The rank of the hit in the list beside this one; None: that list lacks the hit; "": there is no other list, or the hit is below
            the ranks that are compared.
        metadata: The first six other fields, as pairs of name and text, long texts cut.
        cut: All other fields in full, if `metadata` leaves out or cuts some; else empty.
        neighbours: Id and title of each neighbour that the reranker rNN found.
        token: The id of the hit in ASCII (percent-encoded), because HTML cannot carry every character.
    """

    hit: Hit
    title: Sequence[ShadedRun]
    passage: Sequence[ShadedRun]
    bars: Sequence[ScoreBar]
    place: str
    moved: int | str | None
    metadata: Sequence[tuple[str, str]]
    cut: Sequence[tuple[str, str]]
    neighbours: Sequence[tuple[str, str]]
    token: str


@dataclass(frozen=True)
class HitRating:
    """The rating of the hits of one list: the values that the grade buttons send, the grades of this judge, and nDCG@10 by the grades of all judges.

    Attributes:
        index: The index whose book gets the grades.
        generation: The generation that was searched.
        judge: Name of the judge.
        query: Text of the query.
        back: The query string of the search page, to which the browser returns after a grade.
        grades: Document id -> grade of this judge; None: skipped.
        rated: How many of the first ten hits have a grade of any judge.
        ndcg: nDCG@10 of the list by these grades; None: no document has a grade, or the list does not show the ten best hits.
        meanings: What the grades 0 to 3 mean, in words.
    """

    index: str
    generation: str
    judge: str
    query: str
    back: str
    grades: Mapping[str, int | None]
    rated: int
    ndcg: float | None
    meanings: Sequence[str] = judge_page.MEANINGS


@dataclass(frozen=True)
class ShownList:
    """One list of hits on the page: how it was searched, a card for each hit and for the document to explain, the grades, and the request as curl."""

    side: SearchSide
    label: str
    cards: Sequence[HitCard]
    explained: Sequence[HitCard]
    rating: HitRating | None
    curl: str


def show(request: Request) -> Response:
    """Answer a request with the search page. An error is shown above the form, which keeps the typed text."""
    workspace, query = workspace_of(request), request.query_params
    address = PageAddress("/search", query)
    context: dict[str, Any] = {
        "address": address,
        "given": {each.name: query.get(each.name, "") for each in parameters.PAGE},
        "lists": (),
        "error": None,
        "json": page_address("/api/search", [(name, value) for name, value in address.pairs if name in _API]),
        "controls": parameters.CONTROLS,
        "typing": _suggestions(workspace),
        "index": "",
    }
    status = 200
    try:
        values = context["values"] = parameters.read(query, parameters.PAGE)
        context["index"] = workspace.chosen(values["index"])
        context["typing"] = _suggestions(workspace, context["index"])
        if values["q"].strip():
            context |= _results(workspace, values, address)
    except NoIndexYet:
        raise
    except TermweaveError as error:
        context["error"], status = error, status_of(error)
    context.setdefault("values", {each.name: each.readable(query) for each in parameters.PAGE})
    return page(request, "search.html", context, status)


def _results(workspace: Workspace, values: Mapping[str, Any], address: PageAddress) -> dict[str, Any]:
    configurations = searching.both(values) if values["compare"] else (values,)
    sides = [searching.answer(workspace, each, {**searching.options(each), "explain": True}) for each in configurations]
    comparison = searching.compared(workspace, values) if values["compare"] else None
    # The document that the user asks about, explained for each configuration.
    hits = [[searching.explained(workspace, side.values)] if values["id"] else [] for side in sides]
    lists = []
    for place, side in enumerate(sides):
        other = None if comparison is None else (comparison.second, comparison.first)[place]
        label, width = (("Left", "Right")[place], _BESIDE) if values["compare"] else ("", _ALONE)
        cards, explained = _cards(side.index, side.answer.hits, width, other), _cards(side.index, hits[place], _ALONE, None)
        rating = _rating(side, address) if values["judge"] else None
        curl = searching.as_curl(side.index, side.values) if values["curl"] else ""
        lists.append(ShownList(side, label, cards, explained, rating, curl))
    return {"lists": lists, "comparison": comparison, "more": any(len(side.answer.hits) == values["k"] for side in sides)}


def _rating(side: SearchSide, address: PageAddress) -> HitRating:
    """The grades that a judge gave for the query of a list, and nDCG@10 of the list by the grades of all judges."""
    values, book = side.values, JudgementBook(side.index.engine, side.index.book)
    judge, text = check_judge(values["judge"]), values["q"].strip()
    query = next((each.id for each in book.queries() if each.text == text), None)
    mine = {each.document: each.grade for each in book.grades(judge) if each.query == query}
    grades = book.qrels().get(query, {}) if query is not None else {}
    hits, ndcg = side.answer.hits[:_RANKS], None
    if grades and not values["from"] and values["k"] >= _RANKS:
        run = Run("list", {"q": {hit.id: -float(hit.rank) for hit in hits}})
        ndcg = float(per_query(run, {"q": grades}, ["q"], measures=(f"nDCG@{_RANKS}",))[f"nDCG@{_RANKS}"][0])
    rated = sum(hit.id in grades for hit in hits)
    return HitRating(book.name, side.index.generation, judge, text, urlencode(address.pairs), mine, rated, ndcg)


def _cards(index: Index, hits: Sequence[Hit], width: int, other: Mapping[str, int] | None) -> list[HitCard]:
    """Make the card of each hit.

    Args:
        index: The index that was searched.
        hits: The hits, with explanations of their scores.
        width: Number of characters of a passage.
        other: Document id -> rank in the other list; None: there is no other list.
    """
    best = best_of(hits)
    bars = [bars_of(hit, best) for hit in hits]
    near = [[document for bar in of_hit for document in bar.neighbours] for of_hit in bars]
    titles = searching.titles(index, {document for documents in near for document in documents})
    cards = []
    for place, hit in enumerate(hits):
        title, passage = _parted(str(hit.fields.get("title") or ""), pictures.of_hit(hit, width)[0])
        metadata = searching.metadata_of(hit.fields.get("metadata") or {})
        short = [(name, clipped(value, _VALUE)) for name, value in metadata[:_FACTS]]
        cards.append(
            HitCard(
                hit=hit,
                title=title,
                passage=passage,
                bars=bars[place],
                place=explanation.place(hit),
                moved="" if other is None else other.get(hit.id, None if hit.rank <= DEPTH else ""),
                metadata=short,
                cut=metadata if metadata != short else (),
                neighbours=[(document, titles.get(document, document)) for document in near[place]],
                token=quote(hit.id, safe=""),
            )
        )
    return cards


def _parted(title: str, picture: Picture) -> tuple[list[ShadedRun], list[ShadedRun]]:
    """Split a shaded passage into the title and the rest, as shaded pieces; if the passage does not begin with the title, the title has no shades."""
    if not title or not picture.text.startswith(title):
        return [(title, 0.0, 0.0)] if title else [], list(picture.runs())
    rest = picture.text[len(title) :]
    begin = len(picture.text) - len(rest.lstrip(" .\n"))
    parts: tuple[list[ShadedRun], list[ShadedRun]] = ([], [])
    at = 0
    for piece, weight, share in picture.runs():
        for part, low, high in ((parts[0], 0, len(title)), (parts[1], begin, len(picture.text))):
            if cut := piece[max(0, low - at) : max(0, high - at)]:
                part.append((cut, weight, share))
        at += len(piece)
    return parts


def bars_of(hit: Hit, best: float) -> list[ScoreBar]:
    """The bars for the parts of an explained hit's score, the largest share first.

    Args:
        hit: The hit.
        best: The value of `best_of` for the list, which is 100 percent of the width.
    """
    explained = hit.explanation or {"parts": []}
    parts = sorted(explained["parts"], key=lambda part: -part["share"])
    bars, start = [], 0.0
    for part, (share, name, about) in zip(parts, explanation.as_rows(explained, terms=20), strict=True):
        kind = "rerank" if "rank" not in part else "words" if part["terms"] else "meaning"
        width = 100 * max(0.0, share) / best if best > 0 else 0.0
        words: list[dict[str, Any]] = []
        if share > 0 and part.get("terms") and part["score"] > 0:
            words = [{"word": each["word"], "share": each["share"] * share / part["score"]} for each in part["terms"]]
            words.sort(key=lambda word: -word["share"])
        bars.append(ScoreBar(name, kind, share, about, words, start, width, tuple(part.get("neighbours", ()))))
        start += width
    return bars


def best_of(hits: Sequence[Hit]) -> float:
    """The largest sum of positive shares that a hit of the list has: the width into which the bars of every hit fit."""
    explained = [hit.explanation["parts"] for hit in hits if hit.explanation]
    return max((sum(max(0.0, part["share"]) for part in parts) for parts in explained), default=0.0)


def _suggestions(workspace: Workspace, name: str = "") -> dict[str, Any]:
    """Suggestions for the input boxes of the search form; if the index cannot be opened, most lists are empty.

    Modes are the profiles of the index, hybrid with each fusion method, and each signal alone; facets are at most twelve fields whose values a search can
    count; places are the names of all indices, and of the generations of this index.
    """
    index: Index | None = None
    if name:
        with suppress(TermweaveError):
            index = workspace.index(name)
    modes = ["hybrid"]
    if index is not None:
        modes = [*index.lineage.profiles, "hybrid", *index.signals, *(f"hybrid@{method}" for method in METHODS)]
    return {
        "modes": modes,
        "rerankers": ["none", "rnn", "rnn@dense", *workspace.options.rerankers],
        "facets": [] if index is None else index.layout.able()[:12],
        "passages": index is not None and bool(index.lineage.passages),
        "places": lambda: [] if index is None else workspace.places(index.book),
        "weighted": partial(_weighted, workspace, name),
    }


def _weighted(workspace: Workspace, first: str, mode: str, name: str = "") -> Mode | None:
    """A mode with a weight for every signal of an index, for the sliders; None: the mode cannot be read, or the index has only one signal."""
    try:
        index = workspace.index(name or first)
        chosen = index.choose(mode or None)[0]
    except TermweaveError:
        return None
    weights = {signal: chosen.weights.get(signal, 0.0) for signal in index.signals}
    return replace(chosen, weights=weights) if len(weights) > 1 else None
