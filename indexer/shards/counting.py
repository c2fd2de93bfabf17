"""Counting: the statistics of a corpus, counted shard by shard on any host, and merged to exactly what one pass would count.

Two documents with one id may lie in different shards. So each shard also writes ids and digests of its texts; the merge enters them in a
ledger in the order of the corpus, as a build does, and a shard that has counted a document which is left out is counted again without it.
"""

from __future__ import annotations

import tempfile
import zlib
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from termweave.corpora.sources import entry_of
from termweave.errors import InputError
from termweave.indexer.ledger.ledger import Ledger
from termweave.indexer.preparation import corpus_pass
from termweave.indexer.preparation.corpus_remarks import CorpusRemarks, unreadable
from termweave.indexer.shards import manifest, rows
from termweave.indexer.shards.manifest import Counted, counts_file, entries_file
from termweave.indexer.shards.store import open_at_once
from termweave.statistics import CorpusStatistics, StatisticsCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from termweave.encoders import TextEncoder
    from termweave.indexer.shards.job import OpenJob
    from termweave.indexer.shards.store import ShardStore
    from termweave.records import Document

#: (id of the document, line) of a document.
Place = tuple[str, int | None]


def uncounted(job: OpenJob) -> list[int]:
    """The shards that are not counted yet."""
    there = job.store.names()
    return [shard for shard in range(job.plan.shards) if not {counts_file(shard), entries_file(shard)} <= there]


def count(
    job: OpenJob, shards: Collection[int], report: Callable[[int], None], without: Mapping[int, Collection[Place]] | None = None
) -> None:
    """Count shards in one pass over the source, and write their counts.

    Args:
        job: The job.
        shards: The shards.
        report: Called with the number of texts that were read.
        without: Shard -> documents that are left out.
    """
    without, seen = without or {}, 0
    open_at_once(len(shards))
    with ExitStack() as open_files:
        counters = {
            shard: _ShardCounter(job.store, shard, job.encoder, without.get(shard, ()), open_files) for shard in sorted(shards)
        }
        for number, block in enumerate(corpus_pass.blocks(job.source.documents(), largest=job.plan.block)):
            seen += len(block)
            if (counter := counters.get(number % job.plan.shards)) is not None:
                counter.add(block)
                report(seen)
    for shard, counter in counters.items():
        job.store.write(counts_file(shard), counter.packed(unreadable(job.source)))


class _ShardCounter:
    """Counts one shard."""

    def __init__(
        self, store: ShardStore, shard: int, encoder: TextEncoder, without: Collection[Place], open_files: ExitStack
    ) -> None:
        stream = open_files.enter_context(store.writing(entries_file(shard)))
        self._file = open_files.enter_context(rows.writer(stream, rows.entries_schema()))
        self._encoder = encoder
        self._counter = StatisticsCounter(encoder.analysis) if encoder.analysis else None
        self._without = frozenset(without)
        self._too_long = 0

    def add(self, block: list[Document]) -> None:
        self._file.write_table(rows.entries_table(corpus_pass.entries_of(block)))
        if self._counter is None:
            return
        before = self._encoder.too_long
        kept = [document.content for document in block if (document.source_id, document.line) not in self._without]
        for terms in self._encoder.analyse(kept):
            self._counter.add(terms)
        self._too_long += self._encoder.too_long - before

    def packed(self, unread: list[str]) -> bytes:
        counted = {
            "without": sorted(self._without),
            "too_long": self._too_long,
            "unread": unread,
            "counts": self._counter.counts() if self._counter else None,
        }
        return zlib.compress(orjson.dumps(counted, option=orjson.OPT_SORT_KEYS), 6)


def merge(job: OpenJob, report: Callable[[int], None]) -> Counted:
    """Merge the counts of all shards, and write the statistics and the manifest.

    Raises:
        InputError: Two documents have one id and different content, the source is empty, or a file is damaged.
    """
    sample: corpus_pass.Reservoir[Place] = corpus_pass.Reservoir()
    left_out: dict[int, list[Place]] = {shard: [] for shard in range(job.plan.shards)}
    remarks = CorpusRemarks()
    open_at_once(job.plan.shards)
    parts = [rows.ShardFile(job.store, entries_file(shard)).entries() for shard in left_out]
    with tempfile.TemporaryDirectory(prefix="termweave-") as scratch, Ledger(Path(scratch) / "merge.sqlite") as ledger:
        for number, block in enumerate(rows.in_order(parts)):
            duplicates = corpus_pass.enter(job.source, block, ledger, skip_bad=job.plan.skip_bad)
            remarks.count([], duplicates.values(), entry_of(job.source))
            left_out[number % job.plan.shards].extend(duplicates)
            for entry in block:
                if (entry.parent or entry.id, entry.line) not in duplicates:
                    sample.add((entry.id, entry.line))
    if not sample.seen:
        raise InputError(f"{job.source.name} contains no documents.", "Correct the file, or name another source.")
    counts = _counts(job, left_out, report)
    remarks.too_long = sum(each["too_long"] for each in counts)
    statistics = _merged([each["counts"] for each in counts])
    if statistics is not None:
        job.store.write(manifest.STATISTICS, statistics.to_bytes())
    job.counted = Counted(
        texts=sample.seen,
        statistics=statistics.hash if statistics else "",
        left_out=[place for places in left_out.values() for place in places],
        sample=sample.items,
        notes=[*remarks.sentences(), *counts[0]["unread"]],
        warnings=remarks.warnings(job.source),
    )
    manifest.write(job.store, job.plan, job.counted)
    return job.counted


def _counts(job: OpenJob, left_out: Mapping[int, list[Place]], report: Callable[[int], None]) -> list[dict[str, Any]]:
    """The counts of all shards; those that counted a document which is left out are counted again."""

    def read(shard: int) -> dict[str, Any]:
        try:
            loaded: dict[str, Any] = orjson.loads(zlib.decompress(job.store.read(counts_file(shard))))
        except (zlib.error, ValueError) as error:
            raise InputError(
                f"{counts_file(shard)} in {job.store.shown} is damaged.",
                "Remove it and run the command again: it is counted again.",
            ) from error
        return loaded

    wrong = [
        shard for shard, places in left_out.items() if [tuple(each) for each in read(shard)["without"]] != sorted(set(places))
    ]
    if wrong:
        count(job, wrong, report, {shard: left_out[shard] for shard in wrong})
    return [read(shard) for shard in left_out]


def _merged(counts: list[dict[str, Any] | None]) -> CorpusStatistics | None:
    counter = None
    for each in counts:
        if each is not None:
            counter = counter or StatisticsCounter(each["analysis"])
            counter.add_counts(each)
    return counter.result() if counter else None
