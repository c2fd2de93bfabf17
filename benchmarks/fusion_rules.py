"""Rules for the share of dense vectors in hybrid, each judged on the set that had no say in it.

    python benchmarks/retrieval.py ../shared/data/nfcorpus ../shared/data/cranfield > docs/figures.md
    python benchmarks/fusion_rules.py ../shared/data/nfcorpus ../shared/data/cranfield >> docs/fusion.md

Uses the indices that retrieval.py leaves. Candidates are asked for once. For each query nDCG@10 is computed at every share of dense and of BM25 on
a grid; a rule then only chooses a point of that grid. The settings of a rule are those with the best mean over all other sets.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from entry_point import enter

from termweave import corpora, engine, settings
from termweave.evaluation import randomisation_test
from termweave.evaluation.candidate_fetcher import CandidateFetcher
from termweave.evaluation.gates import interval
from termweave.search import Index
from termweave.search.index import DEPTH

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from termweave.search.ranking.fusion import Ranked
    from termweave.search.retrieval.candidates import Candidates

MOST, TOP = 800, 10
#: Shares of dense in the fused score, and of BM25 in what is left for words.
SHARES = np.linspace(0, 1, 41)
BM25 = (0.0, 0.1, 0.2, 0.3, 0.5)
FACTORS = (0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0)
#: Strength of the ridge penalty, and the steepness with which a predicted advantage of dense moves its share.
PENALTIES, SLOPES = (1.0, 30.0, 1000.0), (0.0, 2.0, 5.0, 10.0, 20.0)
DISCOUNTS = 1.0 / np.log2(np.arange(2, TOP + 2))

FEATURES = (
    "the logarithms of the spreads of weights and dense",
    "the share of the ten best of weights, and of BM25, that are among the ten best of dense",
    "the similarity of the ten best vectors to each other, and of the best one to the query",
    "the logarithm of the number of words of the query",
    "how far the best score of BM25 lies above the lowest of its list, as a share of the best",
)

HEAD = """
## Rules for the share of dense

Gain in nDCG@10 over `adaptive`; test splits, at most {most} questions of a set. Made by `python benchmarks/fusion_rules.py {sets}`.
The settings of each rule are those with the best mean gain on the other sets, so no set had a say in its own column.
▲ ▼: significantly above or below adaptive (paired randomisation test, p < .05, not corrected for the number of comparisons).

* *factor*: the count of dense is multiplied by one number.
* *BM25 beside weights*: BM25 takes a part of the share of the words.
* *one rule a corpus*: the factor depends on how long a document is beside a query; questions and answers are found by it.
* *predicted for each query*: ridge regression predicts from the lists alone how much better dense is than weights, and moves the share:
  {features}.
* *best share for each query*: the room that is left. It needs the judgements, so it is no rule.
"""


@dataclass(frozen=True)
class MeasuredSet:
    """The queries of one set, n of them.

    Attributes:
        values: ``(n, len(BM25), len(SHARES))``, nDCG@10 at each point of the grid.
        adaptive: ``(n,)``, the share of dense that adaptive fusion gives.
        features: ``(n, features)``.
        proportion: Logarithm of the mean length of documents over that of queries, in characters.
    """

    values: np.ndarray
    adaptive: np.ndarray
    features: np.ndarray
    proportion: float

    def at(self, shares: np.ndarray, bm25: int = 0) -> np.ndarray:
        """Return nDCG@10 of each query at its share of dense, rounded to the grid."""
        return self.values[np.arange(len(shares)), bm25, np.rint(shares * (len(SHARES) - 1)).astype(int)]

    def advantage(self) -> np.ndarray:
        """Return how much better dense alone is than weights alone, ``(n,)``."""
        return self.values[:, 0, -1] - self.values[:, 0, 0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="DATASET", help="BEIR folder, or FOLDER:SPLIT; two at least")
    parser.add_argument("--name", default="bench", help="indices are called NAME-DATASET  [default: bench]")
    given = parser.parse_args()
    if len(given.folders) < 2:
        parser.error("name two data sets at least: a rule is judged on a set that had no say in it")
    server = engine.connect(settings.load())
    sets: dict[str, MeasuredSet] = {}
    for folder in given.folders:
        name = Path(folder).name
        print(name, file=sys.stderr, flush=True)
        sets[name] = measured(corpora.open_dataset(folder), Index.open(server, f"{given.name}-{name.partition(':')[0]}"))
    print(HEAD.format(most=MOST, sets=" ".join(f"../shared/data/{name}" for name in sets), features="; ".join(FEATURES)))
    print(table(sets))


def measured(dataset: corpora.Dataset, index: Index) -> MeasuredSet:
    judged = dataset.qrels()
    queries = [query for query in dataset.queries() if any(grade > 0 for grade in judged.get(query.id, {}).values())]
    if len(queries) > MOST:
        queries = random.Random(0).sample(queries, MOST)
    fetcher = CandidateFetcher(index, ("lexical", "weights", "dense"), depth=DEPTH, needs=("vectors",))
    candidates = list(fetcher.candidates([query.text for query in queries], lambda *_: None))
    lengths = [len(document.text) for document in itertools.islice(dataset.documents(), 5000)]
    return MeasuredSet(
        np.stack([grid(each.lists, judged[query.id]) for query, each in zip(queries, candidates, strict=True)]),
        np.array([adaptive_share(each.lists) for each in candidates]),
        np.array([features_of(query.text, each) for query, each in zip(queries, candidates, strict=True)]),
        math.log(float(np.mean(lengths)) / float(np.mean([len(query.text) for query in queries]))),
    )


def grid(lists: Mapping[str, Ranked], judged: Mapping[str, int]) -> np.ndarray:
    """Return nDCG@10 of one query at each share of BM25 and of dense, ``(len(BM25), len(SHARES))``."""
    documents = sorted({document for ranked in lists.values() for document in ranked.scores})
    values = {}
    for name, ranked in lists.items():
        worth = dict(zip(ranked.scores, ranked.normalised(), strict=True))
        values[name] = np.array([worth.get(document, 0.0) for document in documents])
    gains = np.array([float(max(judged.get(document, 0), 0)) for document in documents])
    best = np.sort(np.array([grade for grade in judged.values() if grade > 0], dtype=float))[::-1][:TOP]
    ideal = float(best @ DISCOUNTS[: len(best)])
    parts = np.array(BM25)[:, None]
    words = (1 - parts) * values["weights"] + parts * values["lexical"]
    fused = (1 - SHARES)[None, :, None] * words[:, None, :] + SHARES[None, :, None] * values["dense"]
    first = np.argsort(-fused, axis=2, kind="stable")[:, :, :TOP]
    return gains[first] @ DISCOUNTS[: first.shape[2]] / ideal


def adaptive_share(lists: Mapping[str, Ranked]) -> float:
    words, dense = lists["weights"].spread ** 2, lists["dense"].spread ** 2
    return dense / (words + dense) if words + dense else 0.5


def features_of(query: str, candidates: Candidates) -> list[float]:
    """Describe one query as `FEATURES` says, without judgements."""
    lists = candidates.lists
    ids = {name: list(ranked.scores)[:TOP] for name, ranked in lists.items()}
    coherence = nearest = 0.0
    if candidates.query.vector is not None and len(ids["dense"]) > 1:
        vectors = candidates.matrix(ids["dense"]).astype(np.float32)
        products = vectors @ vectors.T
        coherence = float(products.sum() - np.trace(products)) / (len(vectors) * (len(vectors) - 1))
        nearest = float((vectors @ candidates.query.vector).max())
    lexical = lists["lexical"]
    return [
        *(math.log(lists[name].spread + 1e-3) for name in ("weights", "dense")),
        *(len(set(ids["dense"]) & set(ids[name])) / TOP for name in ("weights", "lexical")),
        coherence,
        nearest,
        math.log(1 + len(query.split())),
        (lexical.high - lexical.low) / lexical.high if lexical.high > 0 else 0.0,
    ]


def logistic(values: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-values))


def logit(shares: np.ndarray) -> np.ndarray:
    kept = np.clip(shares, 0.01, 0.99)
    return np.log(kept / (1 - kept))


def best_of(settings_: Sequence, sets: Sequence[MeasuredSet], values: Callable) -> object:
    """Return the setting with the best mean over the means of the sets."""
    return max(settings_, key=lambda setting: float(np.mean([values(each, setting).mean() for each in sets])))


def adaptive(_: Sequence[MeasuredSet], judged: MeasuredSet) -> np.ndarray:
    return judged.at(judged.adaptive)


def factor(others: Sequence[MeasuredSet], judged: MeasuredSet) -> np.ndarray:
    def values(each: MeasuredSet, by: float) -> np.ndarray:
        return each.at(logistic(logit(each.adaptive) + math.log(by)))

    return values(judged, best_of(FACTORS, others, values))


def bm25_beside(others: Sequence[MeasuredSet], judged: MeasuredSet) -> np.ndarray:
    def values(each: MeasuredSet, part: int) -> np.ndarray:
        return each.at(each.adaptive, part)

    return values(judged, best_of(range(len(BM25)), others, values))


def by_corpus(others: Sequence[MeasuredSet], judged: MeasuredSet) -> np.ndarray:
    centre = float(np.mean([each.proportion for each in others]))

    def values(each: MeasuredSet, setting: tuple[float, float]) -> np.ndarray:
        by, slope = setting
        return each.at(logistic(logit(each.adaptive) + math.log(by) - slope * (each.proportion - centre)))

    return values(judged, best_of(list(itertools.product(FACTORS, (0.0, 0.25, 0.5, 1.0))), others, values))


def by_query(others: Sequence[MeasuredSet], judged: MeasuredSet) -> np.ndarray:
    def values(each: MeasuredSet, setting: tuple[float, float]) -> np.ndarray:
        penalty, slope = setting
        # The sets that the regression learns from never include the one that it is applied to.
        learned = [one for one in others if one is not each]
        return each.at(logistic(logit(each.adaptive) + slope * predicted(learned, each, penalty)))

    return values(judged, best_of(list(itertools.product(PENALTIES, SLOPES)), others, values))


def predicted(learned: Sequence[MeasuredSet], judged: MeasuredSet, penalty: float) -> np.ndarray:
    """Predict by ridge regression how much better dense is than weights; every set counts the same."""
    if not learned:
        return np.zeros(len(judged.adaptive))
    features = np.concatenate([each.features for each in learned])
    weights = (
        np.concatenate([np.full(len(each.adaptive), 1 / len(each.adaptive)) for each in learned]) * len(features) / len(learned)
    )
    mean, deviation = features.mean(axis=0), features.std(axis=0) + 1e-9
    rows = np.column_stack([np.ones(len(features)), (features - mean) / deviation])
    wanted = np.concatenate([each.advantage() for each in learned])
    matrix = rows.T @ (rows * weights[:, None]) + penalty * np.eye(rows.shape[1])
    coefficients = np.linalg.solve(matrix, rows.T @ (weights * wanted))
    return np.column_stack([np.ones(len(judged.features)), (judged.features - mean) / deviation]) @ coefficients


def oracle(_: Sequence[MeasuredSet], judged: MeasuredSet) -> np.ndarray:
    return judged.values[:, 0].max(axis=1)


RULES = {
    "factor": factor,
    "BM25 beside weights": bm25_beside,
    "one rule a corpus": by_corpus,
    "predicted for each query": by_query,
    "best share for each query": oracle,
}


def table(sets: Mapping[str, MeasuredSet]) -> str:
    lines = [f"| | {' | '.join(sets)} | mean, 95 % |", f"|---|{'---:|' * (len(sets) + 1)}"]
    base = {name: adaptive((), each) for name, each in sets.items()}
    lines.append(f"| adaptive | {' | '.join(f'{base[name].mean():.4f}' for name in sets)} | |")
    for rule, values in RULES.items():
        gains = {
            name: values([each for other, each in sets.items() if other != name], judged) - base[name]
            for name, judged in sets.items()
        }
        cells = [f"{gain.mean():+.4f}{mark(gain)}" for gain in gains.values()]
        means = np.array([gain.mean() for gain in gains.values()])
        low, high = interval(means)
        lines.append(f"| {rule} | {' | '.join(cells)} | {means.mean():+.4f} [{low:+.4f}, {high:+.4f}] |")
    return "\n".join(lines)


def mark(gain: np.ndarray) -> str:
    if randomisation_test(gain, np.zeros_like(gain)) >= 0.05:
        return ""
    return " ▲" if gain.mean() > 0 else " ▼"


if __name__ == "__main__":
    enter(main)
