"""An index of another application, to be read: `products`; and a server that answers in another order: `slowly`."""

import time

import orjson
import pytest

from termweave.corpora.index.point_in_time import PointInTime
from tests.engine.conftest import scripted  # noqa: F401 - the fixture


@pytest.fixture
def products(opensearch_engine, name):
    """A function that makes the index NAME-products (or another) with a mapping and documents; returns its name."""

    def make(documents, *, properties=None, shards=2, suffix="products", **mapping):
        index = f"{name}-{suffix}"
        settings = {"number_of_shards": shards, "number_of_replicas": 0, "index.knn": True}
        mappings = {**mapping, "properties": properties or {}}
        opensearch_engine.request("PUT", f"/{index}", body={"settings": settings, "mappings": mappings})
        write(opensearch_engine, index, documents)
        return index

    return make


@pytest.fixture
def slowly(monkeypatch):
    """A function after which the pages of the shard with this number come late."""
    pages = PointInTime.pages

    def late(slow):
        def waits(self, view, *arguments):
            if view.number == slow:
                time.sleep(0.2)
            return pages(self, view, *arguments)

        monkeypatch.setattr(PointInTime, "pages", waits)

    return late


def write(engine, index, documents):
    """Write documents by id, as an application does."""
    pairs = (({"index": {"_id": identity}}, source) for identity, source in documents.items())
    if lines := b"".join(orjson.dumps(each) + b"\n" for pair in pairs for each in pair):
        answer = engine.request("POST", f"/{index}/_bulk", params={"refresh": True}, body=lines)
        assert not answer["errors"], answer
