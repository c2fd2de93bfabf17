"""The loop's settings on a model of one weight, dropout on processors, and training where there are GPUs, as far as a machine without one can tell."""

import math
from dataclasses import fields, replace
from functools import cached_property
from hashlib import blake2b

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.nn.functional import dropout, scaled_dot_product_attention
from transformers import TrainingArguments

from termweave.training.data.pairs import Pairs
from termweave.training.data.sampler import BatchSampler
from termweave.training.methods import base as methods
from termweave.training.methods import fectek
from termweave.training.methods.fectek import Fectek
from termweave.training.mixture import parts
from termweave.training.trainer import trainer
from termweave.training.trainer.passes import CpuDropout, backbone_precision
from termweave.training.trainer.trainer import Fit, fit, optimizer
from tests.training.conftest import SMALL, train

# ruff: noqa: ARG002 - the contract names the arguments
pytestmark = pytest.mark.usefixtures("own_cache")
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
    [("linear", [1 / 3, 2 / 3, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]), ("constant", [1 / 3, 2 / 3, *[1.0] * 8])],
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


@pytest.mark.parametrize("keep", [0.0, 0.25])
def test_a_share_of_the_start_is_in_what_is_judged_and_kept(tmp_path, keep):
    objective, passed, looked = slope(steps=6, every=2, keep=keep), [], []
    with torch.no_grad():
        objective.weight.fill_(3.0)

    def judge():
        looked.append(objective.weight.detach().clone())
        return float(len(looked))

    objective.register_forward_pre_hook(lambda *_: passed.append(objective.weight.detach().clone()))
    fit(objective, judge, tmp_path)
    expected = [keep * passed[0] + (1 - keep) * after for after in passed]
    assert torch.cat(looked[:3]).tolist() == pytest.approx(torch.cat(expected[::2]).tolist())
    assert torch.equal(objective.weight, looked[3])  # the best look's parameters


def test_a_warm_up_that_is_longer_than_the_run_is_said(tmp_path):
    said = []
    fit(slope(steps=3, warmup=500.0), lambda: 1.0, tmp_path, say=said.append)
    assert "The learning rate stays below its peak: it rises for 500 of 3 steps." in said


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.5])
def test_a_share_of_p_is_dropped_and_the_rest_scaled(dtype, p):
    values = torch.ones(7, 11_111, dtype=dtype, requires_grad=True)
    torch.manual_seed(0)
    with CpuDropout():
        first, second = dropout(values, p), dropout(values, p)
        torch.manual_seed(0)
        again = dropout(values, p)
        assert dropout(values, p, training=False) is values
        assert not dropout(values, 1.0).any()
    assert set(first.unique().tolist()) == {0.0, float(torch.tensor(1 / (1 - p), dtype=dtype))}
    assert abs(float((first == 0).float().mean()) - p) < 5 * math.sqrt(p * (1 - p) / values.numel())
    assert torch.equal(first, again)
    # Independent of the draw before, and of the elements beside: both are dropped in p^2 of the places.
    for other in (second, first.roll(1), first.roll(1, dims=0)):
        assert float(((first == 0) & (other == 0)).float().mean()) == pytest.approx(p * p, abs=0.01)
    first.sum().backward()
    assert torch.equal(values.grad, first)


@pytest.mark.parametrize("mask", [None, "bool", "float"])
def test_attention_is_that_of_torch_where_nothing_is_dropped(mask):
    torch.manual_seed(1)
    query, key, value = torch.randn(3, 2, 4, 9, 8)
    read = torch.arange(9) < torch.tensor([[9], [6]])
    masks = {None: None, "bool": read[:, None, None], "float": torch.zeros(2, 1, 1, 9).masked_fill(~read[:, None, None], -1e9)}
    with CpuDropout():
        own = scaled_dot_product_attention(query, key, value, masks[mask], dropout_p=1e-9)
        dropped = scaled_dot_product_attention(query, key, value, masks[mask], dropout_p=0.5)
    assert torch.allclose(own, scaled_dot_product_attention(query, key, value, masks[mask]), atol=1e-6)
    assert not torch.allclose(own, dropped, atol=1e-2)


def test_a_text_without_a_token_is_not_nan():
    with CpuDropout():
        found = scaled_dot_product_attention(*torch.ones(3, 1, 1, 2, 4), torch.zeros(1, 1, 1, 2) > 0, dropout_p=0.1)
    assert found.isfinite().all()


LIVE = ("top_layers=-1", "layers_rate=0.0001")


@pytest.mark.parametrize(
    ("method", "settings", "parts"),
    [
        ("fectek", (), {"text"}),
        ("fectek", ("anchor=none", "hidden=0", "fcm=true", "tkgm=true"), {"text", "term"}),
        ("fectek", (*LIVE, "joint=0.5"), {"text", "dense", "stay"}),
        ("fectek", ("teacher=minmax",), {"text", "teacher"}),
        ("bert-scorer", LIVE, {"regression"}),
    ],
    ids=["frozen", "as-printed", "live", "taught", "scorer"],
)
def test_a_step_is_computed_where_its_parameters_are(method, settings, parts, folder, base, tmp_path, monkeypatch):
    """Parameters that say they are on a GPU, and torch's rules of what may meet what; the numbers alone are missing."""
    found, compute = {}, trainer._BatchTrainer.compute_loss

    def also_there(self, model, inputs, **rest):
        objective, batch = self.accelerator.unwrap_model(model), inputs["batch"]
        with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True) as mode:
            named = [*objective.named_parameters(), *objective.named_buffers()]  # not state_dict, which leaves positions out
            held = {name: mode.from_tensor(each.detach()).to("cuda") for name, each in named}
            found.update(functional_call(objective, held, (batch,)))
        return compute(self, model, inputs, **rest)

    def known(scores, wanted):  # the one question to the numbers: has any row two?
        return torch.nn.functional.kl_div(scores.log_softmax(dim=1), wanted.softmax(dim=1), reduction="batchmean")

    monkeypatch.setattr(trainer._BatchTrainer, "compute_loss", also_there)
    monkeypatch.setattr(fectek, "distillation", known)
    train(folder, base, tmp_path / "out", method=method, settings=(*SMALL, "steps=1", *settings))
    assert found.keys() == {"loss", *parts}
    assert {each.device.type for each in found.values()} == {"cuda"}


class Two(TrainingArguments):
    """On a machine with two GPUs."""

    @cached_property
    def _setup_devices(self):
        device = super()._setup_devices
        self._n_gpu = 2
        return device


def test_of_several_gpus_one_is_used(folder, base, tmp_path, monkeypatch):
    """Trainer would draw as many steps at once as there are."""
    drawn, draw = [], BatchSampler.draw

    def noted(self, step):
        drawn.append(step)
        return draw(self, step)

    monkeypatch.setattr(trainer, "TrainingArguments", Two)
    monkeypatch.setattr(BatchSampler, "draw", noted)
    train(folder, base, tmp_path / "out", settings=(*SMALL, "steps=4"))
    assert drawn == [0, 1, 2, 3]


# -- What a resumed run must find as it left it: the batches of each setting, and the names of what is trained

LENGTHS = {"max_length": 32, "training_length": 32, "dev": 8, "batch": 5, "seed": 3, "steps": 50}
TRAINS = {"top_layers": -1, "hidden": 16, "teacher": "none"}
RANKED = {"candidates_from": "bm25", "candidates": 12}
SIR = {**RANKED, "reranked": 4, "blocks": "6,3"}
#: Settings -> digest of their first 50 batches.
BATCHES = [
    ("fectek", TRAINS, "3e2420633e56"),
    ("fectek", {**TRAINS, "negatives": 0, "drawn": 0}, "310f657450a7"),
    ("fectek", {**TRAINS, "drawn": 3, "epochs": 3}, "0fd3cf6b974b"),
    ("fectek", {**TRAINS, "beside": "corpus"}, "58ea7ccb57e5"),
    ("bert-scorer", {"top_layers": -1}, "310f657450a7"),
    ("dtr", {}, "ba2c1e8b8644"),
    ("dtr", {"sampling": "labelled"}, "ba5c16b429e2"),
    ("dtr", {"sampling": "in-batch-template"}, "2c15d1e12e86"),
    ("dtr", {"sampling": "in-batch-query", "beside": "corpus"}, "bac97bd8f672"),
    ("dtr", {"sampling": "random"}, "2abd92f1f88d"),
    ("le-bs", {"labels": "none"}, "1c8dd854fcf8"),
    ("le-bs", {"labels": "none", "in_batch": True, "drawn": 2, "epochs": 2}, "af400a928c34"),
    ("coder", {"labels": "uniform", **RANKED}, "8b14dfeb2f11"),
    ("coder", {"labels": "uniform", **RANKED, "epochs": 4}, "f979d96f8247"),
    ("sir", SIR, "e8ec8243d79e"),
    ("sir", {**SIR, "variant": "random", "anchor": False}, "2c28df626511"),
    ("sir", {**SIR, "variant": "static", "anchor": False}, "99e8af3611ff"),
    ("sir", {**SIR, "variant": "v1", "anchor": False, "epochs": 2}, "e485346fe2a2"),
]
#: Settings -> what is trained, in the order in which the optimiser's state is stored, and the digest of the names and groups.
TRAINED = [
    ("fectek", TRAINS, "log_scale backbone heads", "654ed0b85a32"),
    ("fectek", {"learn_scale": False, "tkgm": True, "hidden": 16, "teacher": "none"}, "knowledge heads", "76245a4b4ff2"),
    ("fectek", {**TRAINS, "tkgm": True, "fcm": True, "layers_rate": 1e-3}, "log_scale backbone knowledge heads", "67c7a4236a8f"),
    ("bert-scorer", {"top_layers": 1, "bmes": False}, "backbone heads", "5245e0fde882"),
    ("dtr", {"towers": "two"}, "backbone query_backbone", "2204308b7a0d"),
    ("coder", {"labels": "uniform", **RANKED}, "log_temperature query_backbone", "97018aba40fd"),
    ("coder", {"labels": "uniform", **RANKED, "towers": "one"}, "log_temperature backbone", "97018aba40fd"),
    ("le-bs", {"labels": "none"}, "backbone", "eabcc9ca7b44"),
    ("sir", SIR, "anchor backbone head", "0f26e06279ff"),
    ("sir", {**SIR, "anchor": False}, "backbone head", "b51b58787daa"),
]


def objective_of(method, given, folder, backbone, tmp_path):
    """The objective of a method on the toy collection, and its settings."""
    method = methods.get(method)
    beside = {"beside": str(folder / "corpus.jsonl")} if given.get("beside") else {}
    settings = method.settings({"backbone": str(backbone), **LENGTHS, **given, **beside})
    data = parts(str(folder), settings, tmp_path, lambda _: None)
    settings = data[0].settings
    model = method.build(settings, backbone)
    inputs = [method.inputs(part, model, lambda _: None) for part in data]
    return Fit(method, model, inputs, settings), settings


def arrays_of(batch, inputs):
    """What was drawn, and from which data set; features of the first stage are left out, because they follow from the documents."""
    drawn = batch.drawn
    named = {} if isinstance(drawn, np.ndarray) else {each.name: getattr(drawn, each.name) for each in fields(drawn)}
    arrays = [value for name, value in sorted(named.items()) if name != "features" and isinstance(value, np.ndarray)]
    return [np.array([next(place for place, each in enumerate(inputs) if each is batch.inputs)]), *(arrays or [drawn])]


@pytest.mark.parametrize(("method", "given", "expected"), BATCHES, ids=lambda given: given if isinstance(given, str) else "")
def test_batches_depend_on_the_settings_alone(folder, complete, tmp_path, method, given, expected):
    objective, settings = objective_of(method, given, folder, complete, tmp_path)
    sampler, state = objective.batches(), blake2b(digest_size=6)
    assert len(sampler) == settings.steps
    for number in range(min(50, len(sampler))):
        for array in arrays_of(sampler[number], objective.inputs):
            state.update(repr((array.dtype.kind, array.shape)).encode())
            state.update(np.ascontiguousarray(array).data)
    assert state.hexdigest() == expected
    again, before = (arrays_of(batches[3], objective.inputs) for batches in (objective.batches(), sampler))  # in any order
    assert again[1].tolist() == before[1].tolist()


@pytest.mark.parametrize(
    ("method", "given", "first", "expected"), TRAINED, ids=lambda each: each if isinstance(each, str) else ""
)
def test_what_is_trained_has_its_names_and_its_order(folder, complete, tmp_path, method, given, first, expected):
    objective, settings = objective_of(method, given, folder, complete, tmp_path)
    assert " ".join(dict.fromkeys(name.partition(".")[0] for name in objective.state_dict())) == first
    names = [name for name, each in objective.named_parameters() if each.requires_grad and "backbone." not in name]
    groups = [[len(each["params"]), each["lr"], each["weight_decay"]] for each in optimizer(objective, settings)[0].param_groups]
    assert blake2b(repr([names, groups]).encode(), digest_size=6).hexdigest() == expected
