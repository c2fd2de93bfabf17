"""What a generation says it was made from, when its update is stopped on the way."""

from __future__ import annotations

import pytest

from termweave.indexer import UpdateMode, build, up_to_date, update
from termweave.indexer.job import Job
from termweave.search import Index
from tests.indexer.builds import LEXICAL, numbered

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("new", [False, True])
def test_a_repeated_update_that_finds_nothing_left_to_do_is_from_its_own_source(
    opensearch_engine, name, corpus, monkeypatch, new
):
    def stop(*_, **__):
        raise KeyboardInterrupt

    before, after = corpus(numbered(3), name="before.jsonl"), corpus(numbered(5), name="after.jsonl")
    build(opensearch_engine, before, name, LEXICAL)
    update(opensearch_engine, before, name, LEXICAL)
    assert up_to_date(opensearch_engine, before, name, LEXICAL)  # there was nothing to change
    monkeypatch.setattr(Job, "_verify", stop)
    with pytest.raises(KeyboardInterrupt):
        update(opensearch_engine, after, name, LEXICAL, mode=UpdateMode(new=new))
    monkeypatch.undo()
    assert bool(up_to_date(opensearch_engine, before, name, LEXICAL)) == new  # a copy leaves the live generation what it was
    again = update(opensearch_engine, after, name, LEXICAL, mode=UpdateMode(new=new))
    assert (again.counts.new, again.documents) == (0, 5)  # all was sent before it was stopped
    made = Index.open(opensearch_engine, name).lineage
    assert (made.source["name"], made.fingerprint, bool(made.updated)) == ("after.jsonl", "", True)
    assert up_to_date(opensearch_engine, before, name, LEXICAL) is None
