"""The index that tests of searching share."""

from __future__ import annotations

import orjson
import pytest

import termweave as tw
from termweave import corpora
from termweave.indexer import BuildOptions, build


@pytest.fixture
def index(opensearch_engine, name, tmp_path):
    """Forty documents with all signals."""
    path = tmp_path / "corpus.jsonl"
    subjects = ("timer", "json", "thread", "file", "socket", "date", "random", "queue")
    lines = [
        {"_id": f"{subject}-{number}", "text": f"The {subject} module, part {number}: {subject} functions"}
        for subject in subjects
        for number in range(5)
    ]
    path.write_bytes(b"\n".join(orjson.dumps(line) for line in lines))
    build(opensearch_engine, corpora.open_source(path), name, BuildOptions())
    return tw.connect(opensearch_engine.url).index(name)
