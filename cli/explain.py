"""`termweave explain`: why this document, for this query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from termweave.cli._options import CONTEXT, connection_options, output_options
from termweave.cli.search import as_json, model_options, rank_options

if TYPE_CHECKING:
    from termweave.cli._options import Output
    from termweave.settings import Settings


@click.command("explain", context_settings=CONTEXT, short_help="Why this document has its score.")
@click.argument("name")
@click.argument("query")
@click.argument("document", metavar="ID")
@rank_options
@model_options
@output_options
@connection_options
def command(
    *,
    name: str,
    query: str,
    document: str,
    mode: str,
    rerank: str,
    weights: str | None,
    dense: str | None,
    settings: Settings,
    out: Output,
) -> None:
    """Say which words and which signals gave the document ID its score for QUERY in NAME.

    \b
    Examples:
      termweave explain demo "run a function later" threading.Timer
      termweave explain demo "run a function later" sched.scheduler --rerank rnn --json
    """
    from termweave import engine
    from termweave.search import Index, explanation

    index = Index.open(engine.connect(settings), name, weights=weights or settings.weights, dense=dense or settings.dense)
    hit = index.explain(query, document, mode=mode, rerank=rerank)
    place = f"rank {hit.rank}" if hit.rank else "not among the candidates of any signal"
    told = explanation.as_text(hit.explanation or {"score": 0.0, "parts": []}, terms=20)
    text = f"{hit.fields.get('title') or hit.id}: {place}\n{told}"
    out.emit({"schema": "termweave.explain/1", "query": query, "hit": as_json(hit)}, text)
