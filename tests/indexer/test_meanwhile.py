"""What somebody does to the live generation while a build or an update of its name runs."""

from __future__ import annotations

import pytest

from termweave.errors import EngineError
from termweave.indexer import build, generations, update
from termweave.search import lineage

from .builds import LEXICAL, check, numbered

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("updating", [False, True], ids=["build", "update"])
def test_a_live_generation_deleted_meanwhile_is_replaced_all_the_same(opensearch_engine, name, corpus, updating):
    first = build(opensearch_engine, corpus(numbered(5)), name, LEXICAL)

    def gate(_):
        opensearch_engine.request("DELETE", f"/{first.index}")

    if updating:
        update(opensearch_engine, corpus(numbered(7)), name, LEXICAL, new=True, gate=gate)
    else:
        build(opensearch_engine, corpus(numbered(7)), name, LEXICAL, gate=gate)
    assert check(opensearch_engine, name).ok
    made = lineage.read(opensearch_engine, generations.live(opensearch_engine, name))
    assert (made.documents, made.complete) == (7, True)


@pytest.mark.parametrize("back", [True, False], ids=["rolled back", "alias removed"])
def test_an_update_in_place_of_what_is_not_live_any_more_says_so(opensearch_engine, name, corpus, back):
    older = build(opensearch_engine, corpus(numbered(5)), name, LEXICAL)
    newer = build(opensearch_engine, corpus(numbered(6)), name, LEXICAL)
    done = []

    def progress(stage, *_):
        if stage == "Indexing" and not done:
            done.append(stage)
            if back:
                generations.promote(opensearch_engine, name, older.index)
            else:
                opensearch_engine.request("DELETE", f"/{newer.index}/_alias/{name}")

    said = f"was updated, and is not live: .*{older.index}" if back else "somebody removed the alias"
    with pytest.raises(EngineError, match=said) as moved:
        update(opensearch_engine, corpus(numbered(8)), name, LEXICAL, progress=progress)
    assert moved.value.hint == f"'termweave promote {name} {newer.index}' publishes it."
    assert generations.live(opensearch_engine, name) == (older.index if back else None)
    generations.promote(opensearch_engine, name, newer.index)
    assert check(opensearch_engine, name).ok
    assert lineage.read(opensearch_engine, newer.index).documents == 8
