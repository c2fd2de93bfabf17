"""Documents deleted by their ids, where an update ran between the question and the answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from termweave.catalog import lineage
from termweave.errors import UsageError
from termweave.indexer import up_to_date
from termweave.indexer.generations import deletion
from termweave.indexer.generations.deletion import find, remove_documents
from termweave.indexer.options import Window
from termweave.search import Index
from tests.indexer.builds import LEXICAL
from tests.indexer.conftest import stopping

pytestmark = pytest.mark.engine
CUT = replace(LEXICAL, passages=Window(12, 8))


def documents(**sentences):
    return {name: "This is a sentence of it. " * count for name, count in sentences.items()}


def remove(desk, *ids):
    return remove_documents(desk.engine, desk.name, find(desk.engine, desk.name, ids))


def agrees(desk, count):
    """Index, ledger and lineage say the same number of documents and passages."""
    difference, stored = desk.check(), Index.open(desk.engine, desk.name).lineage
    return difference.ok and (stored.documents, stored.passages["count"]) == (count, difference.counted)


def test_what_an_update_made_of_them_meanwhile_is_deleted_and_what_it_added_is_kept(desk):
    desk.build(documents(a=5, b=3, c=2), CUT)
    before = find(desk.engine, desk.name, ["a", "new"])
    desk.update(documents(a=12, b=3, c=2, new=2), CUT)
    done = remove_documents(desk.engine, desk.name, before)
    assert (done.documents, done.absent) == (["a"], ["new"])
    assert len(done.passages) > len(before.passages)
    assert agrees(desk, 3)
    again = remove_documents(desk.engine, desk.name, before)  # what is gone already is not counted again
    assert (again.documents, again.absent) == ([], ["new", "a"])
    assert agrees(desk, 3)


def test_where_nothing_is_deleted_the_generation_stays_what_it_was(desk):
    source = desk.source(documents(a=5, b=3))
    index = desk.build(source, CUT).index
    done = remove(desk, "nobody")
    assert (done.documents, done.absent) == ([], ["nobody"])
    assert up_to_date(desk.engine, source, desk.name, CUT)
    assert Index.open(desk.engine, desk.name).lineage.updated == ""
    with pytest.raises(
        UsageError, match="is one generation of"
    ):  # the lock of the generation's name would not keep an update away
        find(desk.engine, index, ["a"])


def test_a_deletion_that_was_killed_and_repeated_leaves_no_generation_that_a_build_would_make(desk):
    source = desk.source(documents(a=5, b=3))
    desk.build(source, CUT)
    with stopping(deletion, "close_writer"), pytest.raises(KeyboardInterrupt):
        remove(desk, "a")
    assert up_to_date(desk.engine, source, desk.name, CUT) is None
    remove(desk, "a")
    assert up_to_date(desk.engine, source, desk.name, CUT) is None
    assert desk.check().ok


def test_an_update_that_was_stopped_is_remembered(desk):
    """`--update --since` must compare everything after it."""

    def fingerprint():
        return lineage.read_lineage(desk.engine, index).fingerprint

    index = desk.build(documents(a=5, b=3), CUT).index
    lineage.store_lineage(desk.engine, index, replace(lineage.read_lineage(desk.engine, index), fingerprint=lineage.CHANGING))
    remove(desk, "a")
    assert fingerprint() == lineage.CHANGING
    desk.update(documents(b=3), CUT)
    assert fingerprint() == ""
