"""Fusion by the server: one `hybrid` query through a pipeline that travels with the request.

An option. The client's fusion is the default because it gives the same numbers on every version and keeps what each signal
said: the server normalises over the best of each shard, takes the lowest hit for the minimum of a short list of words, too, gives
the last of a list .001 in place of 0, orders equal scores by internal number, and answers with the final score only.
Run on 3.6.0 with the neural-search plugin.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from termweave.errors import UsageError
from termweave.search.candidates import unsorted
from termweave.search.fusion import DEFAULT
from termweave.search.modes import Mode
from termweave.signals import Clause

if TYPE_CHECKING:
    from termweave.records import Capabilities
    from termweave.search.candidates import Legs

#: Name of the one list that comes back.
SIGNAL = "hybrid"
#: What the server is asked to do; "adaptive", the client's default, needs what the server does not know.
_METHODS = (DEFAULT, "min-max")
#: `hybrid` takes no more (neural-search).
_MOST = 5


def check(capabilities: Capabilities, mode: Mode) -> None:
    """See that the server can fuse this mode.

    Raises:
        UsageError: It has no neural-search plugin, the mode is one signal, or too many, or fused in another way.
    """
    if not capabilities.neural_sparse:
        raise UsageError(
            f"The server (OpenSearch {capabilities.version}) cannot fuse: it has no neural-search plugin.",
            "Leave --server-fusion out: the client's own fusion needs no plugin.",
        )
    if mode.fusion not in _METHODS:
        raise UsageError(
            f"The server fuses by min-max only, not by {mode.fusion}.", "Leave --server-fusion out, or say --mode hybrid@min-max."
        )
    if not 1 < len(mode.weights) <= _MOST:
        raise UsageError(
            f"The server fuses 2 to {_MOST} signals; the mode {mode.name!r} has {len(mode.weights)}.",
            "Leave --server-fusion out.",
        )


class FusedList:
    """The one list of the answer, in the place of a signal: its scores are what they are."""

    name = SIGNAL
    needs = None
    floor = None

    def score(self, engine_score: float, clause: Clause) -> float:
        """As the server gave it, in [0, 1]."""
        del clause
        return engine_score

    def spread(self, low: float, high: float, par: float | None = None) -> float:
        """The only list counts in full."""
        del low, high, par
        return 1.0


def fused(prepared: Legs, mode: Mode, depth: int) -> Legs:
    """The legs of one query as one search; weights are shared out anew where a signal has nothing to ask."""
    asked = [name for name in mode.weights if name in prepared.clauses]
    if not asked:
        return prepared
    total = sum(mode.weights[name] for name in asked)
    processor = {
        "normalization": {"technique": "min_max"},
        "combination": {
            "technique": "arithmetic_mean",
            "parameters": {"weights": [mode.weights[name] / total for name in asked]},
        },
    }
    queries = [prepared.clauses[name].query for name in asked]
    # `hybrid` orders by score; a second criterion is refused.
    kept = unsorted(prepared.bodies[asked[0]])
    query = {"hybrid": {"queries": queries, "pagination_depth": depth}}
    pipeline = {"phase_results_processors": [{"normalization-processor": processor}]}
    dropped = tuple(term for name in asked for term in prepared.clauses[name].dropped)
    return replace(
        prepared,
        clauses={SIGNAL: Clause(query, dropped=dropped)},
        bodies={SIGNAL: {**kept, "query": query, "search_pipeline": pipeline}},
    )


def answer_mode() -> Mode:
    """The answer as a mode of its own: one list, fused already."""
    return Mode(SIGNAL, {SIGNAL: 1.0})
