"""`termweave index` and `encode`: build a generation, verify it, publish it, or update the live one; or only encode a corpus into shards."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from termweave import answers, corpora, engine, indexer, plugins
from termweave.catalog import generations
from termweave.catalog.layout import signal_class
from termweave.cli.build_report import queries_of, report, show_plan, show_update_plan, watched
from termweave.cli.declared_options import FloatRange, click_options, flag, option, option_group
from termweave.cli.shared_options import check_together, confirm, verb
from termweave.cli.source_options import for_build, is_index, open_source, released_unless_stopped, source_options
from termweave.encoders.model_lookup import NONE
from termweave.errors import GateNotMet, UsageError
from termweave.evaluation import gates
from termweave.evaluation.index_comparison import PublicationGate
from termweave.indexer import builder, rebuild_options, update_plan, updater
from termweave.indexer.ledger.unfinished_builds import unfinished
from termweave.indexer.options import BUILDING, ENCODING, BuildOptions, models_in
from termweave.support.messages import counted, without_password

if TYPE_CHECKING:
    from termweave.catalog.generations import LiveGeneration
    from termweave.cli.output import Output
    from termweave.corpora import OpenedSource, Source
    from termweave.engine import Engine
    from termweave.indexer import LargeDeletion
    from termweave.indexer.job import Job
    from termweave.settings import Settings


@verb("index", connects=True, long=True)
@click.argument("source")
@click.argument("name")
@flag("--plan only_plan", "Write nothing; report what the build, or the update, would make, need and delete.")
@flag("--defaults", "Build without the options that the live generation was built with.")
@option_group(
    "Updating",
    flag("--update", "Encode and send only what is new or changed, within the live generation."),
    flag("--delete-missing", "With --update: delete documents that SOURCE does not have."),
    flag("--new", "With --update: change a copy, which replaces the live generation when it is verified."),
    option(
        "--since",
        "With --update from an index: read only documents whose FIELD is not below that of the newest document in NAME. FIELD is a time or "
        "number that grows with every change, or _seq_no. Deleted documents are found by the ids of the others.",
        "FIELD",
    ),
    flag(
        "--yes",
        "With --delete-missing: delete more than 10% of the documents without asking. Without --yes this is refused where nobody can be "
        "asked, as in a script. A copy is changed, so that 'termweave rollback' brings the documents back.",
    ),
)
@option_group(
    "Requirements before publishing",
    option("--require required", "Publish only if this holds: 'nDCG@10>=0.4'; repeatable.", "GATE", multiple=True),
    option("--on dataset", "The judged queries that --require and --within are measured on.  [default: SOURCE]", "DATASET"),
    option(
        "--within",
        "Publish only if nDCG@10 is at most so much below that of the live generation, on the same queries. The 95 % interval of the "
        "paired difference must exclude a larger loss.",
        "MARGIN",
        type=FloatRange(0),
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
    gated, indexed = bool(required) or within is not None, is_index(source)
    check_together(
        ("--fresh begins a build anew: leave out --fresh or --update", bool(build.get("fresh") and update)),
        ("--update keeps the options of the live generation: leave out --defaults or --update", defaults and update),
        ("--delete-missing, --new and --since belong to --update", not update and bool(delete_missing or new or since)),
        (
            "--since reads what changed in an index: SOURCE must be opensearch:INDEX or https://HOST:9200/INDEX",
            bool(since) and not indexed,
        ),
        ("--yes belongs to --update --delete-missing", yes and not delete_missing),
        ("--on names the queries of a gate: add --require, or --within .01", bool(dataset) and not (gated or only_plan)),
    )
    stated = {option: value for option, value in models_in(build, settings).items() if option in build or value is not None}
    options = BuildOptions(**stated, skip_bad=reading["skip_bad"])
    reading["skip_bad"] |= only_plan

    def open_corpus(whole: bool, fresh: bool) -> OpenedSource:
        """Open the corpus; `whole`: also read fields that no option names; `fresh`: drop an earlier snapshot of a source index."""
        return open_source(source, for_build(reading, "" if only_plan or update else name, whole=whole), out, fresh=fresh)

    # Mistakes in a source are said before a server is needed; how an index is read depends on the live generation.
    corpus = None if indexed else open_corpus(options.keep_mapping, options.fresh)
    # Two connections more than the workers use: one renews the lease, one asks for other things.
    server = engine.connect(settings, pool_maxsize=options.workers + 2).patient(options.patience, out.say)
    live = None if update else generations.find_live(server, name)
    taken = options if defaults or live is None else rebuild_options.rebuilt(server, live, options, stated, index=indexed)
    anew = options.fresh or (corpus is None and not only_plan and not update and not unfinished(server, name))
    corpus = corpus if corpus is not None else open_corpus(taken.keep_mapping, anew)
    if corpus.encodings is not None:  # they have settled how texts are encoded
        taken = replace(taken, **{option: getattr(options, option) for option in ENCODING})
    remarks, options = rebuild_options.remark(options, taken), taken
    updating = update and _has_live_generation(server, name, out)
    if updating and since:
        corpus, remarks = update_plan.changed_since(server, name, corpus, since)
    out.say(*remarks)  # the options of an update are those of the live generation, and are not said
    mode = indexer.UpdateMode(delete_missing, new, tuple(build), 1.0 if yes else indexer.LARGE_DELETION)
    if only_plan:
        if updating:
            show_update_plan(server, corpus, name, options, mode, out)
        else:
            show_plan(server, corpus, name, live, queries_of(dataset, source), options, out)
        return
    gate = _gate(server, name, required, within, dataset or source, None if updating else _signals(options), out)
    job: Job
    if updating:
        job = updater.Update(server, corpus, name, options, gate if gated else None, mode=mode)
        nouns = ("document or passage", "documents and passages")
    else:
        job = builder.Build(server, corpus, name, options, gate if gated else None, live)
        nouns = ("passage", "passages") if options.passages else ("document", "documents")
    with released_unless_stopped(corpus), job:
        watched(job.read, out, nouns)
        _compare_with_live(name, live, corpus, out)
        if job.large is not None:
            _ask(job.large, name)
            job.large = None
        result = watched(job.write, out, nouns)
    report(result, corpus, gate, out, keeps_missing=not delete_missing)
    if result.missed:
        ways = f"'termweave promote {name} {result.index}' publishes it anyway, 'termweave prune {name}' removes it"
        raise GateNotMet(result.missed, f"{result.index} is complete but was not published. {ways}.")


def _gate(
    server: Engine, name: str, required: Sequence[str], within: float | None, dataset: str, signals: list[str] | None, out: Output
) -> PublicationGate:
    """Make the gate that the options of the command require, and check it before the build: data set, judged queries, measures."""
    parsed = [gates.parse(each) for each in required]
    try:
        judged = corpora.open_dataset(dataset) if required or within is not None else None
    except UsageError as error:
        raise UsageError(error.message, f"--on DATASET names the judged queries of the gate. {error.hint}") from None
    gate = PublicationGate(server, name, judged, parsed, within, say=out.say)
    gate.check(signals)
    return gate


def _signals(options: BuildOptions) -> list[str]:
    """The signals that a build makes according to its options: named or default ones, without those whose model is "none"."""
    signals = options.signals or [name for name in plugins.names("signals") if signal_class(name).default]
    return [name for name in signals if getattr(options, signal_class(name).needs or "", None) not in NONE]


def _ask(large: LargeDeletion, name: str) -> None:
    """Ask the user whether an update may delete this many documents.

    Raises:
        LargeDeletion: Nobody can be asked, because standard input is not a terminal.
        Exit: The user answered no.
    """
    if not sys.stdin.isatty():
        raise large
    back = f"'termweave rollback {name}' brings them back"
    confirm(f"Delete {large.deletions:,} of the {large.documents:,} documents of {name!r}? ({back}.)")


def _has_live_generation(server: Engine, name: str, out: Output) -> bool:
    """Whether the index has a live generation to update; if not, say so to the user."""
    generations.check_spelling(name)
    if generations.live(server, name) is not None:
        return True
    out.say(f"The index {name!r} has no live generation to update: it is built, or its unfinished build is continued.")
    return False


def _compare_with_live(name: str, live: LiveGeneration | None, source: Source, out: Output) -> None:
    """Tell the user if a build replaces a live generation that was made from another source, which may be a mistake."""
    if live is not None and (before := live.lineage.source["name"]) != source.name:
        back = f"'termweave rollback {name}' brings the other back"
        out.say(f"{name!r} was made from {before!r}; this build replaces it with {source.name!r}, and {back}.")


@verb("encode", long=True)
@click.argument("source")
@option("--out folder", "Folder of the shards: a path, or an fsspec URL (s3://...).", "FOLDER", required=True)
@click_options(BuildOptions, "build", ENCODING)
@source_options(folders=True)
def encode(*, source: str, folder: str, build: dict[str, Any], reading: dict[str, Any], out: Output) -> None:
    """Encode SOURCE into Parquet shards in FOLDER: ids, texts, metadata, term weights, vectors and digests.

    Ray encodes, with one process on each core: of this host, or of the cluster at $RAY_ADDRESS (pip install 'termweave[shards,ray]').

    The corpus is counted first. The index that 'termweave index FOLDER NAME' builds is the one that 'termweave index SOURCE NAME' would
    build. A shard is written under another name and renamed when it is whole, so the same command goes on after it was stopped.
    Pruning, signals and the analyzer are chosen when the folder is indexed.

    \b
    Examples:
      termweave encode ./nfcorpus --out ./nfcorpus-shards
      RAY_ADDRESS=head:6379 termweave encode /data/articles.jsonl --out s3://bucket/articles
      termweave encode ./reports --out ./reports-shards --passage-size 160
      termweave index ./nfcorpus-shards docs
    """
    from termweave import settings
    from termweave.indexer.shards.corpus_encoding import encode_corpus

    if not folder.strip():
        raise UsageError("--out names no folder.", "Name the folder of the shards: --out ./shards. Is a variable empty?")
    if is_index(source):
        advice = "Index it directly ('termweave index'), or export it to a file and encode that."
        raise UsageError(f"{without_password(source)} is an index, which changes: its encoding could not be resumed.", advice)
    options = BuildOptions(**models_in(build, settings.load()), skip_bad=reading["skip_bad"])
    corpus = open_source(source, reading, out)
    with out.stages("Encoding") as progress:
        encoded = encode_corpus(corpus, folder, options, progress)
    manifest = encoded.manifest
    out.warn(*manifest.warnings)
    out.say(*manifest.notes)
    data: answers.EncodeShards = {
        "schema": "termweave.encode-shards/1",
        "folder": encoded.folder,
        "source": manifest.source,
        "texts": manifest.texts,
        "shards": manifest.shards,
        "encoded": {"shards": encoded.shards, "texts": encoded.texts},
        "models": {output: {"name": model.name, "hash": model.hash} for output, model in manifest.models.items()},
        "statistics": manifest.statistics,
        "notes": [*manifest.notes],
        "warnings": [*manifest.warnings],
    }
    texts = f"{counted(manifest.texts, 'passage' if manifest.passages else 'document')} of {manifest.source}"
    now = f"{encoded.shards:,} of {manifest.shards:,} shards encoded now"
    out.emit(data, f"{encoded.folder}: {texts} ({now}); index them with: termweave index {encoded.folder} NAME")
