"""`termweave index`: build a generation, verify it, publish it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from termweave.cli._options import CONTEXT, connection_options, output_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from termweave.cli._options import Output
    from termweave.engine import Engine
    from termweave.indexer import Options
    from termweave.settings import Settings


@click.command("index", context_settings=CONTEXT, short_help="Build, verify and publish an index.")
@click.argument("source")
@click.argument("name")
@click.option(
    "--weights",
    metavar="MODEL",
    help="Weights model: folder, package or name; 'none' for no learned weights.  [default: the shipped one]",
)
@click.option("--dense", metavar="MODEL", help="Dense model, likewise.  [default: the shipped one]")
@click.option("--signals", metavar="LIST", help="Signals, comma-separated.  [default: all that models and server allow]")
@click.option(
    "--analyzer",
    help="OpenSearch analyzer of the text.  [default: english; cjk or another where the models do not know the language]",
)
@click.option(
    "--prune",
    metavar="WHAT",
    help="Leave light impacts out: 0.1 (below .1 of the largest) or 30% (the lightest of each document).",
)
@click.option("--shards", type=click.IntRange(1), default=1, show_default=True, help="Primary shards.")
@click.option("--replicas", type=click.IntRange(0), help="Copies.  [default: 1 with several data nodes, else 0]")
@click.option("--workers", type=click.IntRange(1, 64), default=2, show_default=True, help="Connections that send at once.")
@click.option(
    "--skip-bad", is_flag=True, help="Leave out what cannot be read and the second of two documents with one id, and say so."
)
@click.option("--fresh", is_flag=True, help="Throw an unfinished generation away instead of resuming it.")
@click.option(
    "--require", "required", multiple=True, metavar="GATE", help="Publish only if it holds: 'nDCG@10>=0.4'; repeatable."
)
@click.option("--on", "dataset", metavar="DATASET", help="The judged queries --require is measured on.  [default: SOURCE]")
@output_options
@connection_options
def command(
    *,
    source: str,
    name: str,
    weights: str | None,
    dense: str | None,
    signals: str | None,
    analyzer: str | None,
    prune: str | None,
    shards: int,
    replicas: int | None,
    workers: int,
    skip_bad: bool,
    fresh: bool,
    required: tuple[str, ...],
    dataset: str | None,
    settings: Settings,
    out: Output,
) -> None:
    """Build a new generation of NAME from SOURCE, verify it, and point the alias NAME at it.

    SOURCE is a BEIR folder, a JSONL file (plain or .gz), 'demo', or '-' for standard input. The live generation stays
    searchable until the new one is whole. A build that was stopped, in whatever way, is resumed by the same command.

    \b
    Examples:
      termweave index ./nfcorpus docs
      termweave index articles.jsonl.gz articles --analyzer german --dense none
      cat articles.jsonl | termweave index - articles
      termweave index ./nfcorpus docs --require 'nDCG@10>=0.35' --on ./nfcorpus:dev
      termweave index ./chinese zh --signals lexical --analyzer cjk
      termweave index ./nfcorpus docs --prune 0.1
    """
    from termweave import corpora, engine
    from termweave.indexer import Options, build
    from termweave.signals import Pruning

    options = Options(
        weights=weights or settings.weights,
        dense=dense or settings.dense,
        signals=tuple(each.strip() for each in signals.split(",") if each.strip()) if signals else None,
        analyzer=analyzer,
        prune=Pruning.parse(prune) if prune else Pruning(),
        shards=shards,
        replicas=replicas,
        workers=workers,
        fresh=fresh,
        skip_bad=skip_bad,
    )
    opened = corpora.open_source(source, skip_bad=skip_bad)
    server = engine.connect(settings, pool_maxsize=workers + 1)
    gate = _gate(server, required, dataset or source, options, out)
    try:
        with out.progress("Reading") as bar:
            built = build(server, opened, name, options, lambda stage, done, total: bar(done, total, stage), gate)
    except KeyboardInterrupt:
        out.say("Stopped. What the engine has acknowledged is kept: the same command goes on from there.")
        raise click.exceptions.Exit(130) from None
    for warning in built.warnings:
        out.warn(warning)
    for note in built.notes:
        out.say(note)
    rate = built.sent / built.seconds if built.seconds else 0.0
    data: dict[str, Any] = {
        "schema": "termweave.index/1",
        "name": built.name,
        "generation": built.index,
        "documents": built.documents,
        "sent": built.sent,
        "signals": list(built.signals),
        "seconds": round(built.seconds, 3),
        "notes": [*built.warnings, *built.notes],
    }
    out.emit(
        data,
        f"{built.name}: {built.documents:,} document{'s' if built.documents != 1 else ''} in {built.index}, verified and live "
        f"({', '.join(built.signals)}; {built.sent:,} sent in {built.seconds:.1f} s, {rate:.0f}/s)",
    )


def _gate(server: Engine, required: tuple[str, ...], dataset: str, options: Options, out: Output) -> Callable[[str], None]:
    """What a generation has to pass before it is published; the data set is opened before the build begins."""
    from termweave import corpora
    from termweave.errors import GateNotMet
    from termweave.evaluation import evaluate, gates
    from termweave.search import Index

    parsed = [gates.parse(each) for each in required]
    judged = corpora.open_dataset(dataset) if parsed else None

    def check(generation: str) -> None:
        if judged is None:
            return
        found = evaluate(Index.open(server, generation, weights=options.weights, dense=options.dense), judged)
        verdicts = [gates.check(each, found, judged) for each in parsed]
        for verdict in verdicts:
            out.say(f"{'Met' if verdict.met else 'NOT met'}: {verdict.reason}.")
        missed = [verdict.reason for verdict in verdicts if not verdict.met]
        if missed:
            raise GateNotMet(f"{'; '.join(missed)}.", f"{generation} was not published; the live generation stays.")

    return check
