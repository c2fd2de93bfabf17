"""What the tests of builds share: small corpora, and verification of what is live."""

from __future__ import annotations

from termweave.indexer import Options, ledgers, verify
from termweave.indexer.generations import live

LEXICAL = Options(weights="none", dense="none")


def numbered(count):
    return [{"_id": f"d{number}", "title": f"title {number}", "text": f"text about number{number}"} for number in range(count)]


def check(engine, name, *, deep=True):
    index = live(engine, name)
    with ledgers.existing(engine, index) as ledger:
        return verify(engine, index, ledger, deep=deep)
