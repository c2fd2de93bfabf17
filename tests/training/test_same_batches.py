"""What a resumed run must find as it left it: the batches of each setting, and the names of what is trained."""

from dataclasses import fields
from hashlib import blake2b

import numpy as np
import pytest

from termweave.training.methods import base as methods
from termweave.training.mixture import parts
from termweave.training.trainer.trainer import Fit, optimizer
from tests.training.conftest import with_special_tokens

pytestmark = pytest.mark.usefixtures("own_cache")

LENGTHS = {"max_length": 32, "training_length": 32, "dev": 8, "batch": 5, "seed": 3, "steps": 50}
LIVE = {"top_layers": -1, "hidden": 16, "teacher": "none"}
RANKED = {"candidates_from": "bm25", "candidates": 12}
SIR = {**RANKED, "reranked": 4, "blocks": "6,3"}
#: Settings -> digest of their first 50 batches.
BATCHES = [
    ("fectek", LIVE, "3e2420633e56"),
    ("fectek", {**LIVE, "negatives": 0, "drawn": 0}, "310f657450a7"),
    ("fectek", {**LIVE, "drawn": 3, "epochs": 3}, "0fd3cf6b974b"),
    ("fectek", {**LIVE, "beside": "corpus"}, "58ea7ccb57e5"),
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
    ("fectek", LIVE, "log_scale backbone heads", "654ed0b85a32"),
    ("fectek", {"learn_scale": False, "tkgm": True, "hidden": 16, "teacher": "none"}, "knowledge heads", "76245a4b4ff2"),
    ("fectek", {**LIVE, "tkgm": True, "fcm": True, "layers_rate": 1e-3}, "log_scale backbone knowledge heads", "67c7a4236a8f"),
    ("bert-scorer", {"top_layers": 1, "bmes": False}, "backbone heads", "5245e0fde882"),
    ("dtr", {"towers": "two"}, "backbone query_backbone", "2204308b7a0d"),
    ("coder", {"labels": "uniform", **RANKED}, "log_temperature query_backbone", "97018aba40fd"),
    ("coder", {"labels": "uniform", **RANKED, "towers": "one"}, "log_temperature backbone", "97018aba40fd"),
    ("le-bs", {"labels": "none"}, "backbone", "eabcc9ca7b44"),
    ("sir", SIR, "anchor backbone head", "0f26e06279ff"),
    ("sir", {**SIR, "anchor": False}, "backbone head", "b51b58787daa"),
]


def objective_of(method, given, folder, base, tmp_path):
    """The objective of a method on the toy collection, and its settings."""
    method, backbone = methods.get(method), with_special_tokens(base, tmp_path / "complete")
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
def test_batches_depend_on_the_settings_alone(folder, base, tmp_path, method, given, expected):
    objective, settings = objective_of(method, given, folder, base, tmp_path)
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
    ("method", "given", "first", "expected"), TRAINED, ids=lambda given: given if isinstance(given, str) else ""
)
def test_what_is_trained_has_its_names_and_its_order(folder, base, tmp_path, method, given, first, expected):
    objective, settings = objective_of(method, given, folder, base, tmp_path)
    assert " ".join(dict.fromkeys(name.partition(".")[0] for name in objective.state_dict())) == first
    names = [name for name, each in objective.named_parameters() if each.requires_grad and "backbone." not in name]
    groups = [
        [len(group["params"]), group["lr"], group["weight_decay"]] for group in optimizer(objective, settings)[0].param_groups
    ]
    state = blake2b(repr([names, groups]).encode(), digest_size=6)
    assert state.hexdigest() == expected
