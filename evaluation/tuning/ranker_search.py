"""Choose how a ranker reranks: how many documents, and how much it counts.

The first stage (fusion, and rNN if it helped) is chosen before. The ranker reads each of its best documents once; all depths and
weights are then tried with these logits. The choice needs a gain over the first stage that is more than noise.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.encoders import recorded_models as models
from termweave.evaluation.measures import per_query
from termweave.evaluation.tuning.parameter_search import WORTH, TuningParameter
from termweave.records import Run
from termweave.rerank.feature_ranker import KIND, open_feature_ranker
from termweave.rerank.ranker import open_ranker
from termweave.rerank.rerankers import Reranking
from termweave.search.ranking.order import order

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from termweave.encoders import Ranker
    from termweave.rerank.feature_ranker import FeatureReranker
    from termweave.rerank.ranker import CrossEncoderReranker
    from termweave.rerank.rerankers import Reranker
    from termweave.search.retrieval.candidates import Candidates
    from termweave.signals.modes import Mode

SPACE = (
    TuningParameter("candidates", (10, 20, 30, 50, 100)),
    TuningParameter("weight", (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)),
)


@dataclass
class RecordedLogits:
    """A ranker that reads no pair twice, with the time that it took.

    Attributes:
        ranker: The ranker.
        logits: (query, text) -> logit.
        seconds: Time spent on the pairs so far.
    """

    ranker: Ranker
    logits: dict[tuple[str, str], float] = field(default_factory=dict)
    seconds: float = 0.0

    def score(self, query: str, documents: Sequence[str], *, windows: int = 1) -> NDArray[np.float32]:
        """As `Ranker.score`."""
        new = [text for text in dict.fromkeys(documents) if (query, text) not in self.logits]
        if new:
            began = time.perf_counter()
            scores = self.ranker.score(query, new, windows=windows).tolist()
            self.seconds += time.perf_counter() - began
            self.logits.update(((query, text), score) for text, score in zip(new, scores, strict=True))
        return np.array([self.logits[query, text] for text in documents], dtype=np.float32)

    @property
    def anchor(self) -> dict[str, float]:
        """As `Ranker.anchor`."""
        return self.ranker.anchor

    @property
    def milliseconds(self) -> float:
        """Mean time of a pair."""
        return 1000 * self.seconds / max(1, len(self.logits))


def recorded_logits(ranker: CrossEncoderReranker) -> RecordedLogits:
    """The ranker's model, opened, as a scorer that reads no pair twice. No pair pays for the opening of the graph."""
    return RecordedLogits(ranker.scorer or open_ranker(ranker.model, ranker.hash))


def stored_ranker(ranker: CrossEncoderReranker | None, recorded: RecordedLogits | None) -> dict[str, Any] | None:
    """The parameters of a ranker for a profile. This host notes the model's folder: an index can open only models that a host has."""
    if ranker is None or recorded is None:
        return None
    info = recorded.ranker.info
    models.remember([info])
    parameters: dict[str, Any] = {name: getattr(ranker, name) for name in ("candidates", "weight", "budget")}
    return {"model": info.name, "hash": info.hash, **parameters}


def stored_feature_ranker(ranker: FeatureReranker) -> dict[str, Any]:
    """The parameters of a feature ranker for a profile. This host notes the model's folder, as for `stored_ranker`."""
    info = open_feature_ranker(ranker.model, ranker.hash).info
    models.remember([info])
    return {"kind": KIND, "model": info.name, "hash": info.hash, "candidates": ranker.candidates}


@dataclass(frozen=True)
class RankedQueries:
    """Judged queries with their candidates, which have texts.

    Attributes:
        candidates: The candidates of each query.
        judgements: The judgements of each query.
        relevant_from: Lowest grade that counts as relevant for MRR.
        measure: "nDCG@10" or "MRR@10".
        rules: Rules that run last, whatever is tried before them.
    """

    candidates: Sequence[Candidates]
    judgements: Sequence[Mapping[str, int]]
    relevant_from: int
    measure: str
    rules: Sequence[Reranker] = ()

    def values(self, mode: Mode, stages: Sequence[Reranker]) -> NDArray[np.float64]:
        """The measure of every query ``(queries,)``, ranked as a search ranks."""
        reranking = Reranking((*stages, *self.rules)) if stages or self.rules else None
        ids = [str(number) for number in range(len(self.candidates))]
        places = [order(each, mode, reranking, 10) for each in self.candidates]
        run = Run("trial", {key: {place.id: place.score for place in each} for key, each in zip(ids, places, strict=True)})
        qrels = {key: dict(grades) for key, grades in zip(ids, self.judgements, strict=True)}
        return per_query(run, qrels, ids, relevant_from=self.relevant_from, measures=[self.measure])[self.measure]


def choose(
    queries: RankedQueries,
    mode: Mode,
    first: Sequence[Reranker],
    ranker: CrossEncoderReranker,
    recorded: RecordedLogits,
    progress: Callable[[str, int, int | None], None],
) -> CrossEncoderReranker | None:
    """The best depth and weight on the fitted queries; None if the ranker gains nothing there, or has no time for any depth.

    Args:
        queries: The fitted queries.
        mode: The signals.
        first: The rerankers before the ranker.
        ranker: The ranker. With a budget, only depths that it has time for on average are tried, and these without a clock.
        recorded: The scorer of the ranker, which times it.
        progress: Called with (stage, trials so far, number of trials).
    """
    plain = replace(ranker, budget=None)  # the clock of tuning says nothing about the clock of a search
    without = queries.values(mode, first)
    queries.values(mode, [*first, replace(plain, candidates=SPACE[0].values[0])])  # times the pairs
    trials = [replace(plain, **point) for point in _points(ranker.budget, recorded.milliseconds)]
    best, gained = None, without
    for number, tried in enumerate(trials, 1):
        values = queries.values(mode, [*first, tried])
        if values.mean() > gained.mean():
            best, gained = tried, values
        progress("trying the ranker", number, len(trials))
    difference = gained - without
    error = float(difference.std()) / len(difference) ** 0.5
    if best is None or difference.mean() <= WORTH * error:
        return None
    return replace(best, budget=ranker.budget)


def _points(budget: float | None, milliseconds: float) -> list[dict[str, Any]]:
    """Every depth that the budget has time for, with every weight."""
    depths, weights = SPACE[0].values, SPACE[1].values
    if budget is not None:
        depths = tuple(depth for depth in depths if depth * milliseconds <= budget)
    return [{"candidates": depth, "weight": weight} for depth in depths for weight in weights]


def too_short(budget: float | None, recorded: RecordedLogits) -> list[str]:
    """A remark if the budget, in milliseconds, has no time for any depth."""
    if _points(budget, recorded.milliseconds):
        return []
    least = SPACE[0].values[0]
    return [
        f"The ranker was left out: {least} documents take it {least * recorded.milliseconds:.0f} ms, and its budget is {budget:g} ms."
    ]
