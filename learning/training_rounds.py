"""Training within a budget, by successive halving: a short run of every candidate, then a long one of the best for each part.

Figures here are those of the held-out questions as training measures them: one signal alone. They decide which models are built into
the trial generation; `learning.choice` measures that one through the server.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from termweave.encoders.manifest import MANIFEST
from termweave.errors import InputError, ModelError, UsageError
from termweave.learning.candidates import TrainedCandidate
from termweave.support import atomic_files
from termweave.training import run
from termweave.training.methods import base
from termweave.training.model_folder import loses_too_much
from termweave.training.plan import plan

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from termweave.learning.candidates import Candidate, Part
    from termweave.learning.preparation import Reports
    from termweave.training.run import TrainingResult

#: Looks at the held-out questions in a run, besides that of step 0.
_LOOKS = 3
#: Files of a run: the steps that the budget allows, and the seconds that it took once it has ended.
_STEPS, _SECONDS = "steps.txt", "seconds.txt"
#: Most steps of a long run, for each step of the short one.
_LONGEST = 8


class TrainingRounds:
    """The trainings of one `termweave learn`. A run that is finished already is not repeated.

    Args:
        data: The training folder.
        home: Folder of the runs.
        minutes: The budget of the whole run.
        seconds: What is left of it for training.
        reports: Where the runs say how far they are.
    """

    def __init__(self, data: Path, home: Path, minutes: float, seconds: float, reports: Reports) -> None:
        self._data, self._home, self._minutes, self._seconds, self._reports = data, home, minutes, seconds, reports
        self.trained: list[TrainedCandidate] = []

    def best(self, candidates: Sequence[Candidate]) -> dict[Part, TrainedCandidate]:
        """Train, and return the best model of each part for which training helped."""
        short = [self._train(each, "short", each.steps, min(self._seconds * each.share, self._left)) for each in candidates]
        parts = list(dict.fromkeys(each.candidate.part for each in short if each.helped))
        for number, part in enumerate(parts):
            ahead = max((each for each in short if each.candidate.part == part and each.helped), key=lambda each: each.after)
            budget = self._left / (len(parts) - number)
            steps = min(_LONGEST * ahead.steps, int(budget / max(0.1, ahead.seconds) * ahead.steps))
            if steps >= 2 * ahead.steps:
                self._train(ahead.candidate, f"long-{self._minutes:g}", steps, budget)
        self._add_finished(candidates)
        helped = [each for each in self.trained if each.helped]
        return {
            part: max((each for each in helped if each.candidate.part == part), key=lambda each: each.after) for part in parts
        }

    def _add_finished(self, candidates: Sequence[Candidate]) -> None:
        """Add the long runs that commands with another budget have finished. They take no time from this one."""
        known = {each.folder.parent for each in self.trained if each.folder}
        for candidate in candidates:
            for finished in sorted(self._home.glob(f"{candidate.method}-long-*/{_SECONDS}")):
                if finished.parent not in known:
                    label = finished.parent.name.removeprefix(f"{candidate.method}-")
                    self._train(candidate, label, candidate.steps, 0.0)

    @property
    def _left(self) -> float:
        return self._seconds - sum(each.seconds for each in self.trained)

    def _train(self, candidate: Candidate, label: str, steps: int, budget: float) -> TrainedCandidate:
        result = self._run(candidate, label, steps, budget)
        self.trained.append(result)
        return result

    def _run(self, candidate: Candidate, label: str, steps: int, budget: float) -> TrainedCandidate:
        """Train one candidate with as many steps as the budget allows."""
        method = base.get(candidate.method)
        folder = self._home / f"{candidate.method}-{label}"
        finished = folder / _SECONDS
        started = time.monotonic()
        try:
            if budget <= 0 and not finished.is_file():
                return TrainedCandidate(candidate, steps, 0.0, dropped="no time is left")
            if not (folder / _STEPS).is_file():
                minutes = plan(method, str(self._data), _settings(candidate, steps), lambda _: None).minutes
                if minutes is not None and minutes * 60 > budget:
                    steps = int(steps * budget / (minutes * 60))
                    if steps < candidate.fewest:
                        return TrainedCandidate(
                            candidate,
                            steps,
                            time.monotonic() - started,
                            dropped=f"{candidate.fewest} steps take more than its share of the time",
                        )
                folder.mkdir(parents=True, exist_ok=True)
                atomic_files.write(folder / _STEPS, str(steps).encode())
            steps = int((folder / _STEPS).read_text(encoding="utf-8"))
            model = folder / "model"
            self._reports.say(f"Training {candidate.method} for {steps} steps")
            result = run.train(
                method,
                str(self._data),
                _settings(candidate, steps),
                model,
                resume=(model / run.RUN).is_file() or (model / MANIFEST).is_file(),
                say=self._reports.say,
                progress=lambda done, total=None, stage="": self._reports.progress(done, total, f"{candidate.method}: {stage}"),
            )
            if not finished.is_file():
                atomic_files.write(finished, str(time.monotonic() - started).encode())
        except (InputError, ModelError, UsageError) as error:
            return TrainedCandidate(candidate, steps, time.monotonic() - started, dropped=error.message)
        return _described(candidate, steps, float(finished.read_text(encoding="utf-8")), result)


def _settings(candidate: Candidate, steps: int) -> Any:
    """All settings of a run of so many steps."""
    return base.get(candidate.method).settings({**candidate.settings, "steps": steps, "every": max(1, steps // _LOOKS)})


def _described(candidate: Candidate, steps: int, seconds: float, result: TrainingResult) -> TrainedCandidate:
    """The result of a run."""
    values, best = result.history["values"], result.history["best"]
    checked = result.ndcg.get(candidate.part, {})
    return TrainedCandidate(
        candidate,
        steps,
        seconds,
        result.folder,
        before=values[0],
        after=values[best],
        best=result.history["steps"][best],
        int8=checked.get("change"),
        precision="fp32" if loses_too_much(result.ndcg) else "int8",
    )
