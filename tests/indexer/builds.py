"""What the tests of builds share: small corpora, and verification of what is live."""

import orjson

from termweave.catalog.generations import live
from termweave.dialect import dialect_of
from termweave.indexer import BuildOptions, verify, verify_against_source
from termweave.indexer.generations.index_setup import is_written
from termweave.indexer.ledger import storage
from termweave.search import Index

LEXICAL = BuildOptions(weights="none", dense="none")


def numbered(count):
    return [{"_id": f"d{number}", "title": f"title {number}", "text": f"text about number{number}"} for number in range(count)]


def command(source, name, *options):
    """`termweave index` of a source without models, as its arguments."""
    return ["index", str(source), name, "--weights", "none", "--dense", "none", *options]


def bulk(engine, index, *lines):
    """Send lines of a bulk request, and refresh the index."""
    body = b"".join(orjson.dumps(line) + b"\n" for line in lines)
    assert not engine.request("POST", f"/{index}/_bulk", params={"refresh": True}, body=body)["errors"]


def write(engine, index, documents):
    """Write whole documents: id -> document."""
    bulk(engine, index, *(line for key, each in documents.items() for line in ({"index": {"_id": key}}, each)))


def check(engine, name, *, deep=True):
    index = live(engine, name)
    with storage.existing(engine, index) as ledger:
        return verify(engine, index, ledger, deep=deep)


def clean(engine, name, source=None):
    """The live generation is what its ledger says, content included, and what the source says."""
    index = Index.open(engine, name)
    with storage.existing(engine, index.generation) as ledger:
        found = verify(engine, index.generation, ledger, deep=True)
        assert ledger.get("state") == "complete"
    assert found.ok, found
    if source is not None:
        assert verify_against_source(engine, index.generation, source, deep=True).ok
    assert not is_written(engine, index.generation)
    assert index.lineage.documents == found.documents
    return found.documents


def sources(engine, index):
    """The `_source` of each document of an index, with the signals' fields."""
    engine.request("POST", f"/{index}/_refresh")
    body = {"size": 1_000, "_source": dialect_of(engine.capabilities).source()}
    hits = engine.request("POST", f"/{index}/_search", body=body)["hits"]["hits"]
    return {hit["_id"]: hit["_source"] for hit in hits}
