"""Show hits and weighted texts with shaded words, as pictures for web pages or as one HTML page.

The HTML page is one file without scripts, fonts or links. It supports light and dark mode, right-to-left texts, and printing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from termweave.rerank.occlusion import places
from termweave.search.results import explanation

if TYPE_CHECKING:
    from termweave.records import Hit

#: The line of a page without pictures.
NOTHING = "Nothing found."
#: The line above the pictures. Without it a reader could think that the darkest word of every text adds much to its score.
SHADES = "Shades compare the words of one text with each other."
#: The green that is laid over the page behind a word, and how opaque it is behind the heaviest. It is translucent, so a light word is close to
#: the page in light and in dark mode alike, and the letters keep the page's ink: their contrast stays above 4.5 (WCAG 2.2, 1.4.3).
_GREEN = (0, 130, 70)
_MOST_OPAQUE = 0.7
#: The most characters of a passage that a page shows.
_ON_PAGE = 800
#: Characters that HTML does not allow: control characters except tab and line ends, and noncharacters of Unicode.
_REFUSED = dict.fromkeys([*range(9), 11, *range(14, 32), *range(127, 160), *range(0xFDD0, 0xFDF0), 0xFFFE, 0xFFFF], "\ufffd")


@dataclass(frozen=True, slots=True)
class Picture:
    """A text with shaded words, and what stands above it.

    Attributes:
        title: Heading of the text.
        text: The whole text.
        words: Start, end and weight of words, in reading order and without overlaps; offsets are characters of `text`.
        rows: Share, name and description of each part of the score, for the table above the text.
        note: A line below the title; "": no line.
    """

    title: str
    text: str
    words: Sequence[tuple[int, int, float]]
    rows: Sequence[tuple[float, str, str]] = ()
    note: str = ""

    def runs(self) -> Iterator[tuple[str, float, float]]:
        """Split the text into pieces: text of the piece, weight, and weight as a share of the heaviest word's; text between words has weight 0."""
        heaviest = max((weight for _, _, weight in self.words), default=0.0)
        at = 0
        for start, end, weight in self.words:
            if start > at:
                yield self.text[at:start], 0.0, 0.0
            yield self.text[start:end], weight, max(0.0, weight / heaviest) if heaviest > 0 else 0.0
            at = end
        if at < len(self.text):
            yield self.text[at:], 0.0, 0.0


def shade(share: float) -> str:
    """The CSS colour behind a word whose weight has this share of the heaviest word's: from 0 (no shade) to 1 (the darkest)."""
    red, green, blue = _GREEN
    return f"rgba({red},{green},{blue},{_MOST_OPAQUE * share:.3f})"


def html(title: str, pictures: Sequence[Picture]) -> str:
    """Write the pictures as one HTML page.

    Args:
        title: Title of the page, for example the query.
        pictures: The pictures, in the order in which the page shows them.
    """
    body = "\n".join([f'<p class="note">{SHADES if pictures else NOTHING}</p>', *map(_section, pictures)])
    page = Template(Path(__file__).with_suffix(".html").read_text(encoding="utf-8"))
    return allowed(page.substitute(title=escape(title), body=body))


def allowed(page: str) -> str:
    """Replace the characters of a page that HTML does not allow."""
    return page.translate(_REFUSED)


def _section(picture: Picture) -> str:
    """Write one picture as HTML."""
    lines = [f'<h2 dir="auto">{escape(picture.title)}</h2>']
    if picture.note:
        lines.append(f'<p class="note" dir="auto">{escape(picture.note)}</p>')
    text = f'<p class="text" dir="auto">{"".join(_run(*run) for run in picture.runs())}</p>'
    if picture.rows:
        rows = (f"<td>{share:+.4f}</td><td>{escape(name)}</td><td>{escape(text)}</td>" for share, name, text in picture.rows)
        lines.append("<table>\n" + "\n".join(f"<tr>{row}</tr>" for row in rows) + "\n</table>")
    lines.append(text)
    return "<section>\n" + "\n".join(lines) + "\n</section>"


def _run(piece: str, weight: float, share: float) -> str:
    """Write one piece of a text as HTML, shaded if its share is above 0."""
    if share <= 0:
        return escape(piece)
    return f'<mark style="background:{shade(share)}" title="{weight:.4g}">{escape(piece)}</mark>'


def of_hit(hit: Hit, width: int = _ON_PAGE) -> list[Picture]:
    """Make the pictures of an explained hit: its best passage with the parts of its score, and a picture for each ranker explained by words.

    Args:
        hit: The hit, explained.
        width: The most characters that are shown of the text.
    """
    explained = hit.explanation or {"score": 0.0, "parts": [], "text": "", "words": []}
    rows = explanation.as_rows(explained, terms=20)
    title = str(hit.fields.get("title") or hit.id)
    note = f"{hit.id}: {explanation.place(hit)}, score {hit.score:.4f}"
    return [passage(title, explained, width, rows, note), *_effects(hit, title, explained)]


def passage(
    title: str, explained: Mapping[str, Any], width: int, rows: Sequence[tuple[float, str, str]] = (), note: str = ""
) -> Picture:
    """Make a picture of the part of a hit's text whose words add most to the score."""
    text = explained["text"]
    begin, end = explanation.window(text, explained["words"], width)
    before, after = "... " if begin else "", " ..." if end < len(text) else ""
    moved = len(before) - begin
    inside = [
        (word["start"] + moved, word["end"] + moved, word["share"])
        for word in explained["words"]
        if begin <= word["start"] and word["end"] <= end
    ]
    return Picture(title, f"{before}{text[begin:end]}{after}", inside, rows, note)


def _effects(hit: Hit, title: str, explained: Mapping[str, Any]) -> list[Picture]:
    """Make a picture for each ranker that was explained by words: the text, shaded where the ranker's logit depends on a word."""
    text, shown = explained["text"], []
    by_word = places(text)
    for part in explained["parts"]:
        if effects := {each["word"]: each["effect"] for each in part.get("effects", ()) if each["effect"] > 0}:
            spans = sorted((*span, effect) for word, effect in effects.items() for span in by_word.get(word, ()))
            shown.append(
                Picture(title, text, spans, note=f"{hit.id}: the words without which the logit of {part['name']} is lower")
            )
    return shown
