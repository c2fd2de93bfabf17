"""Find how many impacts an index can do without: the strongest `--prune` that keeps a share of nDCG@10 on judged queries.

Nothing is built for it. The weights signal is asked once for each query's best documents, whose stored impacts are read; each rule then ranks these
documents again without the impacts that it leaves out. Leaving out impacts only lowers scores, so no other document can score more than the
last of the 200 did; ten count.

The rule is found on one half of the queries, and what it keeps is measured on the other half.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.engine.client.payloads import ALL_SHARDS
from termweave.errors import InputError, UsageError
from termweave.evaluation.measures import per_query
from termweave.evaluation.tuning.tune import shuffled_queries
from termweave.records import Passage, Run
from termweave.signals import dialect_of
from termweave.signals.impacts import WeightedTerms
from termweave.signals.layout import engine_id
from termweave.signals.pruning import Pruning
from termweave.support import arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from termweave.corpora import Dataset
    from termweave.search import Index
    from termweave.search.retrieval.candidates import Candidates

#: The rules that are tried: thresholds as shares of the largest impact. At equal size a share of each document's terms loses more (docs/impacts.md).
RULES = tuple(round(step / 50, 2) for step in range(1, 26))
#: Documents that are ranked again for each query; documents whose impacts are counted; and documents read in one request.
_DEPTH, _SAMPLE, _PAGE = 200, 2_000, 500


@dataclass(frozen=True, slots=True)
class JudgedList:
    """A query with its best documents and their stored impacts.

    Attributes:
        factors: Term -> weight in the query.
        documents: Document -> term -> stored integer.
        grades: Document -> grade.
    """

    factors: Mapping[str, float]
    documents: Mapping[str, Mapping[str, float]]
    grades: Mapping[str, int]

    def scores(self, least: float) -> dict[str, float]:
        """The scores without impacts below `least`, best first; a document always keeps its largest."""
        scores = {}
        for document, levels in self.documents.items():
            bound = min(least, max(levels.values(), default=0.0))
            kept = (factor * levels[term] for term, factor in self.factors.items() if levels.get(term, -1) >= bound)
            if score := sum(kept):
                scores[document] = score
        return dict(sorted(scores.items(), key=lambda each: (-each[1], each[0])))


@dataclass(frozen=True, slots=True)
class PruningReport:
    """The result of `find`.

    Attributes:
        dataset: Name of the data set.
        target: The share of nDCG@10 that should be kept, 0 to 1.
        rule: The strongest rule that keeps it on the fitted queries; "none" if there is none.
        fitted: Number of queries on which the rule was found.
        held_out: Number of queries on which it was measured.
        ndcg: nDCG@10 of the weights signal with all impacts, on the held-out queries.
        kept: Share of it that the rule keeps there.
        postings: Share of the impacts that the rule keeps, in a sample of the documents.
    """

    dataset: str
    target: float
    rule: str
    fitted: int
    held_out: int
    ndcg: float
    kept: float
    postings: float


def find(
    index: Index,
    dataset: Dataset,
    *,
    target: float = 0.99,
    seed: int = 0,
    progress: Callable[[str, int, int | None], None] = lambda *_: None,
) -> PruningReport:
    """Find the strongest pruning that keeps `target` of nDCG@10.

    Args:
        index: An index with the signal weights.
        dataset: Queries, and judgements of documents in the index.
        target: The share of nDCG@10 to keep, above 0 and at most 1.
        seed: Seed of the split of the queries into halves.
        progress: Called with (stage, done, total).

    Raises:
        InputError: There are too few judged queries, or none of the judged documents is in the index.
        UsageError: The index has no term weights, or they are pruned.
    """
    arguments.check(index=index, dataset=dataset)
    signal = next((each for each in index.layout.signals if each.name == "weights"), None)
    if not isinstance(signal, WeightedTerms):
        raise UsageError(f"{index.generation} has no term weights to prune.", "Choose an index with the signal weights.")
    if signal.prune_share or signal.prune_below:
        raise UsageError(
            f"{index.generation} was built with --prune, so what its impacts are worth cannot be measured any more.",
            "Build it without --prune, then find a rule, then build it with that rule.",
        )
    qrels = dataset.qrels()
    queries, _ = shuffled_queries(index, dataset, seed, "finding a rule")
    lists: list[JudgedList] = []
    for start in range(0, len(queries), 16):
        part = queries[start : start + 16]
        candidates = index.candidates([each.text for each in part], ["weights"], depth=_DEPTH)
        lists += [
            JudgedList((each.clauses["weights"].terms or {}) if "weights" in each.clauses else {}, documents, qrels[query.id])
            for query, each, documents in zip(part, candidates, _impacts(index, signal, candidates), strict=True)
        ]
        progress("searching", len(lists), len(queries))
    half = len(lists) // 2
    return choose_rule(dataset.name, lists[:half], lists[half:], target, signal.levels, _sample(index, signal))


def choose_rule(
    name: str,
    fitted: Sequence[JudgedList],
    held_out: Sequence[JudgedList],
    target: float,
    levels: int,
    sample: Sequence[NDArray[np.float64]],
) -> PruningReport:
    """Choose the strongest rule that keeps `target` on the fitted queries, as every weaker rule does, and measure it on the others.

    Args:
        name: Name of the data set.
        fitted: The queries that choose.
        held_out: The queries that measure.
        target: The share of nDCG@10 to keep.
        levels: `WeightedTerms.levels`.
        sample: Stored integers of some documents.

    Raises:
        InputError: No relevant document is found on one of the halves, so every rule would keep all of nothing.
    """
    whole, measured, best = mean_ndcg(fitted, 0.0), mean_ndcg(held_out, 0.0), 0.0
    if not (whole and measured):
        raise InputError(
            f"The term weights rank no relevant document of {name} among the ten best for half of its queries, so no rule can be chosen.",
            "Judge more queries, or documents that are found.",
        )
    for rule in RULES:
        if mean_ndcg(fitted, rule * levels) < target * whole:
            break
        best = rule
    kept = mean_ndcg(held_out, best * levels) / measured
    stored = sum(map(len, sample))
    left = sum(int((each >= min(best * levels, each.max(initial=0.0))).sum()) for each in sample)
    postings = left / stored if stored else 1.0
    return PruningReport(name, target, str(Pruning(below=best)), len(fitted), len(held_out), measured, kept, postings)


def mean_ndcg(lists: Sequence[JudgedList], least: float) -> float:
    """Mean nDCG@10 of the rankings without impacts below `least`."""
    run = Run("pruned", {str(number): each.scores(least) for number, each in enumerate(lists)})
    judged = {str(number): dict(each.grades) for number, each in enumerate(lists)}
    return float(per_query(run, judged, list(judged))["nDCG@10"].mean())


def _impacts(index: Index, signal: WeightedTerms, found: Sequence[Candidates]) -> list[dict[str, Mapping[str, float]]]:
    """The stored integers of the documents of each list, or of the passage that counts."""
    names = [{document: _key(each, document) for document in each.lists["weights"].scores} for each in found]
    wanted = sorted({key for each in names for key in each.values()})
    levels: dict[str, Mapping[str, float]] = {}
    for start in range(0, len(wanted), _PAGE):
        body = {"query": {"ids": {"values": wanted[start : start + _PAGE]}}, "size": _PAGE, "_source": _source(index)}
        answer = index.engine.request("POST", f"/{index.generation}/_search", params=ALL_SHARDS, body=body)
        levels |= {hit["_id"]: signal.levels_of(hit.get("_source", {})) for hit in answer["hits"]["hits"]}
    return [{document: levels.get(key, {}) for document, key in each.items()} for each in names]


def _key(candidates: Candidates, document: str) -> str:
    """The `_id` of a document of a list, or of its best passage."""
    number = candidates.lists["weights"].passages.get(document)
    return engine_id(document if number is None else Passage.key(document, number))


def _sample(index: Index, signal: WeightedTerms) -> list[NDArray[np.float64]]:
    """The stored integers of some documents, drawn at random."""
    drawn = {"function_score": {"random_score": {"seed": 0, "field": "_seq_no"}, "boost_mode": "replace"}}
    body = {"size": _SAMPLE, "query": drawn, "_source": _source(index)}
    hits = index.engine.request("POST", f"/{index.generation}/_search", params=ALL_SHARDS, body=body)["hits"]["hits"]
    return [np.array([*signal.levels_of(hit.get("_source", {})).values()]) for hit in hits]


def _source(index: Index) -> Any:
    """`_source` of a search that reads the impacts back."""
    return dialect_of(index.engine.capabilities).source(["weights"])
