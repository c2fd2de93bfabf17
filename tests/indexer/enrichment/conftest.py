"""An application's own index, and `termweave enrich` over it."""

import json
import time
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest

from termweave.cli import run
from termweave.cli.output import Output
from termweave.dialect import dialect_of
from termweave.indexer.enrichment import enrichment
from tests.indexer.builds import bulk, write

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


def put(engine, index, **texts):
    """Write documents by their ids and texts."""
    write(engine, index, {key: {"name": text, "stock": 1} for key, text in texts.items()})


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
        rows = ({"name": f"{TEXTS[each % 5]} {each}", "stock": each, "info": {"a": [1]}} for each in range(30))
        write(opensearch_engine, index, {f"p{each}": row for each, row in enumerate(rows)})
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


@pytest.fixture
def watch(enrich, monkeypatch):
    """A function that runs a watch with a step in each of its pauses, ends it by Ctrl-C, and returns its result and what it said."""

    def call(index, *steps, options=WEIGHTS, **how):
        said, left = [], iter(steps)

        def sleep(_):
            if (step := next(left, None)) is None:
                raise KeyboardInterrupt
            step()

        with monkeypatch.context() as patch:
            patch.setattr(enrichment, "time", SimpleNamespace(sleep=sleep, strftime=time.strftime))
            patch.setattr(Output, "say", lambda _, *texts: said.extend(texts))
            return enrich(index, *options, "--watch", "1", **how), said

    return call
