"""`termweave encode`: encode a corpus into shards, which `termweave index` sends without a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from termweave.cli.options.declared_options import click_options
from termweave.cli.options.shared_options import verb
from termweave.cli.options.source_options import is_index, open_source, source_options
from termweave.indexer.options import ENCODING, BuildOptions, models_in

if TYPE_CHECKING:
    from termweave import answers
    from termweave.cli.common.output import Output

SCHEMA = "termweave.encode-shards/1"


@verb("encode", long=True)
@click.argument("source")
@click.option(
    "--out", "folder", required=True, metavar="FOLDER", help="Folder of the shards: a path, or an fsspec URL (s3://...)."
)
@click_options(BuildOptions, "build", ENCODING)
@source_options(folders=True)
def command(
    *,
    source: str,
    folder: str,
    build: dict[str, Any],
    skip_bad: bool,
    reading: dict[str, Any],
    out: Output,
) -> None:
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
    from termweave.errors import UsageError
    from termweave.indexer.shards.corpus_encoding import encode_corpus
    from termweave.support.messages import counted, without_password

    if not folder.strip():
        raise UsageError("--out names no folder.", "Name the folder of the shards: --out ./shards. Is a variable empty?")
    if is_index(source):
        raise UsageError(
            f"{without_password(source)} is an index, which changes: an encoding of it could not be resumed.",
            "Index it directly ('termweave index'), or export it to a file and encode that.",
        )
    options = BuildOptions(**models_in(build, settings.load()), skip_bad=skip_bad)
    opened = open_source(source, reading, out, skip_bad=skip_bad)
    with out.stages("Encoding") as progress:
        encoded = encode_corpus(opened, folder, options, progress)
    manifest = encoded.manifest
    for warning in manifest.warnings:
        out.warn(warning)
    for note in manifest.notes:
        out.say(note)
    data: answers.EncodeShards = {
        "schema": SCHEMA,
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
    texts = counted(manifest.texts, "passage" if manifest.passages else "document")
    now = f"{encoded.shards:,} of {manifest.shards:,} shards encoded now"
    out.emit(
        data, f"{encoded.folder}: {texts} of {manifest.source} ({now}); index them with: termweave index {encoded.folder} NAME"
    )
