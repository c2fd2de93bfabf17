"""CONTRIBUTING.md: its worked examples are the parts of `tests/outside`, which other tests run."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_worked_examples_are_those_that_tests_run():
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.DOTALL)
    outside = (ROOT / "tests" / "outside" / "outside.py").read_text(encoding="utf-8")
    assert len(examples) == 3
    assert [example for example in examples if example not in outside] == []
