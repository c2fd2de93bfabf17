"""`termweave weights`: a text with every word shaded by its weight."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Literal

import click

from termweave.cli._options import CONTEXT, output_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

    from termweave.cli._options import Output
    from termweave.records import WordWeight

SCHEMA = "termweave.weights/1"
#: The darkest shade, as red, green, blue; the lightest is no shade at all.
_DARKEST = (0, 110, 60)


@click.command("weights", context_settings=CONTEXT, short_help="Which words of a text matter.")
@click.argument("text")
@click.option(
    "--model", metavar="MODEL", help="Folder, installed package or name of a weights model.  [default: the shipped one]"
)
@click.option(
    "--kind",
    type=click.Choice(["document", "query"]),
    default="document",
    show_default=True,
    help="Weigh as a document (impacts) or as a query (factors).",
)
@output_options
def command(*, text: str, model: str | None, kind: Literal["document", "query"], out: Output) -> None:
    """Show which words of TEXT matter ('-' reads it from standard input).

    In a terminal every word is shaded by its weight; elsewhere the terms are listed, heaviest first. Document frequencies
    are those of the table that comes with the model.

    \b
    Examples:
      termweave weights "The mitochondrion is the powerhouse of the cell."
      termweave weights "what is the powerhouse of the cell" --kind query
      cat report.txt | termweave weights - --json
      termweave weights "some text" --model path/to/model
    """
    from termweave import settings
    from termweave.encoders import load

    if text == "-":
        text = sys.stdin.buffer.read().decode("utf-8", "replace")
    encoder = load(weights=model or settings.load().weights, dense="")
    words = encoder.shade(text, kind=kind)
    terms = {word.term: word.weight for word in words if word.term}
    terms = dict(sorted(terms.items(), key=lambda pair: (-pair[1], pair[0])))
    data = {
        "schema": SCHEMA,
        "model": encoder.models["weights"].name,
        "kind": kind,
        "words": [
            {"start": word.start, "end": word.end, "word": text[word.start : word.end], "term": word.term, "weight": word.weight}
            for word in words
        ],
        "terms": terms,
    }
    if not terms:
        out.say("There is no term in this text: only stop words and punctuation, or nothing at all.")
    if sys.stdout.isatty():
        out.emit(data, lambda: shaded(text, words))
    else:
        out.emit(data, "\n".join(f"{weight:10.4f}  {term}" for term, weight in terms.items()))


def shaded(text: str, words: Sequence[WordWeight], *, scale: bool = True) -> Text:
    """The text in colours, and below it the scale."""
    from rich.style import Style
    from rich.text import Text

    found = Text(text)
    heaviest = max((word.weight for word in words), default=0.0)
    for word in words:
        share = word.weight / heaviest if heaviest else 0.0
        if share > 0:
            found.stylize(Style(color="white" if share > 0.5 else "black", bgcolor=_colour(share)), word.start, word.end)
    if heaviest and scale:
        found.append("\n\n")
        for step in range(1, 6):
            share = step / 5
            style = Style(color="white" if share > 0.5 else "black", bgcolor=_colour(share))
            found.append(f" {share * heaviest:.1f} ", style)
    return found


def _colour(share: float) -> str:
    """From nearly white to the darkest shade; dark on dark terminals stays readable because the word's own colour is set too."""
    red, green, blue = (round(235 - (235 - end) * share) for end in _DARKEST)
    return f"rgb({red},{green},{blue})"
