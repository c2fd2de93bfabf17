"""Documents deleted by their ids, where an update ran between the question and the answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from termweave.catalog.lineage import CHANGING, read_lineage, store_lineage
from termweave.cli import run
from termweave.errors import UsageError
from termweave.indexer import build, up_to_date, update
from termweave.indexer.generations import deletion
from termweave.indexer.generations.deletion import find, remove_documents
from termweave.indexer.options import Window
from termweave.search import Index
from termweave.support import paths
from tests.indexer.builds import LEXICAL, check

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


def test_where_nothing_is_deleted_the_generation_stays_what_it_was(opensearch_engine, name, corpus):
    source = corpus(documents(a=5, b=3))
    build(opensearch_engine, source, name, CUT)
    done = remove_documents(opensearch_engine, name, find(opensearch_engine, name, ["nobody"]))
    assert (done.documents, done.absent) == ([], ["nobody"])
    assert up_to_date(opensearch_engine, source, name, CUT)
    assert Index.open(opensearch_engine, name).lineage.updated == ""


def test_a_deletion_that_was_killed_and_repeated_leaves_no_generation_that_a_build_would_make(
    opensearch_engine, name, corpus, monkeypatch
):
    def dies(*_):
        raise KeyboardInterrupt

    source = corpus(documents(a=5, b=3))
    build(opensearch_engine, source, name, CUT)
    monkeypatch.setattr(deletion, "close_writer", dies)
    with pytest.raises(KeyboardInterrupt):
        remove_documents(opensearch_engine, name, find(opensearch_engine, name, ["a"]))
    monkeypatch.undo()
    assert up_to_date(opensearch_engine, source, name, CUT) is None
    remove_documents(opensearch_engine, name, find(opensearch_engine, name, ["a"]))
    assert up_to_date(opensearch_engine, source, name, CUT) is None
    assert check(opensearch_engine, name).ok


def test_an_update_that_was_stopped_is_remembered(opensearch_engine, name, corpus):
    """`--update --since` must compare everything after it."""
    index = build(opensearch_engine, corpus(documents(a=5, b=3)), name, CUT).index
    store_lineage(opensearch_engine, index, replace(read_lineage(opensearch_engine, index), fingerprint=CHANGING))
    remove_documents(opensearch_engine, name, find(opensearch_engine, name, ["a"]))
    assert read_lineage(opensearch_engine, index).fingerprint == CHANGING
    update(opensearch_engine, corpus(documents(b=3)), name, CUT)
    assert read_lineage(opensearch_engine, index).fingerprint == ""


def test_a_generation_is_not_a_name(opensearch_engine, name, corpus):
    """The lock of the generation's name would not keep an update away."""
    index = build(opensearch_engine, corpus(documents(a=5, b=3)), name, CUT).index
    with pytest.raises(UsageError, match=f"'{index}' is one generation of '{name}'. Give the name it was built under: '{name}'"):
        find(opensearch_engine, index, ["a"])


def test_another_hosts_update_is_seen_still(opensearch_engine, name, corpus, monkeypatch, tmp_path, capsys):
    here = paths.state()
    build(opensearch_engine, corpus(documents(a=5, b=3)), name, CUT)
    monkeypatch.setattr("termweave.support.paths.state", lambda: tmp_path / "elsewhere")
    update(opensearch_engine, corpus(documents(a=5, b=3, c=2)), name, CUT)
    monkeypatch.setattr("termweave.support.paths.state", lambda: here)
    remove_documents(opensearch_engine, name, find(opensearch_engine, name, ["a"]))
    assert run(["verify", name, "--url", opensearch_engine.url]) == 4
    assert "It was updated from another host" in capsys.readouterr().err
