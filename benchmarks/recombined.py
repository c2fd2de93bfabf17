"""A corpus of any size, recombined from the passages of data sets: a folder of shards that no model had to read.

The first documents are the passages themselves, so that judged queries have known answers. Each of the others has half the words of two passages,
half of the impacts of each, and a vector between theirs with some noise. Only the passages are encoded.
"""

# A script's functions need no types.
from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from latency import mixture

from termweave import __version__, corpora, encoders
from termweave.indexer.preparation.corpus_pass import Reservoir, beginning
from termweave.indexer.shards import manifest, rows
from termweave.indexer.shards.job import BLOCK
from termweave.indexer.shards.manifest import Counted, EncodingPlan, sample_file, shard_file
from termweave.indexer.shards.store import ShardStore
from termweave.statistics import StatisticsCounter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from termweave.records import Document, Encoding

#: Texts that are encoded at a time.
_TEXTS = 256


class EncodedPassages:
    """The encoded passages of data sets, and their judged queries.

    Args:
        sets: Names of data sets.
        most: Most passages of each set; None: all.

    Attributes:
        queries: Queries of which an answer is among the passages.
        answers: Query -> ids of its answers.
    """

    def __init__(self, sets: list[str], most: int | None) -> None:
        self.documents: list[Document] = []
        self.queries: list[str] = []
        self.answers: dict[str, set[str]] = {}
        self.encoder = encoders.load()
        for spec in sets:
            opened = corpora.open_dataset(spec)
            judged = opened.qrels()
            answers = {each for grades in judged.values() for each, grade in grades.items() if grade >= opened.relevant_from}
            whole = sorted((each for each in opened.documents() if each.content), key=lambda each: each.id not in answers)
            kept = whole[:most]  # answers first
            there = {each.id for each in kept}
            self.documents += [replace(each, id=f"{opened.name}/{each.id}") for each in kept]
            for query in opened.queries():
                good = {
                    f"{opened.name}/{each}"
                    for each, grade in judged[query.id].items()
                    if grade >= opened.relevant_from and each in there
                }
                if good:
                    self.queries.append(query.text)
                    self.answers[query.text] = good
        texts = [each.content for each in self.documents]
        counter = StatisticsCounter(self.encoder.analysis)
        for terms in self.encoder.analyse(texts):
            counter.add(terms)
        self.statistics = counter.result()
        self.encodings: list[Encoding] = []
        for start in range(0, len(texts), _TEXTS):
            part = texts[start : start + _TEXTS]
            self.encodings += self.encoder.encode(part, kind="document", statistics=self.statistics)

    def recombined(self, count: int) -> Iterator[tuple[Document, Encoding]]:
        """So many distinct documents, the same ones for the same count."""
        random = np.random.default_rng(0)
        for number in range(count):
            if number < len(self.documents):
                yield replace(self.documents[number], line=number + 1), self.encodings[number]
                continue
            one, other = random.integers(0, len(self.documents), 2).tolist()
            made, encoding = mixture(
                f"m{number}", self.documents[one], self.documents[other], self.encodings[one], self.encodings[other], random
            )
            yield (
                replace(made, text=f"{made.text} {number}", line=number + 1),
                encoding,
            )  # the number makes every text another one


def write(passages: EncodedPassages, count: int, shards: int, folder: Path) -> None:
    """Write a folder of shards with so many documents, as `termweave encode` writes it."""
    store, encoder = ShardStore(str(folder)), passages.encoder
    models = {
        output: {name: getattr(model, name) for name in ("name", "hash", "dimension", "analysis", "max_length")}
        for output, model in encoder.models.items()
    }
    source = {"name": f"{count} recombined", "fingerprint": f"{count:016x}"}
    plan = EncodingPlan(source, shards, BLOCK, models, {}, skip_bad=False, analyzer="english", termweave=__version__)
    counted = Counted(count, passages.statistics.hash)
    columns = [rows.schema(encoder.dimension, manifest.mark(plan, counted, shard)) for shard in range(shards)]
    sample: Reservoir[tuple[Document, Encoding]] = Reservoir()
    documents = passages.recombined(count)
    with ExitStack() as files:
        writers = [
            files.enter_context(rows.writer(files.enter_context(store.writing(shard_file(shard))), columns[shard]))
            for shard in range(shards)
        ]
        for number, block in enumerate(iter(lambda: list(islice(documents, BLOCK)), [])):
            held = rows.table([each for each, _ in block], [each for _, each in block], columns[number % shards])
            writers[number % shards].write_table(held)
            for pair in block:
                sample.add(pair)
    for shard in range(shards):
        own = sample.items if shard == 0 else []
        with store.writing(sample_file(shard)) as stream, rows.writer(stream, columns[shard]) as small:
            small.write_table(rows.table([beginning(each) for each, _ in own], [each for _, each in own], columns[shard]))
    store.write(manifest.STATISTICS, passages.statistics.to_bytes())
    places = [(document.id, document.line) for document, _ in sample.items]
    manifest.write(store, plan, replace(counted, sample=places))
