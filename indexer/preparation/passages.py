"""Long documents as passages: windows of whole sentences, each with its exact place in the text.

A window holds as many whole sentences as fit into `size` words; the next one begins with the first sentence that starts
`stride` words further on. A sentence longer than a window is cut between words. The last window is filled up backwards: a tail
of three words would be a passage that means nothing. `text[start:end]` is the passage, always.

A word is a run of letters and digits; characters of scripts that are written without spaces count one each, as the models'
word-pieces do. English text has some 1.35 pieces a word.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from termweave.corpora.sources import Derived
from termweave.errors import UsageError
from termweave.records import Passage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from termweave.corpora import Progress, Source
    from termweave.records import Document

# ruff: noqa: RUF001 - full stops, quotes and brackets of other scripts are what this file is about
_SPACELESS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
#: A word: in scripts without spaces a character, which is about what analyzers make of them.
WORD = re.compile(rf"[{_SPACELESS}]|[^\W_{_SPACELESS}]+")
#: Where a sentence may end: white space, or a full stop of a script that puts none behind it.
_GAP = re.compile(r"\s+|[。！？｡।॥]+[」』”’）》】)\"']*\s*")
_OPENERS = "\"'“‘«([{「『（《"
_STOPS = ".!?…؟۔"
_CLOSERS = "\"'”’»)]}"
_LOWER_AFTER = re.compile(r"[\"'“‘«(\[{]*(?P<first>.)", re.DOTALL)
_LAST_WORD = re.compile(r"([^\s(\[\"'“‘«]+)\.$")
#: A full stop behind these ends no sentence.
_ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof st sr jr vs etc e.g i.e cf al fig figs eq eqs sec no nos vol pp p ed eds approx inc ltd co corp dept "  # noqa: SIM905
    "bzw z.b d.h u.a ca nr s.o s.u".split()
)
#: So far back is looked for the word before a full stop.
_LOOK_BACK = 24


@dataclass(frozen=True, slots=True)
class Window:
    """How texts are cut.

    Attributes:
        size: Words of a passage at most; a text of no more stays whole.
        stride: Words from the start of one passage to that of the next, at least.
    """

    size: int
    stride: int

    def __post_init__(self) -> None:
        if not 0 < self.stride <= self.size:
            raise UsageError(
                f"Passages of {self.size} words cannot begin every {self.stride} words.",
                "The stride is at least 1 and at most the size: words in between would be lost.",
            )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Window | None:
        """As a lineage keeps it; None where texts are not cut."""
        return cls(values["size"], values["stride"]) if values else None

    def parameters(self) -> dict[str, int]:
        """For a lineage."""
        return asdict(self)


def sentences(text: str) -> list[int]:
    """Offsets at which a sentence begins, 0 first; nothing is lost between them.

    Example:
        >>> sentences("Dr. Who came. He left 3.5 h later! 他走了。她没有。")
        [0, 14, 35, 39]
    """
    return [0, *(gap.end() for gap in _GAP.finditer(text) if gap.end() < len(text) and _ends(text, gap))]


def _ends(text: str, gap: re.Match[str]) -> bool:
    """Whether a sentence ends before this gap."""
    space = gap.group()
    if not space[0].isspace() or space.count("\n") > 1:
        return True
    before = text[max(0, gap.start() - _LOOK_BACK) : gap.start()].rstrip(_CLOSERS)
    if not before or before[-1] not in _STOPS:
        return False
    following = _LOWER_AFTER.match(text, gap.end())
    if following and following["first"].islower():
        return False
    last = _LAST_WORD.search(before)
    if last is None:
        return True
    word = last[1]
    initial = len(word) == 1 and word.isupper()
    return not initial and word.lower() not in _ABBREVIATIONS


def spans(text: str, window: Window) -> list[tuple[int, int]]:
    """Start and end of every passage of a text; one span, the whole text, where it fits into a window."""
    words = [found.span() for found in WORD.finditer(text)]
    if len(words) <= window.size:
        return [(0, len(text))]
    firsts = _atoms(text, [start for start, _ in words], window)
    count = len(firsts)
    limits = [*firsts[1:], len(words)]
    # An atom reaches to the next one's first word, so that punctuation stays with the sentence it closes.
    offsets = [0, *(_opening(text, words, first) for first in firsts[1:]), len(text)]
    found: list[tuple[int, int]] = []
    begin = 0
    while True:
        end = begin + 1
        while end < count and limits[end] - firsts[begin] <= window.size:
            end += 1
        first = begin
        if end == count:
            while found and first > 0 and limits[end - 1] - firsts[first - 1] <= window.size and first - 1 > found[-1][0]:
                first -= 1
        found.append((first, end))
        if end == count:
            break
        begin = min(max(bisect_left(firsts, firsts[begin] + window.stride), begin + 1), end)
    return [_trimmed(text, offsets[first], offsets[end]) for first, end in found]


def _atoms(text: str, starts: list[int], window: Window) -> list[int]:
    """The first word of every sentence, and of every part of a sentence that is longer than a window."""
    begins = sorted({bisect_left(starts, offset) for offset in sentences(text)} - {len(starts)})
    overlap = window.size - window.stride
    part = min(overlap, window.stride) or window.size  # small enough that windows within a long sentence overlap, too
    firsts: list[int] = []
    for begin, end in zip(begins, [*begins[1:], len(starts)], strict=True):
        firsts += [begin] if end - begin <= window.size else range(begin, end, part)
    return firsts


def _opening(text: str, words: list[tuple[int, int]], first: int) -> int:
    """Where the text of a word begins: an opening quote or bracket belongs to it."""
    start = words[first][0]
    behind = words[first - 1][1]
    while start > behind and not text[start - 1].isspace() and text[start - 1] in _OPENERS:
        start -= 1
    return start


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """Without the white space around."""
    part = text[start:end]
    return start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())


def split(document: Document, window: Window) -> list[Document]:
    """A document's passages, with its title and metadata each; the document itself where it fits."""
    found = spans(document.text, window)
    if len(found) == 1:
        return [document]
    return [
        replace(
            document,
            id=Passage.key(document.id, number),
            text=document.text[start:end],
            passage=Passage(document.id, number, start, end),
        )
        for number, (start, end) in enumerate(found, 1)
    ]


class Passages(Derived):
    """A source whose documents are another one's passages."""

    def __init__(self, source: Source, window: Window) -> None:
        super().__init__(source)
        self._window = window

    @property
    def total(self) -> int | None:
        """Nobody knows how many passages there are without reading."""
        return None

    def documents(self, progress: Progress | None = None) -> Iterator[Document]:
        """All passages, each with the line of its document."""
        for number, document in enumerate(self._source.documents(progress), 1):
            yield from split(document if document.line is not None else replace(document, line=number), self._window)


def in_passages(source: Source, window: Window | None) -> Source:
    """The source as it is indexed: its passages, or itself where texts are not cut."""
    return Passages(source, window) if window else source
