"""Builds and updates on a server that turns requests away: they outlast it as long as --patience allows, and no longer."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from termweave.engine import connect
from termweave.engine.client import retries
from termweave.errors import EngineError, EngineUnreachable
from termweave.indexer import BuildOptions, UpdateMode, build, update
from termweave.settings import load
from tests.indexer.builds import LEXICAL, clean, numbered
from tests.indexer.busy_proxy import BusyProxy
from tests.indexer.conftest import HOLD, Bench, own_node, until
from tests.indexer.proxy import Proxy

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("status", [429, pytest.param(503, marks=pytest.mark.nightly)])
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
        assert 2 <= time.monotonic() - began < 20
        engine.close()


def test_a_build_says_at_once_that_it_waits_and_when_it_goes_on(bench):
    """Nothing was said until the patience was over."""
    bench.write(1200)
    with Proxy(int(bench.url.rpartition(":")[2])) as proxy:
        process = bench.start("--patience", "90", url=proxy.url, prelude=HOLD, stdin=subprocess.PIPE)
        until(process, "HELD")
        proxy.away = True
        process.stdin.write("\n")
        process.stdin.flush()
        until(process, "Waiting for the server, up to 90 s; the work goes on by itself when it answers.")
        proxy.away = False
        said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert said.count("The server answers again, after ") == 1
    assert "Waiting" not in said  # once for each time, whoever failed meanwhile
    bench.whole()


@pytest.mark.nightly
def test_a_server_that_is_paused_is_waited_for_and_that_is_said(tmp_path):
    with own_node() as state:
        bench = Bench(tmp_path, state.url, "paused").write(1200)
        bench.environment["TERMWEAVE_TIMEOUT"] = "15"
        process = bench.start(prelude=HOLD, stdin=subprocess.PIPE)
        until(process, "HELD")
        os.kill(state.nodes[0].pid, signal.SIGSTOP)
        try:
            process.stdin.write("\n")
            process.stdin.flush()
            until(process, " in time. Waiting for the server, up to 120 s")
        finally:
            os.kill(state.nodes[0].pid, signal.SIGCONT)
        said, _ = process.communicate(timeout=300)
        assert process.returncode == 0, said
        assert "The server answers again, after " in said
        bench.whole()


def test_the_line_names_each_outage_once_and_a_busy_server_only_if_it_stays_busy(monkeypatch):
    clock, said = [100.0], []
    monkeypatch.setattr(retries.time, "monotonic", lambda: clock[0])
    watched = retries.Outage(said.append)
    busy = EngineError("The server has too many requests.")
    for _ in range(3):  # passes at once: nothing to say
        watched.failed(busy, 60)
        clock[0] += 0.5
    watched.answered(clock[0])
    assert said == []
    for _ in range(2):
        watched.failed(busy, 60)
        clock[0] += 3
        watched.failed(busy, 60)
        watched.failed(EngineUnreachable("Nobody answers."), 60)
        clock[0] += 9
        watched.answered(clock[0])
        watched.answered(clock[0])
    line = "The server has too many requests. Waiting for the server, up to 57 s; the work goes on by itself when it answers."
    assert said == [line, "The server answers again, after 12 s; the work goes on."] * 2


def test_an_answer_to_an_earlier_request_is_no_return_of_the_server(monkeypatch):
    """Another thread's request was on its way when the server went."""
    clock, said = [100.0], []
    monkeypatch.setattr(retries.time, "monotonic", lambda: clock[0])
    watched = retries.Outage(said.append)
    watched.failed(EngineUnreachable("Nobody answers."), 60)
    watched.answered(99.0)
    watched.failed(EngineUnreachable("Nobody answers."), 60)
    assert len(said) == 1
    clock[0] += 4
    watched.answered(103.0)
    assert said[1:] == ["The server answers again, after 4 s; the work goes on."]


def test_when_the_patience_is_over_no_line_says_that_it_waits(monkeypatch):
    clock, said = [100.0], []
    monkeypatch.setattr(retries.time, "monotonic", lambda: clock[0])
    watched = retries.Outage(said.append)
    watched.failed(EngineError("Busy."), 2)
    clock[0] += 2.5
    watched.failed(EngineError("Busy."), 2)
    assert said == []


def test_a_python_program_hears_of_an_outage_by_a_logger(caplog):
    retries.Outage().failed(EngineUnreachable("Nobody answers."), 60)
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("termweave.engine", "WARNING")
    assert record.getMessage().startswith("Nobody answers. Waiting for the server, up to 60 s")
