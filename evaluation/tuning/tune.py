"""Tuning: fusion and reranking fitted on one half of the queries, proved on the other.

What is tried is data (`SPACE`). The search is deterministic: from the default, which is what `search` does without a profile,
and from the default with neighbours, one parameter at a time takes its best value, round after round until none changes.
With optuna (extra ``tune``) a seeded sampler goes on from there.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from termweave import doors
from termweave.errors import InputError, UsageError
from termweave.evaluation import judgements, systems
from termweave.evaluation.asking import Asked
from termweave.evaluation.gates import interval
from termweave.evaluation.significance import randomisation_test
from termweave.evaluation.trials import Bench
from termweave.evaluation.wording import label
from termweave.search import fusion, modes
from termweave.search.modes import Mode
from termweave.search.profiles import Profile, find
from termweave.search.ranking import Reranking
from termweave.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from termweave.corpora import Dataset
    from termweave.records import Qrels, Query
    from termweave.search import Index

#: Below this many queries a half, any difference is noise.
FEWEST = 10
#: Rounds of the coordinate search at most; three were enough on every set tried.
_ROUNDS = 5
#: A value takes the place of another when it gains at least this many standard errors of the paired difference:
#: what is less is noise of the fitted half, and would be lost on the other. Of 1, 1.5 and 2 the best on halves held out.
_WORTH = 1.5

Choice = tuple[Mode, Reranking | None]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One thing that is tuned.

    Attributes:
        name: As it stands in a profile.
        says: One sentence.
        values: What is tried.
    """

    name: str
    says: str
    values: tuple[Any, ...]


#: Of the reranking, by the names of `Reranking`.
_NEIGHBOURS = (
    Parameter("candidates", "N: how many are reranked.", (20, 30, 40, 60, 80, 100)),
    Parameter("k", "Neighbours besides the element itself.", (4, 6, 8, 10, 12, 15, 20, 25)),
    Parameter("k_exp", "Entries averaged in the expansion.", (1, 2, 3, 4, 5, 7)),
    Parameter("tau", "Expansion of the neighbour sets.", (0.0, 0.25, 0.5, 0.67)),
    Parameter("weight", "lambda: share of the first stage.", (0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)),
)
SPACE = (
    Parameter("fusion", "How scores of several signals are joined.", tuple(fusion.METHODS)),
    Parameter("dense", "Share of the dense signal in the fusion.", tuple(round(step / 20, 2) for step in range(21))),
    Parameter("lexical", "Share of BM25 beside the learned weights.", (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)),
    Parameter("rerank", "Whether neighbours rerank.", (False, True)),
    *_NEIGHBOURS,
)


@dataclass(frozen=True)
class Report:
    """What tuning found.

    Attributes:
        dataset: Name and split.
        measure: What it went by.
        fitted: Queries of the fitted half.
        held_out: Queries of the other half; every figure below is theirs.
        trials: Rankings of all fitted queries that were looked at.
        profile: The best found.
        figures: System -> mean: every signal alone, "default" (what `search` does without a profile), "hybrid+rNN" (the
            default reranked with the default parameters), "in force" (the profile that searches use now) and "tuned".
        in_force: Name of the profile that searches use now; "": none.
        gain: Mean difference tuned - default.
        low: Lower end of its 95 % interval.
        high: Upper end.
        p: Of the paired randomisation test.
        notes: What a reader of the figures should know.
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
        """Whether the profile beats the default on the held-out half, and is no worse there than the one in force."""
        return self.gain > 0 and self.figures["tuned"] >= self.figures.get("in force", 0.0)


def tune(
    index: Index,
    dataset: Dataset,
    *,
    name: str = "tuned",
    measure: str = "nDCG@10",
    seed: int = 0,
    trials: int = 0,
    depth: int = 100,
    progress: Callable[[str, int, int | None], None] = lambda *_: None,
) -> Report:
    """Fit a profile on one half of the queries and measure it on the other.

    Args:
        index: To be tuned.
        dataset: Queries and judgements on its documents.
        name: Of the profile.
        measure: "nDCG@10" or "MRR@10".
        seed: Which half is which, and optuna's.
        trials: Further trials by optuna; 0: the deterministic search alone.
        depth: Candidates a signal.
        progress: Called with (stage, done, all).

    Raises:
        InputError: Too few judged queries, or none of the judged documents is in the index.
        UsageError: An index with nothing to fuse or to rerank by, or optuna asked for and not installed.
    """
    doors.check(index=index, dataset=dataset)
    _check(index)
    judged = dataset.qrels()
    queries = _judged(dataset, judged)
    random.Random(seed).shuffle(queries)  # noqa: S311 - which half is which
    lost = judgements.lacking(index, dataset.name, judged)
    asked = Asked(index, index.signals, depth=depth, with_vectors="dense" in index.signals)
    found = list(asked.candidates([query.text for query in queries], lambda done, all_: progress("searching", done, all_)))
    half = len(queries) // 2
    grades = [judged[query.id] for query in queries]
    fit, proof = (Bench(found[part], grades[part], dataset.relevant_from, measure) for part in (slice(half), slice(half, None)))
    search = _Search(fit, index.signals, progress)
    best = search.descend()
    if trials:
        best = search.sample(best, trials, seed)
    mode, reranking = search.choice(best)
    tuned = proof.values(mode, reranking)
    untuned = _untuned(proof, index.signals)
    default = untuned["default"]
    remarks = _remarks({each: values for each, values in untuned.items() if each != "default"}, default, tuned)
    now = find(index.lineage, None)
    in_force = {"in force": proof.values(now.mode, now.rerank)} if now else {}
    figures = {each: float(values.mean()) for each, values in {**untuned, **in_force, "tuned": tuned}.items()}
    low, high = interval(tuned - default)
    source = f"{dataset.name}:{dataset.split}"
    fitted = {"dataset": source, "measure": measure, "queries": half, "held_out": figures}
    return Report(
        dataset=source,
        measure=measure,
        fitted=half,
        held_out=len(queries) - half,
        trials=search.looked,
        profile=Profile(name, mode.weights, mode.fusion, None if reranking is None else asdict(reranking), fitted),
        in_force=now.name if now else "",
        figures=figures,
        gain=float((tuned - default).mean()),
        low=low,
        high=high,
        p=randomisation_test(tuned, default),
        notes=(*lost, *asked.notes(), *remarks),
    )


def _check(index: Index) -> None:
    """Refuse an index with nothing to tune."""
    if "dense" not in index.signals and not {"lexical", "weights"} <= set(index.signals):
        raise UsageError(
            f"The index {index.name!r} has {' and '.join(map(label, index.signals))} alone: there is nothing to fuse, and there "
            "are no vectors to rerank by.",
            "Index with a dense model to tune it.",
        )


def _judged(dataset: Dataset, judged: Qrels) -> list[Query]:
    """The queries with a relevant document; too few are refused."""
    queries = [query for query in dataset.queries() if any(grade > 0 for grade in judged.get(query.id, {}).values())]
    if len(queries) < 2 * FEWEST:
        raise InputError(
            f"{dataset.name} has {counted(len(queries), 'query', 'queries')} with a relevant document in the split {dataset.split!r}; "
            f"{2 * FEWEST} are the least to tune on.{judgements.left_out(dataset)}",
            f"Judge more of them{judgements.other_splits(dataset)}.",
        )
    return queries


def _untuned(bench: Bench, signals: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """What needs no tuning, system -> the measure of every query: each signal alone, the default, the default reranked."""
    found = {signal: bench.values(modes.parse(signal, signals), None) for signal in signals}
    hybrid = modes.parse("hybrid", signals)
    found["default"] = bench.values(hybrid, None)
    if "dense" in signals:
        found[systems.default_search(signals, Reranking()).name] = bench.values(hybrid, Reranking())
    return found


def _remarks(
    untuned: Mapping[str, NDArray[np.float64]], default: NDArray[np.float64], tuned: NDArray[np.float64]
) -> Iterator[str]:
    """What the means alone do not say: a gain that may be none, a signal alone or the neighbours untuned that are better."""
    gained = bool((tuned - default).mean() > 0)
    low, high = interval(tuned - default)
    if gained and low <= 0:
        yield (
            f"The gain may be chance: its 95 % interval, {low:+.4f} to {high:+.4f}, holds 0; more judged queries would narrow it."
        )
    best = max(untuned, key=lambda name: float(untuned[name].mean()))
    used, name = (tuned, "the tuned profile") if gained else (default, "the default")
    better, worse = f"{untuned[best].mean():.4f}", f"{used.mean():.4f}"
    if float(better) > float(worse):  # as they are shown
        low, high = interval(untuned[best] - used)
        mode, _, neighbours = best.partition("+")
        which, how = (f"{mode} with untuned neighbours", " --rerank rnn") if neighbours else (f"{label(mode)} alone", "")
        yield (
            f"{which} is better than {name}, {better} against {worse} "
            f"(95 % of the difference between {low:+.4f} and {high:+.4f}): search with --mode {mode}{how}."
        )


class _Search:
    """Trials on the fitted half, each looked at once."""

    def __init__(self, bench: Bench, signals: Sequence[str], progress: Callable[[str, int, int | None], None]) -> None:
        self._bench = bench
        self._progress = progress
        self._seen: dict[tuple[Any, ...], NDArray[np.float64]] = {}
        dense = "dense" in signals
        self._wordy = next((name for name in modes.hybrid(signals) if name != "dense"), None)
        plain = Reranking()
        share = 0.5 if dense and self._wordy else float(dense)
        self.default: dict[str, Any] = {"fusion": fusion.DEFAULT, "dense": share, "lexical": 0.0, "rerank": False}
        self.default |= {each.name: getattr(plain, each.name) for each in _NEIGHBOURS}
        there = {"fusion": True, "dense": dense and self._wordy, "lexical": self._wordy == "weights" and "lexical" in signals}
        self._space = [each for each in SPACE if there.get(each.name, dense)]

    @property
    def looked(self) -> int:
        """Trials so far."""
        return len(self._seen)

    def choice(self, point: Mapping[str, Any]) -> Choice:
        """What a point of the space means for a search."""
        words = 1.0 - point["dense"]
        shares = {"dense": point["dense"], "lexical": words * point["lexical"]}
        if self._wordy is not None:
            shares[self._wordy] = shares.get(self._wordy, 0.0) + words * (1.0 - point["lexical"])
        weights = {name: share for name, share in sorted(shares.items()) if share > 0}
        reranking = Reranking(**{each.name: point[each.name] for each in _NEIGHBOURS}) if point["rerank"] else None
        return Mode("tuned", weights, point["fusion"]), reranking

    def values(self, point: Mapping[str, Any]) -> NDArray[np.float64]:
        """The measure of every fitted query."""
        mode, reranking = self.choice(point)
        key = (tuple(mode.weights.items()), mode.fusion, reranking)
        if key not in self._seen:
            self._seen[key] = self._bench.values(mode, reranking)
            self._progress("trying", self.looked, None)
        return self._seen[key]

    def descend(self) -> dict[str, Any]:
        """Coordinate search from the default, and from the default with neighbours; the better end.

        With the default parameters neighbours may lose where with others they gain, so from the default alone they would
        not be found. The better end is taken, however little better: each step to either was worth it by itself, and a
        profile that follows the more timid of two good starts loses to `--rerank rnn` without any tuning.
        """
        starts = [self.default]
        if any(each.name == "rerank" for each in self._space):
            starts.append({**self.default, "rerank": True})
        return max(map(self._descended, starts), key=lambda point: float(self.values(point).mean()))

    def _descended(self, start: Mapping[str, Any]) -> dict[str, Any]:
        fixed = {"rerank"} if start["rerank"] else {"rerank", *(each.name for each in _NEIGHBOURS)}
        space = [each for each in self._space if each.name not in fixed]
        best = dict(start)
        for _ in range(_ROUNDS):
            before = dict(best)
            for parameter in space:
                here = best
                for value in parameter.values:
                    point = {**here, parameter.name: value}
                    if self._gains(point, best):
                        best = point
            if best == before:
                break
        return best

    def sample(self, start: dict[str, Any], trials: int, seed: int) -> dict[str, Any]:
        """Go on with optuna's sampler."""
        try:
            import optuna  # noqa: PLC0415 - an extra
        except ImportError:
            raise UsageError(
                "--trials needs optuna, which is not installed.",
                "Install it: pip install 'termweave[tune]'; or leave --trials out.",
            ) from None
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
        study.enqueue_trial({each.name: start[each.name] for each in self._space})

        def objective(trial: Any) -> float:
            point = {**self.default, **{each.name: trial.suggest_categorical(each.name, each.values) for each in self._space}}
            return float(self.values(point).mean())

        study.optimize(objective, n_trials=trials)
        found = {**self.default, **study.best_params}
        return found if self._gains(found, start) else start

    def _gains(self, point: Mapping[str, Any], over: Mapping[str, Any]) -> bool:
        difference = self.values(point) - self.values(over)
        error = float(difference.std()) / len(difference) ** 0.5
        return bool(difference.mean() > _WORTH * error)
