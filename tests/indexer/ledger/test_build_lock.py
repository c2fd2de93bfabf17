"""The lease of a name among hosts, on a real server: who holds it, who may take it over, what a lost one means."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from functools import partial

import pytest

from termweave.catalog.generations import live
from termweave.engine import EngineResponseError, connect
from termweave.errors import EngineError, TermweaveError
from termweave.indexer import UpdateMode, build, update
from termweave.indexer.generations.index_setup import close_writer, is_written, open_writer, writer
from termweave.indexer.ledger import build_lock
from termweave.indexer.ledger.build_lock import Lease, hold_lease
from termweave.indexer.pipeline import throttle
from termweave.indexer.preparation import corpus_pass
from termweave.settings import load
from tests.engine.forwarding import ForwardingProxy
from tests.indexer.builds import LEXICAL, check, numbered
from tests.indexer.conftest import HOLD, Bench, until

pytestmark = pytest.mark.engine


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Leases expire soon, but not between two requests of a busy machine."""
    monkeypatch.setattr(build_lock, "EXPIRY", 3.0)


@pytest.fixture
def old(monkeypatch):
    """Leases written in this test look an hour old, or an hour early: clocks of hosts differ."""

    def by(seconds):
        now = time.time
        monkeypatch.setattr(build_lock.time, "time", lambda: now() + seconds)
        seen = Lease._expired

        def undone(*arguments):
            monkeypatch.setattr(build_lock.time, "time", now)
            return seen(*arguments)

        monkeypatch.setattr(Lease, "_expired", undone)

    return by


def test_another_host_is_told_who_holds_it_and_gets_it_when_it_is_given_back(opensearch_engine, name, monkeypatch):
    monkeypatch.setattr(build_lock, "EXPIRY", 3600.0)
    with hold_lease(opensearch_engine, name, "here") as lease:
        lease.check()
        with pytest.raises(TermweaveError, match=rf"Another build of '{name}' is running on .* \(process \d+, since"):
            Lease(opensearch_engine, name, "there").take()
    with hold_lease(opensearch_engine, name, "there"):
        pass


@pytest.mark.parametrize("clock", [-3600, 3600])
def test_a_lease_that_nobody_renews_is_taken_over_whatever_the_clocks_say(opensearch_engine, name, old, clock):
    old(clock)
    dead = Lease(opensearch_engine, name, "there")
    dead.take()
    heir = Lease(opensearch_engine, name, "here")
    heir.take()
    dead.renew()  # it was not dead, only slow
    with pytest.raises(EngineError, match="has taken over"):
        dead.check()
    heir.renew()
    heir.check()
    heir.give_back()


def test_a_holder_with_a_strange_clock_that_renews_is_left_alone(opensearch_engine, name, old):
    old(-3600)
    holder = Lease(opensearch_engine, name, "there")
    holder.take()
    threading.Timer(0.3, holder.renew).start()
    with pytest.raises(TermweaveError, match="is running on"):
        Lease(opensearch_engine, name, "here").take()
    holder.give_back()


def test_a_holder_that_sends_is_left_alone_though_no_renewal_gets_through(opensearch_engine, name, old):
    """On a busy server renewals waited behind the documents for 31 s: another host could take a living build over."""
    old(-3600)
    holder = Lease(opensearch_engine, name, "there")
    holder.take()
    index = f"{name}-20260101000000-00000000"
    opensearch_engine.request("PUT", f"/{index}", body={"aliases": {writer(index, holder.number): {}}})
    ended = threading.Event()

    def send():
        while not ended.wait(0.3):
            opensearch_engine.request("POST", f"/{index}/_doc", body={})

    sending = threading.Thread(target=send)
    sending.start()
    with pytest.raises(TermweaveError, match="is running on"):
        Lease(opensearch_engine, name, "here").take()
    ended.set()
    sending.join()
    Lease(opensearch_engine, name, "here").take()


class SlowWithLeases(ForwardingProxy):
    """A server that answers the second write of a lease, its first renewal, after six seconds."""

    writes = 0

    def intercept(self, method, path, headers, body):
        del headers, body
        if method == "PUT" and f"{build_lock.INDEX}/_doc" in path:
            self.writes += 1
            if self.writes == 2:
                time.sleep(6)


def test_a_renewal_that_takes_long_is_no_outage(opensearch_engine, name, monkeypatch):
    """It was said ten times in a build that was sending throughout."""
    monkeypatch.setattr(build_lock, "EXPIRY", 30.0)
    monkeypatch.setattr(build_lock, "BEAT", 0.1)
    said = []
    with SlowWithLeases(opensearch_engine.url) as proxy, connect(load(url=proxy.url)) as engine:
        with hold_lease(engine.patient(60, said.append), name, "here") as lease:
            first, end = lease._version, time.monotonic() + 60
            while lease._version == first and time.monotonic() < end:
                time.sleep(0.1)
            assert lease._version != first
        assert lease.engine is not engine
    assert said == []


def test_of_two_heirs_one_gets_it(opensearch_engine, name, old):
    old(-3600)
    Lease(opensearch_engine, name, "there").take()
    got = []

    def take(place):
        try:
            Lease(opensearch_engine, name, place).take()
        except TermweaveError:
            return
        got.append(place)

    threads = [threading.Thread(target=take, args=(place,)) for place in ("one", "two", "three")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1


def test_the_same_place_never_waits_for_its_own_dead(opensearch_engine, name, monkeypatch):
    monkeypatch.setattr(build_lock, "EXPIRY", 3600.0)
    Lease(opensearch_engine, name, "here").take()
    heir = Lease(opensearch_engine, name, "here")
    heir.take()
    heir.give_back()


def test_a_renewal_whose_answer_was_lost_is_no_loss_and_a_lease_that_is_gone_is_never_written_again(opensearch_engine, name):
    lease = Lease(opensearch_engine, name, "here")
    lease.take()
    before = lease._version
    lease.renew()
    lease._version = before  # as if nobody had heard the answer
    lease.renew()
    lease.check()
    heir = Lease(opensearch_engine, name, "there")
    opensearch_engine.request("DELETE", lease._path)
    heir.take()
    assert heir.number > lease.number
    heir.give_back()  # the first builder finds no document, as if nobody had been there
    for _ in range(2):
        assert not lease.renew()
        with pytest.raises(EngineError, match="has taken over"):
            lease.check()
    assert lease._read() is None


def test_a_builder_that_was_paused_renews_its_lease_before_it_writes(opensearch_engine, name, monkeypatch):
    lease = Lease(opensearch_engine, name, "here")
    lease.take()
    opensearch_engine.request("DELETE", lease._path)
    lease.check()  # it was renewed a moment ago
    now = time.monotonic
    monkeypatch.setattr(build_lock.time, "monotonic", lambda: now() + 60)
    with pytest.raises(EngineError, match="has taken over"):
        lease.check()


class Forbidding:
    """A role that may not see the leases."""

    def request(self, *_, **__):
        raise EngineResponseError(403, "no permissions for [indices:admin/get]", None)

    of_indices = request


def test_a_role_without_permission_builds_under_the_lock_of_its_host():
    with hold_lease(Forbidding(), "name", "here") as lease:
        lease.check()


@pytest.mark.parametrize("how", ["build", "update in place", "update into a new generation"])
def test_who_loses_the_lease_in_the_middle_stops_and_another_run_finishes(opensearch_engine, name, corpus, monkeypatch, how):
    monkeypatch.setattr(build_lock, "EXPIRY", 3600.0)
    monkeypatch.setattr(corpus_pass, "_BLOCK_DOCUMENTS", 50)
    monkeypatch.setattr(throttle, "SMALLEST", 4096)
    monkeypatch.setattr(throttle, "FIRST", 4096)
    monkeypatch.setattr(throttle, "LARGEST", 4096)
    before = build(opensearch_engine, corpus(numbered(600)), name, LEXICAL)
    source = corpus([{**each, "text": "changed " + each["text"]} for each in numbered(600)])
    holders, heirs = [], []
    check_lease = Lease.check

    def noted(lease):
        holders.append(lease)
        check_lease(lease)

    def taken(stage, done, *_):
        if stage == "Indexing" and done and not heirs:
            opensearch_engine.request("DELETE", f"/{build_lock.INDEX}/_doc/{name}")
            heirs.append(Lease(opensearch_engine, name, "elsewhere"))
            heirs[0].take()
            holders[-1].renew()  # as every ten seconds

    monkeypatch.setattr(Lease, "check", noted)
    run = build if how == "build" else partial(update, mode=UpdateMode(new="new" in how))
    with pytest.raises(EngineError, match=f"Another build of '{name}' has taken over"):
        run(opensearch_engine, source, name, LEXICAL, progress=taken)
    assert live(opensearch_engine, name) == before.index
    request = opensearch_engine.request
    request("POST", f"/{before.index}/_refresh")
    assert request("GET", f"/{name}/_count")["count"] == 600  # the live generation is whole
    changed = request("POST", f"/{name}/_count", body={"query": {"match": {"text": "changed"}}})["count"]
    assert (changed < 600) if how == "update in place" else (changed == 0)
    with pytest.raises(TermweaveError, match="is running on"):  # nor does it come back while the other one works
        run(opensearch_engine, source, name, LEXICAL)
    heirs[0].give_back()
    after = run(opensearch_engine, source, name, LEXICAL)
    assert after.sent < 600
    assert check(opensearch_engine, name).ok
    assert request("POST", f"/{name}/_count", body={"query": {"match": {"text": "changed"}}})["count"] == 600


@pytest.mark.parametrize("how", ["update in place", "build", "update into a new generation"])
def test_the_server_refuses_what_a_builder_sends_after_another_has_had_the_lease(
    opensearch_engine, name, corpus, monkeypatch, how
):
    """The builder is paused between its last look at the lease and a request. Meanwhile another builder writes, ends and gives the lease back."""
    monkeypatch.setattr(corpus_pass, "_BLOCK_DOCUMENTS", 50)
    monkeypatch.setattr(throttle, "SMALLEST", 4096)
    monkeypatch.setattr(throttle, "FIRST", 4096)
    monkeypatch.setattr(throttle, "LARGEST", 4096)
    request, heirs = opensearch_engine.request, []
    before = build(opensearch_engine, corpus(numbered(600)), name, LEXICAL).index
    source = corpus([{**each, "text": "changed " + each["text"]} for each in numbered(600)])

    def taken(stage, done, *_):
        if stage == "Indexing" and 0 < done < 600 and not heirs:
            (index,) = (key for key in request("GET", f"/{name}-*/_alias") if is_written(opensearch_engine, key))
            request("DELETE", f"/{build_lock.INDEX}/_doc/{name}")
            heirs.append(Lease(opensearch_engine, name, "elsewhere"))
            heirs[0].take()
            open_writer(opensearch_engine, index, heirs[0])
            close_writer(opensearch_engine, index, heirs[0])
            heirs[0].give_back()

    monkeypatch.setattr(Lease, "check", lambda _: None)
    run = build if how == "build" else partial(update, mode=UpdateMode(new="new" in how))
    with pytest.raises(EngineError, match=f"Another build of '{name}' has taken over.* Look whether that build runs"):
        run(opensearch_engine, source, name, LEXICAL, progress=taken)
    assert heirs
    assert live(opensearch_engine, name) == before
    assert run(opensearch_engine, source, name, LEXICAL).sent < 600
    assert check(opensearch_engine, name).ok


def test_a_generation_is_not_published_after_another_builder_has_had_the_lease(opensearch_engine, name, corpus, monkeypatch):
    before = build(opensearch_engine, corpus(numbered(10)), name, LEXICAL).index

    def taken(index):
        open_writer(opensearch_engine, index, Lease(opensearch_engine, name, "elsewhere"))

    with pytest.raises(EngineError, match="has taken over"):
        build(opensearch_engine, corpus(numbered(20)), name, LEXICAL, gate=taken)
    assert live(opensearch_engine, name) == before


_SOON = """
from termweave.indexer.ledger import build_lock
build_lock.BEAT, build_lock.EXPIRY = 1.0, 4.0
"""


def test_a_builder_that_was_paused_sends_nothing_after_another_host_has_built(bench, tmp_path):
    """The process is stopped in the middle, as a suspended machine or a paused container is."""
    bench.write(1200, "first")
    paused = bench.start(prelude=_SOON + HOLD, stdin=subprocess.PIPE)
    until(paused, "HELD")
    os.kill(paused.pid, signal.SIGSTOP)
    try:
        time.sleep(5)
        heir = Bench(tmp_path / "other", bench.url, bench.name).write(1300, "second")
        said = heir.run(prelude=_SOON)
        assert "does not renew its lease. Looking for 4 s whether it lives." in said
        index = heir.whole()
    finally:
        os.kill(paused.pid, signal.SIGCONT)
    said, _ = paused.communicate("\n", timeout=120)
    assert paused.returncode != 0
    assert f"Another build of '{bench.name}' has taken over" in said
    assert "Traceback" not in said
    assert heir.whole() == index
