"""Indices that tests of searching share."""

import uuid
from contextlib import contextmanager

import pytest

import termweave as tw
from termweave import corpora
from termweave.indexer import BuildOptions, build

_SUBJECTS = ("timer", "json", "thread", "file", "socket", "date", "random", "queue")
#: Five documents on each of eight subjects.
FORTY = [
    {"id": f"{subject}-{number}", "text": f"The {subject} module, part {number}: {subject} functions"}
    for subject in _SUBJECTS
    for number in range(5)
]


def _built(engine, name, documents, **options):
    build(engine, corpora.open_documents(documents, name="corpus"), name, BuildOptions(**options))
    return tw.connect(engine.url).index(name)


@contextmanager
def index_of(engine, documents, **options):
    """An index of documents for the tests of a module; it is deleted behind them."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    yield _built(engine, name, documents, **options)
    engine.request("DELETE", f"/{name}*", params={"expand_wildcards": "all"})


@pytest.fixture(scope="session")
def forty(opensearch_engine):
    """The name of an index of forty documents with all signals that all tests search and none changes."""
    with index_of(opensearch_engine, FORTY) as index:
        yield index.name


@pytest.fixture
def index(opensearch_engine, forty):
    """Forty documents with all signals, to be searched only."""
    return tw.connect(opensearch_engine.url).index(forty)


@pytest.fixture
def built(opensearch_engine, name):
    """A function that builds an index of documents under a name of the test's own, and opens it."""
    return lambda documents, **options: _built(opensearch_engine, name, documents, **options)


@pytest.fixture
def own_index(built):
    """Forty documents with all signals that a test may change."""
    return built(FORTY)
