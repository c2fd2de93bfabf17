"""Questions made of the documents themselves, for a corpus without questions.

=========  =====================================================  ==================================================
view       question                                               document
=========  =====================================================  ==================================================
title      the title                                              the text without it
heading    a heading (``# ...``, underlined, or a short line      the section below it
           in a paragraph of its own, without a full stop)
sentence   the first sentence                                     the rest
span       a run of 4 to 12 words                                 the text without that run
=========  =====================================================  ==================================================

The question is always taken out of the document: if it stayed in, plain BM25 would find every answer and nothing could be learned.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from termweave.records import Document

#: Views whose documents are parts of a text, each another; those of the others are the whole text but for the question.
PARTS = frozenset({"heading"})
#: A question or a document with fewer words teaches nothing.
_LEAST_QUESTION, _LEAST_DOCUMENT = 2, 8
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[^\s])|(?<=[。！？])")  # noqa: RUF001 - Chinese full stops are meant
_MARKED = re.compile(r"^#{1,6}\s+(?P<heading>.+?)\s*#*\s*$")
_UNDERLINE = re.compile(r"^[=\-~^]{3,}\s*$")


def questions_of(document: Document, views: Sequence[str], generator: random.Random) -> Iterator[tuple[str, str]]:
    """Yield every (question, document) that the views make of one document."""
    for view in views:
        for question, rest in _VIEWS[view](document, generator):
            question, rest = " ".join(question.split()), rest.strip()  # noqa: PLW2901 - tidied
            if _size(question) >= _LEAST_QUESTION and _size(rest) >= _LEAST_DOCUMENT:
                yield question, rest


def _size(text: str) -> int:
    """Count the words of a text; in Chinese and Japanese two characters count as one word."""
    return len(text.split()) + len(_CJK.findall(text)) // 2


def _title(document: Document, _: random.Random) -> Iterator[tuple[str, str]]:
    yield document.title, document.text


def _sentence(document: Document, _: random.Random) -> Iterator[tuple[str, str]]:
    parts = [part for part in _SENTENCE.split(document.text.strip(), maxsplit=1) if part]
    if len(parts) == 2:
        yield parts[0], parts[1]


def _span(document: Document, generator: random.Random) -> Iterator[tuple[str, str]]:
    pieces = re.findall(r"[\u3040-\u30ff\u3400-\u9fff]|[^\s\u3040-\u30ff\u3400-\u9fff]+\s*|\s+", document.text)
    length = generator.randint(4, 12)
    if len(pieces) > 2 * length:
        first = generator.randrange(len(pieces) - length)
        yield "".join(pieces[first : first + length]), "".join(pieces[:first]) + " " + "".join(pieces[first + length :])


def _heading(document: Document, _: random.Random) -> Iterator[tuple[str, str]]:
    lines = document.text.splitlines()
    heads: list[tuple[int, int, str]] = []  # first line, first line of what is below, heading
    for place, line in enumerate(lines):
        below = lines[place + 1] if place + 1 < len(lines) else ""
        if marked := _MARKED.match(line):
            heads.append((place, place + 1, marked["heading"]))
        elif line.strip() and _UNDERLINE.match(below):
            heads.append((place, place + 2, line))
        elif _alone(lines, place):
            heads.append((place, place + 1, line))
    ends = [*(head[0] for head in heads[1:]), len(lines)][: len(heads)]
    for (_head, first, heading), last in zip(heads, ends, strict=True):
        yield heading, "\n".join(lines[first:last])


def _alone(lines: Sequence[str], place: int) -> bool:
    """Whether a line looks like a heading: short, between empty lines, and not a sentence."""
    line = lines[place].strip()
    near = [lines[each].strip() for each in (place - 1, place + 1) if 0 <= each < len(lines)]
    return 0 < len(line.split()) <= 8 and len(line) < 80 and line[-1] not in ".!?:;," and not any([*near, _UNDERLINE.match(line)])


_VIEWS: dict[str, Callable[[Document, random.Random], Iterator[tuple[str, str]]]] = {
    "title": _title,
    "heading": _heading,
    "sentence": _sentence,
    "span": _span,
}
#: The names of all views.
VIEWS = tuple(_VIEWS)
