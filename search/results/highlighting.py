"""Where the words of a query stand in a hit, and the passage of it that shows most of them.

Terms of a model's analysis (weights) are matched here: the analysis that made them finds them again, to the character. A query of
plain words (lexical) is matched by the engine's highlighter, whose analyzer only the engine has; what it says of a whole field is
laid beside the hit's own text.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from termweave.records import Highlight

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from termweave.encoders import TextEncoder
    from termweave.engine import Engine
    from termweave.records import Encoding, Hit
    from termweave.signals import Clause, Signal

#: Fields that are searched and shown.
FIELDS = ("title", "text")
#: Characters of a passage.
PASSAGE = 200
#: Of them, at most so many stand before the first match.
_BEFORE = 40
#: Characters of a field that are looked at; the engine refuses to mark fields beyond a million.
_MOST = 100_000
#: Marks that no text has: private use.
_OPEN, _CLOSE = "\ue5f0", "\ue5f1"
_MARKED = re.compile(f"{_OPEN}(.*?){_CLOSE}", re.DOTALL)

Spans = list[tuple[int, int]]


def of(
    engine: Engine, index: str, encoder: TextEncoder, signals: Sequence[Signal], query: Encoding, hits: Sequence[Hit]
) -> list[Hit]:
    """Hits with their highlights: at most one passage a field, none where no word of the query stands.

    Args:
        engine: Where the index is.
        index: The concrete index.
        encoder: Its encoder.
        signals: Those of the mode; signals without words (dense) have nothing to show.
        query: The encoded query.
        hits: With the fields `title` and `text`, as far as they are to be marked.
    """
    capabilities = engine.capabilities
    terms: set[str] = set()
    marked: dict[str, Spans] = {}
    for signal in signals:
        clause = signal.clause(query, size=1, where=(), capabilities=capabilities)
        if clause is not None and clause.terms:
            terms |= clause.terms.keys()
        elif clause is not None and signal.needs is None and hits:
            marked |= _marked(engine, index, clause, hits)
    found = []
    for hit in hits:
        highlights = []
        for name in FIELDS:
            text = hit.fields.get(name)
            if isinstance(text, str) and text:
                spans = _looked_up(text, marked) + (encoder.spans(text[:_MOST], terms) if terms else [])
                highlights += [passage(name, text, spans)] if spans else []
        found.append(replace(hit, highlights=tuple(highlights)))
    return found


def passage(name: str, text: str, spans: Iterable[tuple[int, int]]) -> Highlight:
    """The stretch of a field that shows most different words, whole words at both ends; a field that is short is shown whole.

    Example:
        >>> passage("text", "to parse json", [(3, 8), (9, 13)])
        Highlight(field='text', start=0, text='to parse json', matches=((3, 8), (9, 13)))
    """
    merged = _merged(spans)
    start, end = 0, len(text)
    if len(text) > PASSAGE:

        def shown(place: int) -> int:
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
    """In order, those that overlap in one."""
    merged: Spans = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _marked(engine: Engine, index: str, clause: Clause, hits: Sequence[Hit]) -> dict[str, Spans]:
    """Text of a field -> where the engine found words of the query in it."""
    body: dict[str, Any] = {
        # A document of several passages has more texts than one; which is shown is seen by the text itself.
        "size": min(1000, 20 * len(hits)),
        "query": {"bool": {"must": [clause.query], "filter": [{"terms": {"id": [hit.id for hit in hits]}}]}},
        "_source": False,
        "track_total_hits": False,
        "highlight": {
            "type": "unified",
            "pre_tags": [_OPEN],
            "post_tags": [_CLOSE],
            "number_of_fragments": 0,
            "require_field_match": False,  # `content` is searched, its sources are shown
            "max_analyzer_offset": _MOST,
            "fields": {name: {} for name in FIELDS},
        },
    }
    found: dict[str, Spans] = {}
    for hit in engine.request("POST", f"/{index}/_search", body=body)["hits"]["hits"]:
        for marked in chain.from_iterable(hit.get("highlight", {}).values()):
            text, spans = _unmarked(marked)
            found[text] = spans
    return found


def _looked_up(text: str, marked: Mapping[str, Spans]) -> Spans:
    """Where words were found in a text: to the engine's highlighter U+0000 separates values, and each is marked by itself."""
    spans, start = [], 0
    for value in text.split("\0") if marked else ():
        spans += [(start + a, start + b) for a, b in marked.get(value, ())]
        start += len(value) + 1
    return spans


def _unmarked(marked: str) -> tuple[str, Spans]:
    """A text without its marks, and where they were."""
    spans: Spans = []
    for number, match in enumerate(_MARKED.finditer(marked)):
        start = match.start() - 2 * number
        spans.append((start, start + len(match[1])))
    return marked.replace(_OPEN, "").replace(_CLOSE, ""), spans
