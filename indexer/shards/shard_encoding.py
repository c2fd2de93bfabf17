"""Encoding of one shard: its texts, term weights and vectors, and those of its texts that are in the sample of the corpus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.errors import TermweaveError
from termweave.indexer.preparation.corpus_pass import beginning, blocks
from termweave.indexer.shards import manifest, rows
from termweave.indexer.shards.manifest import sample_file, shard_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from termweave.indexer.shards.job import OpenJob
    from termweave.records import Document, Encoding


def unencoded(job: OpenJob) -> list[int]:
    """The shards that are not encoded yet."""
    there = job.store.names()
    return [shard for shard in range(job.plan.shards) if not {shard_file(shard), sample_file(shard)} <= there]


def encode(job: OpenJob, shard: int, report: Callable[[int], None]) -> int:
    """Encode a shard and write it.

    Args:
        job: The job, counted.
        shard: Number of the shard.
        report: Called with the number of texts that were encoded.

    Returns:
        How many texts it holds.

    Raises:
        TermweaveError: The shards are not counted yet, or a file cannot be written.
    """
    if job.counted is None:
        raise TermweaveError(f"The shards of {job.store.shown} are not counted yet.", "Run 'termweave encode' without --shard.")
    statistics = manifest.load_statistics(job.store, job.counted)
    columns = rows.schema(job.encoder.dimension, manifest.mark(job.plan, job.counted, shard))
    left_out, sampled = set(job.counted.left_out), set(job.counted.sample)
    sample: list[tuple[Document, Encoding]] = []
    done = 0

    def encoded(documents: list[Document]) -> list[Encoding]:
        return job.encoder.encode([each.content for each in documents], kind="document", statistics=statistics)

    with job.store.writing(shard_file(shard)) as stream:
        with rows.writer(stream, columns) as file:
            for number, block in enumerate(blocks(job.source.documents(), largest=job.plan.block)):
                if number % job.plan.shards != shard:
                    continue
                kept = [each for each in block if (each.source_id, each.line) not in left_out]
                encodings = encoded(kept)
                file.write_table(rows.table(kept, encodings, columns))
                for document, encoding in zip(kept, encodings, strict=True):
                    if (document.id, document.line) in sampled:
                        start = beginning(document)
                        sample.append((start, encoding if start == document else encoded([start])[0]))
                done += len(kept)
                report(done)
        with job.store.writing(sample_file(shard)) as beside, rows.writer(beside, columns) as small:
            small.write_table(rows.table([each for each, _ in sample], [each for _, each in sample], columns))
    return done
