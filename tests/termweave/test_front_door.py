"""The front door: its names, and what it costs to open."""

from __future__ import annotations

import subprocess
import sys

import pytest

import termweave


def test_all_is_exactly_what_can_be_imported():
    for name in termweave.__all__:
        assert getattr(termweave, name) is not None
    assert set(termweave._HOME) | {"__version__"} == set(termweave.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = termweave.nothing_of_the_kind


@pytest.mark.parametrize(
    "statement",
    [
        "import termweave",
        "import termweave.engine.pytest_plugin, termweave.engine.client.connection, termweave.engine.embedded.node",
        "import termweave.cli.verbs.node, termweave.cli.verbs.doctor",
        "from termweave.cli import run; run(['--help'])",
    ],
)
def test_nothing_heavy_is_imported_before_it_is_needed(statement):
    heavy = (
        "torch transformers numpy pydantic opensearchpy onnxruntime rich tokenizers ir_measures psutil orjson requests jgo cjdk"
    )
    program = f"import sys\n{statement}\nprint([name for name in {heavy.split()} if name in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
