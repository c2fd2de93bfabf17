"""The pictures of an explained hit: its shaded passage, and the parts of its score."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from termweave.rerank.occlusion import places
from termweave.search.render.html import Picture
from termweave.search.results import explanation
from termweave.search.results.term_shading import window

if TYPE_CHECKING:
    from collections.abc import Mapping

    from termweave.records import Hit

#: The most characters of a passage that a page shows.
_ON_PAGE = 800


def of_hit(hit: Hit, width: int = _ON_PAGE) -> list[Picture]:
    """The shaded passage of a hit with the parts of its score, and what rankers depend on if that is known.

    Args:
        hit: The hit, explained.
        width: The most characters of the passage.
    """
    explained = hit.explanation or {"score": 0.0, "parts": [], "text": "", "words": []}
    rows = explanation.as_rows(explained, terms=20)
    title = str(hit.fields.get("title") or hit.id)
    note = f"{hit.id}: {explanation.place(hit)}, score {hit.score:.4f}"
    return [_passage(title, explained, width, rows, note), *_effects(hit, title, explained)]


def _passage(title: str, explained: Mapping[str, Any], width: int, rows: list[tuple[float, str, str]], note: str) -> Picture:
    """The part of the text whose words add most to the score."""
    text = explained["text"]
    begin, end = window(text, explained["words"], width)
    before, after = "... " if begin else "", " ..." if end < len(text) else ""
    moved = len(before) - begin
    inside = [
        (word["start"] + moved, word["end"] + moved, word["share"])
        for word in explained["words"]
        if begin <= word["start"] and word["end"] <= end
    ]
    return Picture(title, f"{before}{text[begin:end]}{after}", inside, rows, note)


def _effects(hit: Hit, title: str, explained: Mapping[str, Any]) -> list[Picture]:
    """The words that the logit of each ranker depends on."""
    text, shown = explained["text"], []
    by_word = places(text)
    for part in explained["parts"]:
        if effects := {each["word"]: each["effect"] for each in part.get("effects", ()) if each["effect"] > 0}:
            spans = sorted((*span, effect) for word, effect in effects.items() for span in by_word.get(word, ()))
            shown.append(
                Picture(title, text, spans, note=f"{hit.id}: the words without which the logit of {part['name']} is lower")
            )
    return shown
