"""What the tests of builds share: small corpora, and verification of what is live."""

from __future__ import annotations

from termweave.indexer import Options, ledgers, verify
from termweave.indexer.generations import live
from termweave.search import Index

LEXICAL = Options(weights="none", dense="none")


def numbered(count):
    return [{"_id": f"d{number}", "title": f"title {number}", "text": f"text about number{number}"} for number in range(count)]


def check(engine, name, *, deep=True):
    index = Index.open(engine, name, weights="none" if "weights" not in signals(engine, name) else None)
    with ledgers.existing(engine, index.generation) as ledger:
        return verify(engine, index.generation, ledger, index.layout, deep=deep)


def signals(engine, name):
    index = live(engine, name)
    return list(engine.request("GET", f"/{index}/_mapping")[index]["mappings"]["_meta"]["termweave"]["signals"])
