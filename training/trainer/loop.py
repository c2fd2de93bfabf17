"""The training loop: transformers' Trainer with early stopping by retrieval; an interrupted run resumes to the same model.

Every `every` steps the development questions are searched and a checkpoint is written: parameters, optimiser, schedule and random
numbers (Trainer's files), and beside them the best parameters so far and the figures. A batch depends on the seed and its number
alone, so that a run resumed from any checkpoint ends with the same model.
"""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING, Any

import torch
from transformers import PrinterCallback, Trainer, TrainingArguments
from transformers.utils import logging as transformers_logging

from termweave.errors import InputError
from termweave.training.trainer.checkpoints import latest
from termweave.training.trainer.cpu_dropout import CpuDropout
from termweave.training.trainer.early_stopping import DevelopmentCallback, History
from termweave.training.trainer.optimizer import optimizer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from termweave.training.trainer.early_stopping import ShowProgress
    from termweave.training.trainer.fit import Fit


def fit(
    model: Fit,
    measure: Callable[[], float],
    home: Path,
    *,
    say: Callable[[str], None] = lambda _: None,
    progress: ShowProgress = lambda *_, **__: None,
) -> History:
    """Train until the steps are done or the development figure stops rising; leave the best parameters in `model`.

    Args:
        model: What is minimised, with its inputs and settings.
        measure: The development figure of the parameters as they are.
        home: Folder for checkpoints; a fit that was stopped there is resumed.
        say: Told about progress, line by line.
        progress: Told about progress, for a bar.

    Returns:
        The figures of every evaluation.

    Raises:
        KeyboardInterrupt: Ctrl-C; a checkpoint was written first.
        InputError: The loss became NaN.
    """
    _silence_libraries()
    settings = model.settings
    torch.manual_seed(settings.seed)
    home.mkdir(parents=True, exist_ok=True)
    if settings.warmup > settings.steps:
        say(f"The rate does not reach its peak: it rises for {settings.warmup:,g} steps, and the run has {settings.steps:,}.")
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


class _BatchTrainer(Trainer):
    """A Trainer whose data set gives whole batches, taken in their order."""

    def _get_train_sampler(self, *_: Any, **__: Any) -> Any:
        return torch.utils.data.SequentialSampler(self.train_dataset)

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:  # noqa: FBT001, FBT002 - Trainer's
        losses = model(inputs["batch"])
        if not bool(torch.isfinite(losses["loss"])):
            raise InputError(
                f"The loss became {float(losses['loss'].detach())} at step {int(self.state.global_step)}.",
                "Lower the rates: --set rate=1e-4.",
            )
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, DevelopmentCallback):
                callback.losses.append(float(losses["loss"].detach()))
        return (losses["loss"], losses) if return_outputs else losses["loss"]


def _silence_libraries() -> None:
    transformers_logging.set_verbosity_error()
    for name in ("transformers", "accelerate", "torch.distributed"):
        logging.getLogger(name).setLevel(logging.ERROR)
