"""What happened to a cluster under load: answers, errors, living nodes, and whether a promise was broken."""

# A script's functions need no types.
from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import contextmanager

import pytest

_RESTARTS = "restarts of all nodes, because the copies were not made"
_PROMISES = ("wrong answers", "documents lost", "documents twice or foreign", "documents altered")
_FEW, _ENOUGH = "fewer than two nodes lived", "two nodes or more lived"
_ERRORS = [f"{kind} errors while {nodes}" for kind in ("search", "command") for nodes in (_ENOUGH, _FEW)]
_ROWS = ("answers", *_PROMISES, "verifications", *_ERRORS, "nodes stopped", _RESTARTS)


class Record:
    """Collects what clients, commands and the killer of nodes see. Threads share it.

    Args:
        say: Called with a line about anything unusual.

    Attributes:
        label: The corpus of the live generation.
        expected: Corpus -> query -> ids and scores.
        acts: What was done -> how often.
    """

    def __init__(self, say):
        self.label, self.expected, self.acts = "", {}, Counter()
        self._say, self._lock = say, threading.RLock()
        self._targets, self._moves = set(), 0
        self._nodes = []  # when the number of living nodes changed, and what it was from then on
        self._counts, self._slowest = Counter(), 0.0

    @contextmanager
    def moving(self, targets):
        """A command runs that may make a generation of these corpora live."""
        with self._lock:
            self._targets, self._moves = targets, self._moves + 1
        try:
            yield
        finally:
            with self._lock:
                self._targets = set()

    def allowed(self):
        """The corpora that an answer may be of now, and how many moves had begun."""
        with self._lock:
            return {self.label} | self._targets, self._moves

    def answer(self, query, hits, before, started):
        """Note an answer: ids and scores; `before` is what was `allowed` when the query was sent."""
        with self._lock:
            now, moves = self.allowed()
            (labels, moves_before), equal = before, [label for label in self.expected if same(hits, self.expected[label][query])]
            # Where more than one move began meanwhile, anything was live.
            labels = set(self.expected) if moves - moves_before > 1 else labels | now
            self._counts["answers"] += 1
            self._slowest = max(self._slowest, time.monotonic() - started)
            if not set(equal) & labels:
                self._counts["wrong answers"] += 1
                self._say(f"WRONG: {query!r}: {hits} is that of {equal or 'no generation'}, not of {sorted(labels)}")

    def peaceful(self, label, again):
        """Check that a quiet cluster gives the same answers twice, and that generations can be told apart."""
        assert all(hits and same(hits, self.expected[label][query]) for query, hits in again.items()), label
        for other in self.expected.keys() - {label}:
            assert any(not same(again[query], self.expected[other][query]) for query in again), (label, other)

    def failed(self, kind, message, started):
        """Note a search or a command that failed, and whether fewer than two nodes lived meanwhile."""
        with self._lock:
            before = [count for at, count in self._nodes if at <= started][-1:]
            few = min(before + [count for at, count in self._nodes if at > started], default=3) < 2
            self._counts[f"{kind} errors while {_FEW if few else _ENOUGH}"] += 1
        if not few or kind == "command":
            self._say(f"{kind} failed while {_FEW if few else _ENOUGH}: {message}")

    def verified(self, name, difference):
        with self._lock:
            self._counts["verifications"] += 1
            for promise, part in zip(_PROMISES[1:], (difference.missing, difference.extra, difference.altered), strict=True):
                self._counts[promise] += len(part)
        if not difference.ok:
            self._say(f"VERIFY {name}: {difference}")

    def lives(self, count, stopped=(), *, stalled=False):
        """Note how many nodes live from now on, and which were stopped."""
        with self._lock:
            self._nodes.append((time.monotonic(), count))
            self._counts["nodes stopped"] += len(stopped)
            self._counts[_RESTARTS] += stalled
        self._say(f"{count} nodes live, stopped: {list(stopped)}; {self._counts['answers']} answers, {dict(self.acts)}")

    @property
    def broken(self):
        """Whether a promise was broken."""
        return any(self._counts[each] for each in (*_PROMISES, f"search errors while {_ENOUGH}")) or not self._counts["answers"]

    def report(self):
        """A table of everything."""
        lived = Counter()
        for (start, count), (end, _) in zip(self._nodes, [*self._nodes[1:], (time.monotonic(), 0)], strict=True):
            lived[count] += round(end - start)
        rows = {name: f"{self._counts[name]:,}" for name in _ROWS}
        rows |= {f"seconds with {count} living nodes": f"{lived[count]:,}" for count in (3, 2, 1, 0)}
        rows |= {name: f"{count:,}" for name, count in sorted(self.acts.items())}
        rows["slowest answer"] = f"{self._slowest:.1f} s"
        return "\n".join(["| what | count |", "|---|---:|", *(f"| {name} | {value} |" for name, value in rows.items())])


def same(hits, expected):
    """Whether two answers have the same ids in the same order, with the same scores."""
    (ids, scores), (ids_expected, scores_expected) = (
        ([hit[0] for hit in each], [hit[1] for hit in each]) for each in (hits, expected)
    )
    return ids == ids_expected and scores == pytest.approx(scores_expected, rel=1e-6, abs=1e-6)
