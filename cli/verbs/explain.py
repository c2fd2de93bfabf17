"""`termweave explain`: show why a document has its score for a query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from termweave.cli.common import shaded_texts
from termweave.cli.options.declared_options import click_options
from termweave.cli.options.shared_options import model_options, models_to_open, verb
from termweave.cli.verbs.search import check_words, from_input
from termweave.search.options import ExplainOptions
from termweave.support.messages import printable

if TYPE_CHECKING:
    from pathlib import Path

    from termweave.cli.common.output import Output
    from termweave.settings import Settings


@verb("explain", connects=True)
@click.argument("name")
@click.argument("query")
@click.argument("document", metavar="ID")
@click_options(ExplainOptions, "given")
@model_options
@shaded_texts.html_option
def command(
    *,
    name: str,
    query: str,
    document: str,
    given: dict[str, Any],
    models: dict[str, str | None],
    html: Path | None,
    settings: Settings,
    out: Output,
) -> None:
    """Show which words and which signals gave the document ID its score for QUERY in the index NAME.

    A QUERY of '-' is read from standard input. Give the same --candidates and --filter as in the search: the score depends on them.

    In a terminal the words of the passage are shaded by their contribution. --html writes the same to a web page.

    \b
    Examples:
      termweave explain demo "run a function later" threading.Timer
      termweave explain demo "run a function later" sched.scheduler --rerank rnn --json
      termweave explain demo "run a function later" threading.Timer --html why.html
    """
    from termweave import engine
    from termweave.search import Index
    from termweave.search.results import explanation, json, notices, pictures

    query = from_input(query)
    check_words(query)
    index = Index.open(engine.connect(settings), name, **models_to_open(models, settings))
    hit = index.explain(query, document, **given)
    if html:
        shaded_texts.write(html, query, pictures.of_hit(hit), out)

    def show() -> None:
        console = out.console()
        console.print(printable(f"{hit.fields.get('title') or hit.id}: {explanation.place(hit)}"))
        console.print(shaded_texts.passage(hit))
        console.print(explanation.as_text(hit.explanation or {"score": 0.0, "parts": []}, terms=20))

    out.emit(json.explain(query, hit), show)
    if lag := notices.enrichment_lag(index.opened, [document]):
        out.warn(str(lag))
