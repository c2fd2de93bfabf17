"""Shade the words of a passage by their share of the hit's score: find the words, and add up their shares."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from termweave.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from termweave.search.opening import OpenGeneration

    #: Start and end of each word in the text, in characters, and the signal's term for it.
    Located = Iterable[tuple[int, int, str]]

#: Characters of a text that the server analyses: `_analyze` refuses more than 10,000 tokens.
_ANALYSED = 9_000


def shade(text: str, parts: Sequence[Mapping[str, Any]], opened: OpenGeneration) -> list[dict[str, Any]]:
    """Find the words of a text that contribute to the score of a hit.

    The share of a word is what its terms contribute to the final score, over all signals. A term that occurs several times has the
    same share at each place. If no signal contributes to the final score (the hit is the last candidate of every list), the shares
    are those of the signals' own scores.

    Args:
        text: The text as it was indexed: title and text.
        parts: The parts of the explanation.
        opened: The generation that was searched: its encoder finds the terms of models, its server those of the source.

    Returns:
        ``{"start", "end", "term", "share"}`` in reading order, without overlaps; offsets are characters of `text`.
    """
    scored = [part for part in parts if part.get("terms") and part["score"] > 0]
    no_share = not any(part["share"] > 0 for part in scored)
    words: dict[tuple[int, int], dict[str, Any]] = {}
    fields = {signal.name: signal.source_fields for signal in opened.layout.signals}
    for part in scored:
        factor = (1.0 if no_share else part["share"]) / part["score"]
        shares = {entry["term"]: entry["share"] * factor for entry in part["terms"]}
        sought = fields.get(part["name"])
        analysed = {span for field in sought or () for span in _analysed(text, field, opened)}
        located = analysed if sought else opened.encoder.locate(text)
        for start, end, term in located:
            if (share := shares.get(term)) is not None:
                word = words.setdefault((start, end), {"start": start, "end": end, "term": term, "share": 0.0})
                word["share"] += share
    return list(without_overlaps([words[span] for span in sorted(words)]))


def without_overlaps(words: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Replace overlapping words, given in reading order, by words that do not overlap.

    Words overlap because signals cut a text differently ("3.5", or "3" and "5"), and because the analyzer for Chinese makes a term of
    every two neighbouring characters.
    """
    group: list[dict[str, Any]] = []
    reach = 0
    for word in words:
        if word["start"] >= reach:
            yield from _split(group)
            group = []
        group.append(word)
        reach = max(reach, word["end"])
    yield from _split(group)


def _split(group: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Split a group of overlapping words at their edges, and add up the shares of the words over each piece.

    If one word contains all others, the whole group becomes one word.
    """
    if len(group) < 2:
        yield from group
        return
    edges = sorted({word["start"] for word in group} | {word["end"] for word in group})
    if any(word["start"] == edges[0] and word["end"] == edges[-1] for word in group):
        edges = [edges[0], edges[-1]]
    for start, end in pairwise(edges):
        over = [word for word in group if word["start"] < end and word["end"] > start]
        widest = max(over, key=lambda word: word["end"] - word["start"])
        yield {"start": start, "end": end, "term": widest["term"], "share": sum(word["share"] for word in over)}


def _analysed(text: str, field: str, opened: OpenGeneration) -> Located:
    """The terms of a text in a field of the source. Lucene counts offsets in UTF-16 units, of which an emoji has two."""
    text = text[:_ANALYSED]
    try:
        answer = opened.engine.request("POST", f"/{opened.index}/_analyze", body={"field": field, "text": text})
    except EngineError:
        return []  # a role may be allowed to search and not to analyse: the text is not shaded then
    offsets = characters(text)
    return [(offsets[token["start_offset"]], offsets[token["end_offset"]], token["token"]) for token in answer["tokens"]]


def characters(text: str) -> Sequence[int]:
    """The character at each UTF-16 offset of a text; the server counts offsets in UTF-16."""
    if len(text) == len(text.encode("utf-16-le", "surrogatepass")) // 2:
        return range(len(text) + 1)
    offsets: list[int] = []
    for place, character in enumerate(text):
        offsets += [place] * (2 if character > "\uffff" else 1)
    return [*offsets, len(text)]


def window(text: str, words: Sequence[Mapping[str, Any]], width: int) -> tuple[int, int]:
    """Start and end of the part of a text whose words have the largest sum of shares, cut between words if possible.

    Example:
        >>> window("a very long beginning and then the answer", [{"start": 35, "end": 41, "share": 1.0}], 20)
        (22, 41)
    """
    if len(text) <= width:
        return 0, len(text)
    best, begin = -1.0, 0
    for first in words:
        limit = first["start"] + width
        total = sum(word["share"] for word in words if first["start"] <= word["start"] and word["end"] <= limit)
        if total > best:
            best, begin = total, first["start"]
    # Begin some words earlier, for context, but keep every counted word.
    last = max((word["end"] for word in words if begin <= word["start"] and word["end"] <= begin + width), default=begin)
    begin = max(0, min(begin - min(width // 4, width - (last - begin)), len(text) - width))
    end = min(len(text), begin + width)
    if begin:
        space = text.find(" ", begin, begin + 20)
        begin = space + 1 if space >= 0 else begin
    if end < len(text):
        space = text.rfind(" ", end - 20, end)
        end = space if space >= 0 else end
    return begin, end
