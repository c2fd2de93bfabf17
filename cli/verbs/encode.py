"""`termweave encode`: encode a corpus into shards, which `termweave index` sends without a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from termweave.cli.options.build_options import encoding_options
from termweave.cli.options.number_types import IntRange
from termweave.cli.options.option_groups import option_group, verb
from termweave.cli.options.shared_options import check_together, include_option, open_source, output_options, source_options

if TYPE_CHECKING:
    from termweave.cli.common.output import Output
    from termweave.indexer.shards.schedule import Encoded

SCHEMA = "termweave.encode-shards/1"


@verb("encode")
@click.argument("source")
@click.option(
    "--out", "folder", required=True, metavar="FOLDER", help="Folder of the shards: a path, or an fsspec URL (s3://...)."
)
@click.option("--shards", type=IntRange(1, 99_999), default=16, show_default=True, help="Number of shards.")
@click.option(
    "--shard",
    type=IntRange(0, 99_998),
    metavar="N",
    help="Encode this shard alone (the first is 0), in this process. Any host that sees SOURCE and FOLDER can do so.",
)
@option_group(
    "Processes",
    click.option(
        "--processes", type=IntRange(1, 1024), help="Shards that this host encodes at a time.  [default: one for two cores]"
    ),
    click.option(
        "--on", "cluster", type=click.Choice(["ray"]), help="Encode on the Ray cluster at $RAY_ADDRESS, else on a local one."
    ),
)
@encoding_options
@source_options
@include_option
@output_options
def command(
    *,
    source: str,
    folder: str,
    shards: int,
    shard: int | None,
    processes: int | None,
    cluster: str | None,
    flags: dict[str, Any],
    skip_bad: bool,
    reading: dict[str, Any],
    out: Output,
) -> None:
    """Encode SOURCE into Parquet shards in FOLDER: ids, texts, metadata, term weights, vectors and digests.

    The statistics of the corpus are counted first, shard by shard, and merged. The index that 'termweave index FOLDER NAME' builds is the
    one that 'termweave index SOURCE NAME' would build. A shard is written under another name and renamed when it is whole, so the same
    command goes on after it was stopped. Pruning, signals and the analyzer are chosen when the folder is indexed.

    \b
    Examples:
      termweave encode ./nfcorpus --out ./nfcorpus-shards --shards 8
      termweave encode /data/articles.jsonl --out s3://bucket/articles --shards 64 --shard 17
      termweave encode /data/articles.jsonl --out /data/shards --shards 64 --on ray
      termweave encode ./reports --out ./reports-shards --passage-size 160
      termweave index ./nfcorpus-shards docs
    """
    import os

    from termweave import settings
    from termweave.indexer.options import from_flags
    from termweave.indexer.shards import schedule
    from termweave.indexer.shards.job import EncodingJob
    from termweave.search.catalog.models import remember

    check_together(
        (
            f"--shard is a number from 0 to {shards - 1}, because there are {shards} (--shards)",
            shard is not None and shard >= shards,
        ),
        ("--shard encodes in this process: leave out --processes and --on", shard is not None and bool(processes or cluster)),
        ("--on ray asks the cluster how many shards it encodes at a time: leave out --processes", bool(processes and cluster)),
    )
    stored = settings.load()
    models = {"weights": flags["weights"] or stored.weights, "dense": flags["dense"] or stored.dense}
    options = from_flags({**flags, **models, "skip_bad": skip_bad})
    job = EncodingJob.of(source, folder, shards, reading, options)
    open_source(source, reading, out, skip_bad=skip_bad)
    opened = job.open()
    remember(opened.encoder.models.values())
    for warning in opened.plan.warnings:
        out.warn(warning)
    for note in opened.plan.notes:
        out.say(note)
    with out.progress("Encoding") as bar:
        if shard is not None:
            encoded = schedule.encode_one(opened, shard, bar)
        elif cluster:
            from termweave.indexer.shards.on_ray import RayCluster

            with RayCluster() as runner:
                encoded = schedule.encode_all(job, opened, runner, bar)
        else:
            from termweave.indexer.shards.processes import Processes

            encoded = schedule.encode_all(job, opened, Processes(processes or max(1, (os.cpu_count() or 1) // 2)), bar)
    _report(encoded, out)


def _report(encoded: Encoded, out: Output) -> None:
    from termweave.support.messages import counted

    for warning in encoded.counted.warnings:
        out.warn(warning)
    for note in encoded.counted.notes:
        out.say(note)
    plan = encoded.plan
    data = {
        "schema": SCHEMA,
        "folder": encoded.folder,
        "source": plan.source["name"],
        "texts": encoded.counted.texts,
        "shards": plan.shards,
        "finished": encoded.done,
        "encoded": {"shards": encoded.shards, "texts": encoded.texts},
        "models": {output: {"name": model["name"], "hash": model["hash"]} for output, model in plan.models.items()},
        "statistics": encoded.counted.statistics,
        "notes": [*plan.notes, *encoded.counted.notes],
        "warnings": [*plan.warnings, *encoded.counted.warnings],
    }
    texts = counted(encoded.counted.texts, "passage" if plan.window else "document")
    line = (
        f"{encoded.folder}: {encoded.done} of {plan.shards} shards, {texts} of {plan.source['name']} "
        f"({encoded.texts:,} encoded now)"
    )
    if encoded.complete:
        out.emit(data, f"{line}; index them with: termweave index {encoded.folder} NAME")
    else:
        out.emit(data, line)
