"""Choose how the trial generation is searched, on the held-out questions, and confirm the choice on the test questions."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, cast

from termweave.evaluation import evaluate, systems
from termweave.evaluation.candidate_fetcher import CandidateFetcher
from termweave.evaluation.significance import randomisation_test
from termweave.evaluation.tuning import ranker_search
from termweave.evaluation.tuning.parameter_search import ParameterSearch
from termweave.evaluation.tuning.ranker_search import RankedQueries, recorded_logits, stored_ranker
from termweave.evaluation.tuning.trial_ranker import TrialRanker
from termweave.search.catalog.profiles import Profile
from termweave.search.ranking.ranker import CrossEncoderReranker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from termweave.corpora import Dataset
    from termweave.encoders import Ranker
    from termweave.evaluation import Experiment
    from termweave.search import Index
    from termweave.search.ranking.rerankers import Need

#: Name of the profile that learning stores. ("learned" is a signal.)
PROFILE = "trained"
_MEASURE = "nDCG@10"
_DEPTH = 100
#: Held-out questions that the ranker is tried on: it reads up to a hundred documents of each.
_RERANKED = 100
#: Chance below which a gain counts.
SIGNIFICANT = 0.05
#: Normal quantiles of a two-sided test at .05 that finds a difference in four of five cases.
_QUANTILES = 1.96 + 0.84


def choose(index: Index, held_out: Dataset, progress: Callable[[int, int], None], ranker: Path | None = None) -> Profile:
    """Choose signals, their weights, the fusion and reranking for an index.

    The simple searches (hybrid, and each signal alone, with and without rNN) are compared by their means; from the best of them a
    coordinate search goes on, which moves only for gains that are more than noise. So does the ranker, which comes last.

    Args:
        index: The index.
        held_out: The questions.
        progress: Called with (questions done, total).
        ranker: Folder of a trained ranker; None: there is none.

    Returns:
        The profile.
    """
    qrels, queries = held_out.qrels(), held_out.queries()
    needs: list[Need] = ["vectors"] if "dense" in index.signals else []
    fetcher = CandidateFetcher(index, index.signals, depth=_DEPTH, needs=[*needs, "texts"] if ranker else needs)
    candidates = list(fetcher.candidates([query.text for query in queries], progress))
    grades = [qrels[query.id] for query in queries]
    search = ParameterSearch(TrialRanker(candidates, grades, held_out.relevant_from, _MEASURE), index.signals, lambda *_: None)
    mode, reranking = search.choice(search.descend_from_best())
    stored = None
    if ranker is not None:
        reranker = CrossEncoderReranker(str(ranker))
        recorded = recorded_logits(reranker)
        reranker = replace(reranker, scorer=cast("Ranker", recorded))
        read = RankedQueries(candidates[:_RERANKED], grades[:_RERANKED], held_out.relevant_from, _MEASURE)
        first = [] if reranking is None else [reranking]
        report = lambda _, done, total: progress(done, total or 0)  # noqa: E731 - a trial of the ranker is a step like others
        stored = stored_ranker(ranker_search.choose(read, mode, first, reranker, recorded, report), recorded)
    fitted = {"dataset": f"{held_out.name}:{held_out.split}", "measure": _MEASURE, "queries": len(queries)}
    return Profile(PROFILE, mode.weights, mode.fusion, None if reranking is None else asdict(reranking), fitted, stored)


@dataclass(frozen=True)
class SystemFigure:
    """A search that an index can do, on the test questions.

    Attributes:
        system: Its name.
        ndcg: nDCG@10.
        p: p-value of the difference to the live search, with Holm's correction over all systems; 1 for the live search itself.
    """

    system: str
    ndcg: float
    p: float


@dataclass(frozen=True)
class Confirmation:
    """The one comparison on the test questions.

    Attributes:
        before: nDCG@10 of the live search.
        after: nDCG@10 of the new one.
        p: p-value of the paired randomisation test.
        questions: Number of test questions.
        needed: About how many judged questions it would take to confirm a gain of this size; 0 where there is none.
        system: Name of the new search in the table.
        experiment: The whole table, its baseline the live search.
    """

    before: float
    after: float
    p: float
    questions: int
    needed: int
    system: str
    experiment: Experiment

    @property
    def confirmed(self) -> bool:
        """Whether the new search is better, and not by chance."""
        return self.after > self.before and self.p < SIGNIFICANT

    def table(self) -> tuple[SystemFigure, ...]:
        """All searches of the table."""
        return tuple(SystemFigure(row.system, row.values[_MEASURE], row.p.get(_MEASURE, 1.0)) for row in self.experiment.rows)


def confirm(index: Index, test: Dataset, live_run: str, progress: Callable[[int, int], None]) -> Confirmation:
    """Compare the trial generation, as it would be searched, with the saved run of the live search.

    Args:
        index: The trial generation, its profile adopted.
        test: The test questions.
        live_run: Path of the TREC run of the live search on them.
        progress: Called with (questions done, total).
    """
    experiment = evaluate(index, test, None, progress, _DEPTH, baseline=live_run)
    new = systems.default_system(index).name
    before, after = (experiment.values[name][_MEASURE] for name in (experiment.baseline, new))
    difference = after - before
    gain, spread = float(difference.mean()), float(difference.std(ddof=1))
    return Confirmation(
        before=float(before.mean()),
        after=float(after.mean()),
        p=randomisation_test(after, before),
        questions=len(before),
        needed=ceil((_QUANTILES * spread / gain) ** 2) if gain > 0 else 0,
        system=new,
        experiment=experiment,
    )
