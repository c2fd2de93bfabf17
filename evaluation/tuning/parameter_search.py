"""Search for the best fusion and reranking parameters on the fitted queries.

`SPACE` declares what is tried. The coordinate search is deterministic. It starts once from the default (what `search` does
without a profile) and once from the default with rNN reranking. One parameter at a time takes its best value, and rounds repeat
until no value changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from termweave.rerank.rnn import ReciprocalNeighbours
from termweave.signals import fusion, modes
from termweave.signals.modes import Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from termweave.evaluation.tuning.trial_ranker import TrialRanker

#: Most rounds of the coordinate search; three were enough on every data set tried.
_ROUNDS = 5
#: A value replaces another if its gain is at least this many standard errors of the paired difference. Smaller gains are noise
#: of the fitted half that the other half does not confirm. Of 1, 1.5 and 2 this was the best on held-out halves.
WORTH = 1.5

Choice = tuple[Mode, ReciprocalNeighbours | None]


@dataclass(frozen=True, slots=True)
class TuningParameter:
    """A parameter that tuning chooses.

    Attributes:
        name: Its name in a profile.
        values: The values to try.
    """

    name: str
    values: tuple[Any, ...]


#: Parameters of rNN reranking, named as in `ReciprocalNeighbours`.
_NEIGHBOURS = (
    TuningParameter("candidates", (20, 30, 40, 60, 80, 100)),
    TuningParameter("k", (4, 6, 8, 10, 12, 15, 20, 25)),
    TuningParameter("k_exp", (1, 2, 3, 4, 5, 7)),
    TuningParameter("tau", (0.0, 0.25, 0.5, 0.67)),
    TuningParameter("weight", (0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)),
)
#: `dense` is the share of vectors in the fusion, `lexical` that of BM25 within the word signals, beside the learned weights.
SPACE = (
    TuningParameter("fusion", tuple(fusion.METHODS)),
    TuningParameter("dense", tuple(round(step / 20, 2) for step in range(21))),
    TuningParameter("lexical", (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)),
    TuningParameter("rerank", (False, True)),
    *_NEIGHBOURS,
)


class ParameterSearch:
    """Trials on the fitted queries; a trial that was made before is not repeated.

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
        self.default |= {each.name: getattr(plain, each.name) for each in _NEIGHBOURS}
        usable = {
            "fusion": True,
            "dense": dense and self._word_signal,
            "lexical": self._word_signal == "weights" and "lexical" in signals,
        }
        self._space = [each for each in SPACE if usable.get(each.name, dense)]

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
        reranking = ReciprocalNeighbours(**{each.name: point[each.name] for each in _NEIGHBOURS}) if point["rerank"] else None
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
        if any(each.name == "rerank" for each in self._space):
            starts.append({**self.default, "rerank": True})
        return max(map(self._descend_from, starts), key=lambda point: float(self.values(point).mean()))

    def descend_from_best(self) -> dict[str, Any]:
        """Run the coordinate search from the best of the simple searches: hybrid, and its signals alone, each with and without rNN.

        The simple searches are compared by their means alone: they are few, and a model that was trained on such questions can make one
        signal better than any fusion.
        """
        names = {each.name for each in self._space}
        shares = (self.default["dense"], 1.0, 0.0) if self._word_signal and "dense" in names else (self.default["dense"],)
        reranked = (False, True) if "rerank" in names else (False,)
        starts = [{**self.default, "dense": share, "rerank": rerank} for share in shares for rerank in reranked]
        return self._descend_from(max(starts, key=lambda point: float(self.values(point).mean())))

    def _descend_from(self, start: Mapping[str, Any]) -> dict[str, Any]:
        fixed = {"rerank"} if start["rerank"] else {"rerank", *(each.name for each in _NEIGHBOURS)}
        space = [each for each in self._space if each.name not in fixed]
        best = dict(start)
        for _ in range(_ROUNDS):
            previous = dict(best)
            for parameter in space:
                current = best
                for value in parameter.values:
                    point = {**current, parameter.name: value}
                    if self._is_better(point, best):
                        best = point
            if best == previous:
                break
        return best

    def _is_better(self, point: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        """Whether a point beats another one by more than noise."""
        difference = self.values(point) - self.values(other)
        error = float(difference.std()) / len(difference) ** 0.5
        return bool(difference.mean() > WORTH * error)
