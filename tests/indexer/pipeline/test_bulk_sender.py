"""Sending: what is retried, refused, given up, the pace that all connections share, and what is said of an outage. The server is scripted."""

import threading
import time
from types import SimpleNamespace

import pytest

from termweave.engine import EngineResponseError
from termweave.engine.client import retries
from termweave.engine.client.retries import Outage
from termweave.errors import EngineError, EngineUnreachable
from termweave.indexer.ledger.build_lock import Lease
from termweave.indexer.pipeline import bulk_sender
from termweave.indexer.pipeline.bulk_sender import LARGEST, MB, SMALLEST, BulkItem, BulkSender, Throttle
from termweave.support.batching import ahead


class Script:
    """Answers `_bulk` requests as a list of functions and errors says; afterwards takes everything."""

    timeout = 60.0

    def __init__(self, *answers):
        self.answers, self.requests = list(answers), []
        self.outage, self._lock = Outage(), threading.Lock()

    def request(self, method, path, *, params, body, timeout, retry):
        assert timeout is None or timeout <= 60
        assert (method, retry) == ("POST", False)
        assert path == "/target.write-0/_bulk"
        assert params["require_alias"]
        ids = [line.decode() for line in body.splitlines()[::2]]
        with self._lock:
            self.requests.append(ids)
            answer = self.answers.pop(0) if self.answers else take
        if isinstance(answer, EngineError):
            raise answer
        return answer(ids)

    def of_indices(self, *_):
        raise EngineResponseError(404, "no such index", None)


def take(ids):
    return {"items": [{"index": {"status": 201}} for _ in ids]}


def reject(*unlucky, status=429, reason="rejected execution"):
    refusal = {"status": status, "error": {"reason": reason}}
    return lambda ids: {"items": [{"index": refusal if identity in unlucky else {"status": 200}} for identity in ids]}


def items(*ids):
    return [BulkItem(identity, f"{identity}\n{{}}\n".encode(), place) for place, identity in enumerate(ids, 1)]


def send(script, *batches, patience=5.0, workers=1):
    done, refused = [], []
    stop = threading.Event()
    sender = BulkSender(script, "target", Lease(script, "target", "here"), stop, patience=patience, workers=workers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk_sender, "_FIRST_PAUSE", 0.001)
        patch.setattr(bulk_sender, "_LONGEST_PAUSE", 0.002)
        for outcome in sender.send(iter(batches)):
            done += outcome.acknowledged
            refused += outcome.refused
            assert stop.is_set() or outcome.fatal is None
            outcome.raise_fatal()
    return sorted(done), refused


@pytest.mark.parametrize(
    ("answer", "again"),
    [
        (reject("b"), ["b"]),
        (reject("b", status=500, reason="[docs][1] operation primary term [1] is too old (current [2])"), ["b"]),
        (EngineUnreachable("gone"), ["a", "b", "c"]),
        (EngineResponseError(503, "red", None), ["a", "b", "c"]),
    ],
    ids=["overloaded", "cut off", "no answer", "no shard"],
)
def test_only_the_rejected_items_are_sent_again_and_all_if_there_was_no_answer(answer, again):
    script = Script(answer, answer)
    assert send(script, items("a", "b", "c")) == ([("a", 1), ("b", 2), ("c", 3)], [])
    assert script.requests == [["a", "b", "c"], again, again]


def test_an_overloaded_engine_is_asked_for_less_at_a_time():
    def limited(ids):
        if len(ids) > 2:
            raise EngineResponseError(429, "coordinating and primary bytes", None)
        return take(ids)

    script = Script(*[limited] * 20)
    done, _ = send(script, items(*"abcdefgh"))
    assert len(done) == 8
    assert [len(ids) for ids in script.requests] == [8, 4, 2, 2, 4, 2, 2]


def test_a_document_that_the_engine_will_never_take_is_named_with_its_reason_and_a_version_conflict_is_settled():
    script = Script(reject("b", status=400, reason="failed to parse"))
    assert send(script, items("a", "b", "c")) == ([("a", 1), ("c", 3)], [("b", "failed to parse")])
    assert send(Script(reject("a", status=409)), items("a")) == ([("a", 1)], [])


TOO_MUCH = "rejected execution [coordinating_operation_bytes=1501, max_coordinating_and_primary_bytes=1000]"


@pytest.mark.parametrize(
    ("status", "reason", "setting"),
    [(413, "too large", "http.max_content_length"), (429, TOO_MUCH, "indexing_pressure.memory.limit")],
)
def test_a_batch_too_large_is_split_down_to_the_document_that_is_never_taken(status, reason, setting):
    def limited(ids):
        if "b" in ids:
            raise EngineResponseError(status, reason, None)
        return take(ids)

    done, refused = send(Script(*[limited] * 10), items("a", "b", "c", "d"), patience=5.0 if status == 413 else 0.0)
    assert [identity for identity, _ in done] == ["a", "c", "d"]
    ((identity, advice),) = refused
    assert identity == "b"
    assert setting in advice


def test_patience_ends_in_the_engines_own_words():
    with pytest.raises(EngineError, match="rejected execution"):
        send(Script(*[reject("a")] * 1000), items("a"), patience=0.05)
    busy = EngineResponseError(429, "[coordinating_operation_bytes=900, max_coordinating_and_primary_bytes=1000]", None)
    with pytest.raises(EngineResponseError, match="operation_bytes") as caught:
        send(Script(*[busy] * 1000), items("a"), patience=0.05)
    assert "it resumes" in caught.value.hint
    away = EngineUnreachable("It is gone.", "Look for it.")
    said = "It is gone. Look for it. When it is back, run the command again: it resumes."
    with pytest.raises(EngineUnreachable, match=f"^{said}$"):
        send(Script(*[away] * 1000), items("a"), patience=0.05)


def test_an_error_that_is_nobodys_item_and_an_index_deleted_meanwhile_end_the_sending():
    script = Script(*[EngineResponseError(404, "no such index", None)] * 10)
    with pytest.raises(EngineResponseError, match="no such index"):
        send(script, *[items(f"a{number}") for number in range(20)])
    with pytest.raises(EngineError, match="target was deleted"):
        send(Script(reject("a", status=404, reason="no such index")), items("a", "b"))


def test_many_batches_by_many_workers_all_arrive():
    batches = [items(*(f"{batch}-{number}" for number in range(5))) for batch in range(100)]
    done, _ = send(Script(), *batches, workers=4)
    assert len(done) == len({identity for identity, _ in done}) == 500


@pytest.fixture
def clock(monkeypatch):
    """A monotonic clock that goes when it is told."""
    told = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(bulk_sender.time, "monotonic", lambda: told.now)
    return told


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
    assert all(0.1 * 2**number <= pause <= 0.2 * 2**number for number, pause in enumerate(pauses))
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


def test_a_stage_runs_ahead_no_further_than_its_queue_and_what_it_raises_comes_out_where_its_item_would_have_been():
    made = []

    def numbers():
        for number in range(100):
            made.append(number)
            yield number
        raise EngineError("broken")

    found = ahead([numbers()], "test", threading.Event(), depth=2)
    assert next(found) == 0
    time.sleep(0.3)
    assert len(made) <= 5  # one taken, two waiting, one in the hand, one being made
    assert [next(found) for _ in range(99)] == list(range(1, 100))
    with pytest.raises(EngineError, match="broken"):
        next(found)


def test_what_passes_at_once_is_not_said_and_an_outage_again_and_again_until_it_ends(monkeypatch):
    monkeypatch.setattr(retries, "_NOTICEABLE", 0.2)
    monkeypatch.setattr(retries, "_REMINDER", 0.3)
    busy, away, said = EngineError("The server has too many requests."), EngineUnreachable("Nobody answers."), []
    outage = retries.Outage(said.append)

    def suffer(error, patience=60.0):
        now = time.monotonic()
        outage.failed(error, now, now + patience)

    def heard(count):
        end = time.monotonic() + 20
        while len(said) < count and time.monotonic() < end:
            time.sleep(0.01)

    for error in (busy, away):
        suffer(error)
        outage.answered(time.monotonic())
    suffer(busy, 0.1)  # it ends with the patience
    sent = time.monotonic()
    outage.heard()
    outage.failed(away, sent, sent + 60)  # a slow request among others
    time.sleep(0.5)
    assert said == []
    for error in (busy, away):
        said.clear()
        before = time.monotonic() - 1
        suffer(error)
        heard(1)
        outage.answered(before)  # another thread's request was on its way when the server went
        heard(2)
        suffer(error)
        outage.answered(time.monotonic())
        outage.answered(time.monotonic())
        assert said[0] == f"{error.message} Waiting for the server, up to 60 s; the work goes on by itself."
        assert said[1].startswith("Still waiting for the server after ")
        assert [each for each in said if each.startswith("The server has answered after ")] == said[-1:]
