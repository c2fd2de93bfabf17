"""Mark the words of a query in the hits, and choose the passage of each hit that shows most of them.

The terms of the signal weights are found on the client, by the analysis that made the terms. The words of the lexical signal are found
by the server's highlighter, because only the server has the analyzer. The server marks words in whole fields, whose texts are
then matched to the texts of the hits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

from termweave.declared_settings import Setting
from termweave.dialect import CLOSE, MARKED, OPEN, dialect_of
from termweave.records import Highlight, Hit
from termweave.search.feature import Feature, Ranking

if TYPE_CHECKING:
    from termweave.contracts.signal import Clause
    from termweave.search.opening import OpenGeneration

#: The fields that are highlighted.
FIELDS = ("title", "text")
#: Length of a passage in characters.
PASSAGE = 200
#: The most characters of a passage before its first match.
_BEFORE = 40
#: Characters of a field that are searched for matches; the server refuses to highlight fields of more than a million.
_MOST = 100_000
Spans = list[tuple[int, int]]


@dataclass(frozen=True, kw_only=True)
class HighlightOptions:
    """Whether the words of the query are marked.

    Attributes:
        highlight: Mark the words that lexical and weights matched, and give the passage around them.
    """

    highlight: Annotated[
        bool,
        Setting(
            "Mark the words that lexical and weights matched, and show the passage around them.",
            default_text="yes, but not in JSON",
            flag="--highlight/--no-highlight",
            control="",
        ),
    ] = False


class MarkedWords(Feature[HighlightOptions]):
    """Marks the words of the query in the hits of the page."""

    local = False

    def show(self, hits: list[Hit], ranking: Ranking) -> list[Hit]:
        """Add highlights to each hit: at most one passage for each field, and none for a field without a word of the query."""
        from termweave.search.retrieval import clause_limit  # noqa: PLC0415 - not needed by `--help`

        generation = self.search.generation
        signals, capabilities = generation.signals(ranking.plan.signals), generation.engine.capabilities
        query, _ = clause_limit.fit(generation, ranking.candidates.query, signals, (), capabilities)
        terms: set[str] = set()
        marked: dict[str, Spans] = {}
        for signal in signals:
            clause = signal.query_clause(query, size=1, where=(), capabilities=capabilities)
            if clause is not None and clause.terms:
                terms |= clause.terms.keys()
            elif clause is not None and signal.text_fields and hits:
                marked |= _marked(generation, clause, hits)
        highlighted = []
        for hit in hits:
            highlights = []
            for name in FIELDS:
                text = hit.fields.get(name)
                if isinstance(text, str) and text:
                    spans = _matches(text, marked) + (generation.encoder.spans(text[:_MOST], terms) if terms else [])
                    highlights += [passage(name, text, spans)] if spans else []
            highlighted.append(replace(hit, highlights=tuple(highlights)))
        return highlighted


def passage(name: str, text: str, spans: Iterable[tuple[int, int]]) -> Highlight:
    """The part of a field that shows the most different words of the query, cut between words; a short field is shown whole.

    Example:
        >>> passage("text", "to parse json", [(3, 8), (9, 13)])
        Highlight(field='text', start=0, text='to parse json', matches=((3, 8), (9, 13)))
    """
    merged = _merged(spans)
    start, end = 0, len(text)
    if len(text) > PASSAGE:

        def shown(place: int) -> int:
            """Number of different words in the passage that begins shortly before the match with this number."""
            low = max(0, merged[place][0] - _BEFORE)
            return len({text[a:b].casefold() for a, b in merged[place:] if b <= low + PASSAGE})

        best = max(range(min(len(merged), 500)), key=shown)
        start = max(0, min(merged[best][0] - _BEFORE, len(text) - PASSAGE))
        end = min(len(text), max(start + PASSAGE, merged[best][1]))
        if start and (blank := re.search(r"\s", text[start : merged[best][0]])):
            start += blank.end()
        if end < len(text) and (cut := max(text.rfind(" ", start, end), text.rfind("\n", start, end))) >= merged[best][1]:
            end = cut
    inside = tuple((a - start, b - start) for a, b in merged if a >= start and b <= end)
    return Highlight(name, start, text[start:end], inside)


def _merged(spans: Iterable[tuple[int, int]]) -> Spans:
    """Sort spans (start, end), and merge those that overlap."""
    merged: Spans = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _marked(generation: OpenGeneration, clause: Clause, hits: Sequence[Hit]) -> dict[str, Spans]:
    """Text of a field -> the spans (start, end) in which the server found words of the query."""
    body: dict[str, Any] = {
        # A document may have several passages. The text of a hit tells which of them it shows.
        "size": min(1000, 20 * len(hits)),
        "query": {"bool": {"must": [clause.query], "filter": [generation.layout.with_ids([hit.id for hit in hits])]}},
        "_source": False,
        "track_total_hits": False,
        "highlight": {
            "type": "unified",
            "pre_tags": [OPEN],
            "post_tags": [CLOSE],
            "number_of_fragments": 0,
            "require_field_match": False,  # the query searches `content`; `title` and `text` are highlighted
            dialect_of(generation.engine.capabilities).highlight_limit: _MOST,
            "fields": {name: {} for name in generation.layout.text_fields},
        },
    }
    by_text: dict[str, Spans] = {}
    for hit in generation.engine.search(generation.index, body)["hits"]["hits"]:
        for marked in chain.from_iterable(hit.get("highlight", {}).values()):
            spans = [
                (match.start() - 2 * number, match.start() - 2 * number + len(match[1]))
                for number, match in enumerate(MARKED.finditer(marked))
            ]
            by_text[marked.replace(OPEN, "").replace(CLOSE, "")] = spans
    return by_text


def _matches(text: str, marked: Mapping[str, Spans]) -> Spans:
    """The spans (start, end) of a text in which the server marked words.

    The server's highlighter splits a text at U+0000 and marks each part separately.
    """
    spans, start = [], 0
    for value in text.split("\0") if marked else ():
        spans += [(start + a, start + b) for a, b in marked.get(value, ())]
        start += len(value) + 1
    for value, parts in marked.items() if not spans else ():  # an application's text may be several fields, joined by line ends
        place = f"\n{text}\n".find(f"\n{value}\n")
        spans += [(place + a, place + b) for a, b in parts if place >= 0]
    return spans
