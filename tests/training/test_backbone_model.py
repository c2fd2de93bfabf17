"""Which folder may be a backbone: one whose vectors termweave makes of its states as it was trained to."""

import json
import shutil

import pytest
import torch
import transformers
from safetensors.torch import save

from termweave.cli import run
from termweave.encoders.models.joint_model import HeadShape, JointModel, load_backbone
from termweave.errors import ModelError
from termweave.training import backbone_model


@pytest.fixture
def plan(base, tmp_path, capsys):
    """Plan a run over a copy of the backbone that says how it pools."""

    def planned(pooling, *settings, more=(), prompts=None):
        copy = tmp_path / "pooled"
        shutil.copytree(base, copy)
        modules = (("", "Transformer"), ("1_Pooling", "Pooling"), *more)
        described = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in modules]
        (copy / "modules.json").write_text(json.dumps(described))
        (copy / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts or {}}))
        (copy / "1_Pooling").mkdir()
        (copy / "1_Pooling" / "config.json").write_text(pooling if isinstance(pooling, str) else json.dumps(pooling))
        corpus = tmp_path / "corpus.jsonl"
        text = "The mortar between the stones of this old bridge number {} is made of lime and sand. Nobody has seen it fall."
        lines = [{"_id": str(n), "title": f"Mortar of the old stone bridge {n}", "text": text.format(n)} for n in range(30)]
        corpus.write_text("\n".join(map(json.dumps, lines)))
        sets = [part for each in (f"backbone={copy}", "dev=5", *settings) for part in ("--set", each)]
        status = run(["train", "fectek", str(corpus), "--out", str(tmp_path / "out"), "--plan", "--json", *sets])
        return status, capsys.readouterr().err

    return planned


@pytest.mark.parametrize(
    "pooling",
    [
        {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False, "include_prompt": True},
        {"pooling_mode": "mean"},
        {"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True},
    ],
)
def test_vectors_that_termweave_makes(plan, pooling):
    assert plan(pooling, prompts={"query": "about: "})[0] == 0


@pytest.mark.parametrize(
    ("pooling", "more", "problem"),
    [
        ({"pooling_mode": ["mean", "max"]}, (), "mean+max pooling"),
        ({"pooling_mode": "mean"}, [("2_Dense", "Dense")], "dense layers behind its pooling"),
        ({"pooling_mode": "mean", "include_prompt": False}, (), "prompts that its pooling leaves out"),
    ],
)
def test_vectors_made_otherwise_are_refused(plan, pooling, more, problem):
    status, said = plan(pooling, more=more, prompts={"query": "about: "})
    assert status == 2
    assert f"was trained with {problem}" in said
    assert "--set outputs=weights" in said


def test_weights_alone_need_no_vectors(plan):
    assert plan({"pooling_mode": "max"}, "outputs=weights")[0] == 0


def test_a_damaged_description_is_named(plan):
    status, said = plan("{")
    assert status == 1
    assert "1_Pooling" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(("family", "most"), [("Bert", 66), ("MPNet", 64), ("Roberta", 64)])
def test_a_backbone_counts_so_far_and_no_further(family, most):
    """MPNet and RoBERTa give the padding a position and count from behind it."""
    config = getattr(transformers, f"{family}Config")(
        vocab_size=50,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=66,
        pad_token_id=1,
    )
    backbone = getattr(transformers, f"{family}Model")(config, add_pooling_layer=False).eval()
    model = JointModel(backbone, HeadShape(layer=1, hidden=4))
    assert backbone_model.length(model.backbone, 1000) == most
    assert backbone_model.length(model.backbone, 20) == 20
    backbone(torch.full((1, most), 7))
    with pytest.raises((IndexError, RuntimeError)):
        backbone(torch.full((1, most + 1), 7))


@pytest.mark.parametrize(
    ("file", "holds", "said"),
    [
        ("config.json", b'{"hid', "describes no model of transformers"),
        ("config.json", b'{"a": 1}', "describes no model of transformers"),
        ("config.json", b"[]", "describes no model of transformers"),
        ("model.safetensors", b"", "are damaged"),
        ("model.safetensors", b"x" * 500, "are damaged"),
        ("model.safetensors", save({"embeddings.odd": torch.zeros(3)}), "lacks"),
    ],
)
def test_a_damaged_backbone_is_named(base, tmp_path, file, holds, said):
    copy = tmp_path / "damaged"
    shutil.copytree(base, copy)
    (copy / file).write_bytes(holds)
    with pytest.raises(ModelError, match=said) as refused:
        load_backbone(copy)
    assert str(copy) in refused.value.message


def test_weights_of_another_width_are_no_backbone(base, tmp_path):
    copy = tmp_path / "narrow"
    shutil.copytree(base, copy)
    described = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(described | {"intermediate_size": 7}))
    with pytest.raises(ModelError, match=r"lacks \d+ tensors that config.json describes, or in another shape \(encoder"):
        load_backbone(copy)
