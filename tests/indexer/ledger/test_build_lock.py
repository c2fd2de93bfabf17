"""The lease of a name among hosts, on a real server: who holds it, who may take it over, what a lost one means."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest

from termweave.engine import EngineResponseError
from termweave.errors import EngineError, TermweaveError
from termweave.indexer import UpdateMode, build, update
from termweave.indexer.generations.generations import live
from termweave.indexer.ledger import build_lock
from termweave.indexer.ledger.build_lock import Lease, held
from termweave.indexer.pipeline import throttle
from termweave.indexer.preparation import corpus_pass
from tests.indexer.builds import LEXICAL, check, numbered

pytestmark = pytest.mark.engine


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(build_lock, "EXPIRY", 1.0)


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


def test_another_host_is_told_who_holds_it_and_gets_it_when_it_is_given_back(opensearch_engine, name):
    with held(opensearch_engine, name, "here") as lease:
        lease.check()
        with pytest.raises(TermweaveError, match=rf"Another build of '{name}' is running on .* \(process \d+, since"):
            Lease(opensearch_engine, name, "there").take()
    with held(opensearch_engine, name, "there"):
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


def test_a_renewal_whose_answer_was_lost_is_no_loss_and_a_lease_that_was_deleted_is_made_again(opensearch_engine, name):
    lease = Lease(opensearch_engine, name, "here")
    lease.take()
    before = lease._version
    lease.renew()
    lease._version = before  # as if nobody had heard the answer
    lease.renew()
    lease.check()
    opensearch_engine.request("DELETE", lease._path)
    lease.renew()
    lease.check()
    lease.give_back()


class Forbidding:
    """A role that may not see the leases."""

    def request(self, *_, **__):
        raise EngineResponseError(403, "no permissions for [indices:admin/get]", None)

    of_indices = request


def test_a_role_without_permission_builds_under_the_lock_of_its_host():
    with held(Forbidding(), "name", "here") as lease:
        lease.check()


@pytest.mark.parametrize("how", ["build", "update in place", "update into a new generation"])
def test_who_loses_the_lease_in_the_middle_stops_and_another_run_finishes(opensearch_engine, name, corpus, monkeypatch, how):
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

    def taken(stage, *_):
        if stage == "Indexing" and not heirs:
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
