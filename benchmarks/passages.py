"""Should long documents be cut into passages by default? Each data set is indexed whole and as passages, and both are evaluated.

    termweave node start
    python benchmarks/passages.py ../shared/data/cranfield ../shared/data/nfcorpus ../shared/data/stackfaq
    python benchmarks/passages.py --sample 4000 ../shared/data/medquad    # every judged document, and others up to 4,000
    python benchmarks/passages.py --lengths ../shared/data/*              # only how many documents are too long; no server

Shipped int8 model, test splits, nothing tuned. An index that is there and up to date is used as it is.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from entry_point import enter

from termweave import corpora, encoders, engine, settings
from termweave.corpora.sources import Derived
from termweave.evaluation import Experiment, evaluate, randomisation_test
from termweave.evaluation.systems import grid
from termweave.indexer import BuildOptions, build, up_to_date
from termweave.indexer.preparation.passages import Window
from termweave.search import Index

if TYPE_CHECKING:
    from collections.abc import Iterator

    from termweave.corpora import Source
    from termweave.corpora.sources import Dataset, Progress
    from termweave.engine import Engine
    from termweave.records import Document

MODES = ("lexical", "weights", "dense", "hybrid")
MEASURES = ("nDCG@10", "recall@100")


class SampledDataset(Derived):
    """All judged documents of a data set, and of the others those whose ids have the lowest hashes."""

    def __init__(self, dataset: Dataset, count: int) -> None:
        super().__init__(dataset)
        judged = {identifier for grades in dataset.qrels().values() for identifier in grades}
        others = sorted((document.id for document in dataset.documents() if document.id not in judged), key=_digest)
        self._kept = judged | set(others[: max(0, count - len(judged))])

    @property
    def fingerprint(self) -> str:
        """Hash of the underlying source and of the ids that are kept."""
        return _digest(super().fingerprint + "\n".join(sorted(self._kept)))

    @property
    def total(self) -> None:
        """Not known: a judgement may name a document that the data set does not have."""

    def documents(self, progress: Progress | None = None) -> Iterator[Document]:
        """The documents that are kept, in the order of the data set."""
        return (document for document in self._source.documents(progress) if document.id in self._kept)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="DATASET", help="BEIR folder, or FOLDER:SPLIT")
    parser.add_argument("--size", type=int, default=160, help="words of a passage  [default: 160]")
    parser.add_argument("--name", default="passages", help="indices are called NAME-DATASET-whole and -cut  [default: passages]")
    parser.add_argument("--sample", type=int, metavar="DOCUMENTS", help="index so many documents, the judged ones among them")
    parser.add_argument("--lengths", action="store_true", help="only count the documents that are too long")
    given = parser.parse_args()
    if given.lengths:
        print("| set | documents | too long |\n|---|---:|---:|")
        for folder in given.folders:
            source = corpora.open_dataset(folder)
            share, count = too_long(source)
            print(f"| {source.name} | {count:,} | {share:.2%} |", flush=True)
        return
    server = engine.connect(settings.load())
    print(f"Whole -> in passages of {given.size} words; in brackets p (paired randomisation test, 10,000 draws), uncorrected.\n")
    print(
        "| set | too long | texts | size | " + " | ".join(f"{mode}, {measure}" for measure in MEASURES for mode in MODES) + " |"
    )
    print("|---|---:|---:|---:|" + "---:|" * len(MODES) * len(MEASURES))
    for folder in given.folders:
        print(row(server, folder, given), flush=True)


def row(server: Engine, folder: str, given: argparse.Namespace) -> str:
    """Index and evaluate one data set in both ways, and return its line of the table."""
    dataset, size = corpora.open_dataset(folder), given.size
    source: Source = SampledDataset(dataset, given.sample) if given.sample else dataset
    name = Path(folder.partition(":")[0]).name
    experiments, indices = [], []
    for suffix, window in (("whole", None), ("cut", Window(size, size * 3 // 4))):
        alias, options = f"{given.name}-{name}-{suffix}", BuildOptions(passages=window)
        began = time.monotonic()
        if up_to_date(server, source, alias, options) is None:
            build(server, source, alias, options)
        index = Index.open(server, alias)
        experiments.append(evaluate(index, dataset, grid(MODES, ["none"], index)))
        indices.append(index)
        print(f"{alias}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    texts = indices[1].lineage.passages["count"] / indices[0].lineage.documents
    sizes = [stored(server, index) for index in indices]
    cells = [cell(*experiments, mode, measure) for measure in MEASURES for mode in MODES]
    return f"| {name} | {too_long(source)[0]:.0%} | x {texts:.2f} | x {sizes[1] / sizes[0]:.2f} | {' | '.join(cells)} |"


def cell(whole: Experiment, cut: Experiment, mode: str, measure: str) -> str:
    """The figure of the whole documents, that of the passages, and p of the difference."""
    before, after = (each.values[next(row.system for row in each.rows if row.mode == mode)][measure] for each in (whole, cut))
    return f"{before.mean():.4f} -> {after.mean():.4f} ({randomisation_test(after, before):.2g})"


def stored(server: Engine, index: Index) -> int:
    """Bytes of an index on disk."""
    answer = server.request("GET", f"/{index.generation}/_stats/store")
    size: int = answer["_all"]["primaries"]["store"]["size_in_bytes"]
    return size


def too_long(source: Source) -> tuple[float, int]:
    """The share of documents that are longer than the shipped model reads, and the number of documents."""
    encoder = encoders.load()
    longest = min(model.max_length for model in encoder.models.values())
    lengths = encoder.lengths([document.content for document in source.documents()])
    return sum(length > longest for length in lengths) / len(lengths), len(lengths)


if __name__ == "__main__":
    enter(main)
