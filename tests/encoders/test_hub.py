"""Models from the hub, fetched from a hub that this test serves: the client is the real one."""

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
    ("name", "kind", "message"),
    [
        ("hf:team", UsageError, "names no model on the hub.*hf:OWNER/NAME"),
        ("hf:team/mo del", UsageError, "names no model on the hub.*hf:OWNER/NAME"),
        ("hf:team/none", UsageError, "has no model team/none.*HF_TOKEN"),
        ("hf:team/gated", ModelError, "does not let you read team/gated.*HF_TOKEN"),
        ("hf:team/model@v9", UsageError, "no revision 'v9'.*branch"),
    ],
)
def test_what_cannot_be_fetched(served, name, kind, message):
    with pytest.raises(kind, match=message):
        hub.fetch(name)


def test_where_the_hub_does_not_answer_what_was_fetched_is_used(served, closed_port, monkeypatch):
    path = resolve("hf:team/model")
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{closed_port}")
    assert resolve("hf:team/model") == path
    with pytest.raises(ModelError, match=r"hf:team/model@v1 could not be fetched.*HF_ENDPOINT"):
        hub.fetch("hf:team/model@v1")


def test_a_file_that_is_altered_on_the_way_is_noticed(served):
    served.files["tokenizer.json"] += b" "
    with pytest.raises(ModelError, match=r"altered: .*tokenizer\.json"):
        load("hf:team/model")


def test_the_command_line_takes_the_name(served, termweave):
    assert "boundari" in termweave("weights", "the boundary layer of a flat plate", "--weights", "hf:team/model", "--json")


def test_a_backbone_may_lie_on_the_hub(served, tmp_path):
    from termweave.training import backbone_model
    from termweave.training.methods import base

    served.files["1_Pooling/config.json"] = b'{"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": false}'
    settings = base.get("fectek").settings({"backbone": "hf:team/model"})
    assert backbone_model.find(settings, [], tmp_path) == resolve("hf:team/model")
