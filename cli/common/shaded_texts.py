"""Show shaded texts in a terminal, or write them as an HTML page (--html)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from termweave.cli.common.output_files import writable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

    from termweave.cli.common.output import Output
    from termweave.records import Hit
    from termweave.search.results.pictures import Picture

#: The most characters of a passage that a terminal shows.
_PASSAGE = 400
#: The darkest shade of a word as red, green, blue; and each colour of the lightest shade, which is nearly white.
_DARKEST = (0, 110, 60)
_LIGHTEST = 235
#: Up to this share black letters have the higher contrast, beyond it white ones: never less than 4.5 (WCAG 2.2, 1.4.3).
_WHITE_BEYOND = 0.82
_WORD = re.compile(r"\S+")


def _checked(_context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
    writable(None, [path])
    return path


#: The option --html: the path of the page, or None.
html_option = click.option(
    "--html",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=_checked,
    help="Write the shaded text as a self-contained HTML page.",
)


def write(path: Path, title: str, pictures: Sequence[Picture], out: Output) -> None:
    """Write the shaded texts as an HTML page."""
    from termweave.search.results.pictures import html
    from termweave.support import private_files

    with private_files.opened(path, "wb") as file:
        file.write(html(title, pictures).encode("utf-8", "replace"))
    out.say(f"Written: {path}")


def passage(hit: Hit) -> Text:
    """The passage of an explained hit whose words add most to its score, shaded, on one line."""
    from termweave.search.results.term_shading import window

    explained = hit.explanation or {"text": "", "words": []}
    begin, end = window(explained["text"], explained["words"], _PASSAGE)
    words = [
        (word["start"] - begin, word["end"] - begin, word["share"])
        for word in explained["words"]
        if begin <= word["start"] and word["end"] <= end
    ]
    whole = shaded(explained["text"][begin:end], words)
    shown = type(whole)(" ").join(whole[word.start() : word.end()] for word in _WORD.finditer(whole.plain))
    for sign, cut in (("... ", begin > 0), (" ...", end < len(explained["text"]))):
        if cut:
            shown = shown.append(sign) if sign[0] == " " else type(shown)(sign).append_text(shown)
    return shown


def shaded(text: str, words: Sequence[tuple[int, int, float]]) -> Text:
    """A text with shaded words.

    Args:
        text: The text.
        words: Start, end and weight of each word.
    """
    from rich.text import Text

    from termweave.search.results.pictures import Picture

    result = Text()
    for piece, _, share in Picture("", text, words).runs():
        result.append(piece, style(share) if share > 0 else "")
    return result


def style(share: float) -> str:
    """The colours of a word, given its share of the heaviest weight.

    A terminal does not say how dark it is and mixes no colours, so the shade is opaque and the letters get a colour, too.
    """
    red, green, blue = (round(_LIGHTEST - (_LIGHTEST - end) * share) for end in _DARKEST)
    return f"{'white' if share > _WHITE_BEYOND else 'black'} on rgb({red},{green},{blue})"
