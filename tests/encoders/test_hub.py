"""Models from the hub, fetched from a hub that this test serves: the client is the real one."""

import json
import os
import subprocess
import sys

import pytest

from termweave.encoders import hub, load
from termweave.encoders.model_lookup import resolve, resolve_local
from termweave.errors import ModelError, UsageError


def test_a_model_is_fetched_once(served):
    path = resolve("hf:team/model")
    assert load("hf:team/model").models["weights"].hash == load("shipped").models["weights"].hash
    assert not (path / "pytorch_model.bin").exists()
    fetched = [line for line in served.asked if "/resolve/" in line]
    assert resolve("hf:team/model@v1") == path
    assert [line for line in served.asked if "/resolve/" in line] == fetched


def test_what_was_fetched_is_used_where_the_hub_does_not_answer(served):
    path = resolve("hf:team/model")
    served.shutdown()
    served.server_close()
    assert resolve("hf:team/model") == path


def test_a_name_from_elsewhere_means_only_what_was_fetched_before(served):
    assert resolve_local("hf:team/model") is None
    assert served.asked == []
    path = resolve("hf:team/model")
    resolve("hf:team/model@v1")
    asked = [*served.asked]
    assert resolve_local("hf:team/model") == path
    assert resolve_local("hf:team/model@v1") == path
    outside = path.parents[2] / "other"  # a revision is the name of a file in the cache, whose text is the name of a folder
    outside.write_text(path.name)
    for name in ("hf:team/model@../../other", "hf:team/model@v9", "hf:../team/model", "hf:team/model/x", "hf:", "hf:team/mo del"):
        assert resolve_local(name) is None
    assert served.asked == asked


@pytest.mark.parametrize(
    ("name", "kind", "says", "advice"),
    [
        ("hf:team", UsageError, "names no model on the hub", "hf:OWNER/NAME"),
        ("hf:team/mo del", UsageError, "names no model on the hub", "hf:OWNER/NAME"),
        ("hf:team/none", UsageError, "has no model team/none", "HF_TOKEN"),
        ("hf:team/gated", ModelError, "does not let you read team/gated", "HF_TOKEN"),
        ("hf:team/model@v9", UsageError, "no revision 'v9'", "branch"),
    ],
)
def test_what_cannot_be_fetched(served, name, kind, says, advice):
    with pytest.raises(kind, match=says) as caught:
        hub.fetch(name)
    assert advice in caught.value.hint


def test_no_hub(served):
    served.shutdown()
    served.server_close()
    with pytest.raises(ModelError, match="hf:team/model could not be fetched") as caught:
        hub.fetch("hf:team/model")
    assert "HF_ENDPOINT" in caught.value.hint


def test_a_file_that_is_altered_on_the_way_is_noticed(served):
    served.files["tokenizer.json"] += b" "
    with pytest.raises(ModelError, match=r"altered: .*tokenizer\.json"):
        load("hf:team/model")


def test_the_command_line_takes_the_name(served, tmp_path):
    env = {**os.environ, "HF_ENDPOINT": served.url, "HF_HOME": str(tmp_path / "home")}
    command = [
        sys.executable,
        "-m",
        "termweave",
        "weights",
        "the boundary layer of a flat plate",
        "--weights",
        "hf:team/model",
        "--json",
    ]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "boundari" in done.stdout
    assert done.stderr == ""


def test_a_backbone_may_lie_on_the_hub(served, tmp_path):
    from termweave.training import backbone_model
    from termweave.training.methods import base

    served.files["1_Pooling/config.json"] = json.dumps(
        {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
    ).encode()
    assert backbone_model.find(base.get("fectek").settings({"backbone": "hf:team/model"}), [], tmp_path) == resolve(
        "hf:team/model"
    )
