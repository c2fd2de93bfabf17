"""Search for the best fusion and reranking parameters on the fitted queries.

`SPACE` declares what is tried. The coordinate search is deterministic. It starts once from the default (what `search` does
without a profile) and once from the default with rNN reranking. One parameter at a time takes its best value, and rounds repeat
until no value changes.

How a ranker reranks (how many documents, and how much it counts) is chosen after that first stage. The ranker reads each of its best
documents once; all depths and weights are then tried with these logits. The choice needs a gain over the first stage that is more than noise.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.encoders import recorded_models as models
from termweave.evaluation.measures import per_query
from termweave.records import Run
from termweave.rerank.feature_ranker import KIND, FeatureReranker, open_feature_ranker
from termweave.rerank.rerankers import Reranking
from termweave.rerank.rnn import ReciprocalNeighbours
from termweave.search.ranking.order import order
from termweave.signals import fusion, modes
from termweave.signals.modes import Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from termweave.encoders import Ranker
    from termweave.evaluation.tuning.trial_ranker import TrialRanker
    from termweave.rerank.ranker import CrossEncoderReranker
    from termweave.rerank.rerankers import Reranker
    from termweave.search.retrieval.candidates import Candidates

#: Most rounds of the coordinate search; three were enough on every data set tried.
_ROUNDS = 5
#: A value replaces another if its gain is at least this many standard errors of the paired difference. Smaller gains are noise
#: of the fitted half that the other half does not confirm. Of 1, 1.5 and 2 this was the best on held-out halves.
WORTH = 1.5

Choice = tuple[Mode, ReciprocalNeighbours | None]
#: Parameters of rNN reranking, named as in `ReciprocalNeighbours` -> the values to try.
_NEIGHBOURS: Mapping[str, tuple[Any, ...]] = {
    "candidates": (20, 30, 40, 60, 80, 100),
    "k": (4, 6, 8, 10, 12, 15, 20, 25),
    "k_exp": (1, 2, 3, 4, 5, 7),
    "tau": (0.0, 0.25, 0.5, 0.67),
    "weight": (0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95),
}
#: The parameters that tuning chooses, named as in a profile -> the values to try. `dense` is the share of vectors in the fusion, `lexical`
#: that of BM25 within the word signals, beside the learned weights.
SPACE: Mapping[str, tuple[Any, ...]] = {
    "fusion": tuple(fusion.METHODS),
    "dense": tuple(round(step / 20, 2) for step in range(21)),
    "lexical": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5),
    "rerank": (False, True),
    **_NEIGHBOURS,
}
#: How many documents a ranker may rerank, and how much it may count.
_DEPTHS, _RANKER_WEIGHTS = (10, 20, 30, 50, 100), (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def beyond_noise(differences: NDArray[np.float64]) -> bool:
    """Whether the mean of paired differences is positive by more than `WORTH` standard errors."""
    return bool(differences.mean() > WORTH * (float(differences.std()) / len(differences) ** 0.5))


class ParameterSearch:
    """Searches the space of parameters by trials on the fitted queries; a trial that was made before is not repeated.

    Args:
        ranker: Ranks the fitted queries and measures the rankings.
        signals: Signals of the index.
        progress: Called with (stage, trials so far, None) after each new trial.
    """

    def __init__(self, ranker: TrialRanker, signals: Sequence[str], progress: Callable[[str, int, int | None], None]) -> None:
        self._ranker = ranker
        self._progress = progress
        self._seen: dict[tuple[Any, ...], NDArray[np.float64]] = {}
        dense = "dense" in signals
        self._word_signal = next((name for name in modes.hybrid(signals) if name != "dense"), None)
        plain = ReciprocalNeighbours()
        share = 0.5 if dense and self._word_signal else float(dense)
        self.default: dict[str, Any] = {"fusion": fusion.DEFAULT, "dense": share, "lexical": 0.0, "rerank": False}
        self.default |= {name: getattr(plain, name) for name in _NEIGHBOURS}
        beside_weights = self._word_signal == "weights" and "lexical" in signals
        usable = {"fusion": True, "dense": dense and self._word_signal, "lexical": beside_weights}
        self._space = {name: values for name, values in SPACE.items() if usable.get(name, dense)}

    @property
    def trials(self) -> int:
        """Number of different trials so far."""
        return len(self._seen)

    def choice(self, point: Mapping[str, Any]) -> Choice:
        """Return the mode and the reranking of a point of the space."""
        words = 1.0 - point["dense"]
        shares = {"dense": point["dense"], "lexical": words * point["lexical"]}
        if self._word_signal is not None:
            shares[self._word_signal] = shares.get(self._word_signal, 0.0) + words * (1.0 - point["lexical"])
        weights = {name: share for name, share in sorted(shares.items()) if share > 0}
        reranking = ReciprocalNeighbours(**{name: point[name] for name in _NEIGHBOURS}) if point["rerank"] else None
        return Mode("tuned", weights, point["fusion"]), reranking

    def values(self, point: Mapping[str, Any]) -> NDArray[np.float64]:
        """Return the measure of every fitted query for a point of the space."""
        mode, reranking = self.choice(point)
        key = (tuple(mode.weights.items()), mode.fusion, reranking)
        if key not in self._seen:
            self._seen[key] = self._ranker.values(mode, reranking)
            self._progress("trying", self.trials, None)
        return self._seen[key]

    def descend(self) -> dict[str, Any]:
        """Run the coordinate search from the default and from the default with reranking; return the better result.

        The second start is necessary: with its default parameters reranking may lose where with other parameters it gains.
        The better result wins by any margin. Each step towards either was significant by itself, and a tuned profile must
        not lose to `--rerank rnn` with default parameters.
        """
        starts = [self.default]
        if "rerank" in self._space:
            starts.append({**self.default, "rerank": True})
        return max(map(self._descend_from, starts), key=lambda point: float(self.values(point).mean()))

    def descend_from_best(self) -> dict[str, Any]:
        """Run the coordinate search from the best of the simple searches: hybrid, and its signals alone, each with and without rNN.

        The simple searches are compared by their means alone: they are few, and a model that was trained on such questions can make one
        signal better than any fusion. The caller sees to it that with few questions chance does not choose (`learning.choice`).
        """
        shares = (self.default["dense"], 1.0, 0.0) if self._word_signal and "dense" in self._space else (self.default["dense"],)
        reranked = (False, True) if "rerank" in self._space else (False,)
        starts = [{**self.default, "dense": share, "rerank": rerank} for share in shares for rerank in reranked]
        return self._descend_from(max(starts, key=lambda point: float(self.values(point).mean())))

    def _descend_from(self, start: Mapping[str, Any]) -> dict[str, Any]:
        fixed = {"rerank"} if start["rerank"] else {"rerank", *_NEIGHBOURS}
        best = dict(start)
        for _ in range(_ROUNDS):
            previous = dict(best)
            for name in (each for each in self._space if each not in fixed):
                current = best
                for value in self._space[name]:
                    point = {**current, name: value}
                    if beyond_noise(self.values(point) - self.values(best)):
                        best = point
            if best == previous:
                break
        return best


@dataclass
class RecordedLogits:
    """A ranker that reads no pair of query and text twice, with the time that the pairs took.

    Attributes:
        ranker: The ranker.
        logits: (query, text) -> logit.
        seconds: Time spent on the pairs so far.
    """

    ranker: Ranker
    logits: dict[tuple[str, str], float] = field(default_factory=dict)
    seconds: float = 0.0

    def score(self, query: str, documents: Sequence[str], *, windows: int = 1) -> NDArray[np.float32]:
        """Score documents for a query as `Ranker.score` does, each pair once."""
        new = [text for text in dict.fromkeys(documents) if (query, text) not in self.logits]
        if new:
            began = time.perf_counter()
            scores = self.ranker.score(query, new, windows=windows).tolist()
            self.seconds += time.perf_counter() - began
            self.logits.update(((query, text), score) for text, score in zip(new, scores, strict=True))
        return np.array([self.logits[query, text] for text in documents], dtype=np.float32)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ranker, name)

    @property
    def milliseconds(self) -> float:
        """Mean time of a pair, in milliseconds."""
        return 1000 * self.seconds / max(1, len(self.logits))


def stored_ranker(ranker: CrossEncoderReranker | FeatureReranker) -> dict[str, Any]:
    """Return the parameters of a ranker as a profile stores them. Also note the folder of the model on this host, where an index will look for it."""
    kind, names = {}, ["candidates", "weight", "budget"]
    if isinstance(ranker, FeatureReranker):
        kind, names = {"kind": KIND}, ["candidates"]
        info = open_feature_ranker(ranker.model, ranker.hash).info
    else:
        info = ranker.open_scorer().info
    models.remember([info])
    return {**kind, "model": info.name, "hash": info.hash, **{name: getattr(ranker, name) for name in names}}


@dataclass(frozen=True)
class RankedQueries:
    """Judged queries with their candidates; the candidates have texts, which rankers read.

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
        """Rank the candidates as a search does, and return the measure of every query ``(queries,)``."""
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
    """Return the ranker with the depth and weight that rank the queries for fitting best.

    None: reranking gains nothing on them, or no depth fits the time budget.

    Args:
        queries: The fitted queries.
        mode: The signals and their fusion.
        first: The rerankers before the ranker.
        ranker: The ranker. With a budget, only depths that it has time for on average are tried, without a time limit.
        recorded: The scorer of the ranker, which times it.
        progress: Called with (stage, trials so far, number of trials).
    """
    plain = replace(ranker, budget=None)  # the clock of tuning says nothing about the clock of a search
    without = queries.values(mode, first)
    queries.values(mode, [*first, replace(plain, candidates=_DEPTHS[0])])  # times the pairs
    trials = [replace(plain, **point) for point in _points(ranker.budget, recorded.milliseconds)]
    best, gained = None, without
    for number, tried in enumerate(trials, 1):
        values = queries.values(mode, [*first, tried])
        if values.mean() > gained.mean():
            best, gained = tried, values
        progress("trying the ranker", number, len(trials))
    return replace(best, budget=ranker.budget) if best and beyond_noise(gained - without) else None


def _points(budget: float | None, milliseconds: float) -> list[dict[str, Any]]:
    """List every depth that the budget (in ms; None: no limit) has time for, with every weight."""
    depths = [depth for depth in _DEPTHS if budget is None or depth * milliseconds <= budget]
    return [{"candidates": depth, "weight": weight} for depth in depths for weight in _RANKER_WEIGHTS]


def too_short(budget: float | None, recorded: RecordedLogits) -> list[str]:
    """Return a remark if the budget of a ranker, in milliseconds, has no time for any depth; else []."""
    if _points(budget, recorded.milliseconds):
        return []
    took = f"{_DEPTHS[0]} documents take it {_DEPTHS[0] * recorded.milliseconds:.0f} ms"
    return [f"The ranker was left out: {took}, and its budget is {budget:g} ms."]
