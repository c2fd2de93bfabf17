"""Documents deleted by their ids, where an update ran between the question and the answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from termweave.indexer import build, update
from termweave.indexer.passages import Window
from termweave.indexer.removing import find, remove_documents
from termweave.search import Index

from .builds import LEXICAL, check

pytestmark = pytest.mark.engine
CUT = replace(LEXICAL, passages=Window(12, 8))


def documents(**sentences):
    return [{"_id": name, "text": "This is a sentence of it. " * count} for name, count in sentences.items()]


def said(engine, name):
    made = Index.open(engine, name).lineage
    return made.documents, made.passages["count"]


def test_what_an_update_made_of_them_meanwhile_is_deleted_and_what_it_added_is_kept(opensearch_engine, name, corpus):
    build(opensearch_engine, corpus(documents(a=5, b=3, c=2)), name, CUT)
    found = find(opensearch_engine, name, ["a", "new"])
    update(opensearch_engine, corpus(documents(a=12, b=3, c=2, new=2)), name, CUT)
    done = remove_documents(opensearch_engine, name, found)
    assert (done.documents, done.absent) == (["a"], ["new"])
    assert len(done.passages) > len(found.passages)
    assert check(opensearch_engine, name).ok
    assert said(opensearch_engine, name) == (3, check(opensearch_engine, name).counted)


def test_what_is_gone_already_is_not_counted_again(opensearch_engine, name, corpus):
    build(opensearch_engine, corpus(documents(a=5, b=3, c=2)), name, CUT)
    found = find(opensearch_engine, name, ["a"])
    remove_documents(opensearch_engine, name, found)
    again = remove_documents(opensearch_engine, name, found)
    assert (again.documents, again.absent) == ([], ["a"])
    assert check(opensearch_engine, name).ok
    assert said(opensearch_engine, name) == (2, check(opensearch_engine, name).counted)
