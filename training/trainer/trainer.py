"""The trainer: fits the parameters of a model to data, once or several times, as the method asks.

A fit is the loop of transformers' Trainer with early stopping by retrieval. Every `every` steps the development questions are searched and a
checkpoint is written: parameters, optimiser, schedule and random numbers (Trainer's files), and beside them the best parameters so far and the
figures. A batch depends on the seed and its number alone, so that a run resumed from any checkpoint ends with the same model.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import PrinterCallback, TrainingArguments
from transformers import Trainer as LibraryTrainer
from transformers.utils import logging as transformers_logging

from termweave.errors import InputError
from termweave.training.data.sampler import Batch, BatchSampler, TrainingInputs
from termweave.training.trainer.checkpoints import latest
from termweave.training.trainer.early_stopping import DevelopmentCallback, History
from termweave.training.trainer.passes import CpuDropout

if TYPE_CHECKING:
    from termweave.training.methods.base import Method, Say
    from termweave.training.methods.parameters import TrainingParameters
    from termweave.training.trainer.early_stopping import ShowProgress


class Fit(nn.Module):
    """The trained parameters of a model, parameters that only training needs, and the method's loss.

    Attributes:
        method: The training method, whose `loss` is minimised.
        model: The whole model; it is not a submodule, because a frozen backbone belongs in no checkpoint.
        inputs: Training inputs of each data set, from which batches are drawn.
        settings: Settings of the method, as they hold for this fit.
    """

    def __init__(self, method: Method, model: Any, inputs: Sequence[TrainingInputs], settings: Any) -> None:
        """Register the parts by their names."""
        super().__init__()
        self.method, self.inputs, self.settings = method, list(inputs), settings
        object.__setattr__(self, "model", model)  # hidden from torch
        trained = dict(method.trained(model, settings))
        first = {"backbone": trained.pop("backbone")} if "backbone" in trained else {}
        # A checkpoint stores the optimiser's state by position, in this order.
        for name, part in {**first, **method.extras(model, settings), **trained}.items():
            setattr(self, name, part)

    @property
    def device(self) -> torch.device:
        """Return the device of the trained parameters."""
        return next(self.parameters()).device

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the loss of a batch under "loss", and the parts of the loss, detached, under their names."""
        parts = self.method.loss(self, batch)
        return {"loss": torch.stack(list(parts.values())).sum(), **{name: part.detach() for name, part in parts.items()}}

    def batches(self) -> BatchSampler:
        """Return the batches of the fit, in order."""
        return BatchSampler(self.method, self.inputs, self.settings)

    def train(self, mode: bool = True) -> Fit:  # noqa: FBT001, FBT002 - torch's signature
        """Switch dropout on or off, in the parts that are not trained, too."""
        super().train(mode)
        self.model.train(mode)
        return self


@dataclass
class Trainer:
    """Trains one model.

    Attributes:
        method: The training method, whose loss is minimised.
        model: The model that is trained and saved.
        inputs: Training inputs of each data set, from which batches are drawn.
        settings: The parameters of the method.
        measure: Computes the development figure of the model; the best step is stored, and a fit ends where the figure stops rising.
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
    say: Say
    progress: ShowProgress
    history: History = field(init=False)

    def fit(self, name: str = "", inputs: Sequence[Any] | None = None, **changed: Any) -> None:
        """Minimise the loss, and leave the parameters of the best step in the model.

        A fit that was stopped is resumed, and one that ended takes no step: its parameters are read from its checkpoints.

        Args:
            name: Folder of the fit's checkpoints in the run's folder; "": the run has only one fit.
            inputs: Training inputs from which batches are drawn; None: the trainer's inputs are used.
            **changed: Parameters that have another value in this fit.
        """
        objective = Fit(self.method, self.model, self.inputs if inputs is None else inputs, replace(self.settings, **changed))
        self.history = fit(objective, self.measure, self.home / name, say=self.say, progress=self.progress)


def fit(
    model: Fit,
    measure: Callable[[], float],
    home: Path,
    *,
    say: Say = lambda _: None,
    progress: ShowProgress = lambda *_, **__: None,
) -> History:
    """Train until the steps are done or the development figure stops rising; leave the best parameters in `model`.

    Args:
        model: The fit: the loss that is minimised, with its inputs and settings.
        measure: Computes the development figure of the present parameters.
        home: Folder for checkpoints; a fit that was stopped there is resumed.
        say: Called with lines about the progress.
        progress: Called with the progress, for a bar.

    Returns:
        The figures of every evaluation.

    Raises:
        KeyboardInterrupt: Ctrl-C; a checkpoint was written first.
        InputError: The loss became NaN.
    """
    transformers_logging.set_verbosity_error()
    for name in ("transformers", "accelerate", "torch.distributed"):
        logging.getLogger(name).setLevel(logging.ERROR)
    settings = model.settings
    torch.manual_seed(settings.seed)
    home.mkdir(parents=True, exist_ok=True)
    if settings.warmup > settings.steps:
        say(f"The learning rate stays below its peak: it rises for {settings.warmup:,g} of {settings.steps:,} steps.")
    watch = DevelopmentCallback(model, measure, home, say, progress)
    if (last := latest(home)) is not None:
        watch.restore(last)
        say(f"going on from step {int(last.name.rpartition('-')[2]):,}")
    arguments = TrainingArguments(
        output_dir=str(home),
        max_steps=settings.steps,
        per_device_train_batch_size=1,
        max_grad_norm=0.0,  # no clipping
        save_strategy="no",  # `DevelopmentCallback` decides when
        save_total_limit=2,
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        seed=settings.seed,
    )
    # Use one of several GPUs: DataParallel would draw as many batches for a step as there are GPUs.
    arguments._n_gpu = min(arguments.n_gpu, 1)  # noqa: SLF001 - as Trainer itself does for models that are spread
    trainer = _BatchTrainer(
        model=model,
        args=arguments,
        train_dataset=model.batches(),
        data_collator=lambda batches: {"batch": batches[0]},
        optimizers=optimizer(model, settings),
        callbacks=[watch],
    )
    trainer.remove_callback(PrinterCallback)  # it prints to stdout
    with warnings.catch_warnings(), watch.interruptible(), CpuDropout():
        warnings.simplefilter("ignore")
        if not watch.done:
            trainer.train(resume_from_checkpoint=str(last) if last else None)
    if watch.interrupted:
        raise KeyboardInterrupt
    model.load_state_dict(watch.best)
    model.eval()
    return watch.history


class _BatchTrainer(LibraryTrainer):
    """A Trainer whose data set gives whole batches, taken in their order."""

    def _get_train_sampler(self, *_: Any, **__: Any) -> Any:
        return torch.utils.data.SequentialSampler(self.train_dataset)

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:  # noqa: FBT001, FBT002 - Trainer's
        losses = model(inputs["batch"])
        loss = float(losses["loss"].detach())
        if not math.isfinite(loss):
            raise InputError(
                f"The loss became {loss} at step {int(self.state.global_step)}.", "Lower the learning rate: --set rate=1e-4."
            )
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, DevelopmentCallback):
                callback.losses.append(loss)
        return (losses["loss"], losses) if return_outputs else losses["loss"]


def optimizer(model: Fit, settings: TrainingParameters) -> tuple[torch.optim.Optimizer, Any]:
    """Return the optimiser and its schedule.

    The backbone's layers have a rate of their own (`layers_rate`): parameters of a submodule whose name ends in ``backbone``. Scalars have no
    weight decay.
    """
    groups: dict[tuple[float, float], list[torch.nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            rate = settings.layers_rate if name.partition(".")[0].endswith("backbone") else settings.rate
            decay = settings.weight_decay if parameter.ndim else 0.0
            groups.setdefault((float(rate), float(decay)), []).append(parameter)
    adam = torch.optim.AdamW(
        [{"params": parameters, "lr": rate, "weight_decay": decay} for (rate, decay), parameters in groups.items()],
        fused=True,  # one pass over the parameters; the others take several
    )
    return adam, _schedule(adam, [rate for rate, _ in groups], settings)


def _schedule(adam: torch.optim.Optimizer, rates: list[float], settings: TrainingParameters) -> Any:
    """Return the schedule of the learning rates: warm-up, then the decay that the setting `schedule` names."""
    steps, name = max(2, settings.steps), settings.schedule
    share = settings.warmup < 1
    rise = round(settings.warmup * steps) if share else int(settings.warmup)
    if name == "one-cycle":
        exact = share and settings.warmup * (steps + 1) != 1  # OneCycleLR divides by 0 where its rise ends at the first step
        peak = settings.warmup if exact else min(rise / steps, 1.0)
        return torch.optim.lr_scheduler.OneCycleLR(adam, max_lr=rates, total_steps=steps + 1, pct_start=peak)

    def factor(step: int) -> float:
        """Return the share of the peak learning rate at a step; steps count from 0."""
        if step < rise:
            return (step + 1) / (rise + 1)
        return 1.0 if name == "constant" else max(0.0, (steps - step) / max(1, steps - rise))

    return torch.optim.lr_scheduler.LambdaLR(adam, factor)
