"""The index that tests of searching share."""

from __future__ import annotations

import uuid

import pytest

import termweave as tw
from termweave import corpora
from termweave.indexer import BuildOptions, build

_SUBJECTS = ("timer", "json", "thread", "file", "socket", "date", "random", "queue")


def _built(engine, name):
    """Build an index of forty documents with all signals, and open it."""
    documents = [
        {"id": f"{subject}-{number}", "text": f"The {subject} module, part {number}: {subject} functions"}
        for subject in _SUBJECTS
        for number in range(5)
    ]
    build(engine, corpora.open_documents(documents, name="corpus"), name, BuildOptions())
    return tw.connect(engine.url).index(name)


@pytest.fixture(scope="session")
def forty(opensearch_engine):
    """The name of an index of forty documents that all tests search and none changes."""
    name = f"test-forty-{uuid.uuid4().hex[:10]}"
    _built(opensearch_engine, name)
    yield name
    opensearch_engine.request("DELETE", f"/{name}*", params={"expand_wildcards": "all"})


@pytest.fixture
def index(opensearch_engine, forty):
    """Forty documents with all signals, to be searched only."""
    return tw.connect(opensearch_engine.url).index(forty)


@pytest.fixture
def own_index(opensearch_engine, name):
    """Forty documents with all signals that a test may change."""
    return _built(opensearch_engine, name)
