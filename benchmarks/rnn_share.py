"""The share lambda of rNN: what each value gains over hybrid, and whether a simple feature of a query predicts the gain.

    python benchmarks/retrieval.py ../shared/data/nfcorpus ../shared/data/cranfield > docs/figures.md
    python benchmarks/fusion.py ../shared/data/nfcorpus ../shared/data/cranfield > docs/fusion.md
    python benchmarks/rnn_share.py ../shared/data/nfcorpus ../shared/data/cranfield >> docs/fusion.md

Uses the indices that retrieval.py leaves. Candidates are asked for once; every value of lambda ranks the same ones.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from entry_point import enter

from termweave import corpora, engine, settings
from termweave.evaluation.candidate_fetcher import CandidateFetcher
from termweave.evaluation.tuning.trial_ranker import TrialRanker
from termweave.rerank import Rules, neighbourhood
from termweave.search import Index
from termweave.search.index import DEPTH
from termweave.search.ranking import modes
from termweave.search.ranking.order import order
from termweave.search.ranking.rnn import ReciprocalNeighbours

if TYPE_CHECKING:
    from termweave.search.ranking.modes import Mode
    from termweave.search.retrieval.candidates import Candidates

LAMBDAS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
#: Most queries of a set; of larger sets a sample is drawn.
MOST = 800
TOP = 10
FEATURES = {
    "gap": "difference of the first two fused scores",
    "J": "J of the best document",
    "overlap": "share of the ten best of weights that are among the ten best of dense",
    "coherence": "mean inner product of the vectors of the ten best documents",
}

HEAD = """
## The share of rNN

Gain in nDCG@10 of hybrid with rNN over hybrid, for each lambda, the share of the fused score; adaptive fusion, test splits, at most {most} questions of a
set. Made by `python benchmarks/rnn_share.py {sets}`.

The default is .9: a small lambda gains much on some sets and loses as much on others. The value with the best mean on these sets was not taken, because
it was significantly below hybrid on two of thirteen sets that had no say.
"""
SWITCH = """
**No switch for each query.** None of four features that need no judgements tells the queries that gain at lambda {default:g} from those that
lose. Pearson's r between the gain and each feature is small, and its sign differs from set to set, so a rule for each query was not adopted:
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="DATASET", help="BEIR folder, or FOLDER:SPLIT")
    parser.add_argument("--name", default="bench", help="indices are called NAME-DATASET  [default: bench]")
    given = parser.parse_args()
    server = engine.connect(settings.load())
    default = ReciprocalNeighbours().weight
    gains: dict[str, dict[float, np.ndarray]] = {}
    correlations: dict[str, dict[str, float]] = {}
    for folder in given.folders:
        name = Path(folder.partition(":")[0]).name
        print(name, file=sys.stderr, flush=True)
        gains[name], features = measured(corpora.open_dataset(folder), Index.open(server, f"{given.name}-{name}"))
        correlations[name] = {key: correlation(values, gains[name][default]) for key, values in features.items()}
    print(HEAD.format(most=MOST, sets=" ".join(f"../shared/data/{name}" for name in gains)))
    print(table_of_gains(gains))
    print(SWITCH.format(default=default))
    print(table_of_correlations(correlations))


def measured(dataset: corpora.Dataset, index: Index) -> tuple[dict[float, np.ndarray], dict[str, np.ndarray]]:
    """Return lambda -> the gain of every query in nDCG@10, and feature -> its value for every query."""
    judged = dataset.qrels()
    queries = [query for query in dataset.queries() if any(grade > 0 for grade in judged.get(query.id, {}).values())]
    if len(queries) > MOST:
        queries = random.Random(0).sample(queries, MOST)
    fetcher = CandidateFetcher(index, index.signals, depth=DEPTH, needs=("vectors",))
    candidates = list(fetcher.candidates([query.text for query in queries], lambda *_: None))
    ranker = TrialRanker(candidates, [judged[query.id] for query in queries], dataset.relevant_from, "nDCG@10")
    hybrid = modes.parse("hybrid", index.signals)
    base = ranker.values(hybrid, None)
    gains = {share: ranker.values(hybrid, ReciprocalNeighbours(weight=share)) - base for share in LAMBDAS}
    rows = [features_of(each, hybrid) for each in candidates]
    return gains, {key: np.array([row[key] for row in rows]) for key in FEATURES}


def features_of(candidates: Candidates, hybrid: Mode) -> dict[str, float]:
    """Describe the ranking of one query, as `FEATURES` says, without judgements."""
    reranking = ReciprocalNeighbours()
    places = order(candidates, hybrid, limit=reranking.candidates)
    if len(places) < 2 or candidates.query.vector is None:
        return dict.fromkeys(FEATURES, 0.0)
    vectors = candidates.matrix([place.id for place in places]).astype(np.float32)
    rules = Rules(reranking.k, reranking.k_exp, reranking.tau, clamp=True)
    best = vectors[:TOP]
    products = best @ best.T
    pairs = len(best) * (len(best) - 1)
    lists = [set(list(candidates.lists[name].scores)[:TOP]) for name in ("weights", "dense")]
    return {
        "gap": places[0].score - places[1].score,
        "J": float(neighbourhood(candidates.query.vector, vectors, rules).jaccard[0]),
        "overlap": len(lists[0] & lists[1]) / TOP,
        "coherence": float(products.sum() - np.trace(products)) / pairs,
    }


def correlation(feature: np.ndarray, gain: np.ndarray) -> float:
    """Pearson's r; 0 if one of the two does not vary."""
    return float(np.corrcoef(feature, gain)[0, 1]) if feature.std() and gain.std() else 0.0


def table_of_gains(gains: dict[str, dict[float, np.ndarray]]) -> str:
    lines = [f"| lambda | {' | '.join(f'{share:g}' for share in LAMBDAS)} |", f"|---|{'---:|' * len(LAMBDAS)}"]
    means = {name: [float(by_share[share].mean()) for share in LAMBDAS] for name, by_share in gains.items()}
    rows = {**means, "mean": np.mean(list(means.values()), axis=0).tolist()}
    return "\n".join([*lines, *(f"| {name} | {' | '.join(f'{gain:+.4f}' for gain in row)} |" for name, row in rows.items())])


def table_of_correlations(correlations: dict[str, dict[str, float]]) -> str:
    lines = [f"* {key}: {meaning}" for key, meaning in FEATURES.items()]
    lines += ["", f"| r | {' | '.join(FEATURES)} |", f"|---|{'---:|' * len(FEATURES)}"]
    lines += [f"| {name} | {' | '.join(f'{row[key]:+.2f}' for key in FEATURES)} |" for name, row in correlations.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    enter(main)
