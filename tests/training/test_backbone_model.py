"""Which folder may be a backbone: one whose vectors termweave makes of its states as it was trained to."""

import shutil

import pytest
import torch
import transformers
from safetensors.torch import save

from termweave.encoders.models.joint_model import HeadShape, JointModel, load_backbone
from termweave.errors import ModelError
from termweave.training import backbone_model
from tests.training.conftest import describe_pooling, train

NORMAL = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False, "include_prompt": True}
FIRST = {"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True}


@pytest.mark.parametrize(
    ("pooling", "settings", "more", "status", "said"),
    [
        (NORMAL, (), (), 0, ""),
        (FIRST, (), (), 0, ""),
        ({"pooling_mode": "max"}, ("outputs=weights",), (), 0, ""),  # weights alone need no vectors
        ({"pooling_mode": ["mean", "max"]}, (), (), 2, "was trained with mean+max pooling"),
        ({"pooling_mode": "mean"}, (), [("2_Dense", "Dense")], 2, "dense layers behind its pooling"),
        ({"pooling_mode": "mean", "include_prompt": False}, (), (), 2, "prompts that its pooling leaves out"),
        ("{", (), (), 1, "1_Pooling"),
    ],
)
def test_vectors_that_termweave_makes_and_others(folder, base, tmp_path, pooling, settings, more, status, said):
    pooled = describe_pooling(shutil.copytree(base, tmp_path / "pooled"), pooling, {"query": "about: "}, more)
    sets = ("max_length=64", "training_length=64", "dev=5", *settings)
    told = train(folder, pooled, tmp_path / "out", "--plan", settings=sets, status=status, json_too=False)
    assert said in told
    assert ("--set outputs=weights" in told) == (status == 2)


@pytest.mark.parametrize(("family", "most"), [("Bert", 66), ("MPNet", 64), ("Roberta", 64)])
def test_a_backbone_counts_so_far_and_no_further(family, most):
    """MPNet and RoBERTa give the padding a position and count from behind it."""
    sizes = {"vocab_size": 50, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = getattr(transformers, f"{family}Config")(**sizes, max_position_embeddings=66, pad_token_id=1)
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
        ("config.json", b"[]", "describes no model of transformers"),
        ("model.safetensors", b"x" * 500, "are damaged"),
        ("model.safetensors", save({"embeddings.odd": torch.zeros(3)}), r"lacks \d+ tensors that config.json describes"),
    ],
)
def test_a_damaged_backbone_is_named(base, tmp_path, file, holds, said):
    copy = tmp_path / "damaged"
    shutil.copytree(base, copy)
    (copy / file).write_bytes(holds)
    with pytest.raises(ModelError, match=said) as refused:
        load_backbone(copy)
    assert str(copy) in refused.value.message
