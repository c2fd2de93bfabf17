"""`termweave explain`: why this document, for this query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from termweave.cli import _pictures
from termweave.cli._options import CONTEXT, connection_options, output_options
from termweave.cli.search import candidate_options, check_words, from_input, model_options, rank_options, where

if TYPE_CHECKING:
    from pathlib import Path

    from termweave.cli._options import Output
    from termweave.settings import Settings


@click.command("explain", context_settings=CONTEXT, short_help="Why this document has its score.")
@click.argument("name")
@click.argument("query")
@click.argument("document", metavar="ID")
@rank_options
@candidate_options
@model_options
@_pictures.picture_options
@output_options
@connection_options
def command(
    *,
    name: str,
    query: str,
    document: str,
    mode: str | None,
    rerank: str | None,
    candidates: int,
    filters: tuple[str, ...],
    filter_json: str | None,
    weights: str | None,
    dense: str | None,
    files: dict[str, Path],
    settings: Settings,
    out: Output,
) -> None:
    """Say which words and which signals gave the document ID its score for QUERY ('-' reads it from standard input) in NAME.

    --candidates and --filter as given to search: the score hangs on them.

    In a terminal the words of the passage are shaded by what they contribute; --html and --png write the same picture.

    \b
    Examples:
      termweave explain demo "run a function later" threading.Timer
      termweave explain demo "run a function later" sched.scheduler --rerank rnn --json
      termweave explain demo "run a function later" threading.Timer --html why.html
    """
    from termweave import engine
    from termweave.search import Index, explanation

    query = from_input(query)
    check_words(query)
    index = Index.open(engine.connect(settings), name, weights=weights or settings.weights, dense=dense or settings.dense)
    kept = where(filters, filter_json)
    hit = index.explain(query, document, mode=mode, rerank=rerank, candidates=candidates, where=kept)
    data = {"schema": "termweave.explain/1", "query": query, "hit": hit.as_dict()}
    if files:
        _pictures.write(files, query, [_pictures.of_hit(hit)], out)

    def show() -> None:
        console = out.console()
        console.print(f"{hit.fields.get('title') or hit.id}: {explanation.place(hit)}", markup=False)
        console.print(_pictures.passage(hit))
        console.print(explanation.as_text(hit.explanation or {"score": 0.0, "parts": []}, terms=20), markup=False)

    out.emit(data, show)
