"""Measure the table of a model card: learned weights against BM25, by exact sparse dot products in memory, without a server.

    python -m tools.retrieval_figures --model DIR --data ../shared/data [--sets squad cranfield]
        [--precision int8 fp32] [--record DIR]

Of large collections only a part is encoded and searched, because on two cores encoding everything would take longer than the rest of the
recipe of the shipped models; document frequencies always come from the whole collection.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.encoders import load
from termweave.encoders.analysis.analyses import analysis_of
from termweave.encoders.analysis.word_pieces import PieceTokenizer
from termweave.encoders.kinds import read_folder
from termweave.encoders.manifest import TOKENIZER, Manifest, write_manifest
from termweave.encoders.model_lookup import resolve
from termweave.encoders.term_weighting import BM25
from termweave.evaluation import randomisation_test
from termweave.evaluation.measures import LEADING, per_query
from termweave.records import Qrels, Query, Run, TermWeights
from termweave.training.data.bm25_index import SparseIndex, bm25_weights
from termweave.training.data.pairs import Collection
from termweave.training.data.teacher_scores import minmax
from termweave.training.methods.base import card_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from termweave.encoders import TextEncoder

DEPTH = 100
#: The head of the table.
_HEADER = (
    f"| set | searched | queries | BM25 | weights | difference | p | dense | BM25 + dense | weights + dense |\n|{'---|' * 10}"
)
#: The card of a model that ships with termweave, with places for what its manifest says.
_CARD = Path(__file__).parent / "shipped_card.md"
#: What a language changes in the text.
_OF_LANGUAGE = {
    "English": {
        "words": "BERT words, Lucene's 33 stop words, Porter stems",
        "pools": "squad: all test passages and 1,500 others; medquad: 400 questions' answers and BM25's ten best of each, so its\n"
        "gain is an upper estimate; trec-dl: the judged passages",
        "chosen": "The settings were chosen among some 25 variants by looking at the\n"
        "  test queries of pools of these very sets, so the figures are biased upwards.",
    },
    "Chinese": {
        "words": "words by jieba, those in Latin letters by BERT, without Lucene's 33 stop words, as Porter stems",
        "pools": "sentences: the answers of 1,000 questions of the test split and 10,000 others",
        "chosen": "The settings are those of the English recipe; none was chosen on Chinese text.",
    },
}


@dataclass(frozen=True)
class Pool:
    """A selection of queries and documents of a data set, with which a model is measured.

    Attributes:
        name: Name of the data set.
        split: Split of the judgements.
        queries: Largest number of queries, drawn at random with a fixed seed; None: all.
        hard: Number of BM25's best documents for each query that are in the pool; if `hard`, `others` and `judged` are all unset, the whole
            collection is searched.
        others: Number of documents drawn from the rest of the collection.
        judged: Whether only judged documents are searched.
    """

    name: str
    split: str = "test"
    queries: int | None = None
    hard: int = 0
    others: int = 0
    judged: bool = False


#: The test sets of the card. Only a part of the large ones is searched; the card explains the consequences.
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
#: Those of a Chinese model.
CHINESE_TESTS = (
    Pool("cmrc2018"),
    Pool("cmrc2018-reqa", queries=1000, others=10_000),
    Pool("drcd-reqa", queries=1000, others=10_000),
)


@dataclass(frozen=True)
class PoolFigures:
    """One line of the table: the figures of a model on one data set.

    Attributes:
        set: Data set and split.
        documents: Number of documents searched.
        queries: Number of queries.
        bm25: nDCG@10 of BM25 on stemmed words, k1 1.2, b .75.
        weights: nDCG@10 of the learned weights.
        p: p-value of a two-sided randomisation test of `weights` against `bm25`.
        dense: nDCG@10 of the vectors.
        lexical_hybrid: nDCG@10 of BM25 and vectors, fused in equal parts after min-max scaling.
        learned_hybrid: nDCG@10 of learned weights and vectors, fused in the same way.
        precision: Precision of the graph: "int8" or "fp32".
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

    def __str__(self) -> str:
        figures = f"{self.bm25:.4f} | {self.weights:.4f} | {self.weights - self.bm25:+.4f} | {self.p:.2g}"
        return (
            f"| {self.set} | {self.documents:,} | {self.queries:,} | {figures} | {self.dense:.4f} "
            f"| {self.lexical_hybrid:.4f} | {self.learned_hybrid:.4f} |"
        )


def measure(encoder: TextEncoder, collection: Collection, pool: Pool, precision: str = "int8") -> PoolFigures:
    """Measure nDCG@10 of a model, of BM25 and of their combinations on one data set.

    Args:
        encoder: The encoder, with weights and vectors of one model.
        collection: The data set.
        pool: The queries and documents to use.
        precision: Precision of the ONNX graph, "int8" or "fp32", as shown in the table.
    """
    model = encoder.models["weights"]
    manifest = read_folder(model.local_folder, check=False).manifest
    bm25 = BM25()  # with its usual parameters, because results are compared with it
    analysis = analysis_of(manifest.analysis, PieceTokenizer(model.local_folder / TOKENIZER).tokenizer, model=manifest.name)
    statistics = collection.statistics(analysis)
    queries, qrels = drawn(collection, pool)
    texts = [query.text for query in queries]
    query_terms = bm25_weights(texts, analysis, statistics, bm25, "query")
    common = (analysis, statistics, bm25)
    places = searched(collection, pool, qrels, lambda: (bm25_weights(collection.texts, *common, "document"), query_terms))
    documents, ids = ([every[place] for place in places] for every in (collection.texts, collection.ids))

    encoded = encoder.encode(documents, kind="document", statistics=statistics)
    encoded_queries = encoder.encode(texts, kind="query", statistics=statistics)
    learned = SparseIndex(each.weights for each in encoded if each.weights is not None)
    plain = SparseIndex(bm25_weights(documents, analysis, statistics, bm25, "document"))
    vectors = np.stack([each.vector for each in encoded if each.vector is not None])
    cosines = [np.asarray(vectors @ each.vector, np.float64) for each in encoded_queries if each.vector is not None]
    sparse = {
        "bm25": [plain.scores(query) for query in query_terms],
        "weights": [learned.scores(query.weights) for query in encoded_queries if query.weights is not None],
    }
    systems: dict[str, Sequence[NDArray[np.float64]]] = {
        **sparse,
        "dense": cosines,
        "lexical_hybrid": [minmax(one) + minmax(other) for one, other in zip(sparse["bm25"], cosines, strict=True)],
        "learned_hybrid": [minmax(one) + minmax(other) for one, other in zip(sparse["weights"], cosines, strict=True)],
    }
    values = {name: _ndcg(name, scores, ids, queries, qrels, positive=name in sparse) for name, scores in systems.items()}
    means = {name: float(value.mean()) for name, value in values.items()}
    p = randomisation_test(values["weights"], values["bm25"])
    return PoolFigures(f"{pool.name} {pool.split}", len(places), len(queries), p=p, precision=precision, **means)


def tables(rows: Sequence[PoolFigures]) -> str:
    """Format figures as Markdown, one table for each precision."""
    parts = []
    for precision in dict.fromkeys(row.precision for row in rows):
        parts += [f"{precision} graph:", "", _HEADER, *(str(row) for row in rows if row.precision == precision), ""]
    return "\n".join(parts)


def drawn(collection: Collection, pool: Pool) -> tuple[list[Query], Qrels]:
    """Draw the queries of a pool from a collection; return the queries and their judgements."""
    queries, qrels = collection.judged(pool.split)
    if pool.queries is not None and len(queries) > pool.queries:
        queries = random.Random(0).sample(queries, pool.queries)  # noqa: S311
    return queries, {query.id: qrels[query.id] for query in queries}


def searched(
    collection: Collection, pool: Pool, qrels: Qrels, bm25: Callable[[], tuple[list[TermWeights], list[TermWeights]]]
) -> list[int]:
    """Choose the documents of a pool; return their positions in the collection. `bm25` gives BM25 weights of all documents and of the queries."""
    if not (pool.hard or pool.others or pool.judged):
        return list(range(len(collection.texts)))
    # All judged documents of the split are in the pool, also those of queries that were not drawn.
    judgements = collection.judged(pool.split)[1] if pool.others else qrels
    chosen = {collection.index[document] for query in judgements.values() for document in query if document in collection.index}
    if pool.hard:
        documents, queries = bm25()
        index = SparseIndex(documents)
        for query in queries:
            chosen.update(index.search(query, pool.hard)[0].tolist())
    rest = [place for place in range(len(collection.texts)) if place not in chosen]
    chosen.update(random.Random(1).sample(rest, min(pool.others, len(rest))))  # noqa: S311
    return sorted(chosen)


def _ndcg(
    name: str, scores: Sequence[NDArray[np.float64]], ids: list[str], queries: Sequence[Query], qrels: Qrels, *, positive: bool
) -> NDArray[np.float64]:
    rankings: dict[str, Mapping[str, float]] = {}
    for query, row in zip(queries, scores, strict=True):
        best = np.argsort(-row, kind="stable")[:DEPTH]
        rankings[query.id] = {ids[place]: float(row[place]) for place in best.tolist() if not positive or row[place] > 0}
    return per_query(Run(name, rankings), qrels, [query.id for query in queries], measures=(LEADING,))[LEADING]


def record(path: Path, split: str, rows: Sequence[PoolFigures]) -> None:
    """Write the figures for a split into a model folder: into ``termweave.json`` under "metrics", and into the model card."""
    manifest = read_folder(path, check=False).manifest
    earlier = [PoolFigures(**row) for row in manifest.metrics.get(split, [])]
    done = {(row.set, row.precision) for row in rows}
    every = [*(row for row in earlier if (row.set, row.precision) not in done), *rows]
    manifest = replace(manifest, metrics={**manifest.metrics, split: [asdict(row) for row in every]})
    write_manifest(path, manifest)
    if "train" not in manifest.metrics:  # the card of `termweave train` has no such figures
        shown = {name: tables([PoolFigures(**row) for row in figures]) for name, figures in manifest.metrics.items()}
        (path / "README.md").write_text(_card(manifest, shown), encoding="utf-8")


def _card(manifest: Manifest, figures: Mapping[str, str]) -> str:
    """The model card as Markdown; `figures`: split -> Markdown tables of the figures."""
    training: dict[str, Any] = manifest.training
    language = training.get("language", "English")
    text = card_of(manifest)
    data = "\n".join(f"| {each['set']} | {each['part']} | {each['licence']} |" for each in training["data"])
    shown = "\n".join(f"### {split.capitalize()} splits\n\n{table}" for split, table in sorted(figures.items()))
    return _CARD.read_text(encoding="utf-8").format(
        **{name: getattr(manifest, name) for name in ("name", "hash", "dimension", "max_length", "analysis")},
        **{name: training[name] for name in ("method", "backbone", "command", "test_command", "zero_shot", "statistics")},
        **manifest.quantisation["parity"],
        lines="\n".join(f"* {line}" for line in text.lines),
        export=text.export,
        quantisation=manifest.quantisation["method"],
        data=data,
        figures=shown,
        language=language,
        **_OF_LANGUAGE[language],
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; see the docstring of the module."""
    every = (*TESTS, *CHINESE_TESTS)
    parser = argparse.ArgumentParser(prog="python -m tools.retrieval_figures", description="Learned weights against BM25.")
    parser.add_argument("--model", required=True, help="model folder or name")
    parser.add_argument("--data", type=Path, required=True, help="folder of BEIR data sets")
    parser.add_argument("--sets", nargs="*", default=[pool.name for pool in TESTS], choices=[pool.name for pool in every])
    parser.add_argument("--precision", nargs="*", default=["int8"], choices=["int8", "fp32"])
    parser.add_argument("--record", type=Path, nargs="*", default=[], metavar="DIR", help="folders whose card gets the table")
    options = parser.parse_args(arguments)
    rows = []
    for pool in every:
        if pool.name in options.sets:
            collection = Collection(options.data / pool.name)
            for precision in options.precision:
                rows.append(measure(load(options.model, options.model, precision=precision), collection, pool, precision))
                print(rows[-1], file=sys.stderr, flush=True)
    for folder in options.record:
        record(resolve(folder), "test", rows)
    print(tables(rows))


if __name__ == "__main__":
    main()
