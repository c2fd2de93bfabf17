"""An application's own index, and `termweave enrich` over it."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import orjson
import pytest

from termweave.cli import run
from termweave.dialect import dialect_of

#: Options of an enrichment that need not encode vectors.
WEIGHTS = ("--signals", "weights")
SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"
TEXTS = (
    "a red sofa for two people",
    "a wooden chair",
    "a lamp that gives warm light",
    "soft towels of cotton",
    "a kettle for green tea",
)


def bulk(engine, index, *lines):
    """Send lines of a bulk request, and refresh the index."""
    body = b"".join(orjson.dumps(line) + b"\n" for line in lines)
    assert not engine.request("POST", f"/{index}/_bulk", params={"refresh": True}, body=body)["errors"]


def write(engine, index, documents):
    """Write whole documents: id -> document."""
    bulk(engine, index, *(line for key, each in documents.items() for line in ({"index": {"_id": key}}, each)))


def change(engine, index, documents):
    """Write fields of documents: id -> fields."""
    bulk(engine, index, *(line for key, each in documents.items() for line in ({"update": {"_id": key}}, {"doc": each})))


@pytest.fixture
def shop(opensearch_engine, name):
    """A function that makes the index NAME-shop of an application, or NAME-shop-NUMBER."""

    def make(properties=None, *, knn=True, number="", **mapping):
        index = f"{name}-shop{number and f'-{number}'}"
        properties = {"name": {"type": "text"}, "stock": {"type": "integer"}, **(properties or {})}
        settings = {"number_of_shards": 2, "number_of_replicas": 0}
        if dialect_of(opensearch_engine.capabilities).vector_settings():
            settings["index.knn"] = knn
        mappings = {"dynamic": False, "_meta": {"owner": "shop"}, "properties": properties, **mapping}
        opensearch_engine.request("PUT", f"/{index}", body={"settings": settings, "mappings": mappings})
        names = {number: f"{TEXTS[number % 5]} {number}" for number in range(30)}
        write(
            opensearch_engine, index, {f"p{key}": {"name": name, "stock": key, "info": {"a": [1]}} for key, name in names.items()}
        )
        return index

    return make


@pytest.fixture
def enrich(opensearch_engine, capsys):
    """A function that runs `termweave enrich --json` and returns what it said, or its error."""

    def call(index, *arguments, fields=("--text-field", "name"), status=0):
        words = ["enrich", index, *fields, "--json", "--url", opensearch_engine.url, *arguments]
        assert run(words) == status
        said = capsys.readouterr()
        if status:
            return said.err
        data = json.loads(said.out)
        schema = SCHEMAS / f"{data['schema'].removeprefix('termweave.').replace('/', '.')}.json"
        jsonschema.validate(data, json.loads(schema.read_text(encoding="utf-8")))
        return data

    return call
