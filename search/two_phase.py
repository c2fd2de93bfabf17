"""Long weighted queries in two phases: the heavy terms retrieve, the light ones rescore what was retrieved.

A document that only light terms match is lost; of the others every score is exact, as long as they lie in the window. The
parameters are those of OpenSearch's own neural_sparse_two_phase_processor (2.15), which does nothing inside other queries and errs
on several shards (neural-search #1654); this is the engine's plain `rescore`, for both query forms and every version.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from termweave.records import TermWeights
from termweave.search.candidates import unsorted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from termweave.records import Capabilities
    from termweave.search.candidates import Legs
    from termweave.signals import Signal

#: Terms below this share of the heaviest one's factor are light.
PRUNE_RATIO = 0.4
#: Documents rescored for each one wanted, a shard; `index.max_rescore_window` bounds them.
EXPANSION = 5
MAX_WINDOW = 10_000


def split(
    prepared: Legs,
    signals: Sequence[Signal],
    capabilities: Capabilities,
    *,
    depth: int,
    where: Sequence[Mapping[str, Any]] = (),
) -> Legs:
    """The same searches with those of weighted terms in two phases; what is explained is still the whole clause.

    The engine rescores by score alone, so documents of equal score come in its own order.
    """
    import numpy as np  # noqa: PLC0415

    bodies = dict(prepared.bodies)
    for signal in signals:
        clause = prepared.clauses.get(signal.name)
        if clause is None or not clause.terms:
            continue
        limit = PRUNE_RATIO * max(clause.terms.values())
        parts = []
        for chosen in (
            {term: factor for term, factor in clause.terms.items() if factor >= limit},
            {term: factor for term, factor in clause.terms.items() if factor < limit},
        ):
            weights = TermWeights(tuple(chosen), np.array(list(chosen.values()), np.float32))
            query = replace(prepared.query, weights=weights)
            parts.append(signal.clause(query, size=depth, where=where, capabilities=capabilities))
        heavy, light = parts
        if heavy is None or light is None:  # nothing is light
            continue
        rescore = {
            "rescore_query": light.query,
            "query_weight": clause.scale / heavy.scale,
            "rescore_query_weight": clause.scale / light.scale,
        }
        body = unsorted(bodies[signal.name])
        window = min(MAX_WINDOW, EXPANSION * depth)
        bodies[signal.name] = {**body, "query": heavy.query, "rescore": {"window_size": window, "query": rescore}}
    return replace(prepared, bodies=bodies)
