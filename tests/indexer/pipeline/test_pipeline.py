"""The pace that all connections share, and stages that run ahead of each other no further than they may."""

from __future__ import annotations

import threading
import time

import pytest

from termweave.errors import EngineError
from termweave.indexer.pipeline import bulk_sender
from termweave.indexer.pipeline.bulk_sender import LARGEST, MB, SMALLEST, Throttle
from termweave.support.batching import ahead


@pytest.fixture
def clock(monkeypatch):
    """A monotonic clock that goes when it is told."""

    class Clock:
        now = 1000.0

    monkeypatch.setattr(bulk_sender.time, "monotonic", lambda: Clock.now)
    return Clock


def test_batches_grow_while_requests_are_quick_and_shrink_when_they_are_slow():
    found = Throttle(10, threading.Event())
    for _ in range(20):
        found.succeeded(found.wait(), found.size, 0.1)
    assert found.size == LARGEST
    for _ in range(20):
        found.succeeded(found.wait(), found.size, 5.0)
    assert found.size == SMALLEST
    found.succeeded(found.wait(), 1000, 0.01)  # the last rest of a source is quick because it is small
    assert found.size == SMALLEST


def test_trouble_is_a_growing_pause_for_all_and_counts_once_however_many_meet_it(clock):
    found = Throttle(1000, threading.Event())
    pauses = []
    for _ in range(6):
        tickets = [found.wait() for _ in range(4)]
        for ticket in tickets:
            found.failed(ticket, EngineError("busy"))
        pauses.append(found._pause_until - clock.now)
        clock.now = found._pause_until
    for number, pause in enumerate(pauses):
        assert 0.1 * 2**number <= pause <= 0.2 * 2**number
    found.succeeded(found.wait(), MB, 1.0)
    found.failed(found.wait(), EngineError("busy"))
    assert found._pause_until - clock.now <= 0.2  # something went through: from the beginning


def test_patience_is_for_the_whole_sender(clock):
    found = Throttle(5, threading.Event())

    def fails(times, *, progress):
        for _ in range(times):
            found.failed(found.wait(), EngineError("busy"), progress=progress)
            clock.now = found._pause_until

    fails(12, progress=True)  # slow, but it goes on
    with pytest.raises(EngineError, match="busy"):
        fails(12, progress=False)


def test_a_stage_runs_ahead_no_further_than_its_queue():
    made = []

    def numbers():
        for number in range(100):
            made.append(number)
            yield number

    stop = threading.Event()
    found = ahead([numbers()], "test", stop, depth=2)
    assert next(found) == 0
    time.sleep(0.3)
    assert len(made) <= 5  # one taken, two waiting, one in the hand, one being made
    assert list(found) == list(range(1, 100))


def test_what_a_stage_raises_comes_out_where_its_item_would_have_been():
    def numbers():
        yield 1
        raise EngineError("broken")

    found = ahead([numbers()], "test", threading.Event())
    assert next(found) == 1
    with pytest.raises(EngineError, match="broken"):
        next(found)
