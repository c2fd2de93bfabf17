"""Benchmarks are scripts for strangers, too: what they can mend is said, not shown as a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize(
    ("script", "arguments"), [("explanations", ["name", "dataset"]), ("vectors", ["name", "dataset"]), ("indexing", [])]
)
def test_a_benchmark_without_a_server_ends_in_a_sentence(script, arguments):
    nobody = {**os.environ, "OPENSEARCH_URL": "http://127.0.0.1:9"}
    ended = subprocess.run(
        [sys.executable, BENCHMARKS / f"{script}.py", *arguments], env=nobody, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 5, ended.stderr
    assert ended.stderr.startswith("Error: ")
    assert "http://127.0.0.1:9" in ended.stderr
    assert "Traceback" not in ended.stderr
