"""Does Elasticsearch rank as OpenSearch does? Each data set is indexed in both, and all rankings are compared.

    export OPENSEARCH_URL=http://127.0.0.1:9200
    python benchmarks/engines.py ../shared/data/stackfaq ../shared/data/cranfield --elasticsearch http://127.0.0.1:9201

Shipped int8 model, the same lexical analyzer in both (`standard`: the archives for integration tests lack the others), one shard.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from entry_point import enter

from termweave import corpora, engine, settings
from termweave.corpora import open_documents
from termweave.indexer import BuildOptions, build
from termweave.search import Index
from termweave.search.options import DEPTH

if TYPE_CHECKING:
    from termweave.corpora.sources import Dataset
    from termweave.engine import Engine
    from termweave.records import Run

#: Mode and reranker, in the order of the table.
SYSTEMS = (("lexical", "none"), ("weights", "none"), ("dense", "none"), ("hybrid", "none"), ("hybrid", "rnn"))
#: How many of the best documents are compared.
BEST = 10
#: Elasticsearch multiplies BM25 by k1 + 1; OpenSearch 3 does not.
FACTOR = {"lexical": 2.2}
#: Scores that differ by less, relative to the larger one, count as equal: their documents may change places.
EQUAL = 1e-5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="DATASET", help="BEIR folder, or FOLDER:SPLIT")
    parser.add_argument(
        "--elasticsearch",
        required="ELASTICSEARCH_URL" not in os.environ,
        default=os.environ.get("ELASTICSEARCH_URL"),
        metavar="URL",
        help="address of the Elasticsearch  [default: $ELASTICSEARCH_URL]",
    )
    parser.add_argument("--documents", type=int, metavar="N", help="the first N documents only")
    parser.add_argument("--queries", type=int, metavar="N", help="the first N queries only")
    parser.add_argument(
        "--candidates", type=int, default=DEPTH, metavar="N", help=f"candidates of each signal  [default: {DEPTH}]"
    )
    parser.add_argument("--name", default="engines", help="indices are called NAME-DATASET  [default: engines]")
    given = parser.parse_args()
    servers = engine.connect(settings.load()), engine.connect(settings.load(url=given.elasticsearch))
    versions = [f"{server.capabilities.distribution} {server.capabilities.version}" for server in servers]
    print(f"{' and '.join(versions)}; the best {BEST} of each query.\n")
    print("| set | documents | queries | system | same order | largest difference of a score |")
    print("|---|---:|---:|---|---:|---:|")
    differ = False
    for folder in given.folders:
        dataset = corpora.open_dataset(folder)
        name = f"{given.name}-{Path(folder.partition(':')[0]).name}"
        indices = [indexed(server, dataset, name, given.documents) for server in servers]
        queries = {query.id: query.text for query in islice(dataset.queries(), given.queries)}
        for mode, rerank in SYSTEMS:
            runs = (index.run(queries, mode=mode, rerank=rerank, k=BEST, candidates=given.candidates) for index in indices)
            agreement = compare(*runs, FACTOR.get(mode, 1.0))
            differ = differ or agreement.same < len(queries)
            system = mode if rerank == "none" else f"{mode}+rNN"
            documents = indices[0].lineage.documents
            print(
                f"| {indices[0].lineage.source['name']} | {documents:,} | {len(queries):,} | {system} "
                f"| {agreement.same:,} of {len(queries):,} | {agreement.difference:.1e} |",
                flush=True,
            )
    sys.exit(1 if differ else 0)


def indexed(server: Engine, dataset: Dataset, name: str, count: int | None) -> Index:
    """Index the data set, or its first documents."""
    source = dataset if count is None else open_documents(islice(dataset.documents(), count), name=dataset.name)
    build(server, source, name, BuildOptions(analyzer="standard", shards=1))
    return Index.open(server, name)


@dataclass(frozen=True)
class RankingComparison:
    """Two runs compared.

    Attributes:
        same: Queries whose documents stand in the same order, except those with equal scores.
        difference: The largest relative difference between two scores of one document.
    """

    same: int
    difference: float


def compare(one: Run, other: Run, factor: float) -> RankingComparison:
    """Compare the best documents of each query; the scores of `other` are divided by `factor`."""
    same, largest = 0, 0.0
    for query, places in one.scores.items():
        theirs = {document: score / factor for document, score in other.scores.get(query, {}).items()}
        differences = [relative(score, theirs[document]) for document, score in places.items() if document in theirs]
        largest = max([largest, *differences])
        same += same_order(ranking(places), ranking(theirs))
    return RankingComparison(same, largest)


def ranking(scores: Mapping[str, float]) -> list[tuple[str, float]]:
    """Documents and scores, best first."""
    return sorted(scores.items(), key=lambda pair: -pair[1])


def same_order(ours: Sequence[tuple[str, float]], theirs: Sequence[tuple[str, float]]) -> bool:
    """Whether two rankings are the same, where documents with equal scores may change places."""
    return len(ours) == len(theirs) and all(
        one[0] == other[0] or relative(one[1], other[1]) <= EQUAL for one, other in zip(ours, theirs, strict=True)
    )


def relative(one: float, other: float) -> float:
    """The difference between two scores, relative to the larger one."""
    return abs(one - other) / max(abs(one), abs(other), 1e-9)


if __name__ == "__main__":
    enter(main)
