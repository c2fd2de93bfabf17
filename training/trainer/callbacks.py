"""The training loop: transformers' Trainer, stopped by real retrieval, stoppable by hand, resumable to the same model.

Every `every` steps the development questions are searched and a checkpoint is written: parameters, optimiser, schedule, random
numbers (Trainer's files), and beside them the best parameters so far and the figures. A batch depends on seed and step
alone, so that a run resumed from any checkpoint ends with the model that it would have ended with.
"""

from __future__ import annotations

import json
import logging
import signal
import threading
import time
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments
from transformers.utils import logging as chatter

from termweave import atomic
from termweave.errors import InputError
from termweave.training.averaging import Average
from termweave.training.checkpoints import HISTORY, latest
from termweave.words import paced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from termweave.training.lessons import Lesson

    #: Called with (done, total, stage).
    Progress = Callable[..., None]

_BEST = "best.safetensors"
_SAY_EVERY = 10.0


@dataclass
class History:
    """What the development questions said.

    Attributes:
        steps: When they were asked; 0 is before training.
        values: Mean nDCG@10.
        losses: Mean loss since the look before.
        best: Index of the best value, the first of equals.
    """

    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    best: int = 0

    def add(self, step: int, value: float, loss: float) -> bool:
        """Whether it is the best so far."""
        self.steps.append(step)
        self.values.append(value)
        self.losses.append(loss)
        if value > self.values[self.best]:
            self.best = len(self.values) - 1
        return self.best == len(self.values) - 1

    @property
    def since_best(self) -> int:
        """Looks without a better figure."""
        return len(self.values) - 1 - self.best


def fit(
    lesson: Lesson,
    judge: Callable[[], float],
    settings: Mapping[str, Any],
    home: Path,
    *,
    say: Callable[[str], None] = lambda _: None,
    progress: Progress = lambda *_, **__: None,
) -> History:
    """Train until the steps are done or the development figure stops rising; leaves the best parameters in `lesson`.

    Args:
        lesson: What is trained.
        judge: The development figure of the parameters as they are.
        settings: Of the method.
        home: For checkpoints; a run found there is gone on with.
        say: Told about progress, line by line.
        progress: Likewise, for a bar.

    Returns:
        The figures of every look.

    Raises:
        KeyboardInterrupt: Ctrl-C; a checkpoint was written first.
        InputError: The loss became NaN.
    """
    _hush()
    torch.manual_seed(int(settings["seed"]))
    home.mkdir(parents=True, exist_ok=True)
    watch = _Watch(lesson, judge, settings, home, say, progress)
    if (last := latest(home)) is not None:
        watch.restore(last)
        say(f"going on from step {int(last.name.rpartition('-')[2]):,}")
    optimiser, schedule = _optimiser(lesson, settings)
    arguments = TrainingArguments(
        output_dir=str(home),
        max_steps=int(settings["steps"]),
        per_device_train_batch_size=1,
        max_grad_norm=0.0,
        save_strategy="no",  # `_Watch` says when
        save_total_limit=2,
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        seed=int(settings["seed"]),
    )
    # Of several GPUs one: a batch is drawn whole, and DataParallel would compute it on each and take as many steps at once.
    arguments._n_gpu = min(arguments.n_gpu, 1)  # noqa: SLF001 - as Trainer itself does for models that are spread
    trainer = _Steps(
        model=lesson,
        args=arguments,
        train_dataset=_Numbers(int(settings["steps"])),
        data_collator=lambda items: {"step": torch.tensor(items)},
        optimizers=(optimiser, schedule),
        callbacks=[watch],
    )
    trainer.remove_callback(PrinterCallback)  # it prints to stdout
    with warnings.catch_warnings(), watch.interruptible():
        warnings.simplefilter("ignore")
        if not watch.done:
            trainer.train(resume_from_checkpoint=str(last) if last else None)
    if watch.interrupted:
        raise KeyboardInterrupt
    lesson.load_state_dict(watch.best)
    lesson.eval()
    return watch.history


class _Numbers(torch.utils.data.Dataset):  # type: ignore[type-arg, unused-ignore]
    """The steps; what a step looks at is drawn by the lesson."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, step: int) -> int:
        return step


class _Steps(Trainer):
    """A Trainer that takes the steps in their order."""

    def _get_train_sampler(self, *_: Any, **__: Any) -> Any:
        return torch.utils.data.SequentialSampler(self.train_dataset)

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:  # noqa: FBT001, FBT002 - Trainer's
        lesson = self.accelerator.unwrap_model(model)
        found = model(lesson.draw(int(inputs["step"][0])))
        if not bool(torch.isfinite(found["loss"])):
            raise InputError(
                f"The loss became {float(found['loss'].detach())} at step {int(inputs['step'][0])}.",
                "Lower the rates: --set rate=1e-4.",
            )
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, _Watch):
                callback.losses.append(float(found["loss"].detach()))
        return (found["loss"], found) if return_outputs else found["loss"]


class _Watch(TrainerCallback):
    """Looks at the development questions, keeps the best, writes checkpoints, stops."""

    def __init__(
        self,
        lesson: Lesson,
        judge: Callable[[], float],
        settings: Mapping[str, Any],
        home: Path,
        say: Callable[[str], None],
        progress: Progress,
    ) -> None:
        self.lesson, self.judge, self.settings, self.home = lesson, judge, settings, home
        self.say, self.progress = say, progress
        self.history, self.interrupted = History(), False
        self.losses: list[float] = []
        self.best: dict[str, torch.Tensor] = {}
        self.average = Average(lesson, float(settings["ema"]), float(settings["keep"]))
        self._said = self._begun = 0.0
        self._first = 0

    @property
    def done(self) -> bool:
        """Whether the run that was restored had ended."""
        return bool(self.history.steps) and (
            self.history.steps[-1] >= self.settings["steps"] or self.history.since_best >= self.settings["patience"]
        )

    def restore(self, checkpoint: Path) -> None:
        """Take up what a checkpoint knows."""
        from safetensors.torch import load_file  # noqa: PLC0415

        kept = json.loads((checkpoint / HISTORY).read_text(encoding="utf-8"))
        self.losses = kept.pop("since")
        self.history = History(**kept)
        self.best = load_file(checkpoint / _BEST)
        self.average.load(checkpoint)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The figure before training: nothing worse will be kept."""
        del args, control
        self._begun = self._said = time.monotonic()
        self._first = int(state.global_step)
        if not self.history.steps:
            self._look(0)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """After every step."""
        del args
        step, steps = int(state.global_step), int(self.settings["steps"])
        self.progress(step, steps, "Training")
        self.average.update(step)
        if step % int(self.settings["every"]) == 0 or step == steps:
            self._look(step)
            control.should_save = True
            control.should_training_stop = self.done
        elif time.monotonic() - self._said > _SAY_EVERY:
            self._tell(step, f"loss {self._loss():.4f}")
        if self.interrupted:
            control.should_save = control.should_training_stop = True

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Beside what Trainer wrote; the history comes last, and without it a checkpoint does not count."""
        from safetensors.torch import save_file  # noqa: PLC0415

        del args, control
        folder = self.home / f"checkpoint-{int(state.global_step)}"
        save_file(self.best, folder / _BEST)
        self.average.save(folder)
        kept = {**self.history.__dict__, "since": self.losses}
        atomic.write(folder / HISTORY, json.dumps(kept).encode())

    def _look(self, step: int) -> None:
        self.lesson.eval()
        with self.average.applied():
            better = self.history.add(step, self.judge(), self._loss())
            if better:
                self.best = {name: tensor.detach().cpu().clone() for name, tensor in self.lesson.state_dict().items()}
        self.lesson.train()
        self.losses = []
        loss = f"loss {self.history.losses[-1]:.4f}, " if step else ""
        self._tell(step, f"{loss}dev nDCG@10 {self.history.values[-1]:.4f}{' *' if better and step else ''}")

    def _loss(self) -> float:
        return sum(self.losses) / len(self.losses) if self.losses else 0.0

    def _tell(self, step: int, what: str) -> None:
        now, steps = time.monotonic(), int(self.settings["steps"])
        self._said = now
        done = step - self._first
        rate = done / (now - self._begun) if done and now > self._begun else 0.0
        left = f", {paced(rate, 'step')}, at most {(steps - step) / rate:.0f} s left" if rate and step < steps else ""
        self.say(f"step {step} of {steps}: {what}{left}")

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """The first Ctrl-C ends with a checkpoint, the second at once."""
        if threading.current_thread() is not threading.main_thread():  # only that one may set handlers
            yield
            return

        def stop(*_: object) -> None:
            self.interrupted = True
            self.say("stopping after this step; --resume goes on (Ctrl-C again stops at once)")
            signal.signal(signal.SIGINT, signal.default_int_handler)

        before = signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            if before is not None:  # a handler that is not Python's cannot be set again
                signal.signal(signal.SIGINT, before)


def _optimiser(lesson: Lesson, settings: Mapping[str, Any]) -> tuple[Any, Any]:
    """AdamW under a one-cycle schedule; the backbone's layers at a rate of their own, scalars without decay."""
    groups: dict[tuple[float, float], list[Any]] = {}
    for name, parameter in lesson.named_parameters():
        if parameter.requires_grad:
            rate = settings["layers_rate"] if name.startswith("backbone.") else settings["rate"]
            decay = settings["weight_decay"] if parameter.ndim else 0.0
            groups.setdefault((float(rate), float(decay)), []).append(parameter)
    optimiser = torch.optim.AdamW([{"params": held, "lr": rate, "weight_decay": decay} for (rate, decay), held in groups.items()])
    steps = max(2, int(settings["steps"]))
    return optimiser, torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=[rate for rate, _ in groups], total_steps=steps + 1)


def _hush() -> None:
    chatter.set_verbosity_error()
    for name in ("transformers", "accelerate", "torch.distributed"):
        logging.getLogger(name).setLevel(logging.ERROR)
