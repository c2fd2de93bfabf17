"""Which words of a passage gave a hit its score: where each stands, and what it contributes."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from termweave.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from termweave.encoders import TextEncoder
    from termweave.engine import Engine

    #: Start and end in the text, in characters, and what the signal calls the word.
    Located = Iterable[tuple[int, int, str]]

#: Of a longer text only so much is analysed for words of the lexical signal: `_analyze` refuses more than 10,000 tokens.
_ANALYSED = 9_000


def shade(
    text: str, parts: Sequence[Mapping[str, Any]], *, encoder: TextEncoder, engine: Engine, index: str
) -> list[dict[str, Any]]:
    """The words of a text that stand for terms of an explanation.

    A word counts what its terms contribute to the final score, in all signals; a term that occurs several times counts the
    same at each place. Where nothing of the signals' scores reaches the final one (the last candidates of every list) the
    terms are weighed by their part of the signal's score.

    Args:
        text: As it was indexed: title and text.
        parts: Of the explanation.
        encoder: Makes the terms of the weights signal.
        engine: Makes those of the lexical signal.
        index: Where that signal's field is.

    Returns:
        ``{"start", "end", "term", "share"}`` in reading order, not overlapping; offsets in characters of `text`.
    """
    told = [part for part in parts if part.get("terms") and part["score"] > 0]
    silent = not any(part["share"] > 0 for part in told)
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for part in told:
        factor = (1.0 if silent else part["share"]) / part["score"]
        shares = {each["term"]: each["share"] * factor for each in part["terms"]}
        located = _analysed(text, engine, index) if part["name"] == "lexical" else encoder.locate(text)
        for start, end, term in located:
            if (share := shares.get(term)) is not None:
                word = found.setdefault((start, end), {"start": start, "end": end, "term": term, "share": 0.0})
                word["share"] += share
    return list(_apart([found[place] for place in sorted(found)]))


def _apart(words: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Words in reading order that do not overlap, from some in reading order that may.

    Signals cut a text differently ("3.5", or "3" and "5"), and the analyzer of Chinese gives every pair of neighbouring characters.
    """
    group: list[dict[str, Any]] = []
    reach = 0
    for word in words:
        if word["start"] >= reach:
            yield from _stretches(group)
            group = []
        group.append(word)
        reach = max(reach, word["end"])
    yield from _stretches(group)


def _stretches(group: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One word where it holds all others; else each stretch between two ends, with what all words over it count."""
    if len(group) < 2:
        yield from group
        return
    edges = sorted({each["start"] for each in group} | {each["end"] for each in group})
    if any(each["start"] == edges[0] and each["end"] == edges[-1] for each in group):
        edges = [edges[0], edges[-1]]
    for start, end in pairwise(edges):
        over = [each for each in group if each["start"] < end and each["end"] > start]
        widest = max(over, key=lambda each: each["end"] - each["start"])
        yield {"start": start, "end": end, "term": widest["term"], "share": sum(each["share"] for each in over)}


def _analysed(text: str, engine: Engine, index: str) -> Located:
    """The terms of the lexical field; Lucene counts in UTF-16, where an emoji is two."""
    text = text[:_ANALYSED]
    try:
        answer = engine.request("POST", f"/{index}/_analyze", body={"field": "content", "text": text})
    except EngineError:
        return []  # a role may search and not analyse: the picture stays plain, the figures are all there
    offsets = characters(text)
    return [(offsets[each["start_offset"]], offsets[each["end_offset"]], each["token"]) for each in answer["tokens"]]


def characters(text: str) -> Sequence[int]:
    """For each offset as the engine counts them, in UTF-16, the character it lies in."""
    if len(text) == len(text.encode("utf-16-le", "surrogatepass")) // 2:
        return range(len(text) + 1)
    offsets: list[int] = []
    for place, character in enumerate(text):
        offsets += [place] * (2 if character > "\uffff" else 1)
    return [*offsets, len(text)]


def window(text: str, words: Sequence[Mapping[str, Any]], width: int) -> tuple[int, int]:
    """The stretch of a text that holds the most of its words' shares: start and end, not inside a word where that can be.

    Example:
        >>> window("a very long beginning and then the answer", [{"start": 35, "end": 41, "share": 1.0}], 20)
        (22, 41)
    """
    if len(text) <= width:
        return 0, len(text)
    best, begin = -1.0, 0
    for first in words:
        held = sum(each["share"] for each in words if first["start"] <= each["start"] and each["end"] <= first["start"] + width)
        if held > best:
            best, begin = held, first["start"]
    # Some words before the first, so that it can be read; none of those that were counted falls out at the end.
    last = max((each["end"] for each in words if begin <= each["start"] and each["end"] <= begin + width), default=begin)
    begin = max(0, min(begin - min(width // 4, width - (last - begin)), len(text) - width))
    end = min(len(text), begin + width)
    if begin:
        space = text.find(" ", begin, begin + 20)
        begin = space + 1 if space >= 0 else begin
    if end < len(text):
        space = text.rfind(" ", end - 20, end)
        end = space if space >= 0 else end
    return begin, end
