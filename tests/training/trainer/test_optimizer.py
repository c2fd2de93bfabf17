"""Settings of the loop against what they say, on a model of one weight."""
# ruff: noqa: ARG002 - the contract names the arguments

from dataclasses import replace

import numpy as np
import pytest
import torch

from termweave.training.data.pairs import Pairs
from termweave.training.methods import base as methods
from termweave.training.methods.fectek import Fectek
from termweave.training.trainer.passes import backbone_precision
from termweave.training.trainer.trainer import Fit, fit, optimizer

DEFAULTS = methods.get("fectek").settings({"batch": 1, "drawn": 0, "steps": 1, "every": 100, "rate": 0.1, "weight_decay": 0})


class Inputs:
    """Five questions, each with one document."""

    share, negatives = 1.0, ()
    pairs = Pairs([str(place) for place in range(5)], [frozenset({place}) for place in range(5)])


class Slope(Fectek):
    """The loss of a batch is a weight times the number of its question plus 1."""

    def trained(self, model, settings):
        return {"weight": model.weight}

    def extras(self, model, settings):
        return {}

    def loss(self, fit, batch):
        return {"slope": fit.weight.sum() * (int(batch.drawn.questions[0]) + 1)}


def slope(**changed):
    model = torch.nn.Module()
    model.weight = torch.nn.Parameter(torch.zeros(1))
    return Fit(Slope(), model, [Inputs()], replace(DEFAULTS, **changed))


def rates_of(steps, **given):
    """The rates of so many steps."""
    (adam, schedule), rates = optimizer(slope(), replace(DEFAULTS, steps=steps, **given)), []
    for _ in range(steps):
        rates.append(adam.param_groups[0]["lr"])
        adam.step()
        schedule.step()
    return rates


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        ("linear", [1 / 3, 2 / 3, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]),
        ("constant", [1 / 3, 2 / 3, *[1.0] * 8]),
    ],
)
def test_rates_rise_and_fall_as_the_schedule_says(schedule, factors):
    assert rates_of(10, schedule=schedule, warmup=0.2) == pytest.approx([0.1 * factor for factor in factors])


@pytest.mark.parametrize(("precision", "dtype"), [("auto", torch.float32), ("bf16", torch.bfloat16)])
def test_the_backbone_computes_in_the_precision_that_was_set(precision, dtype):
    """`auto` is fp32 on a CPU."""
    layer = torch.nn.Linear(2, 2)
    with backbone_precision(torch.device("cpu"), precision):
        assert layer(torch.ones(1, 2)).dtype == dtype


@pytest.mark.parametrize("schedule", ["linear", "constant", "one-cycle"])
@pytest.mark.parametrize(("steps", "warmup", "peak"), [(40, 10.0, (9, 10)), (39, 0.025, (0, 1))])
def test_the_rate_rises_for_as_many_steps_as_were_set(schedule, steps, warmup, peak):
    """A rise of one step in 40 was a division by zero."""
    rates = rates_of(steps, schedule=schedule, warmup=warmup)
    assert np.argmax(rates) in peak
    assert max(rates) == pytest.approx(DEFAULTS.rate, rel=0.05)


def test_a_warm_up_that_is_longer_than_the_run_is_said(tmp_path):
    said = []
    fit(slope(steps=3, warmup=500.0), lambda: 1.0, tmp_path, say=said.append)
    assert "The rate does not reach its peak: it rises for 500 steps, and the run has 3." in said
