"""Builds and updates on a server that turns requests away: they outlast it as long as --patience allows, and no longer."""

from __future__ import annotations

import os
import re
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


def test_a_build_says_soon_that_it_waits_and_when_it_goes_on(bench):
    """Nothing was said until the patience was over."""
    bench.write(1200)
    with Proxy(int(bench.url.rpartition(":")[2])) as proxy:
        process = bench.start("--patience", "90", url=proxy.url, prelude=HOLD, stdin=subprocess.PIPE)
        until(process, "HELD")
        proxy.away = True
        process.stdin.write("\n")
        process.stdin.flush()
        until(process, "Waiting for the server, up to 88 s; the work goes on by itself.")
        until(process, "Still waiting for the server after ")
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
            until(process, " for 10 s. Waiting for the server, up to 5 s")
        finally:
            os.kill(state.nodes[0].pid, signal.SIGCONT)
        said, _ = process.communicate(timeout=300)
        assert process.returncode == 0, said
        assert "The server has answered, after " in said
        bench.whole()


def test_a_shard_that_is_away_is_an_outage_of_which_the_user_hears(bench):
    """The server answers `_bulk` with 200, and a 503 for each document: nothing was said for minutes, then that it answers again."""
    bench.write(300)
    settings = bench.folder / "settings.json"
    settings.write_text('{"index.routing.allocation.require._name": "nobody"}')
    process = bench.start("--settings", str(settings))
    until(process, "_bulk for 10 s. Waiting for the server, up to ")
    until(process, "Still waiting for the server after ")
    with connect(load(url=bench.url)) as engine:
        body = {"index.routing.allocation.require._name": None}
        engine.request("PUT", f"/{bench.name}-*/_settings", body=body)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert "The server takes the requests again, after " in said
    assert "answers again" not in said
    bench.whole()


@pytest.fixture
def soon(monkeypatch):
    """An outage that speaks soon; returns it, what it said, and a function that waits for so many sentences."""
    monkeypatch.setattr(retries, "_NOTICEABLE", 0.2)
    monkeypatch.setattr(retries, "_REMINDER", 0.4)
    said = []

    def heard(count):
        end = time.monotonic() + 20
        while len(said) < count and time.monotonic() < end:
            time.sleep(0.01)
        return said

    return retries.Outage(said.append), said, heard


BUSY, AWAY = EngineError("The server has too many requests."), EngineUnreachable("Nobody answers.")


def fail(outage, error, patience=60.0):
    now = time.monotonic()
    outage.failed(error, now, now + patience)


def test_what_passes_at_once_is_not_said(soon):
    outage, said, _ = soon
    for error in (BUSY, AWAY):
        fail(outage, error)
        outage.answered(time.monotonic())
    time.sleep(0.5)
    assert said == []


@pytest.mark.parametrize(("error", "end"), [(BUSY, "The server takes the requests again"), (AWAY, "The server answers again")])
def test_an_outage_is_said_again_and_again_until_it_ends(soon, error, end):
    outage, said, heard = soon
    for times in (1, 2):
        said.clear()
        fail(outage, error)
        heard(3)
        fail(outage, error)
        outage.answered(time.monotonic())
        outage.answered(time.monotonic())
        assert said[0] == f"{error.message} Waiting for the server, up to 60 s; the work goes on by itself.", times
        assert said[1].startswith("Still waiting for the server after ")
        assert said[-1].startswith(f"{end}, after ")
        assert len([each for each in said if "Still" not in each]) == 2


def test_an_answer_to_an_earlier_request_is_no_return_of_the_server(soon):
    """Another thread's request was on its way when the server went."""
    outage, said, heard = soon
    before = time.monotonic() - 1
    fail(outage, AWAY)
    heard(1)
    outage.answered(before)
    heard(2)
    assert "Still waiting" in said[1]


def test_a_slow_request_is_no_outage_of_a_server_that_answers_others(soon):
    """ "did not answer in time" and "answers again" were said ten times in a build that was sending throughout."""
    outage, said, _ = soon
    sent = time.monotonic()
    outage.heard()
    outage.failed(AWAY, sent, sent + 60)
    time.sleep(0.5)
    assert said == []


def test_a_request_that_nobody_answers_is_said_while_it_lasts(soon):
    outage, said, heard = soon
    with outage.watching("OpenSearch has not answered GET /", 30, again=True):
        for _ in range(10):  # another request is answered
            time.sleep(0.1)
            outage.heard()
        assert said == []
        sent = heard(2)
    assert sent[0].startswith("OpenSearch has not answered GET / for 1 s. Waiting for the server, up to 29 s;")
    assert "Still waiting" in sent[1]
    outage.answered(time.monotonic())
    assert said[-1].startswith("The server has answered, after ")  # it was slow, and not away


def test_a_request_that_is_not_repeated_promises_nothing(soon):
    outage, _, heard = soon
    with outage.watching("OpenSearch has not answered GET /", 30, again=False):
        (sentence,) = heard(1)
    assert re.search(r" Waiting for the server, up to \d+ s\.$", sentence)


def test_a_late_answer_does_not_shorten_an_outage(soon):
    outage, said, heard = soon
    fail(outage, AWAY)
    with outage.watching("OpenSearch has not answered GET /", 5, again=True):
        heard(4)
    assert all(int(sentence.split("up to ")[1].split(" s")[0]) > 50 for sentence in said)


def test_when_the_patience_is_over_no_line_says_that_it_waits(soon):
    outage, said, _ = soon
    fail(outage, BUSY, 0.1)
    time.sleep(0.5)
    assert said == []


def test_a_python_program_hears_of_an_outage_by_a_logger(caplog, soon):
    outage = retries.Outage()
    fail(outage, AWAY)
    end = time.monotonic() + 20
    while not caplog.records and time.monotonic() < end:
        time.sleep(0.01)
    outage.answered(time.monotonic())
    record = caplog.records[0]
    assert (record.name, record.levelname) == ("termweave.engine", "WARNING")
    assert record.getMessage().startswith("Nobody answers. Waiting for the server, up to 60 s")
