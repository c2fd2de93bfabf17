"""The table in a model's card: learned weights against BM25 as exact sparse dot products, without an engine.

    python -m termweave.training.measure --model DIR --data ../shared/data [--sets squad cranfield] [--precision int8 fp32] [--record DIR]

Document frequencies always come from the whole collection, also where only a part of it is searched (on two cores encoding
everything takes longer than the rest of the recipe).
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from termweave.encoders import load
from termweave.encoders.analyses import analysis_of
from termweave.encoders.anchor import BM25
from termweave.encoders.folder import TOKENIZER, ModelFolder, resolve, write_manifest
from termweave.encoders.pieces import PieceTokenizer
from termweave.evaluation import randomisation_test
from termweave.evaluation.measures import LEADING, per_query
from termweave.records import Run
from termweave.training import card
from termweave.training.pairs import Collection
from termweave.training.sparse import SparseIndex, bm25_weights
from termweave.training.teachers import minmax

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from termweave.encoders import TextEncoder
    from termweave.records import Qrels, Query, TermWeights

DEPTH = 100


@dataclass(frozen=True)
class Pool:
    """Which queries are asked of which part of a collection.

    Attributes:
        name: Of the data set.
        split: Of its judgements.
        queries: At most so many, drawn once; None: all.
        hard: For each query so many of BM25's best documents are in the pool; 0 with `others` 0: the whole collection.
        others: Documents drawn from the rest of the collection.
        judged: Only judged documents.
    """

    name: str
    split: str = "test"
    queries: int | None = None
    hard: int = 0
    others: int = 0
    judged: bool = False

    @property
    def whole(self) -> bool:
        """Whether everything is searched."""
        return not (self.hard or self.others or self.judged)


#: Of the large sets a part is searched: see `Pool`, and the card for what that means.
TESTS = (
    Pool("squad", queries=2000, others=1500),
    Pool("medquad", queries=400, hard=10),
    Pool("stackfaq"),
    Pool("nfcorpus"),
    Pool("cranfield"),
    Pool("vaswani"),
    Pool("wikiqa"),
    Pool("trec-dl-2019-2020", judged=True),
)


@dataclass(frozen=True)
class Row:
    """One line of the table; figures are nDCG@10.

    Attributes:
        set: Data set and split.
        documents: Searched.
        queries: Asked.
        bm25: Of stemmed words, k1 1.2, b .75.
        weights: Of the learned weights.
        p: Two-sided randomisation test of `weights` against `bm25`.
        dense: Of the vectors.
        lexical_hybrid: BM25 and vectors, min-max, equal.
        learned_hybrid: Learned weights and vectors, likewise.
        precision: Which graph.
    """

    set: str
    documents: int
    queries: int
    bm25: float
    weights: float
    p: float
    dense: float
    lexical_hybrid: float
    learned_hybrid: float
    precision: str

    HEADER: ClassVar[str] = (
        "| set | searched | queries | BM25 | weights | difference | p | dense | BM25 + dense | weights + dense |\n|---|---|---|---|---|---|---|---|---|---|"
    )

    def __str__(self) -> str:
        figures = f"{self.bm25:.4f} | {self.weights:.4f} | {self.weights - self.bm25:+.4f} | {self.p:.2g}"
        return (
            f"| {self.set} | {self.documents:,} | {self.queries:,} | {figures} | {self.dense:.4f} "
            f"| {self.lexical_hybrid:.4f} | {self.learned_hybrid:.4f} |"
        )


def measure(encoder: TextEncoder, collection: Collection, pool: Pool, precision: str = "int8") -> Row:
    """Encode, search exactly, compare.

    Args:
        encoder: Weights and dense from one model.
        collection: The data set.
        pool: What to search and ask.
        precision: For the table.
    """
    searched, values = figures(encoder, collection, pool)
    means = {name: float(value.mean()) for name, value in values.items()}
    p = randomisation_test(values["weights"], values["bm25"])
    return Row(f"{pool.name} {pool.split}", searched, len(values["bm25"]), p=p, precision=precision, **means)


def figures(encoder: TextEncoder, collection: Collection, pool: Pool) -> tuple[int, dict[str, NDArray[np.float64]]]:
    """How many documents are searched, and system -> nDCG@10 of each query, float64 ``(Q,)``. Arguments as `measure`."""
    model = encoder.models["weights"]
    manifest = ModelFolder.read(model.folder, check=False).manifest
    bm25 = BM25()  # the yardstick, whatever the model is anchored on
    analysis = analysis_of(manifest.analysis, PieceTokenizer(model.folder / TOKENIZER).tokenizer, model=manifest.name)
    statistics = collection.statistics(analysis)
    queries, qrels = drawn(collection, pool)
    texts = [query.text for query in queries]
    asked = bm25_weights(texts, analysis, statistics, bm25, "query")
    places = searched(
        collection, pool, qrels, lambda: (bm25_weights(collection.texts, analysis, statistics, bm25, "document"), asked)
    )
    documents = [collection.texts[place] for place in places]
    ids = [collection.ids[place] for place in places]

    encoded = encoder.encode(documents, kind="document", statistics=statistics)
    asking = encoder.encode(texts, kind="query", statistics=statistics)
    learned = SparseIndex(each.weights for each in encoded if each.weights is not None)
    plain = SparseIndex(bm25_weights(documents, analysis, statistics, bm25, "document"))
    vectors = np.stack([each.vector for each in encoded if each.vector is not None])
    cosines = [np.asarray(vectors @ each.vector, np.float64) for each in asking if each.vector is not None]
    sparse = {
        "bm25": [plain.scores(query) for query in asked],
        "weights": [learned.scores(query.weights) for query in asking if query.weights is not None],
    }
    systems: dict[str, Sequence[NDArray[np.float64]]] = {
        **sparse,
        "dense": cosines,
        "lexical_hybrid": [minmax(one) + minmax(other) for one, other in zip(sparse["bm25"], cosines, strict=True)],
        "learned_hybrid": [minmax(one) + minmax(other) for one, other in zip(sparse["weights"], cosines, strict=True)],
    }
    return len(places), {
        name: _ndcg(name, scores, ids, queries, qrels, positive=name in sparse) for name, scores in systems.items()
    }


def tables(rows: Sequence[Row]) -> str:
    """Markdown: one table a precision."""
    parts = []
    for precision in dict.fromkeys(row.precision for row in rows):
        parts += [f"{precision} graph:", "", Row.HEADER, *(str(row) for row in rows if row.precision == precision), ""]
    return "\n".join(parts)


def drawn(collection: Collection, pool: Pool) -> tuple[list[Query], Qrels]:
    """The queries of a pool, and their judgements."""
    queries, qrels = collection.judged(pool.split)
    if pool.queries is not None and len(queries) > pool.queries:
        queries = random.Random(0).sample(queries, pool.queries)  # noqa: S311
    return queries, {query.id: qrels[query.id] for query in queries}


def searched(
    collection: Collection,
    pool: Pool,
    qrels: Qrels,
    bm25: Callable[[], tuple[list[TermWeights], list[TermWeights]]],
) -> list[int]:
    """The documents to search, as indices into the collection."""
    if pool.whole:
        return list(range(len(collection.texts)))
    # Of a split's own judgements all are in the pool, also those of queries that were not drawn.
    judgements = collection.judged(pool.split)[1] if pool.others else qrels
    wanted = {collection.index[document] for query in judgements.values() for document in query if document in collection.index}
    if pool.hard:
        documents, asked = bm25()
        index = SparseIndex(documents)
        for query in asked:
            wanted.update(index.search(query, pool.hard)[0].tolist())
    rest = [place for place in range(len(collection.texts)) if place not in wanted]
    wanted.update(random.Random(1).sample(rest, min(pool.others, len(rest))))  # noqa: S311
    return sorted(wanted)


def _ndcg(
    name: str,
    scores: Sequence[NDArray[np.float64]],
    ids: Sequence[str],
    queries: Sequence[Query],
    qrels: Qrels,
    *,
    positive: bool,
) -> NDArray[np.float64]:
    found: dict[str, Mapping[str, float]] = {}
    for query, each in zip(queries, scores, strict=True):
        best = np.argsort(-each, kind="stable")[:DEPTH]
        found[query.id] = {ids[place]: float(each[place]) for place in best.tolist() if not positive or each[place] > 0}
    return per_query(Run(name, found), qrels, [query.id for query in queries], measures=(LEADING,))[LEADING]


def record(path: Path, split: str, rows: Sequence[Row]) -> None:
    """Keep rows in a model folder: in ``termweave.json`` under "metrics", and in its card."""
    manifest = ModelFolder.read(path, check=False).manifest
    kept = [Row(**row) for row in manifest.metrics.get(split, [])]
    done = {(row.set, row.precision) for row in rows}
    every = [*(row for row in kept if (row.set, row.precision) not in done), *rows]
    manifest = replace(manifest, metrics={**manifest.metrics, split: [asdict(row) for row in every]})
    write_manifest(path, manifest)
    card.write(path, manifest, {name: tables([Row(**row) for row in found]) for name, found in manifest.metrics.items()})


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m termweave.training.measure", description="Learned weights against BM25.")
    parser.add_argument("--model", required=True, help="model folder or name")
    parser.add_argument("--data", type=Path, required=True, help="folder of BEIR data sets")
    parser.add_argument("--sets", nargs="*", default=[pool.name for pool in TESTS], choices=[pool.name for pool in TESTS])
    parser.add_argument("--precision", nargs="*", default=["int8"], choices=["int8", "fp32"])
    parser.add_argument(
        "--record", type=Path, nargs="*", default=[], metavar="DIR", help="model folders whose card gets the table"
    )
    given = parser.parse_args(arguments)
    rows = []
    for pool in TESTS:
        if pool.name in given.sets:
            collection = Collection(given.data / pool.name)
            for precision in given.precision:
                rows.append(measure(load(given.model, given.model, precision=precision), collection, pool, precision))
                print(rows[-1], file=sys.stderr, flush=True)  # noqa: T201
    for folder in given.record:
        record(resolve(str(folder)), "test", rows)
    print(tables(rows))  # noqa: T201


if __name__ == "__main__":
    main()
