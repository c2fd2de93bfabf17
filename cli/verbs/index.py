"""`termweave index`: build a generation, verify it, publish it."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from termweave.cli._gate import Gate
from termweave.cli._numbers import FloatRange, IntRange
from termweave.cli._options import CONTEXT, check_together, connection_options, open_source, output_options, share, source_options
from termweave.cli._watching import watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from termweave.cli._options import Output
    from termweave.corpora import Opened, Source
    from termweave.engine import Engine
    from termweave.indexer import Built, Options, Updated
    from termweave.settings import Settings

#: Options that say how a generation is made; an update keeps that, and takes no other values.
_OF_A_BUILD = (
    "signals",
    "analyzer",
    "prune",
    "shards",
    "replicas",
    "settings_file",
    "mapping_file",
    "passage_size",
    "passage_stride",
    "neighbours",
    "saturation",
)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("index", context_settings=CONTEXT, short_help="Build, verify and publish an index.")
@click.argument("source")
@click.argument("name")
@click.option(
    "--weights",
    metavar="MODEL",
    help="Weights model: folder, package, name or hf:OWNER/NAME; 'none' for no learned weights.  [default: the shipped one]",
)
@click.option("--dense", metavar="MODEL", help="Dense model, likewise.  [default: the shipped one]")
@click.option(
    "--signals",
    metavar="LIST",
    help="Of lexical, weights, dense, term_frequency.  [default: the first three, as far as models and server allow]",
)
@click.option(
    "--analyzer",
    help="OpenSearch analyzer of the text.  [default: english; cjk or another where the models do not know the language]",
)
@click.option(
    "--prune",
    metavar="WHAT",
    help="Leave light impacts out: 0.1 (below .1 of the largest) or 30% (the lightest of each document).",
)
@click.option("--shards", type=IntRange(1), default=1, show_default=True, help="Primary shards.")
@click.option("--replicas", type=IntRange(0), help="Copies.  [default: 1 with several data nodes, else 0]")
@click.option("--settings", "settings_file", type=_FILE, metavar="FILE", help="Further index settings (JSON): analyzers, merges.")
@click.option(
    "--mapping",
    "mapping_file",
    type=_FILE,
    metavar="FILE",
    help="Further mapping (JSON): properties of your own are filled from the metadata of that name.",
)
@click.option(
    "--passage-size",
    type=IntRange(0),
    default=0,
    show_default=True,
    metavar="WORDS",
    help="Cut longer texts into passages of whole sentences, of so many words at most; 0: never. 160 suits the shipped model.",
)
@click.option(
    "--passage-stride",
    type=IntRange(1),
    metavar="WORDS",
    help="Words from the start of one passage to the next.  [default: three quarters of the size]",
)
@click.option(
    "--neighbours",
    type=IntRange(0, 100),
    default=0,
    show_default=True,
    metavar="N",
    help="Weigh in each document the words of its N nearest documents, too (by vector; 5 is a good number); 0: its own alone.",
)
@click.option(
    "--saturation",
    type=FloatRange(0, 1000, min_open=True),
    metavar="S",
    help="Store x (1 + S) / (x + S) of each impact x, a share of the largest, so that one heavy word outweighs fewer light ones. "
    "0.75 goes well with --neighbours.  [default: x as it is]",
)
@click.option("--workers", type=IntRange(1, 64), default=4, show_default=True, help="Connections that send at once.")
@click.option("--compress", is_flag=True, help="Compress what is sent (gzip): for a slow line, not for a near server.")
@click.option(
    "--patience",
    type=FloatRange(min=0),
    default=120.0,
    show_default=True,
    help="Seconds to keep trying while the server is overloaded or away.",
)
@click.option(
    "--loading/--no-loading",
    default=True,
    show_default=True,
    help="Load without refresh and replicas, and restore both at the end.",
)
@click.option(
    "--allow-refused",
    callback=share,
    metavar="SHARE",
    default="0%",
    show_default=True,
    help="Publish though the server refused so many of the documents; 100%: go on to the end though it refuses all.",
)
@click.option(
    "--skip-bad", is_flag=True, help="Leave out what cannot be read and the second of two documents with one id, and say so."
)
@source_options
@click.option("--fresh", is_flag=True, help="Throw an unfinished generation away instead of resuming it.")
@click.option("--plan", "only_plan", is_flag=True, help="Write nothing; say what the build would make and need.")
@click.option("--update", is_flag=True, help="Encode and send only what is new or changed, within the live generation.")
@click.option("--delete-missing", is_flag=True, help="With --update: delete documents that SOURCE does not have.")
@click.option(
    "--new", is_flag=True, help="With --update: into a copy that takes the live generation's place when it is verified."
)
@click.option(
    "--require", "required", multiple=True, metavar="GATE", help="Publish only if it holds: 'nDCG@10>=0.4'; repeatable."
)
@click.option(
    "--within",
    type=FloatRange(0),
    metavar="MARGIN",
    help="With --of-live: publish only if nDCG@10 is surely not lower by more (95 % interval of the paired difference).",
)
@click.option("--of-live", is_flag=True, help="Compare with the live generation, on the same queries.")
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
    settings_file: Path | None,
    mapping_file: Path | None,
    passage_size: int,
    passage_stride: int | None,
    neighbours: int,
    saturation: float | None,
    workers: int,
    compress: bool,
    patience: float,
    loading: bool,
    allow_refused: float,
    skip_bad: bool,
    reading: dict[str, Any],
    fresh: bool,
    only_plan: bool,
    update: bool,
    delete_missing: bool,
    new: bool,
    required: tuple[str, ...],
    within: float | None,
    of_live: bool,
    dataset: str | None,
    settings: Settings,
    out: Output,
) -> None:
    """Build a new generation of NAME from SOURCE, verify it, and point the alias NAME at it.

    SOURCE is a BEIR folder, a file of JSON lines, a CSV or TSV table, a Parquet file, a folder of .txt, .md or .html files,
    'ir:NAME' of ir_datasets, 'demo', or '-' for standard input; files may be .gz or .zst. What is neither id, title nor
    text becomes metadata. The live generation stays searchable until the new one is whole. A build that was stopped, in
    whatever way, is resumed by the same command: Ctrl-C once finishes what is under way, twice stops at once.

    \b
    Examples:
      termweave index ./nfcorpus docs
      termweave index articles.jsonl.gz articles --analyzer german --dense none
      cat articles.jsonl | termweave index - articles
      termweave index products.csv.zst products --id-field sku --title-field name --text-field description
      termweave index collection.tsv passages --id-field 1 --text-field 2
      termweave index huge.jsonl.gz docs --workers 8 --compress --allow-refused 0.1%
      termweave index ./nfcorpus docs --require 'nDCG@10>=0.35' --on ./nfcorpus:dev
      termweave index ./nfcorpus docs --prune 0.1
      termweave index ./nfcorpus docs --neighbours 5 --saturation 0.75
      termweave index ./reports reports --passage-size 160
      termweave index ./reports reports --plan
      termweave index ./nfcorpus docs --update --delete-missing
      termweave index ./nfcorpus docs --dense ./my-model --within .01 --of-live --on ./nfcorpus:dev
      termweave index ./chinese zh --signals lexical --analyzer cjk
    """
    from termweave import engine, indexer
    from termweave.indexer import NotPublished, Options, build, custom, keeping
    from termweave.indexer.passages import Window
    from termweave.search import lineage
    from termweave.signals import Pruning

    check_together(
        ("--plan says what a whole build makes: leave out --plan or --update", only_plan and update),
        ("--fresh begins a build anew: leave out --fresh or --update", fresh and update),
        ("--delete-missing and --new belong to --update", not update and (delete_missing or new)),
        ("--within and --of-live belong together: --within .01 --of-live", of_live != (within is not None)),
        (
            "--passage-stride belongs to --passage-size: --passage-size 160 --passage-stride 120",
            bool(passage_stride and not passage_size),
        ),
        (
            "--on names the queries of a gate: add --require, or --within .01 --of-live",
            bool(dataset and not (required or of_live or only_plan)),
        ),
    )
    options = Options(
        weights=weights or settings.weights,
        dense=dense or settings.dense,
        signals=tuple(each.strip() for each in signals.split(",") if each.strip()) if signals else None,
        analyzer=analyzer,
        prune=Pruning.parse(prune) if prune else Pruning(),
        shards=shards,
        replicas=replicas,
        settings=custom.read_settings(settings_file) if settings_file else {},
        mapping=custom.read_mapping(mapping_file) if mapping_file else {},
        workers=workers,
        patience=patience,
        loading=loading,
        allow_refused=allow_refused,
        fresh=fresh,
        skip_bad=skip_bad,
        passages=Window(passage_size, passage_stride or max(1, passage_size * 3 // 4)) if passage_size else None,
        neighbours=neighbours,
        saturation=saturation,
    )
    opened = open_source(source, reading, out, skip_bad=skip_bad or only_plan)
    server = engine.connect(settings, pool_maxsize=workers + 2, compress=compress)  # the lease and we ask meanwhile
    if only_plan:
        _plan(server, opened, name, _queries(dataset, source), options, out)
        return
    gate = Gate(server, name, required, within, dataset or source, options, out)
    live = _to_update(server, name, opened, options, out, update=update)
    run: Callable[..., Built | Updated] = partial(build, gate=gate)
    if live is not None:
        keeping.check(server, live, options, _said_of_a_build())
        run = partial(indexer.update, delete_missing=delete_missing, new=new, gate=gate if required or of_live else None)
    cut = passage_size or (live is not None and lineage.read(server, live).passages)
    try:
        built = watched(partial(run, server, opened, name, options), out, "passage" if cut else "document")
    except NotPublished as missed:
        _report(missed.built, opened, gate, out, kept=not delete_missing, published=False)
        raise
    _report(built, opened, gate, out, kept=not delete_missing)


def _report(built: Built | Updated, source: Opened, gate: Gate, out: Output, *, kept: bool, published: bool = True) -> None:
    """Say what a build or an update did; `kept`: documents that the source does not have stayed."""
    from termweave.indexer import Updated
    from termweave.words import counted

    for warning in built.warnings:
        out.warn(warning)
    for note in built.notes:
        out.say(note)
    for skipped in source.skipped:
        out.detail(f"Left out: {skipped}.")
    rate = built.sent / built.seconds if built.seconds else 0.0
    data: dict[str, Any] = {
        "schema": "termweave.index/1",
        "name": built.name,
        "generation": built.index,
        "documents": built.documents,
        "passages": built.passages,
        "sent": built.sent,
        "signals": list(built.signals),
        "seconds": round(built.seconds, 3),
        "published": published,
        "gates": gate.told,
        "notes": [*source.remarks, *built.warnings, *built.notes, *map(str, source.skipped)],
    }
    passages = f" ({counted(built.passages, 'passage')})" if built.passages != built.documents else ""
    documents = f"{counted(built.documents, 'document')}{passages}"
    text = f"{built.name}: {documents} in {built.index}, verified and {'live' if published else 'not published'} ({', '.join(built.signals)}; "
    text += f"{built.sent:,} sent in {built.seconds:.1f} s{f', {rate:,.0f}/s' if rate >= 1 else ''})"  # an update mostly compares
    if isinstance(built, Updated):
        data["update"] = {**asdict(built.counts), "deleted": built.deleted, "outdated": built.outdated}
        text += f"\nDocuments: {built.counts}"
        if built.counts.gone and kept:
            text += f" (kept; --delete-missing deletes {'it' if built.counts.gone == 1 else 'them'})"
        text += f"; {built.deleted:,} deleted" if built.deleted else ""
        text += f"\nPassages: {built.outdated:,} that changed documents have no longer were deleted" if built.outdated else ""
    out.emit(data, text)


def _to_update(server: Engine, name: str, source: Source, options: Options, out: Output, *, update: bool) -> str | None:
    """The live generation where it is to be updated; that there is none, or what gives way to a build is said."""
    from termweave.indexer import generations, keeping
    from termweave.search import lineage

    generations.check_name(server, name)
    live = generations.live(server, name)
    if update and live is None:
        out.say(f"{name!r} has no live generation to update: it is built, or a build that was begun is finished.")
    elif live is not None and not update:
        made = lineage.read(server, live)
        if (before := made.source["name"]) != source.name:
            out.say(
                f"{name!r} was made from {before!r}; this build puts {source.name!r} in its place, and 'termweave rollback {name}' "
                "brings the other back."
            )
        if without := keeping.left_out(made, options, _said_of_a_build()):
            out.say(f"The live generation was made with {' '.join(without)}; this build, without that, is not.")
    return live if update else None


def _queries(dataset: str | None, source: str) -> list[str]:
    """The texts of judged queries: of what --on names, else of SOURCE, which need not have any.

    Raises:
        TermweaveError: What --on names is no data set.
    """
    from termweave import corpora
    from termweave.errors import TermweaveError

    try:
        return [query.text for query in corpora.open_dataset(dataset or source).queries()]
    except TermweaveError:
        if dataset:
            raise
        return []


def _plan(server: Engine, source: Source, name: str, queries: list[str], options: Options, out: Output) -> None:
    """Say what a build would make and need."""
    from termweave.cli._plan import table
    from termweave.errors import TermweaveError
    from termweave.indexer import drifting, generations
    from termweave.indexer.forecast import forecast

    generations.check_name(server, name)
    live = None
    try:
        live = drifting.standing(server, name)
    except TermweaveError as error:  # damage to what is there is no reason not to plan what takes its place
        out.warn(f"The statistics of what is live are not compared: {error}")
    with out.progress("Reading") as bar:

        def progress(stage: str, done: int, total: int | None, detail: str = "", /) -> None:
            bar(done, total, stage, detail)

        found = forecast(source, server.capabilities, options, queries, progress, live=live)
    for note in found.notes:
        out.say(note)
    out.emit({"schema": "termweave.plan/1", "name": name, **asdict(found)}, lambda: table(found))
    for warning in found.warnings:
        out.warn(warning)


def _said_of_a_build() -> list[str]:
    """The flags on the command line that say how a generation is made."""
    source = click.get_current_context().get_parameter_source
    said = (option for option in _OF_A_BUILD if source(option) == ParameterSource.COMMANDLINE)
    return [f"--{option.removesuffix('_file').replace('_', '-')}" for option in said]
