"""The lease of a name among hosts, on a real server: who holds it, who may take it over, what a lost one means."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pytest

from termweave.engine import EngineResponseError
from termweave.errors import EngineError, TermweaveError
from termweave.indexer.generations.index_setup import open_writer, writer
from termweave.indexer.ledger import build_lock
from termweave.indexer.ledger.build_lock import Lease, hold_lease
from tests.indexer.builds import numbered
from tests.indexer.conftest import Bench, before, ended


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


@pytest.fixture
def take(opensearch_engine, name):
    """A function that takes the lease for a place, and returns it."""

    def call(place):
        lease = Lease(opensearch_engine, name, place)
        lease.take()
        return lease

    return call


@pytest.mark.parametrize("clock", [-3600, 3600])
def test_a_lease_that_nobody_renews_is_taken_over_whatever_the_clocks_say(take, old, clock):
    old(clock)
    dead = take("there")
    heir = take("here")
    dead.renew()  # it was not dead, only slow
    with pytest.raises(EngineError, match="has taken over"):
        dead.check()
    heir.renew()
    heir.check()


@pytest.mark.parametrize("living", ["renews", "sends"])
def test_a_holder_with_a_strange_clock_that_renews_or_sends_is_left_alone(opensearch_engine, name, take, old, living):
    """On a busy server renewals waited behind the documents for 31 s: another host could take a living build over."""
    old(-3600)
    holder, ended = take("there"), threading.Event()
    index = f"{name}-20260101000000-00000000"
    opensearch_engine.request("PUT", f"/{index}", body={"aliases": {writer(index, holder.number): {}}})

    def live():
        while not ended.wait(0.3):
            holder.renew() if living == "renews" else opensearch_engine.request("POST", f"/{index}/_doc", body={})

    thread = threading.Thread(target=live)
    thread.start()
    with pytest.raises(TermweaveError, match="is running on"):
        take("here")
    ended.set()
    thread.join()
    holder.give_back()
    take("here")


def test_of_two_heirs_one_gets_it(take, old):
    old(-3600)
    take("there")

    def got(place):
        with suppress(TermweaveError):
            return take(place)

    with ThreadPoolExecutor() as pool:
        assert len([each for each in pool.map(got, ("one", "two", "three")) if each]) == 1


def test_the_same_place_never_waits_for_its_own_dead(take, monkeypatch):
    monkeypatch.setattr(build_lock, "EXPIRY", 3600.0)
    take("here")
    take("here")


def test_a_renewal_whose_answer_was_lost_is_no_loss_and_a_lease_that_is_gone_is_never_written_again(opensearch_engine, take):
    lease = take("here")
    before = lease._version
    lease.renew()
    lease._version = before  # as if nobody had heard the answer
    lease.renew()
    lease.check()
    opensearch_engine.request("DELETE", lease._path)
    heir = take("there")
    assert heir.number > lease.number
    heir.give_back()  # the first builder finds no document, as if nobody had been there
    for _ in range(2):
        assert not lease.renew()
        with pytest.raises(EngineError, match="has taken over"):
            lease.check()
    assert lease._read() is None


def test_a_builder_that_was_paused_renews_its_lease_before_it_writes(opensearch_engine, take, monkeypatch):
    lease = take("here")
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
@pytest.mark.usefixtures("small_steps")
def test_who_loses_the_lease_in_the_middle_stops_and_another_run_finishes(desk, monkeypatch, how):
    """The holder sees it at its next look. What one sends that was paused after its last look, the server refuses: see the last test."""
    monkeypatch.setattr(build_lock, "EXPIRY", 3600.0)
    engine, holders, heirs = desk.engine, [], []
    live = desk.build(600).index
    source = desk.source([{**each, "text": "changed " + each["text"]} for each in numbered(600)])

    def taken(stage, done, *_):
        if stage == "Indexing" and 0 < done < 600 and not heirs:
            engine.request("DELETE", f"/{build_lock.INDEX}/_doc/{desk.name}")
            heirs.append(Lease(engine, desk.name, "elsewhere"))
            heirs[0].take()
            holders[-1].renew()  # as every ten seconds

    run = desk.build if how == "build" else partial(desk.update, new="new" in how)
    lost = f"Another build of '{desk.name}' has taken over.* Look whether another build runs"
    with before(Lease, "check", holders.append), pytest.raises(EngineError, match=lost):
        run(source, progress=taken)
    assert heirs
    assert desk.live == live
    engine.request("POST", f"/{live}/_refresh")
    assert desk.request("GET", "/_count")["count"] == 600  # the live generation is whole
    changed = {"query": {"match": {"text": "changed"}}}
    count = desk.request("POST", "/_count", changed)["count"]
    assert (count < 600) if how == "update in place" else (count == 0)
    with pytest.raises(TermweaveError, match="is running on"):  # nor does it come back while the other one works
        run(source)
    heirs[0].give_back()
    assert run(source).sent < 600
    assert desk.check().ok
    assert desk.request("POST", "/_count", changed)["count"] == 600


def test_a_generation_is_not_published_after_another_builder_has_had_the_lease(desk):
    before = desk.build(10).index

    def taken(index):
        open_writer(desk.engine, index, Lease(desk.engine, desk.name, "elsewhere"))

    with pytest.raises(EngineError, match="has taken over"):
        desk.build(20, gate=taken)
    assert desk.live == before


_SOON = """
from termweave.indexer.ledger import build_lock
build_lock.BEAT, build_lock.EXPIRY = 0.5, 2.0
"""


def test_a_builder_that_was_paused_sends_nothing_after_another_host_has_built(bench, tmp_path):
    """The process is stopped in the middle, as a suspended machine or a paused container is."""
    bench.write(1200, "first")
    paused = bench.held(prelude=_SOON)
    os.kill(paused.pid, signal.SIGSTOP)
    try:
        time.sleep(2.5)
        heir = Bench(tmp_path / "other", bench.url, bench.name).write(1300, "second")
        said = heir.run(prelude=_SOON)
        assert "does not renew its lock. Watching for 2 s whether that build is still alive." in said
        index = heir.whole()
    finally:
        os.kill(paused.pid, signal.SIGCONT)
    said = ended(paused, None)
    assert paused.returncode != 0
    assert f"Another build of '{bench.name}' has taken over" in said
    assert heir.whole() == index
