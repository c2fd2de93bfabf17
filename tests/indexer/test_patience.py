"""An outage of the server as a build says it: soon, again and again, and when it is over. Real outages are in `test_faults`."""

from __future__ import annotations

import time

import pytest

from termweave.engine.client import retries
from termweave.errors import EngineError, EngineUnreachable


@pytest.fixture
def soon(monkeypatch):
    """An outage that speaks soon; returns it, what it said, and a function that waits for so many sentences."""
    monkeypatch.setattr(retries, "_NOTICEABLE", 0.2)
    monkeypatch.setattr(retries, "_REMINDER", 0.3)
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


def test_what_passes_at_once_or_ends_with_the_patience_or_a_slow_request_among_others_is_not_said(soon):
    outage, said, _ = soon
    for error in (BUSY, AWAY):
        fail(outage, error)
        outage.answered(time.monotonic())
    fail(outage, BUSY, 0.1)
    sent = time.monotonic()
    outage.heard()
    outage.failed(AWAY, sent, sent + 60)
    time.sleep(0.5)
    assert said == []


@pytest.mark.parametrize("error", [BUSY, AWAY], ids=["busy", "away"])
def test_an_outage_is_said_again_and_again_until_it_ends(soon, error):
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
        assert said[-1].startswith("The server has answered after ")
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
    assert said[-1].startswith("The server has answered after ")
