"""AdamW, its groups of parameters, and the schedule of their learning rates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from termweave.training.methods.parameters import TrainingParameters
    from termweave.training.trainer.fit import Fit


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
    """The schedule of the learning rates: warm-up, then the decay that the setting `schedule` names."""
    steps, name = max(2, settings.steps), settings.schedule
    share = settings.warmup < 1
    rise = round(settings.warmup * steps) if share else int(settings.warmup)
    if name == "one-cycle":
        exact = share and settings.warmup * (steps + 1) != 1  # OneCycleLR divides by 0 where its rise ends at the first step
        peak = settings.warmup if exact else min(rise / steps, 1.0)
        return torch.optim.lr_scheduler.OneCycleLR(adam, max_lr=rates, total_steps=steps + 1, pct_start=peak)

    def factor(step: int) -> float:
        """Share of the peak rate at a step, counted from 0."""
        if step < rise:
            return (step + 1) / (rise + 1)
        return 1.0 if name == "constant" else max(0.0, (steps - step) / max(1, steps - rise))

    return torch.optim.lr_scheduler.LambdaLR(adam, factor)
