"""Choose how the trial generation is searched, on the held-out questions, and confirm the choice on the test questions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from termweave.catalog.profiles import Profile
from termweave.errors import InputError, UsageError
from termweave.evaluation import evaluate, systems
from termweave.evaluation.experiment import CandidateFetcher
from termweave.evaluation.measures import ALPHA, randomisation_test
from termweave.evaluation.tuning.parameter_search import ParameterSearch, TrialRanker, beyond_noise
from termweave.evaluation.tuning.tune import stored_ranker
from termweave.learning.training_rounds import Candidate, TrainedCandidate
from termweave.rerank.feature_ranker import FeatureReranker
from termweave.rerank.rnn import ReciprocalNeighbours
from termweave.search.profiles import mode_of, rewriting_of
from termweave.training import feature_ranker, judged_candidates
from termweave.training.methods import base

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from termweave.corpora import Dataset
    from termweave.evaluation import Experiment
    from termweave.rerank.rerankers import Need
    from termweave.search import Index
    from termweave.signals.modes import Mode
    from termweave.training.judged_candidates import JudgedCandidates

#: Name of the profile that learning stores. ("learned" is a signal.)
PROFILE = "trained"
_MEASURE = "nDCG@10"
_DEPTH = 100
#: With fewer questions the best of many searches is often the best by chance.
_FEW = 100
#: Normal quantiles of a two-sided test at .05 that finds a difference in four of five cases.
_QUANTILES = 1.96 + 0.84


@dataclass(frozen=True)
class Choice:
    """The search that is best for an index.

    Attributes:
        profile: Signals, their weights, the fusion and reranking.
        ranker: The feature ranker that was tried on the results of these signals, or a record whose `dropped` says why it is not used;
            None: none was tried, because there were too few questions or LightGBM is not installed.
    """

    profile: Profile
    ranker: TrainedCandidate | None = None


def no_feature_ranker(held_out: int) -> str:
    """Return a sentence that says why no feature ranker is tried with this number of held-out questions; "": one is tried."""
    if find_spec("lightgbm") is None:
        return "No feature ranker is tried, because LightGBM is not installed: pip install 'termweave[ltr]'"
    if held_out < judged_candidates.FEWEST:
        return f"No feature ranker is tried: it needs {judged_candidates.FEWEST} held-out questions, and there are {held_out}."
    return ""


def choose(
    index: Index,
    held_out: Dataset,
    progress: Callable[[int, int], None],
    folder: Path,
    former: Profile | None = None,
    name: str | None = None,
) -> Choice:
    """Choose signals, their weights, the fusion and reranking for an index.

    The simple searches (hybrid, and each signal alone, with and without rNN) are compared by their means; from the best of them a
    coordinate search goes on, which moves only for gains that are more than noise. The best search replaces the profile in use (else the
    default search) only where it is better by more than chance. Last, a feature ranker is trained on these questions, which no model has
    learned from, and measured by cross-validation; it is used only where it gains more than chance.

    Args:
        index: The index.
        held_out: The questions.
        progress: Called with (questions done, total).
        folder: Folder of the feature ranker.
        former: The profile in use; None: no profile is in use. Questions are rewritten as it says, and the new profile keeps its rules
            and its rewriting.
        name: Name of the questions in the new profile; None: the name and the split of the data set.
    """
    name = name or f"{held_out.name}:{held_out.split}"
    qrels, queries = held_out.qrels(), held_out.queries()
    rewrite = rewriting_of(former)
    needs: list[Need] = ["vectors"] if "dense" in index.signals else []
    fetcher = CandidateFetcher(index, index.signals, depth=_DEPTH, needs=needs, rewrite=rewrite, qrels=qrels)
    candidates = list(fetcher.candidates(queries, progress))
    trials = TrialRanker(candidates, [qrels[query.id] for query in queries], held_out.relevant_from, _MEASURE)
    search = ParameterSearch(trials, index.signals, lambda *_: None)
    best, usual = search.choice(search.descend_from_best()), search.choice(search.default)
    if former and former.ranker is None and former.weights.keys() <= {*index.signals}:
        usual = mode_of(former), ReciprocalNeighbours(**former.reranking) if former.reranking else None
    mode, reranking = best if _beyond_chance(trials.values(*best), trials.values(*usual)) else usual
    fitted = {"dataset": name, "measure": _MEASURE, "queries": len(queries), "learned": True}
    profile = Profile(PROFILE, mode.weights, mode.fusion, None if reranking is None else asdict(reranking), fitted)
    profile = replace(profile, rules=former.rules, rewrite=former.rewrite) if former else profile
    if no_feature_ranker(len(queries)):
        return Choice(profile)
    before = trials.values(mode, reranking)
    started, settings = time.monotonic(), base.get("ltr").settings({})
    try:
        judged = judged_candidates.gather(index, held_out, mode, settings, progress, rewrite)
        ranker = _feature_ranker(judged, settings, mode, before, folder, {"index": index.name, "dataset": name})
    except (InputError, UsageError) as error:  # the search works without it
        ranker = TrainedCandidate(Candidate("ltr", "ranker", 0.0, 0, {}), 0, 0.0, dropped=error.message)
    ranker = replace(ranker, seconds=time.monotonic() - started)
    if ranker.folder is None:
        return Choice(profile, ranker)
    stored = stored_ranker(FeatureReranker(str(ranker.folder)))
    return Choice(replace(profile, reranking=None, ranker=stored), ranker)


def _beyond_chance(after: NDArray[np.float64], before: NDArray[np.float64]) -> bool:
    """Return whether the figures `after` beat the figures `before` of the same questions by more than noise; few questions: by a randomisation test."""
    if len(after) >= _FEW:
        return beyond_noise(after - before)
    return bool(after.mean() > before.mean()) and randomisation_test(after, before) < ALPHA


def _feature_ranker(
    judged: JudgedCandidates, settings: Any, mode: Mode, before: NDArray[np.float64], folder: Path, about: Mapping[str, str]
) -> TrainedCandidate:
    """Train a feature ranker on the results of a mode, and write its folder if it gains more than noise over the search without it.

    Args:
        judged: The candidates of the questions, with their features.
        settings: The settings of the training.
        mode: Signals and fusion of the search whose results are reranked.
        before: nDCG@10 of each question without a feature ranker.
        folder: The folder to write.
        about: What the folder says of the index and the questions.
    """
    tried = feature_ranker.cross_validate(judged, settings)
    start, dev = float(before.mean()), float(tried.values.mean())
    result = TrainedCandidate(Candidate("ltr", "ranker", 0.0, tried.trees, {}), tried.trees, 0.0, before=start, after=dev)
    if not _beyond_chance(tried.values, before):
        return replace(result, dropped="it gains no more than chance over the search without it")
    trees = feature_ranker.fit(judged, settings, tried.trees)
    feature_ranker.write(folder, trees, judged, mode, about, {"start": start, "dev": dev}, len(tried.steps) - 1)
    return replace(result, folder=folder, best=1)


@dataclass(frozen=True)
class SystemFigure:
    """The figures of one search that an index can do, measured on the test questions.

    Attributes:
        system: Name of the search.
        ndcg: nDCG@10.
        p: p-value of the difference to the live search, with Holm's correction over all systems; 1 for the live search itself.
    """

    system: str
    ndcg: float
    p: float


@dataclass(frozen=True)
class Confirmation:
    """The comparison of the new search with the live one on the test questions, made once.

    Attributes:
        before: nDCG@10 of the live search.
        after: nDCG@10 of the new search.
        p: p-value of the paired randomisation test.
        needed: About how many test questions it would take to confirm a gain of this size; 0: there is no gain.
        system: Name of the new search among the searches of `experiment`.
        experiment: The figures of all searches that were compared; the baseline is the live search.
    """

    before: float
    after: float
    p: float
    needed: int
    system: str
    experiment: Experiment

    @property
    def confirmed(self) -> bool:
        """Return whether the new search is better than the live one by more than chance."""
        return self.after > self.before and self.p < ALPHA

    def table(self) -> tuple[SystemFigure, ...]:
        """Return the figures of all searches that were compared."""
        return tuple(SystemFigure(row.system, row.values[_MEASURE], row.p.get(_MEASURE, 1.0)) for row in self.experiment.rows)


def confirm(index: Index, test: Dataset, live_run: str, progress: Callable[[int, int], None]) -> Confirmation:
    """Compare searches of the trial generation with the saved results of the live search.

    Args:
        index: The trial generation, with its profile adopted.
        test: The test questions.
        live_run: Path of the TREC run of the live search on them.
        progress: Called with (questions done, total).
    """
    experiment = evaluate(index, test, None, progress, _DEPTH, baseline=live_run, is_ours=True)
    new = systems.default_system(index).name
    before, after = (experiment.values[name][_MEASURE] for name in (experiment.baseline, new))
    difference = after - before
    gain, spread = float(difference.mean()), float(difference.std(ddof=1))
    return Confirmation(
        before=float(before.mean()),
        after=float(after.mean()),
        p=randomisation_test(after, before),
        needed=ceil((_QUANTILES * spread / gain) ** 2) if gain > 0 else 0,
        system=new,
        experiment=experiment,
    )
