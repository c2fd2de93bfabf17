"""Tuning: choose fusion and reranking on one half of the judged queries, and measure the choice on the other half.

Fusion and rNN are searched for in `parameter_search`. How a ranker reranks (how many documents, and how much it counts) is chosen after them.
The ranker reads each of its best documents once; all depths and weights are then tried with these logits. The choice needs a gain over the first
stage that is more than noise. The result is compared with searches that need no tuning.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from termweave.catalog.profiles import Profile
from termweave.encoders import recorded_models as models
from termweave.errors import InputError, UsageError
from termweave.evaluation import judgements, systems
from termweave.evaluation.experiment import CandidateFetcher
from termweave.evaluation.measures import ALPHA, holm, interval, label, per_query, randomisation_test
from termweave.evaluation.tuning.parameter_search import ParameterSearch, TrialRanker, beyond_noise
from termweave.records import Query, Run
from termweave.rerank import rerankers
from termweave.rerank.feature_ranker import KIND, FeatureReranker, open_feature_ranker
from termweave.rerank.ranker import CrossEncoderReranker
from termweave.rerank.rerankers import Need, Reranker, Reranking
from termweave.rerank.rnn import ReciprocalNeighbours
from termweave.rerank.stored_rerankers import leave_room, reranking_of, rules_of, stages_of
from termweave.search.profiles import find, inherited, mode_of, rewriting_of
from termweave.search.ranking.order import order
from termweave.signals import modes
from termweave.support import arguments
from termweave.support.messages import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from termweave.corpora import Dataset
    from termweave.encoders import Ranker
    from termweave.search import Index
    from termweave.search.retrieval.candidates import Candidates
    from termweave.signals.modes import Mode

#: Fewest queries in each half; with fewer, every difference is noise.
FEWEST = 10
#: How many documents a ranker may rerank, and how much it may count.
_DEPTHS, _RANKER_WEIGHTS = (10, 20, 30, 50, 100), (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True)
class TuningReport:
    """The result of tuning.

    Attributes:
        dataset: Name and split of the data set.
        measure: The measure that was optimised.
        fitted: Number of queries in the fitted half.
        held_out: Number of queries in the held-out half; all figures below are measured on it.
        trials: Number of different settings that were tried on the fitted half.
        profile: The best settings.
        figures: System -> mean of the measure. The systems are every signal alone, "default" (what `search` does without a
            profile), "hybrid+rNN" (the default reranked with default parameters), "in force" (the profile that searches use
            now) and "tuned".
        in_force: Name of the profile that searches use now; "": searches use no profile.
        gain: Mean difference between tuned and default.
        low: Lower end of the 95 % interval of the gain.
        high: Upper end of the 95 % interval of the gain.
        p: p-value of the paired randomisation test between tuned and default.
        notes: Remarks that a reader of the figures should know.
    """

    dataset: str
    measure: str
    fitted: int
    held_out: int
    trials: int
    profile: Profile
    in_force: str
    figures: Mapping[str, float]
    gain: float
    low: float
    high: float
    p: float
    notes: tuple[str, ...] = ()

    @property
    def better(self) -> bool:
        """Whether the tuned profile beats the default on the held-out half and is at least as good as the profile in force."""
        return self.gain > 0 and self.figures["tuned"] >= self.figures.get("in force", 0.0)

    @property
    def proved(self) -> bool:
        """Whether the tuned profile is better by more than chance; only such a profile is adopted without being asked for."""
        return self.better and self.p < ALPHA


def tune(
    index: Index,
    dataset: Dataset,
    *,
    name: str = "tuned",
    measure: str = "nDCG@10",
    seed: int = 0,
    depth: int = 100,
    ranker: CrossEncoderReranker | FeatureReranker | None = None,
    progress: Callable[[str, int, int | None], None] = lambda *_: None,
) -> TuningReport:
    """Fit a profile on one half of the queries and measure it on the other half.

    The profile keeps the rules and the rewriting of the profile in use, or else of the profile that it replaces. Queries are
    rewritten throughout. Fusion and rNN are fitted without rules and pins; all figures, also those of the default, are measured with them.

    Args:
        index: The index to tune.
        dataset: Queries, and judgements of documents in the index.
        name: Name of the new profile.
        measure: "nDCG@10" or "MRR@10".
        seed: Seed of the split into halves.
        depth: Number of candidates from each signal.
        ranker: A cross-encoder that may rerank after the rest is chosen: its depth and its weight are fitted. Its budget, if it has
            one, limits the depth, and searches with the profile keep to it. Or a feature ranker: the profile then has the signals and
            the fusion that it was trained behind, and no rNN.
        progress: Called with (stage, done, total).

    Raises:
        InputError: There are too few judged queries, none of the judged documents is in the index, or the ranker was trained on them.
        UsageError: The index has nothing to fuse and no vectors to rerank with, or the rules leave no place for another reranker.
    """
    arguments.check(index=index, dataset=dataset)
    _check_tunable(index)
    qrels = dataset.qrels()
    queries, notes = _shuffled_queries(index, dataset, seed)
    needs: list[Need] = ["vectors"] if "dense" in index.signals else []
    features = ranker if isinstance(ranker, FeatureReranker) else None
    recorded = RecordedLogits(ranker.open_scorer()) if isinstance(ranker, CrossEncoderReranker) else None
    ranker = replace(ranker, scorer=cast("Ranker", recorded)) if isinstance(ranker, CrossEncoderReranker) else ranker
    current = find(index.lineage, None)
    former = current or find(index.lineage, name)
    rules = rules_of(former)
    if former:
        leave_room(former, ("dense" in index.signals and features is None) + (ranker is not None), "tuning")
    in_use = stages_of(current)
    judgements.check_clicks([*([features] if features else []), *in_use], dataset)
    if seen := systems.trained_on([ranker] if ranker else [], dataset):
        raise InputError(seen[0], f"Tune it on judgements that it has not seen{judgements.other_splits(dataset)}.")
    for each in (reranking_of(former), ranker):
        needs += each.needs if each else ()
    fetcher = CandidateFetcher(index, index.signals, depth=depth, needs=needs, rewrite=rewriting_of(former), qrels=qrels)
    candidates = list(fetcher.candidates(queries, partial(progress, "searching")))
    half = len(queries) // 2
    grades = [qrels[query.id] for query in queries]
    trials = TrialRanker(candidates[:half], grades[:half], dataset.relevant_from, measure)
    search = ParameterSearch(trials, index.signals, progress)
    if features is None:
        mode, reranking = search.choice(search.descend())
    else:
        mode, reranking = open_feature_ranker(features.model, features.hash).mode, None
    fitted_half, held_out_half = (
        RankedQueries(candidates[part], grades[part], dataset.relevant_from, measure, rules)
        for part in (slice(half), slice(half, None))
    )
    first = [] if reranking is None else [reranking]
    chosen: CrossEncoderReranker | FeatureReranker | None = features
    untuned, unused = _untuned(held_out_half, index.signals), []
    if isinstance(ranker, CrossEncoderReranker) and recorded:
        chosen = choose(fitted_half, mode, first, ranker, recorded, progress)
        unused = too_short(ranker.budget, recorded)
        hybrid, alone = modes.parse("hybrid", index.signals), Reranking((replace(ranker, budget=None),))
        untuned[systems.default_search(index.signals, alone).name] = held_out_half.values(hybrid, alone.stages)
    last = replace(chosen, budget=None) if isinstance(chosen, CrossEncoderReranker) else chosen
    tuned = held_out_half.values(mode, [*first, *([last] if last else [])])
    measured, default = {**untuned}, untuned.pop("default")
    if current:  # its ranker gets all the time that it takes; the queries have its rules
        reranked = reranking_of(replace(current, rules=None))
        in_force = held_out_half.values(mode_of(current), reranked.within(inf).stages if reranked else ())
        measured["in force"] = in_force
    figures = {system: float(values.mean()) for system, values in {**measured, "tuned": tuned}.items()}
    low, high = interval(tuned - default)
    source = f"{dataset.name}:{dataset.split}"
    fitted = {"dataset": source, "measure": measure, "queries": half, "held_out": figures}
    fitted["at"] = datetime.now(UTC).isoformat(timespec="seconds")
    return TuningReport(
        dataset=source,
        measure=measure,
        fitted=half,
        held_out=len(queries) - half,
        trials=search.trials,
        profile=Profile(
            name,
            mode.weights,
            mode.fusion,
            None if reranking is None else asdict(reranking),
            fitted,
            stored_ranker(chosen) if chosen else None,
            former.rules if former else None,
            former.rewrite if former else None,
        ),
        in_force=current.name if current else "",
        figures=figures,
        gain=float((tuned - default).mean()),
        low=low,
        high=high,
        p=randomisation_test(tuned, default),
        notes=(
            *notes,
            *fetcher.notes(),
            *_inherited(former),
            *unused,
            *systems.trained_on(in_use, dataset),
            *_remarks(untuned, default, tuned, inherited(former) if former else ""),
        ),
    )


def _inherited(former: Profile | None) -> Iterator[str]:
    """Yield a remark on what the new profile keeps of the former one, if it keeps anything."""
    if former and (parts := inherited(former)):
        rewriting = rewriting_of(former)
        behind = former.rules or (rewriting and rewriting.pins)
        fitted = " Fusion and rNN were fitted without rules and pins." if behind else ""
        yield f"Kept from the profile {former.name!r}: {parts}. All figures are measured with these parts.{fitted}"


def _check_tunable(index: Index) -> None:
    """Check that there are signals to fuse, or vectors to rerank by.

    Raises:
        UsageError: The index has one signal, and no vectors.
    """
    if "dense" not in index.signals and not {"lexical", "weights"} <= set(index.signals):
        only = " and ".join(map(label, index.signals))
        message = f"The index {index.name!r} has {only} alone: there is nothing to fuse, and no vectors to rerank by."
        raise UsageError(message, "Build the index with a dense model.")


def _shuffled_queries(index: Index, dataset: Dataset, seed: int) -> tuple[list[Query], list[str]]:
    """Return the queries that have a relevant document, in random order, and remarks on judgements and on judged documents that the index lacks.

    Raises:
        InputError: There are too few queries, or none of the judged documents is in the index.
    """
    qrels = dataset.qrels()
    queries = [query for query in dataset.queries() if any(grade > 0 for grade in qrels.get(query.id, {}).values())]
    if len(queries) < 2 * FEWEST:
        count = counted(len(queries), "query", "queries")
        message = f"{dataset.name} has {count} with a relevant document in the split {dataset.split!r}; tuning needs at least {2 * FEWEST}."
        raise InputError(" ".join([message, *dataset.notes]), f"Judge more queries{judgements.other_splits(dataset)}.")
    random.Random(seed).shuffle(queries)  # noqa: S311 - a split, not a secret
    return queries, [*dataset.notes, *judgements.absent_from_index(index, dataset.name, qrels)]


def _untuned(queries: RankedQueries, signals: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """Measure the systems that need no tuning: each signal alone, the default, and the default reranked.

    Returns:
        System -> the measure of every query.
    """
    values = {signal: queries.values(modes.parse(signal, signals), ()) for signal in signals}
    hybrid = modes.parse("hybrid", signals)
    values["default"] = queries.values(hybrid, ())
    if "dense" in signals:
        values[systems.default_search(signals, rerankers.choose("rnn")).name] = queries.values(hybrid, [ReciprocalNeighbours()])
    return values


def _remarks(
    untuned: Mapping[str, NDArray[np.float64]], default: NDArray[np.float64], tuned: NDArray[np.float64], shared: str = ""
) -> Iterator[str]:
    """Yield remarks on what the means alone do not show: a gain that may be chance, or an untuned system that is better than the one used.

    `shared` names the parts of the former profile with which all systems were measured; "": there were none.
    """
    is_gain = bool((tuned - default).mean() > 0)
    if is_gain and (p := randomisation_test(tuned, default)) >= ALPHA:
        low, high = interval(tuned - default)
        yield f"The gain may be chance (p {p:.2g}, 95 % between {low:+.4f} and {high:+.4f}). More judged queries would show whether it is."
    best = max(untuned, key=lambda name: float(untuned[name].mean()))
    used, name = (tuned, "the tuned profile") if is_gain else (default, "the default")
    better, worse = f"{untuned[best].mean():.4f}", f"{used.mean():.4f}"
    if float(better) > float(worse):  # compared as printed
        low, high = interval(untuned[best] - used)
        p = dict(zip(untuned, holm([randomisation_test(each, used) for each in untuned.values()]), strict=True))[best]
        mode, _, reranker = best.partition("+")
        which, how = f"{label(mode)} alone", ""
        if reranker:
            which = f"{mode} with untuned {reranker} reranking"
            how = f" and the reranker {'rnn' if reranker == 'rNN' else reranker}"
        figures = f"{better} against {worse} (p {p:.2g}, 95 % of the difference between {low:+.4f} and {high:+.4f})"
        if p < ALPHA:
            advice = f"search with the mode {mode}{how}{shared and f', with the same {shared}'}"
            yield f"{which} is better than {name}, {figures}: {advice}."
        else:
            yield f"{which} lies above {name}, perhaps by chance: {figures}."


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
    took = f"reranking {_DEPTHS[0]} documents takes {_DEPTHS[0] * recorded.milliseconds:.0f} ms"
    return [f"The ranker was left out: {took}, and its budget is {budget:g} ms."]
