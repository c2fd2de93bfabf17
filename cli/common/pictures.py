"""What verbs that shade words share: the shaded text in a terminal, and --html and --png."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from termweave.cli._files import writable
from termweave.words import few

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.text import Text

    from termweave.cli._options import Output
    from termweave.records import Hit
    from termweave.search.pictures import Picture

#: Characters of a passage that a terminal shows.
_PASSAGE = 400
_WORD = re.compile(r"\S+")


def picture_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --html and --png; the function gets them as `files`."""

    @click.option(
        "--html",
        metavar="FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Write the shaded text as a page that needs nothing else.",
    )
    @click.option(
        "--png",
        metavar="FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Write it as an image (extra 'report').",
    )
    @functools.wraps(function)
    def wrapped(*args: Any, html: Path | None, png: Path | None, **kwargs: Any) -> Any:
        files = {kind: path for kind, path in (("html", html), ("png", png)) if path is not None}
        writable(None, list(files.values()))
        return function(*args, files=files, **kwargs)

    return wrapped


def write(files: dict[str, Path], title: str, pictures: Sequence[Picture], out: Output) -> None:
    """Write the pictures to the files asked for, and say what could not be drawn."""
    for kind, path in files.items():
        missing = ""
        if kind == "html":
            from termweave.search.pictures import html

            content = html(title, pictures).encode("utf-8", "replace")
        else:
            from termweave.search.pictures_png import png

            content, missing = png(title, pictures)
        path.write_bytes(content)
        out.say(f"Written: {path}")
        if missing:
            out.warn(
                f"no font here has {len(missing)} of the characters ({few(missing, 8, between=' ')}); they are empty boxes. "
                "Install fonts that have them (Noto, say), or use --html."
            )


def of_hit(hit: Hit) -> Picture:
    """A picture of an explained hit."""
    from termweave.search import explanation
    from termweave.search.pictures import Picture

    told = hit.explanation or {"score": 0.0, "parts": [], "text": "", "words": []}
    rows = explanation.as_rows(told, terms=20)
    return Picture(
        str(hit.fields.get("title") or hit.id),
        told["text"],
        [(each["start"], each["end"], each["share"]) for each in told["words"]],
        rows,
        f"{hit.id}: {explanation.place(hit)}, score {hit.score:.4f}",
    )


def passage(hit: Hit) -> Text:
    """The part of an explained hit's text that holds most of its score, shaded."""
    from termweave.search.shading import window

    told = hit.explanation or {"text": "", "words": []}
    begin, end = window(told["text"], told["words"], _PASSAGE)
    words = [
        (each["start"] - begin, each["end"] - begin, each["share"])
        for each in told["words"]
        if begin <= each["start"] and each["end"] <= end
    ]
    whole = shaded(told["text"][begin:end], words)
    shown = type(whole)(" ").join(whole[word.start() : word.end()] for word in _WORD.finditer(whole.plain))  # on one line
    for sign, cut in (("... ", begin > 0), (" ...", end < len(told["text"]))):
        if cut:
            shown = shown.append(sign) if sign[0] == " " else type(shown)(sign).append_text(shown)
    return shown


def shaded(text: str, words: Sequence[tuple[int, int, float]]) -> Text:
    """A text in colours: start, end and weight of each word."""
    from rich.text import Text

    from termweave.search.pictures import Picture

    result = Text()
    for piece, _, share in Picture("", text, words).runs():
        result.append(piece, style(share) if share > 0 else "")
    return result


def style(share: float) -> str:
    """Of a word with this share of the heaviest weight; its own colour is set too, so that dark terminals stay readable."""
    from termweave.search.pictures import colour, wants_white

    red, green, blue = colour(share)
    return f"{'white' if wants_white(share) else 'black'} on rgb({red},{green},{blue})"
