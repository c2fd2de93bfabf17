"""`termweave index`: build a generation, verify it, publish it; or update the live one."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from termweave.cli.common.build_report import queries_of, report, show_plan, show_update_plan
from termweave.cli.common.progress import watched
from termweave.cli.options.declared_options import click_options
from termweave.cli.options.number_types import FloatRange
from termweave.cli.options.option_groups import option_group
from termweave.cli.options.shared_options import check_together, confirm, verb
from termweave.cli.options.source_options import for_build, is_index, open_source, released_unless_stopped, source_options
from termweave.indexer.options import BUILDING, ENCODING, BuildOptions, models_in

if TYPE_CHECKING:
    from termweave.catalog.generations import LiveGeneration
    from termweave.cli.common.output import Output
    from termweave.corpora import OpenedSource, Source
    from termweave.engine import Engine
    from termweave.evaluation.publication_gate import PublicationGate
    from termweave.indexer import LargeDeletion
    from termweave.indexer.job import Job
    from termweave.settings import Settings


@verb("index", connects=True, long=True)
@click.argument("source")
@click.argument("name")
@click.option(
    "--plan", "only_plan", is_flag=True, help="Write nothing; report what the build, or the update, would make, need and delete."
)
@click.option("--defaults", is_flag=True, help="Build without the options that the live generation was built with.")
@option_group(
    "Updating",
    click.option("--update", is_flag=True, help="Encode and send only what is new or changed, within the live generation."),
    click.option("--delete-missing", is_flag=True, help="With --update: delete documents that SOURCE does not have."),
    click.option(
        "--new", is_flag=True, help="With --update: change a copy, which replaces the live generation when it is verified."
    ),
    click.option(
        "--since",
        metavar="FIELD",
        help="With --update from an index: read only documents whose FIELD is not below that of the newest document in NAME. FIELD is a time or "
        "number that grows with every change, or _seq_no. Deleted documents are found by the ids of the others.",
    ),
    click.option(
        "--yes",
        is_flag=True,
        help="With --delete-missing: delete more than 10% of the documents without asking; where nobody can be asked, that is refused "
        "otherwise. It is done in a copy, so that 'termweave rollback' brings them back.",
    ),
)
@option_group(
    "Requirements before publishing",
    click.option(
        "--require", "required", multiple=True, metavar="GATE", help="Publish only if this holds: 'nDCG@10>=0.4'; repeatable."
    ),
    click.option(
        "--on",
        "dataset",
        metavar="DATASET",
        help="The judged queries that --require and --within are measured on.  [default: SOURCE]",
    ),
    click.option(
        "--within",
        type=FloatRange(0),
        metavar="MARGIN",
        help="Publish only if nDCG@10 is at most so much below that of the live generation, on the same queries. The 95 % interval of the "
        "paired difference must exclude a larger loss.",
    ),
)
@click_options(BuildOptions, "build", BUILDING)
@source_options(folders=True, index=True)
def command(
    *,
    source: str,
    name: str,
    only_plan: bool,
    build: dict[str, Any],
    defaults: bool,
    update: bool,
    delete_missing: bool,
    new: bool,
    since: str | None,
    yes: bool,
    required: tuple[str, ...],
    dataset: str | None,
    within: float | None,
    skip_bad: bool,
    reading: dict[str, Any],
    settings: Settings,
    out: Output,
) -> None:
    """Build a new generation of NAME from SOURCE, verify it, and point the alias NAME at it.

    SOURCE is a BEIR folder, a file of JSON lines, a CSV or TSV table, a Parquet file, a folder of texts (.txt, .md, .rst, .adoc, .html,
    .pdf, .docx, .pptx, .xlsx), one PDF or office file, the http(s) address of a file, an index ('opensearch:INDEX' on the same server,
    'https://HOST:9200/INDEX' on another), 'ir:NAME' of ir_datasets, 'demo', a folder of shards ('termweave encode'), or '-' for
    standard input; files may be .gz or .zst. Everything except id, title and text becomes metadata. The live generation can be
    searched until the new one is whole, and its options hold for the new one, too, unless the command gives others or --defaults. If
    a build is stopped, the same command resumes it. Ctrl-C once finishes the requests that were sent; Ctrl-C twice stops at once.

    \b
    Examples:
      termweave index ./nfcorpus docs
      termweave index articles.jsonl.gz articles --analyzer german --dense none
      cat articles.jsonl | termweave index - articles
      termweave index https://example.org/articles.jsonl.gz articles
      termweave index products.csv.zst products --id-field sku --title-field name --text-field description
      termweave index collection.tsv passages --id-field 1 --text-field 2
      termweave index huge.jsonl.gz docs --workers 8 --allow-refused 0.1%
      termweave index opensearch:products products-tw --title-field name --text-field description
      termweave index opensearch:products products-tw --title-field name --text-field description --keep-mapping
      termweave index https://reader@old:9200/products products --text-field description
      termweave index opensearch:products products-tw --text-field description --update --since updated_at --delete-missing
      termweave index ./nfcorpus docs --require 'nDCG@10>=0.35' --on ./nfcorpus:dev
      termweave index ./nfcorpus docs --prune 0.1
      termweave index ./reports reports --passage-size 160
      termweave index ./reports reports --plan
      termweave index ./nfcorpus docs --update --delete-missing --plan
      termweave index ./nfcorpus docs --update --delete-missing --yes
      termweave index ./nfcorpus docs --dense ./my-model --within .01 --on ./nfcorpus:dev
      termweave index ./chinese zh --signals lexical --analyzer cjk
    """
    from termweave import engine, indexer
    from termweave.catalog import generations
    from termweave.errors import GateNotMet
    from termweave.indexer import builder, rebuild_options, update_plan, updater
    from termweave.indexer.ledger.unfinished_builds import unfinished

    check_together(
        ("--fresh begins a build anew: leave out --fresh or --update", bool(build.get("fresh") and update)),
        ("--update keeps the options of the live generation: leave out --defaults or --update", defaults and update),
        ("--delete-missing, --new and --since belong to --update", not update and bool(delete_missing or new or since)),
        (
            "--since reads what changed in an index: SOURCE must be opensearch:INDEX or https://HOST:9200/INDEX",
            bool(since) and not is_index(source),
        ),
        ("--yes belongs to --update --delete-missing", yes and not delete_missing),
        (
            "--on names the queries of a gate: add --require, or --within .01",
            bool(dataset and not (required or within is not None or only_plan)),
        ),
    )
    given = {option: value for option, value in models_in(build, settings).items() if option in build or value is not None}
    options = BuildOptions(**given, skip_bad=skip_bad)
    opening = partial(_open, source, reading, out, "" if only_plan or update else name, skip_bad or only_plan)
    # Mistakes in a source are said before a server is needed; how an index is read depends on the live generation.
    opened = None if is_index(source) else opening(options.keep_mapping, options.fresh)
    # Two connections more than the workers use: one renews the lease, one asks for other things.
    server = engine.connect(settings, pool_maxsize=options.workers + 2).patient(options.patience, out.say)
    live = None if update else generations.find_live(server, name)
    taken = options if defaults or live is None else rebuild_options.rebuilt(server, live, options, given, index=is_index(source))
    anew = options.fresh or (opened is None and not only_plan and not update and not unfinished(server, name))
    opened = opened if opened is not None else opening(taken.keep_mapping, anew)
    if opened.encodings is not None:  # they have settled how texts are encoded
        taken = replace(taken, **{option: getattr(options, option) for option in ENCODING})
    remarks, options = rebuild_options.remark(options, taken), taken
    updating = update and _has_live_generation(server, name, out)
    if updating and since:
        opened, remarks = update_plan.changed_since(server, name, opened, since)
    for remark in remarks:  # the options of an update are those of the live generation, and are not said
        out.say(remark)
    mode = indexer.UpdateMode(delete_missing, new, tuple(build), 1.0 if yes else indexer.LARGE_DELETION)
    if only_plan:
        if updating:
            show_update_plan(server, opened, name, options, mode, out)
        else:
            show_plan(server, opened, name, live, queries_of(dataset, source), options, out)
        return
    gate = _gate(server, name, required, within, dataset or source, out)
    gate.check(None if updating else _signals(options))
    measure = gate if required or within is not None else None
    job: Job
    if updating:
        job, nouns = (
            updater.Update(server, opened, name, options, mode, measure),
            ("document or passage", "documents and passages"),
        )
    else:
        job = builder.Build(server, opened, name, options, measure, live)
        nouns = ("passage", "passages") if options.passages else ("document", "documents")
    with released_unless_stopped(opened), job:
        watched(job.read, out, nouns)
        _compare_with_live(name, live, opened, out)
        if job.large is not None:
            _ask(job.large, name)
            job.large = None
        result = watched(job.write, out, nouns)
    report(result, opened, gate, out, kept=not delete_missing)
    if result.missed:
        raise GateNotMet(
            result.missed,
            f"{result.index} is complete but was not published. 'termweave promote {name} {result.index}' publishes it anyway, "
            f"'termweave prune {name}' removes it.",
        )


def _gate(
    server: Engine, name: str, required: tuple[str, ...], within: float | None, dataset: str, out: Output
) -> PublicationGate:
    """The requirements of the command. The data set with the judged queries is opened before the build begins."""
    from termweave import corpora
    from termweave.errors import UsageError
    from termweave.evaluation import gates
    from termweave.evaluation.publication_gate import PublicationGate

    parsed = [gates.parse(each) for each in required]
    try:
        judged = corpora.open_dataset(dataset) if required or within is not None else None
    except UsageError as error:
        raise UsageError(error.message, f"--on DATASET names the judged queries of the gate. {error.hint}") from None
    return PublicationGate(server, name, judged, parsed, within, say=out.say)


def _signals(options: BuildOptions) -> list[str]:
    """The signals that a build makes, as far as its options say."""
    from termweave import plugins
    from termweave.catalog.layout import signal_class
    from termweave.encoders.model_lookup import NONE

    asked = options.signals or [name for name in plugins.names("signals") if signal_class(name).default]
    return [name for name in asked if getattr(options, signal_class(name).needs or "", None) not in NONE]


def _ask(large: LargeDeletion, name: str) -> None:
    """Ask the user whether this many documents may be deleted.

    Raises:
        LargeDeletion: There is no terminal to ask at.
        Exit: The answer is no.
    """
    if not sys.stdin.isatty():
        raise large
    confirm(
        f"Delete {large.deletions:,} of the {large.documents:,} documents of {name!r}? ('termweave rollback {name}' brings them back.)"
    )


def _open(source: str, reading: Any, out: Output, name: str, skip_bad: bool, whole: bool, fresh: bool) -> OpenedSource:
    """Open a source for the build of `name` ("": for none); `whole` reads the fields that no option names, too."""
    return open_source(source, for_build(reading, name, whole=whole), out, skip_bad=skip_bad, fresh=fresh)


def _has_live_generation(server: Engine, name: str, out: Output) -> bool:
    """Whether there is something to update; if not, that is reported."""
    from termweave.catalog import generations

    generations.check_spelling(name)
    if generations.live(server, name) is not None:
        return True
    out.say(f"{name!r} has no live generation to update, so it is built now (or its unfinished build is finished).")
    return False


def _compare_with_live(name: str, live: LiveGeneration | None, source: Source, out: Output) -> None:
    """Report that a build replaces the live generation by one of another source, which a user may not want."""
    if live is not None and (before := live.lineage.source["name"]) != source.name:
        out.say(
            f"{name!r} was made from {before!r}; this build replaces it with {source.name!r}, and 'termweave rollback {name}' "
            "brings the other back."
        )
