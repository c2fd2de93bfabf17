"""Repeated requests: what a build repeats, how long, and after which pauses. The server's answers are scripted."""

import time
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from termweave.engine import EngineResponseError, connect
from termweave.engine.client import retries
from termweave.engine.client.retries import seconds_to_wait
from termweave.errors import EngineUnreachable
from termweave.settings import load

BUSY = (429, {"error": {"type": "busy", "reason": "too many requests"}})
AWAY = (503, {"error": {"type": "away", "reason": "no cluster manager"}})
MISSING = (404, {"error": {"type": "index_not_found_exception", "reason": "no such index [notes]", "index": "notes"}})


@pytest.fixture
def server(scripted, monkeypatch):
    """A connection to `scripted`, with pauses a twentieth as long."""
    monkeypatch.setattr(retries, "_FIRST_PAUSE", 0.01)
    with connect(load(url=scripted.url)) as engine:
        yield engine


@pytest.mark.parametrize("request_", [("HEAD", "/index"), ("POST", "/index/_refresh"), ("PUT", "/leases/_doc/a")], ids=str)
def test_a_build_repeats_every_request_that_the_server_turns_away(server, scripted, request_):
    engine = server.patient(30)
    scripted.queue = [BUSY, AWAY, BUSY, AWAY, (200, {})]
    assert engine.request(*request_) in ({}, True)
    assert len(scripted.seen) == 5


def test_a_write_whose_answer_is_lost_is_not_sent_twice(server, scripted):
    engine = server.patient(30)
    scripted.queue = [(None, None), (200, {})]
    with pytest.raises(EngineUnreachable):
        engine.request("POST", "/_reindex", body={})
    assert len(scripted.seen) == 1
    scripted.queue = [(None, None), (200, {})]
    assert engine.request("PUT", "/index/_settings", body={}) == {}  # to set it twice changes nothing


def test_an_index_that_a_cluster_did_not_find_while_it_began_is_asked_for_again(server, scripted):
    there = (200, {"notes-1": {"aliases": {"notes": {}}}})
    scripted.queue = [MISSING, AWAY, MISSING, there, there]
    assert server.of_indices("/notes/_alias", "aliases") == there[1]
    assert len(scripted.seen) == 5


@pytest.mark.parametrize("second", [(200, {}), MISSING, (403, {"error": {"type": "security_exception", "reason": "no"}})])
def test_an_index_that_is_missing_is_said_to_be(server, scripted, second):
    """The second answer is that of an old server, which does not know `ignore_unavailable`, the third that to a role that may not ask."""
    scripted.queue = [MISSING, second]
    with pytest.raises(EngineResponseError, match="no such index") as missing:
        server.of_indices("/notes/_alias", "aliases")
    assert missing.value.status == 404
    assert len(scripted.seen) == 2


@pytest.mark.parametrize(("patience", "limit", "fails", "attempts"), [(30, None, 2, 3), (None, 0.05, 9, 1), (None, 60, 9, 4)])
def test_attempts_end_with_patience_or_the_time_out_and_what_was_waited_is_counted(monkeypatch, patience, limit, fails, attempts):
    monkeypatch.setattr(retries, "_FIRST_PAUSE", 0.01)
    calls, repeating = [], retries.Retries(patience)

    def call(_):
        calls.append(1)
        time.sleep(0.06)
        if len(calls) <= fails:
            raise EngineUnreachable("away")

    repeating._answered = True  # an address that never answered is rather wrong
    with pytest.raises(EngineUnreachable) if attempts <= fails else nullcontext():
        repeating.run(call, repeatable=True, limit=limit)
    assert len(calls) == attempts
    assert (0 < repeating.waited < 5) == (attempts > fails)


@pytest.mark.parametrize("seconds", [0.0, 1.5])
def test_patience_ends_when_it_is_over_and_later_requests_get_none_of_their_own(server, scripted, seconds):
    engine = server.patient(seconds)
    scripted.answers["*"] = BUSY
    began = time.monotonic()
    with pytest.raises(EngineResponseError, match="too many requests"):
        engine.request("PUT", "/index/_settings", body={})
    assert seconds <= time.monotonic() - began < seconds + 10
    scripted.seen.clear()
    with pytest.raises(EngineResponseError):
        engine.request("DELETE", "/index")
    assert len(scripted.seen) <= 2
    del scripted.answers["*"]
    scripted.queue = [(200, {}), BUSY, (200, {})]
    engine.request("GET", "/")
    if seconds:
        engine.request("DELETE", "/index")  # the server was there again: patience begins anew


def test_a_request_that_fails_otherwise_shows_that_the_server_answers(server, scripted):
    engine = server.patient(0.5)
    scripted.queue = [BUSY, (400, {"error": "no"})]
    with pytest.raises(EngineResponseError, match="400"):
        engine.request("PUT", "/index")
    time.sleep(0.6)
    scripted.queue = [BUSY, (200, {})]
    assert engine.request("PUT", "/index") == {}


def test_the_pause_is_as_long_as_the_server_asks(server, scripted):
    engine = server.patient(30)
    scripted.headers = {"Retry-After": "1"}
    scripted.queue = [BUSY, (200, {})]
    began = time.monotonic()
    engine.request("PUT", "/index")
    assert 1 <= time.monotonic() - began < 10


def test_retry_after_holds_seconds_or_a_date():
    later = datetime.now(UTC) + timedelta(seconds=100)
    assert 90 < seconds_to_wait({"retry-after": format_datetime(later, usegmt=True)}) < 101
    assert seconds_to_wait({"Retry-After": "7"}) == 7
    assert [seconds_to_wait(headers) for headers in ({}, {"Retry-After": "soon"}, {"Retry-After": "-1"})] == [None, None, None]


def test_a_repeated_request_does_not_wait_longer_for_its_answer_than_patience_lasts(server, scripted):
    engine = server.patient(1.5)
    scripted.queue, scripted.delays = [BUSY, BUSY], [0, 30]
    began = time.monotonic()
    with pytest.raises(EngineUnreachable, match="in time"):
        engine.request("PUT", "/index")
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("final", [(400, {"error": "no"}), (404, {"error": "gone", "found": False}), (403, {"error": "no"})])
def test_the_server_answers_again_is_said_once_the_work_goes_on(server, scripted, monkeypatch, final):
    """It was said before the error that ended the command, and by what tidied up after that."""
    monkeypatch.setattr(retries, "_NOTICEABLE", 0.05)
    said = []
    engine = server.patient(30, said.append)
    scripted.queue = [AWAY] * 4 + [final, (200, {}), (200, {})]

    def work():
        try:
            engine.request("PUT", "/index")
        finally:
            engine.request("DELETE", "/leases/_doc/a")

    with pytest.raises(EngineResponseError, match=str(final[0])):
        work()
    time.sleep(0.2)
    assert [each.partition(". ")[2][:11] for each in said] == ["Waiting for"], said
    engine.request("GET", "/")  # somebody expected the error, and goes on
    assert said[1].startswith("The server has answered after ")
    assert len(said) == 2
