"""Show explained hits and weighted texts with shaded words, as one HTML page.

The page is one file without scripts, fonts or links. It supports light and dark mode, right-to-left texts, and printing.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: The line of a page without pictures.
NOTHING = "Nothing found."
#: The line above the pictures. Without it a reader could think that the darkest word of every text adds much to its score.
SHADES = "Shades compare the words of one text with each other."
#: The green that is laid over the page behind a word, and how opaque it is behind the heaviest. It is translucent, so a light word is close to
#: the page in light and in dark mode alike, and the letters keep the page's ink: their contrast stays above 4.5 (WCAG 2.2, 1.4.3).
_GREEN = (0, 130, 70)
_MOST_OPAQUE = 0.7
#: Characters that HTML does not allow: control characters except tab and line ends, and noncharacters of Unicode.
_REFUSED = dict.fromkeys([*range(9), 11, *range(14, 32), *range(127, 160), *range(0xFDD0, 0xFDF0), 0xFFFE, 0xFFFF], "\ufffd")


@dataclass(frozen=True, slots=True)
class Picture:
    """A text with shaded words.

    Attributes:
        title: Heading of the text.
        text: The whole text.
        words: Start, end and weight of words, in reading order and without overlaps; offsets are characters of `text`.
        rows: Share, name and description of each part of the score, for the table above the text.
        note: A line under the title.
    """

    title: str
    text: str
    words: Sequence[tuple[int, int, float]]
    rows: Sequence[tuple[float, str, str]] = ()
    note: str = ""

    def runs(self) -> Iterator[tuple[str, float, float]]:
        """Split the text into pieces: text, weight, and the weight as a share of the heaviest; 0 for the text between words."""
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
    """The CSS colour behind a word, for a share from 0 (the page itself) to 1 (the heaviest word). The letters inherit their ink."""
    red, green, blue = _GREEN
    return f"rgba({red},{green},{blue},{_MOST_OPAQUE * share:.3f})"


_PAGE = """<!doctype html>
<html lang="und">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.6 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }}
h1 {{ font-size: 1.2rem; }}
h2 {{ font-size: 1rem; margin: 2rem 0 .2rem; }}
p.note {{ margin: 0; opacity: .7; }}
p.text {{ white-space: pre-wrap; }}
mark {{ color: inherit; border-radius: .2em; padding: 0 .1em; print-color-adjust: exact; -webkit-print-color-adjust: exact; }}
table {{ border-collapse: collapse; font-size: .9rem; }}
td {{ padding: .1rem .8rem .1rem 0; vertical-align: top; white-space: nowrap; }}
td:first-child {{ text-align: right; font-variant-numeric: tabular-nums; }}
td:last-child {{ white-space: normal; }}
</style>
</head>
<body>
<h1 dir="auto">{title}</h1>
{body}
</body>
</html>
"""


def html(title: str, pictures: Sequence[Picture]) -> str:
    """Write the pictures as one HTML page.

    Args:
        title: Title of the page, for example the query.
        pictures: The pictures, in the order in which the page shows them.
    """
    body = "\n".join([f'<p class="note">{SHADES if pictures else NOTHING}</p>', *map(_section, pictures)])
    return allowed(_PAGE.format(title=escape(title), body=body))


def allowed(page: str) -> str:
    """A page in which the characters that HTML does not allow are replaced."""
    return page.translate(_REFUSED)


def _section(picture: Picture) -> str:
    """The HTML of one picture."""
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
    """The HTML of one piece of a text."""
    if share <= 0:
        return escape(piece)
    return f'<mark style="background:{shade(share)}" title="{weight:.4g}">{escape(piece)}</mark>'
