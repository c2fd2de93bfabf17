"""`termweave weights`: show a text with every word shaded by its weight."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Literal

import click

from termweave.cli.common import shaded_texts
from termweave.cli.options.shared_options import verb

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.text import Text

    from termweave import answers
    from termweave.cli.common.output import Output
    from termweave.records import WordWeight

SCHEMA = "termweave.weights/1"


@verb("weights")
@click.argument("text")
@click.option(
    "--weights",
    "model",
    metavar="MODEL",
    help="Folder, installed package, name or hf:OWNER/NAME of a weights model.  [default: the shipped one]",
)
@click.option(
    "--kind",
    type=click.Choice(["document", "query"]),
    default="document",
    show_default=True,
    help="Weigh as a document (impacts) or as a query (factors).",
)
@shaded_texts.html_option
def command(*, text: str, model: str | None, kind: Literal["document", "query"], html: Path | None, out: Output) -> None:
    """Show which words of TEXT matter ('-' reads it from standard input).

    In a terminal every word is shaded by its weight; otherwise the terms are listed, heaviest first. Document frequencies come from
    the table in the model folder.

    \b
    Examples:
      termweave weights "The mitochondrion is the powerhouse of the cell."
      termweave weights "what is the powerhouse of the cell" --kind query
      cat report.txt | termweave weights - --json
      termweave weights "some text" --weights path/to/model --html weights.html
    """
    from termweave import settings
    from termweave.encoders import load

    if text == "-":
        given = sys.stdin.buffer.read()
        text = given.decode("utf-8", "replace")
        if text.encode() != given:
            out.warn("Standard input holds bytes that are not UTF-8; they are passed over.")
    encoder = load(weights=model or settings.load().weights, dense="")
    words = encoder.shade(text, kind=kind)
    terms = {word.term: word.weight for word in words if word.term}
    terms = dict(sorted(terms.items(), key=lambda pair: (-pair[1], pair[0])))
    data: answers.Weights = {
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
        out.say("This text has no terms: it is empty, or has only stop words, punctuation and words longer than 200 characters.")
    if html:
        from termweave.search.results.pictures import Picture
        from termweave.support.messages import clipped

        spans = [(word.start, word.end, word.weight) for word in words]
        picture = Picture(encoder.models["weights"].name, text, spans, note=f"weighed as a {kind}")
        shaded_texts.write(html, f"Weights: {clipped(text, 60)}", [picture], out)
    if sys.stdout.isatty():
        out.emit(data, lambda: shaded(text, words))
    else:
        out.emit(data, "\n".join(f"{weight:10.4f}  {term}" for term, weight in terms.items()))


def shaded(text: str, words: Sequence[WordWeight], *, scale: bool = True) -> Text:
    """Shade the words of a text by their weights; with `scale`, add the scale of colours below it."""
    picture = shaded_texts.shaded(text, [(word.start, word.end, word.weight) for word in words])
    heaviest = max((word.weight for word in words), default=0.0)
    if heaviest and scale:
        picture.append("\n\n")
        for step in range(1, 6):
            picture.append(f" {step / 5 * heaviest:.1f} ", shaded_texts.style(step / 5))
    return picture
