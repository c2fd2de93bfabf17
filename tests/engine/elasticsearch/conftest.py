"""The genuine Elasticsearch of these tests: $ELASTICSEARCH_URL, else one of Maven Central's."""

import os
import uuid
from contextlib import contextmanager

import pytest

from termweave.engine import connect
from termweave.settings import load
from tests.engine.elasticsearch import server


@pytest.fixture(scope="session", params=[pytest.param("8.19.0", marks=pytest.mark.nightly), "9.2.0"])
def elasticsearch_node(request):
    """Address of an Elasticsearch. The tests with one version run before the server of the next one starts."""
    if url := os.environ.get("ELASTICSEARCH_URL"):
        yield url
        return
    running = server.start(request.param)
    yield running.url
    running.close()


@pytest.fixture(scope="session")
def elasticsearch_engine(elasticsearch_node):
    """A connection to `elasticsearch_node`."""
    pytest.importorskip("elasticsearch", reason="the extra 'elasticsearch' is not installed")
    with connect(load(url=elasticsearch_node)) as engine:
        yield engine


@contextmanager
def own_name(engine):
    """An index name of one's own; whatever was made under it is removed afterwards."""
    prefix = f"test-{uuid.uuid4().hex[:10]}"
    yield prefix
    indices = engine.request("GET", f"/{prefix}*", params={"expand_wildcards": "all", "filter_path": "*.aliases"})
    for index in indices:  # a pattern cannot be deleted there by default
        engine.request("DELETE", f"/{index}")


@pytest.fixture
def elastic_name(elasticsearch_engine):
    with own_name(elasticsearch_engine) as prefix:
        yield prefix


@pytest.fixture
def termweave(termweave, elasticsearch_node, monkeypatch):
    """Run a verb against the server of these tests."""
    monkeypatch.setenv("OPENSEARCH_URL", elasticsearch_node)
    return termweave
