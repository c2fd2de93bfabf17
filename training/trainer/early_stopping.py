"""The work between the steps: evaluation on the development questions, checkpoints, progress, stopping."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file
from transformers import TrainerCallback

from termweave.support import atomic_files
from termweave.support.messages import duration, paced
from termweave.training.trainer.checkpoints import HISTORY

if TYPE_CHECKING:
    from torch import nn

    from termweave.training.methods.base import Say
    from termweave.training.trainer.trainer import Fit

    #: Called with (done, total, stage).
    ShowProgress = Callable[..., None]

_BEST = "best.safetensors"
#: Seconds between two lines about progress.
_SAY_EVERY = 10.0


@dataclass
class History:
    """The development figures of a fit.

    Attributes:
        steps: Steps at which the development questions were evaluated; 0 is before training.
        values: Mean of the development measure.
        losses: Mean loss of the steps since the previous evaluation.
        best: Index of the best value, the first of equal values.
    """

    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    best: int = 0

    def add(self, step: int, value: float, loss: float) -> bool:
        """Add an evaluation; return whether it is the best so far."""
        self.steps.append(step)
        self.values.append(value)
        self.losses.append(loss)
        if value > self.values[self.best]:
            self.best = len(self.values) - 1
        return self.best == len(self.values) - 1


class DevelopmentCallback(TrainerCallback):
    """Evaluates on the development questions, keeps the best parameters, writes checkpoints, and ends the fit."""

    def __init__(self, model: Fit, measure: Callable[[], float], home: Path, say: Say, progress: ShowProgress) -> None:
        """Prepare for a fit; arguments as in `trainer.fit`."""
        self.model, self.measure, self.settings, self.home = model, measure, model.settings, home
        self.say, self.progress = say, progress
        self.history, self.interrupted = History(), False
        self.losses: list[float] = []
        self.best: dict[str, torch.Tensor] = {}
        self.start = KeptStart(model, self.settings.keep)
        self._last_line = self._begun = 0.0
        self._first = 0

    @property
    def done(self) -> bool:
        """Return whether the fit has ended: all steps were taken, or the development figure has stopped rising."""
        history, settings = self.history, self.settings
        since_best = len(history.values) - 1 - history.best
        return bool(history.steps) and (history.steps[-1] >= settings.steps or since_best >= settings.patience)

    def restore(self, checkpoint: Path) -> None:
        """Read figures and best parameters from a checkpoint."""
        stored = json.loads((checkpoint / HISTORY).read_text(encoding="utf-8"))
        self.losses = stored.pop("since")
        self.history = History(**stored)
        self.best = load_file(checkpoint / _BEST)
        self.start.load(checkpoint)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Evaluate the model before training; a fit that never ranks better keeps the parameters of the start."""
        del args, control
        self._begun = self._last_line = time.monotonic()
        self._first = int(state.global_step)
        if not self.history.steps:
            self._evaluate(0)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Evaluate after a step if an evaluation is due, and stop where the fit has ended or Ctrl-C was pressed."""
        del args
        step, steps = int(state.global_step), self.settings.steps
        self.progress(step, steps, "Training")
        if step % self.settings.every == 0 or step == steps:
            self._evaluate(step)
            control.should_save = True
            control.should_training_stop = self.done
        elif time.monotonic() - self._last_line > _SAY_EVERY:
            self._tell(step, f"loss {self._loss():.4f}")
        if self.interrupted:
            control.should_save = control.should_training_stop = True

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Add best parameters, start and history to the checkpoint. The history is written last, and a checkpoint without it counts as incomplete."""
        del args, control
        folder = self.home / f"checkpoint-{int(state.global_step)}"
        save_file(self.best, folder / _BEST)
        self.start.save(folder)
        stored = {**self.history.__dict__, "since": self.losses}
        atomic_files.write(folder / HISTORY, json.dumps(stored).encode())

    def _evaluate(self, step: int) -> None:
        self.model.eval()
        with self.start.mixed_in():
            better = self.history.add(step, self.measure(), self._loss())
            if better:
                self.best = {name: tensor.detach().cpu().clone() for name, tensor in self.model.state_dict().items()}
        self.model.train()
        self.losses = []
        loss = f"loss {self.history.losses[-1]:.4f}, " if step else ""
        name = self.settings.measure
        self._tell(step, f"{loss}dev {name} {self.history.values[-1]:.4f}{' *' if better and step else ''}")

    def _loss(self) -> float:
        return sum(self.losses) / len(self.losses) if self.losses else 0.0

    def _tell(self, step: int, what: str) -> None:
        now, steps = time.monotonic(), self.settings.steps
        self._last_line = now
        done = step - self._first
        rate = done / (now - self._begun) if done and now > self._begun else 0.0
        left = f", {paced(rate, 'step')}, at most {duration((steps - step) / rate)} left" if rate and step < steps else ""
        self.say(f"step {step} of {steps}: {what}{left}")

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Make a context in which the first Ctrl-C ends the fit with a checkpoint, and the second Ctrl-C ends it at once."""
        if threading.current_thread() is not threading.main_thread():  # only that one may set handlers
            yield
            return

        def stop(*_: object) -> None:
            self.interrupted = True
            self.say("stopping after this step; --resume continues the run (press Ctrl-C again to stop at once)")
            signal.signal(signal.SIGINT, signal.default_int_handler)

        before = signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            if before is not None:  # a handler that is not Python's cannot be set again
                signal.signal(signal.SIGINT, before)


_FILE = "begun.safetensors"


class KeptStart:
    """The start of a module's parameters, which is mixed into them: ``keep * start + (1 - keep) * parameters``.

    Models between the start and the fine-tuned one are nearly as good on both data sets (Wortsman et al. 2022, "Robust fine-tuning of
    zero-shot models").
    """

    def __init__(self, module: nn.Module, keep: float) -> None:
        self._module, self._keep = module, keep
        self._start = {name: each.detach().clone() for name, each in self._parameters().items()} if keep else {}

    def _parameters(self) -> dict[str, torch.Tensor]:
        return {name: each for name, each in self._module.named_parameters() if each.requires_grad}

    @contextmanager
    def mixed_in(self) -> Iterator[None]:
        """Make a context in which the module has the mixed parameters; afterwards the module has its own parameters again."""
        with torch.no_grad():
            current = self._parameters()
            before = {name: current[name].detach().clone() for name in self._start}
            for name, start in self._start.items():
                current[name].lerp_(start.to(current[name]), self._keep)
            try:
                yield
            finally:
                for name, value in before.items():
                    current[name].copy_(value)

    def save(self, folder: Path) -> None:
        """Write the start into a checkpoint's folder: a resumed run may begin with another model."""
        if self._start:
            save_file({name: each.contiguous().cpu() for name, each in self._start.items()}, folder / _FILE)

    def load(self, folder: Path) -> None:
        """Read what `save` wrote."""
        if self._start:
            self._start = load_file(folder / _FILE)
