"""The whole pipeline ranks as on OpenSearch, on samples of three data sets (docs/engines.md has larger ones)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.nightly]
ROOT = Path(__file__).parents[3]


def test_three_sets_are_ranked_alike(opensearch_engine, elasticsearch_engine, elastic_name, shared, own_places):
    names = ("stackfaq", "cranfield", "vaswani")
    sets = [str(shared / "data" / name) for name in names]
    arguments = ["--elasticsearch", elasticsearch_engine.url, "--documents", "50", "--queries", "12", "--name", elastic_name]
    try:
        ended = subprocess.run(
            [sys.executable, "engines.py", *sets, *arguments],
            cwd=ROOT / "benchmarks",
            env={**os.environ, "OPENSEARCH_URL": opensearch_engine.url, "XDG_STATE_HOME": str(own_places / "xdg-state")},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        opensearch_engine.request("DELETE", f"/{elastic_name}*", params={"expand_wildcards": "all"})
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rows = re.findall(r"^\| \w+ \| 50 \| 12 \| (\S+) \| 12 of 12 \| (\S+) \|$", ended.stdout, re.MULTILINE)
    assert [system for system, _ in rows] == ["lexical", "weights", "dense", "hybrid", "hybrid+rNN"] * 3, ended.stdout
    assert all(float(difference) < 1e-5 for _, difference in rows)
