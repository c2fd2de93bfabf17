"""Tuning: choose fusion and reranking on one half of the judged queries, and measure the choice on the other half.

The search itself is in `parameter_search`; this module splits the queries, compares the result with searches that need no tuning, and
reports it.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from math import inf
from typing import TYPE_CHECKING, cast

from termweave.catalog.profiles import Profile
from termweave.errors import InputError, UsageError
from termweave.evaluation import judgements, systems
from termweave.evaluation.experiment import CandidateFetcher
from termweave.evaluation.measures import ALPHA, holm, interval, label, randomisation_test
from termweave.evaluation.tuning import parameter_search
from termweave.evaluation.tuning.parameter_search import RankedQueries, RecordedLogits
from termweave.evaluation.tuning.trial_ranker import TrialRanker
from termweave.rerank import rerankers
from termweave.rerank.feature_ranker import FeatureReranker, open_feature_ranker
from termweave.rerank.ranker import CrossEncoderReranker
from termweave.rerank.rerankers import Reranking
from termweave.rerank.rnn import ReciprocalNeighbours
from termweave.rerank.stored_rerankers import leave_room, reranking_of, rules_of, stages_of
from termweave.search.profiles import find, inherited, mode_of, rewriting_of
from termweave.signals import modes
from termweave.support import arguments
from termweave.support.messages import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from termweave.corpora import Dataset
    from termweave.encoders import Ranker
    from termweave.records import Query
    from termweave.rerank.rerankers import Need
    from termweave.search import Index

#: Fewest queries in each half; with fewer, every difference is noise.
FEWEST = 10


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
    search = parameter_search.ParameterSearch(trials, index.signals, progress)
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
        chosen = parameter_search.choose(fitted_half, mode, first, ranker, recorded, progress)
        unused = parameter_search.too_short(ranker.budget, recorded)
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
            parameter_search.stored_ranker(chosen) if chosen else None,
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
        yield f"Kept from the profile {former.name!r}: {parts}. All figures are with {'them' if former.rules else 'it'}.{fitted}"


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
        yield f"The gain may be chance (p {p:.2g}, 95 % between {low:+.4f} and {high:+.4f}). More judged queries would show it."
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
