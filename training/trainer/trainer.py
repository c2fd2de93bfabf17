"""The trainer: fits the parameters of a model to data, once or several times, as the method asks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from termweave.training.trainer import loop
from termweave.training.trainer.fit import Fit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from termweave.training.methods.base import Method
    from termweave.training.trainer.early_stopping import History, ShowProgress


@dataclass
class Trainer:
    """Trains one model.

    Attributes:
        method: Whose loss is minimised.
        model: What is trained and saved.
        inputs: What batches are drawn from, of each data set.
        settings: The parameters of the method.
        measure: The development figure of the model as it is; the best step is stored, and a fit ends where it stops rising.
        home: Folder for checkpoints.
        say: Called with lines about the run.
        progress: Called with ``(done, total, stage)``.
        history: The development figures of the last fit.
    """

    method: Method
    model: Any
    inputs: Sequence[Any]
    settings: Any
    measure: Callable[[], float]
    home: Path
    say: Callable[[str], None]
    progress: ShowProgress
    history: History = field(init=False)

    def fit(self, name: str = "", inputs: Sequence[Any] | None = None, **changed: Any) -> None:
        """Minimise the loss, and leave the parameters of the best step in the model.

        A fit that was stopped is resumed, and one that ended takes no step: its parameters are read from its checkpoints.

        Args:
            name: Folder of the fit's checkpoints in the run's folder; "" if the run has one fit only.
            inputs: What batches are drawn from; None: the trainer's inputs.
            **changed: Parameters that have another value in this fit.
        """
        fit = Fit(self.method, self.model, self.inputs if inputs is None else inputs, replace(self.settings, **changed))
        self.history = loop.fit(fit, self.measure, self.home / name, say=self.say, progress=self.progress)
