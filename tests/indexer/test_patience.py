"""Builds and updates on a server that turns requests away: they outlast it as long as --patience allows, and no longer."""

from __future__ import annotations

import time

import pytest

from termweave.engine import connect
from termweave.errors import EngineError
from termweave.indexer import BuildOptions, UpdateMode, build, update
from termweave.settings import load
from tests.indexer.builds import LEXICAL, clean, numbered
from tests.indexer.busy_proxy import BusyProxy

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("status", [429, pytest.param(503, marks=pytest.mark.exhaustive)])
def test_builds_succeed_though_a_fifth_of_all_requests_is_turned_away(opensearch_engine, name, corpus, status):
    """Seven of ten such builds failed: on a lease, a HEAD, a refresh, a settings change."""
    with BusyProxy(opensearch_engine.url, share=0.2, seed=status, status=status, surely="termweave-leases/_doc") as proxy:
        engine = connect(load(url=proxy.url))
        for count in range(1, 4):
            build(engine, corpus(numbered(10 * count)), name, LEXICAL)
            source = corpus(numbered(10 * count + 5))
            update(engine, source, name, LEXICAL, UpdateMode(new=bool(count % 2)))
            assert clean(opensearch_engine, name, source) == 10 * count + 5
        engine.close()
    assert len(proxy.turned_away) > 20
    assert {"GET", "POST", "PUT"} <= {method for method, _ in proxy.turned_away}
    assert any("termweave-leases/_doc" in path for _, path in proxy.turned_away)


def test_an_update_repeats_its_search_for_neighbours(opensearch_engine, name, corpus):
    lines = [
        {"_id": "guitar", "text": "How to tune the strings of an acoustic guitar."},
        {"_id": "bank", "text": "Interest rates of the central bank."},
    ]
    build(opensearch_engine, corpus(lines), name, BuildOptions(neighbours=1))
    with BusyProxy(opensearch_engine.url, share=0.3, seed=1, surely="_msearch") as proxy:
        engine = connect(load(url=proxy.url))
        for number in range(2):
            lines.append({"_id": f"new{number}", "text": f"How to tune the {number} strings of a ukulele."})
            update(engine, corpus(lines), name, BuildOptions())
        engine.close()
    assert any("_msearch" in path for _, path in proxy.turned_away)
    assert clean(opensearch_engine, name) == 4


@pytest.mark.parametrize("turned_away", ["everything", "documents"])
def test_two_seconds_of_patience_are_two_seconds(opensearch_engine, name, corpus, turned_away):
    with BusyProxy(opensearch_engine.url) as proxy:
        engine = connect(load(url=proxy.url))
        began = 0.0

        def progress(stage, *_):
            nonlocal began
            if not began and stage == ("Indexing" if turned_away == "documents" else "Reading"):
                began, proxy.share = time.monotonic(), 1.0

        with pytest.raises(EngineError, match="too many requests"):
            build(engine, corpus(numbered(30)), name, BuildOptions(weights="none", dense="none", patience=2.0), progress)
        assert 2 <= time.monotonic() - began < 5
        engine.close()
