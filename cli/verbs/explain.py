"""`termweave explain`: show why a document has its score for a query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from termweave.cli.common import shaded_texts
from termweave.cli.options.option_groups import verb
from termweave.cli.options.search_options import candidate_options, rank_options, words_option
from termweave.cli.options.shared_options import connection_options, model_options, models_to_open, output_options
from termweave.cli.verbs.search import check_words, from_input, where
from termweave.support.messages import printable

if TYPE_CHECKING:
    from pathlib import Path

    from termweave.cli.common.output import Output
    from termweave.settings import Settings


@verb("explain")
@click.argument("name")
@click.argument("query")
@click.argument("document", metavar="ID")
@words_option
@rank_options
@candidate_options
@model_options
@shaded_texts.picture_options
@output_options
@connection_options
def command(
    *,
    name: str,
    query: str,
    document: str,
    mode: str | None,
    rerank: str | None,
    rerank_budget: float | None,
    candidates: int,
    explain_words: bool,
    filters: tuple[str, ...],
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
    from termweave.search.render import pictures
    from termweave.search.results import explanation, json

    query = from_input(query)
    check_words(query)
    index = Index.open(engine.connect(settings), name, **models_to_open(models, settings))
    clauses = where(filters)
    hit = index.explain(
        query,
        document,
        mode=mode,
        rerank=rerank,
        rerank_budget=rerank_budget,
        candidates=candidates,
        where=clauses,
        explain_words=explain_words,
    )
    if html:
        shaded_texts.write(html, query, pictures.of_hit(hit), out)

    def show() -> None:
        console = out.console()
        console.print(printable(f"{hit.fields.get('title') or hit.id}: {explanation.place(hit)}"), markup=False)
        console.print(shaded_texts.passage(hit))
        console.print(explanation.as_text(hit.explanation or {"score": 0.0, "parts": []}, terms=20), markup=False)

    out.emit(json.explain(query, hit), show)
