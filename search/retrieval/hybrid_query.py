"""Fusion by the server: one `hybrid` query, with a search pipeline that is sent in the same request.

The server's fusion is an option. The client's fusion is the default, because it gives the same scores on every version and keeps the scores of
each signal. The server's fusion differs: it normalises over the best documents of each shard, uses the lowest hit as the minimum of a
short list of words, gives the last document of a list .001 in place of 0, orders equal scores by internal number, and
returns only the final score. Tried on 3.6.0 with the neural-search plugin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from termweave.contracts.signal import Clause
from termweave.errors import UsageError
from termweave.signals.fusion import DEFAULT, FusedList
from termweave.signals.modes import Mode

if TYPE_CHECKING:
    from termweave.records import Capabilities
    from termweave.search.retrieval.candidates import SignalRequests

#: Fusion methods that stand for the server's. "adaptive", the client's default, needs figures that the server does not have.
_METHODS = (DEFAULT, "min-max")
#: The mode that ranks the server's answer: one list, already fused.
ANSWER_MODE = Mode(FusedList.name, {FusedList.name: 1.0})
#: The most queries that `hybrid` takes (neural-search).
_MOST = 5


def check(capabilities: Capabilities, mode: Mode) -> None:
    """Check that the server can fuse the signals of this mode.

    Raises:
        UsageError: The server has no neural-search plugin, or the mode has one signal, too many signals, or a fusion method that the server lacks.
    """
    if capabilities.distribution == "elasticsearch":
        hint = "Remove --server-fusion: the client's own fusion gives the same ranking on every server."
        raise UsageError("Elasticsearch has no query 'hybrid', by which OpenSearch fuses.", hint)
    if not capabilities.neural_sparse:
        hint = "Remove --server-fusion: the client's own fusion needs no plugin."
        raise UsageError(f"The server (OpenSearch {capabilities.version}) cannot fuse: it has no neural-search plugin.", hint)
    if mode.fusion not in _METHODS:
        hint = "Remove --server-fusion, or use --mode hybrid@min-max."
        raise UsageError(f"The server fuses by min-max only, not by {mode.fusion}.", hint)
    if not 1 < len(mode.weights) <= _MOST:
        hint = "Remove --server-fusion."
        raise UsageError(f"The mode {mode.name!r} has {len(mode.weights)} signals, but the server can fuse 2 to {_MOST}.", hint)


def fused(prepared: SignalRequests, mode: Mode, depth: int) -> SignalRequests:
    """Join the searches of one query into one `hybrid` search.

    Signals that cannot match anything of the query are left out, and the weights of the others are scaled to sum to 1.

    Raises:
        UsageError: The index holds passages.
    """
    if any("collapse" in body for body in prepared.bodies.values()):
        hint = "Remove --server-fusion."
        raise UsageError("--server-fusion cannot search an index whose documents are cut into passages.", hint)
    names = [name for name in mode.weights if name in prepared.clauses]
    if not names:
        return prepared
    total = sum(mode.weights[name] for name in names)
    processor = normalisation([mode.weights[name] / total for name in names])
    queries = [prepared.clauses[name].query for name in names]
    # `hybrid` sorts by score and refuses a second criterion: the id is read as a column.
    body = dict(prepared.bodies[names[0]])
    body["docvalue_fields"] = [*body.pop("sort")[1], *body["docvalue_fields"]]
    query = {"hybrid": {"queries": queries, "pagination_depth": depth}}
    pipeline = {"phase_results_processors": [processor]}
    dropped = tuple(term for name in names for term in prepared.clauses[name].dropped)
    return replace(
        prepared,
        clauses={FusedList.name: Clause(query, dropped=dropped)},
        bodies={FusedList.name: {**body, "query": query, "search_pipeline": pipeline}},
    )


def normalisation(weights: Sequence[float]) -> dict[str, Any]:
    """The part of a search pipeline (a processor) that fuses the queries inside a `hybrid` query by min-max.

    Args:
        weights: The weight of each of these queries; they sum to 1.
    """
    combination = {"technique": "arithmetic_mean", "parameters": {"weights": list(weights)}}
    return {"normalization-processor": {"normalization": {"technique": "min_max"}, "combination": combination}}
