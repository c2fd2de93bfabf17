"""What happened to a cluster under load: answers, errors, living nodes, and whether a promise was broken."""

# A script's functions need no types.
from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

#: Largest difference between two equal scores, relative.
_EQUAL = 1e-6
_RESTARTS = "restarts of all nodes, because the copies were not made"
_PROMISES = ("wrong answers", "documents lost", "documents twice or foreign", "documents altered")
_LATE = "search errors while two nodes or more lived"
_ROWS = ("answers", *_PROMISES, "verifications", _LATE, "search errors while fewer than two nodes lived")
_ROWS += (
    "command errors while two nodes or more lived",
    "command errors while fewer than two nodes lived",
    "nodes stopped",
    _RESTARTS,
)


class Record:
    """Collects what clients, commands and the killer of nodes see. Threads share it.

    Args:
        say: Called with a line about anything unusual.

    Attributes:
        label: The corpus of the live generation.
        expected: Corpus -> query -> ids and scores.
        acts: What was done -> how often.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.label = ""
        self.expected: dict[str, dict[str, list[tuple[str, float]]]] = {}
        self.acts: Counter[str] = Counter()
        self._say = say
        self._lock = threading.Lock()
        self._targets: set[str] = set()
        self._moves = 0
        #: When the number of living nodes changed, and what it was from then on.
        self._nodes: list[tuple[float, int]] = []
        self._counts: Counter[str] = Counter()
        self._slowest = 0.0

    @contextmanager
    def moving(self, targets: set[str]):
        """A command runs that may make a generation of these corpora live."""
        with self._lock:
            self._targets = targets
            self._moves += 1
        try:
            yield
        finally:
            with self._lock:
                self._targets = set()

    def allowed(self) -> tuple[set[str], int]:
        """The corpora that an answer may be of now, and how many moves had begun."""
        with self._lock:
            return {self.label} | self._targets, self._moves

    def answer(self, query: str, given: list[tuple[str, float]], before: tuple[set[str], int], started: float) -> None:
        now, moves = self.allowed()
        labels = before[0] | now
        if moves - before[1] > 1:  # more than one move began meanwhile: anything was live
            labels = set(self.expected)
        equal = [label for label in self.expected if same(given, self.expected[label][query])]
        with self._lock:
            self._counts["answers"] += 1
            self._slowest = max(self._slowest, time.monotonic() - started)
            if not set(equal) & labels:
                self._counts["wrong answers"] += 1
                self._say(f"WRONG: {query!r}: {given} is that of {equal or 'no generation'}, not of {sorted(labels)}")

    def peaceful(self, label: str, again: dict[str, list[tuple[str, float]]]) -> None:
        """Check that a quiet cluster gives the same answers twice, and that generations can be told apart."""
        for query, given in again.items():
            assert given
            assert same(given, self.expected[label][query]), (label, query)
        others = [each for each in self.expected if each != label]
        assert all(any(not same(again[query], self.expected[each][query]) for query in again) for each in others)

    def failed(self, kind: str, message: str, started: float) -> None:
        """Note a search or a command that failed, and whether fewer than two nodes lived meanwhile."""
        with self._lock:
            before = [count for at, count in self._nodes if at <= started][-1:]
            few = min(before + [count for at, count in self._nodes if at > started], default=3) < 2
            when = "fewer than two nodes lived" if few else "two nodes or more lived"
            self._counts[f"{kind} errors while {when}"] += 1
        if not few or kind == "command":
            self._say(f"{kind} failed while {when}: {message}")

    def verified(self, name: str, difference: Any) -> None:
        with self._lock:
            self._counts["verifications"] += 1
            self._counts["documents lost"] += len(difference.missing)
            self._counts["documents twice or foreign"] += len(difference.extra)
            self._counts["documents altered"] += len(difference.altered)
            if not difference.ok:
                self._say(f"VERIFY {name}: {difference}")

    def begin(self, count: int) -> None:
        self._nodes = [(time.monotonic(), count)]

    def lives(self, count: int, stopped: list[str], *, stalled: bool = False) -> None:
        with self._lock:
            self._nodes.append((time.monotonic(), count))
            self._counts["nodes stopped"] += len(stopped)
            self._counts[_RESTARTS] += stalled
        self._say(
            f"{count} nodes live{f', stopped: {stopped}' if stopped else ''}; {self._counts['answers']} answers, {dict(self.acts)}"
        )

    def end(self) -> None:
        with self._lock:
            self._nodes.append((time.monotonic(), 0))

    @property
    def broken(self) -> bool:
        """Whether a promise was broken."""
        return any(self._counts[each] for each in (*_PROMISES, _LATE)) or not self._counts["answers"]

    def report(self) -> str:
        """A table of everything."""
        lived: Counter[int] = Counter()
        for (start, count), (end, _) in zip(self._nodes, self._nodes[1:], strict=False):
            lived[count] += round(end - start)
        rows = {name: f"{self._counts[name]:,}" for name in _ROWS}
        rows |= {f"seconds with {count} living nodes": f"{lived[count]:,}" for count in (3, 2, 1, 0)}
        rows |= {name: f"{count:,}" for name, count in sorted(self.acts.items())}
        rows["slowest answer"] = f"{self._slowest:.1f} s"
        return "\n".join(["| what | count |", "|---|---:|", *(f"| {name} | {value} |" for name, value in rows.items())])


def same(given: list[tuple[str, float]], expected: list[tuple[str, float]]) -> bool:
    """Whether two answers have the same ids in the same order, with the same scores."""
    return len(given) == len(expected) and all(
        one[0] == other[0] and abs(one[1] - other[1]) <= _EQUAL * max(1.0, abs(other[1]))
        for one, other in zip(given, expected, strict=True)
    )
