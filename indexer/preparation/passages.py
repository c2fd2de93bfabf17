"""Cut long documents into passages: windows of whole sentences, each with its exact position in the text.

A window holds as many whole sentences as fit into `size` words. The next window begins with the first sentence that starts at least
`stride` words later. A sentence longer than a window is cut between words. The last window is extended backwards until it is full,
because a passage of three words would mean nothing. A passage is always exactly `text[start:end]`.

A word is a run of letters and digits. In scripts that are written without spaces every character counts as a word, as it does for
the models' tokenisers. English text has about 1.35 word-pieces per word.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace

from termweave.corpora.sources import Derived, Progress, Source
from termweave.errors import UsageError
from termweave.indexer.options import Window
from termweave.records import Document, Passage

# ruff: noqa: RUF001 - full stops, quotes and brackets of other scripts are what this file is about
_SPACELESS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
#: A word; in scripts without spaces a single character, which is about how analyzers cut them.
WORD = re.compile(rf"[{_SPACELESS}]|[^\W_{_SPACELESS}]+")
#: A gap where a sentence may end: white space, or a full stop of a script that writes no space after it.
_GAP = re.compile(r"\s+|[。！？｡।॥]+[」』”’）》】)\"']*\s*")
_OPENERS = "\"'“‘«([{「『（《"
_STOPS = ".!?…؟۔"
_CLOSERS = "\"'”’»)]}"
_LOWER_AFTER = re.compile(r"[\"'“‘«(\[{]*(?P<first>.)", re.DOTALL)
_LAST_WORD = re.compile(r"([^\s(\[\"'“‘«]+)\.$")
#: Abbreviations: a full stop after one of them does not end a sentence.
_ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof st sr jr vs etc e.g i.e cf al fig figs eq eqs sec no nos vol pp p ed eds approx inc ltd co corp dept "  # noqa: SIM905
    "bzw z.b d.h u.a ca nr s.o s.u".split()
)
#: Number of characters before a gap that are searched for the last word of the sentence.
_LOOK_BACK = 24


def sentences(text: str) -> list[int]:
    """Find the offsets at which sentences begin; the first is 0, and each sentence reaches to the next offset.

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
    word = last[1] if last else ""
    initial = len(word) == 1 and word.isupper()
    return not initial and word.lower() not in _ABBREVIATIONS


def spans(text: str, window: Window) -> list[tuple[int, int]]:
    """Find the start and end of every passage of a text; a text that fits into one window gives one span."""
    words = [match.span() for match in WORD.finditer(text)]
    if len(words) <= window.size:
        return [(0, len(text))]
    firsts = _atoms(text, [start for start, _ in words], window)
    count = len(firsts)
    limits = [*firsts[1:], len(words)]
    # An atom (a sentence, or a part of a long one) reaches to the first word of the next, so that punctuation stays with its sentence.
    offsets = [0, *(_opening(text, words, first) for first in firsts[1:]), len(text)]
    windows: list[tuple[int, int]] = []
    begin = 0
    while True:
        end = begin + 1
        while end < count and limits[end] - firsts[begin] <= window.size:
            end += 1
        first = begin
        if end == count:
            while windows and first > 0 and limits[end - 1] - firsts[first - 1] <= window.size and first - 1 > windows[-1][0]:
                first -= 1
        windows.append((first, end))
        if end == count:
            break
        begin = min(max(bisect_left(firsts, firsts[begin] + window.stride), begin + 1), end)
    return [_trimmed(text, offsets[first], offsets[end]) for first, end in windows]


def _atoms(text: str, starts: list[int], window: Window) -> list[int]:
    """Find the first word of every sentence, and of every part of a sentence that is longer than a window."""
    begins = sorted({bisect_left(starts, offset) for offset in sentences(text)} - {len(starts)})
    overlap = window.size - window.stride
    part = min(overlap, window.stride) or window.size  # small enough that windows within one long sentence overlap
    firsts: list[int] = []
    for begin, end in zip(begins, [*begins[1:], len(starts)], strict=True):
        firsts += [begin] if end - begin <= window.size else range(begin, end, part)
    return firsts


def _opening(text: str, words: list[tuple[int, int]], first: int) -> int:
    """Find the offset where a word begins, including an opening quote or bracket before it."""
    start = words[first][0]
    behind = words[first - 1][1]
    while start > behind and not text[start - 1].isspace() and text[start - 1] in _OPENERS:
        start -= 1
    return start


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """Narrow a span to exclude white space at both ends."""
    part = text[start:end]
    return start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())


def split(document: Document, window: Window) -> list[Document]:
    """Cut a document into passages with its title and metadata; a document that fits into one window is returned as it is."""
    passages = spans(document.text, window)
    if len(passages) == 1:
        return [document]
    parts = [Passage(document.id, number, start, end) for number, (start, end) in enumerate(passages, 1)]
    texts = [(Passage.key(part.parent, part.number), document.text[part.start : part.end], part) for part in parts]
    return [replace(document, id=key, text=text, passage=part) for key, text, part in texts]


class Passages(Derived):
    """A source that yields the passages of another source's documents."""

    #: The number of passages is not known before the source is read.
    total = None

    def __init__(self, source: Source, window: Window) -> None:
        super().__init__(source)
        self._window = window

    def documents(self, progress: Progress | None = None) -> Iterator[Document]:
        """Read all passages, each with the line number of its document."""
        for number, document in enumerate(self._source.documents(progress), 1):
            yield from split(document if document.line is not None else replace(document, line=number), self._window)


def in_passages(source: Source, window: Window | None) -> Source:
    """Return a source that yields passages, or the source itself if texts are not cut, or were cut in the same way before.

    Raises:
        UsageError: The source holds texts that were cut in another way.
    """
    if source.encodings is None:
        return Passages(source, window) if window else source
    if Window.from_lineage(source.encodings.passages) != window:
        hint = "Compare with the corpus itself instead."
        raise UsageError(f"{source.name} was cut into passages in another way than the index.", hint)
    return source
