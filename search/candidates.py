"""Candidates: every signal's best documents for every query, in one `_msearch`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from termweave.errors import EngineError
from termweave.search.fusion import Ranked
from termweave.signals.dense import VECTOR_FIELD, from_half

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from termweave.engine import Engine
    from termweave.records import Capabilities, Encoding
    from termweave.signals import Clause, Signal


@dataclass(frozen=True)
class Candidates:
    """What the signals found for one query.

    Attributes:
        query: The encoded query.
        lists: Signal name -> its ranking; a signal that the query says nothing to has an empty one.
        clauses: Signal name -> the clause as sent.
        vectors: Document id -> float32 ``(d,)``, where they were asked for.
        index: The generation that answered; documents are fetched from it, wherever the alias points by then.
        liked: float32 ``(n, d)``, vectors of documents known to be relevant, where the query was made of such.
    """

    query: Encoding
    lists: Mapping[str, Ranked]
    clauses: Mapping[str, Clause]
    vectors: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    index: str = ""
    liked: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class Legs:
    """The searches of one query, ready to be sent.

    Attributes:
        query: The encoded query.
        clauses: Signal name -> clause.
        bodies: Signal name -> request body.
    """

    query: Encoding
    clauses: Mapping[str, Clause]
    bodies: Mapping[str, dict[str, Any]]


def legs(
    query: Encoding,
    signals: Sequence[Signal],
    capabilities: Capabilities,
    *,
    depth: int,
    where: Sequence[Mapping[str, Any]] = (),
    with_vectors: bool = False,
) -> Legs:
    """Build the searches of one query: ids and scores, and vectors as doc values where a reranker needs them."""
    clauses = {}
    for signal in signals:
        clause = signal.clause(query, size=depth, where=where, capabilities=capabilities)
        if clause is not None:
            clauses[signal.name] = clause
    columns = ["id", VECTOR_FIELD] if with_vectors else ["id"]
    bodies = {
        name: {
            "query": clause.query,
            "size": depth,
            # Equal scores are common with integer impacts: by id, who is cut off does not hang on the order of sending.
            "sort": ["_score", {"id": "asc"}],
            "track_scores": True,
            "_source": False,
            "docvalue_fields": columns,
            "track_total_hits": False,
        }
        for name, clause in clauses.items()
    }
    return Legs(query, clauses, bodies)


def gather(
    engine: Engine, target: str, prepared: Sequence[Legs], signals: Sequence[Signal], window: int | None = None
) -> tuple[list[Candidates], set[str]]:
    """Send the searches of any number of queries as one `_msearch`.

    Args:
        engine: Where to.
        target: Alias or concrete index.
        prepared: One `Legs` a query.
        signals: The signals they were built from.
        window: How many of each list min-max normalisation looks at; None: all.

    Returns:
        One `Candidates` a query, and the concrete indices that answered.

    Raises:
        EngineError: A leg failed, or answered from a part of the shards only: a short list would be a wrong ranking.
    """
    import orjson  # noqa: PLC0415

    lines: list[bytes] = []
    for each in prepared:
        for body in each.bodies.values():
            lines += [b"{}", orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)]
    answers: list[dict[str, Any]] = []
    if lines:
        answers = engine.request("POST", f"/{target}/_msearch", body=b"\n".join(lines) + b"\n")["responses"]
    remaining = iter(answers)
    seen: set[str] = set()
    gathered = []
    by_name = {signal.name: signal for signal in signals}
    for each in prepared:
        lists = {name: Ranked.of([]) for name in by_name}
        vectors: dict[str, NDArray[np.float32]] = {}
        for name, clause in each.clauses.items():
            hits = _hits(next(remaining), name)
            signal = by_name[name]
            lists[name] = Ranked.of([(_id(hit), signal.score(hit["_score"], clause)) for hit in hits], window)
            for hit in hits:
                seen.add(hit["_index"])
                half = hit["fields"].get(VECTOR_FIELD)
                if half and _id(hit) not in vectors:
                    vectors[_id(hit)] = from_half(half[0])
        gathered.append(Candidates(each.query, lists, each.clauses, vectors))
    return gathered, seen


def _id(hit: Mapping[str, Any]) -> str:
    identity: str = hit["fields"]["id"][0]
    return identity


def _hits(answer: Mapping[str, Any], signal: str) -> list[dict[str, Any]]:
    if "error" in answer:
        causes = answer["error"].get("root_cause") or [answer["error"]]
        raise EngineError(f"The engine could not search the signal {signal!r}: {causes[0].get('reason', answer['error'])}.")
    failed = answer["_shards"]["failed"]
    if failed or answer.get("timed_out"):
        what = f"{failed} of {answer['_shards']['total']} shards failed" if failed else "it ran out of time"
        raise EngineError(
            f"The engine searched the signal {signal!r} only in part: {what}.",
            "A short list would be a wrong ranking; see 'termweave node logs'.",
        )
    hits: list[dict[str, Any]] = answer["hits"]["hits"]
    return hits
