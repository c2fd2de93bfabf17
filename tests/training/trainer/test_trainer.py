"""Training where there are GPUs, as far as a machine without one can tell."""

from functools import cached_property

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from transformers import TrainingArguments

from termweave.training.data.sampler import BatchSampler
from termweave.training.methods import fectek
from termweave.training.trainer import trainer
from tests.training.conftest import SMALL, train

pytestmark = pytest.mark.usefixtures("own_cache")

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
    found = {}
    compute = trainer._BatchTrainer.compute_loss

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
    drawn = []
    draw = BatchSampler.draw

    def noted(self, step):
        drawn.append(step)
        return draw(self, step)

    monkeypatch.setattr(trainer, "TrainingArguments", Two)
    monkeypatch.setattr(BatchSampler, "draw", noted)
    train(folder, base, tmp_path / "out", settings=(*SMALL, "steps=4"))
    assert drawn == [0, 1, 2, 3]
