"""The best passages of each hit, where documents are cut into passages: `--passages 3`; `--passages 3+1` adds the passages beside each.

The worth of a passage is computed from the signals' scores of it, scaled and weighed as the scores of documents were: the sum over
the signals of ``counts * (score - lowest) / (highest - lowest)``; one signal alone gives its own score. A passage is left out if it overlaps a
better passage, or is shown as the neighbour of a better one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from termweave.catalog.layout import engine_id, stored_text
from termweave.declared_settings import Setting
from termweave.errors import UsageError
from termweave.records import FoundPassage, Hit, Passage
from termweave.search.feature import Feature, Ranking
from termweave.signals.fusion import fuse
from termweave.support.arguments import parsed_text

if TYPE_CHECKING:
    from termweave.search.opening import OpenGeneration
    from termweave.search.retrieval.candidates import Candidates
    from termweave.signals.modes import Mode

#: Passages of a document that each signal scores, and the most that a hit shows.
_SCORED, _MOST = 100, 20
_FORM = re.compile(r"(\d{1,3})(?:\+(\d{1,3}))?")


@dataclass(frozen=True, slots=True)
class _Scored:
    """A passage of a document (its number, start and end) and its worth."""

    number: int
    start: int
    end: int
    worth: float

    def around(self, beside: int) -> range:
        """The numbers of this passage and of `beside` neighbours on each side."""
        return range(max(1, self.number - beside), self.number + beside + 1)


def parse(value: str | int) -> tuple[int, int]:
    """Read the value of `--passages`: how many passages, and how many neighbours on each side of a passage.

    Raises:
        UsageError: The value is something else, or too large.

    Example:
        >>> parse("3+1"), parse(2)
        ((3, 1), (2, 0))
    """
    match = _FORM.fullmatch(str(value).strip())
    count, beside = (int(match[1]), int(match[2] or 0)) if match else (0, 0)
    if not 1 <= count <= _MOST or beside > _MOST:
        hint = f"Write 3 (at most {_MOST}), or 3+1 for one neighbour on each side."
        raise UsageError(f"{value!r} does not say how many passages.", hint)
    return count, beside


@dataclass(frozen=True, kw_only=True)
class PassageOptions:
    """The passages that are shown of long documents.

    Attributes:
        passages: Show the best passages of each document that is cut into passages: 3, or "3+1" with one neighbour on each side.
    """

    passages: Annotated[
        str | int | None,
        Setting(
            "Show the best passages of each document that is cut into passages: 3, or 3+1 with one neighbouring passage on each side.",
            "NUMBER",
            control="Best passages",
            example="3, or 3+1 with neighbours",
            convert=parsed_text(parse),
        ),
    ] = None


class BestPassages(Feature[PassageOptions]):
    """Adds the best passages to the hits of the page."""

    def show(self, hits: list[Hit], ranking: Ranking) -> list[Hit]:
        """Add the best passages to each hit; none to a document that is short enough for one passage. Rerankers do not change the worth.

        Raises:
            UsageError: The documents of the index are not cut into passages.
        """
        generation, (count, beside) = self.search.generation, parse(self.options.passages or 1)
        if not generation.lineage.passages:
            hint = "Leave --passages out, or build the index with --passage-size 160."
            raise UsageError(f"The documents of the index {generation.lineage.name!r} are not cut into passages.", hint)
        scored = _scored(generation, ranking.candidates, self.search.mode, hits)
        chosen = {hit.id: _best(scored.get(hit.id, ()), count, beside) for hit in hits}
        stored = _stored(
            generation,
            {document: [number for each in best for number in each.around(beside)] for document, best in chosen.items()},
        )
        return [
            replace(hit, passages=tuple(_joined_with_neighbours(best, beside, stored.get(hit.id, {})) for best in chosen[hit.id]))
            for hit in hits
        ]


def _best(passages: Sequence[_Scored], count: int, beside: int) -> list[_Scored]:
    """The best passages of a document, best first. None of them overlaps a better one, or is among the neighbours of a better one."""
    best: list[_Scored] = []
    for each in sorted(passages, key=lambda passage: (-passage.worth, passage.number)):
        apart = all(
            abs(each.number - other.number) > beside and (each.end <= other.start or each.start >= other.end) for other in best
        )
        if len(best) < count and apart:
            best.append(each)
    return best


def _scored(generation: OpenGeneration, candidates: Candidates, mode: Mode, hits: Sequence[Hit]) -> dict[str, list[_Scored]]:
    """Document id -> the document's passages that a signal finds, with their worth. One request is sent for all hits and signals."""
    from termweave.search.retrieval.candidates import answers_to  # noqa: PLC0415 - not needed by `--help`

    engine, columns = generation.engine, ["passage", "passage_start", "passage_end"]
    signals = generation.signals(candidates.lists.keys() & candidates.clauses.keys())
    searched = [(signal, hit) for signal in signals for hit in hits]
    searches: list[tuple[str, dict[str, Any]]] = []
    for signal, hit in searched:
        clause, where = candidates.clauses[signal.name], [{"term": {"id": hit.id}}]
        query = signal.restricted(clause, candidates.query, where, size=_SCORED, capabilities=engine.capabilities)
        body = {"query": query, "size": _SCORED, "_source": False, "docvalue_fields": columns, "track_total_hits": False}
        searches.append((signal.name, body))
    answers = answers_to(engine, generation.index, searches)
    places: dict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
    worth: dict[tuple[str, int], float] = defaultdict(float)
    counts = fuse(candidates.lists, mode.weights, mode.fusion).counts
    for (signal, hit), answer in zip(searched, answers, strict=True):
        for passage in answer["hits"]["hits"]:
            fields = passage.get("fields", {})
            if not {*columns} <= fields.keys():
                continue  # a document that is short enough, or that another program wrote
            number = fields["passage"][0]
            places[hit.id][number] = fields["passage_start"][0], fields["passage_end"][0]
            score = signal.score(passage["_score"], candidates.clauses[signal.name])
            if len(candidates.lists) > 1:
                ranked = candidates.lists[signal.name]
                extent = ranked.high - ranked.low
                score = counts[signal.name] * (max(0.0, (score - ranked.low) / extent) if extent > 0 else 1.0)
            worth[hit.id, number] += score
    return {
        document: [_Scored(number, *place, worth[document, number]) for number, place in numbers.items()]
        for document, numbers in places.items()
    }


def _stored(generation: OpenGeneration, numbers_of: Mapping[str, Sequence[int]]) -> dict[str, dict[int, tuple[int, int, str]]]:
    """Document id -> number of a passage -> start, end and text of this passage."""
    keys = [engine_id(Passage.key(document, number)) for document, numbers in numbers_of.items() for number in sorted({*numbers})]
    if not keys:
        return {}
    params = {"_source_includes": "id,text,passage,passage_start,passage_end", "realtime": False}
    entries = generation.engine.request("POST", f"/{generation.index}/_mget", params=params, body={"ids": keys})["docs"]
    stored: dict[str, dict[int, tuple[int, int, str]]] = defaultdict(dict)
    for source in (entry["_source"] for entry in entries if entry.get("found")):
        if {"id", "passage", "passage_start", "passage_end"} <= source.keys():
            stored[source["id"]][source["passage"]] = source["passage_start"], source["passage_end"], stored_text(source, "text")
    return stored


def _joined_with_neighbours(best: _Scored, beside: int, stored: Mapping[int, tuple[int, int, str]]) -> FoundPassage:
    """Join a passage and its neighbours to one text, at their offsets in the document; white space between them becomes blanks."""
    parts = sorted(stored[number] for number in best.around(beside) if number in stored)
    text = ""
    start = parts[0][0] if parts else best.start
    for begin, _, part in parts:
        text = text[: begin - start].ljust(begin - start) + part if begin + len(part) > start + len(text) else text
    return FoundPassage(best.number, start, start + len(text), text, best.worth)
