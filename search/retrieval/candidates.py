"""Candidates: every signal's best documents for every query, in one `_msearch`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from termweave.engine.failures import advice
from termweave.errors import EngineError
from termweave.search.fusion import Ranked
from termweave.signals.dense import VECTOR_FIELD, from_half, from_halves

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from termweave.engine import Engine
    from termweave.records import Capabilities, Encoding, SignalScore
    from termweave.search.server_side import FusedList
    from termweave.signals import Clause, Signal

_NO_FIELDS: dict[str, Any] = {}
#: The engine groups passages by their documents' ids and ends the search at the first with two of them; it does not say which.
_SEVERAL_IDS = (
    "Something else wrote a document with a list as its id into the index: 'termweave verify NAME' names it, and "
    "'termweave index SOURCE NAME --update --delete-missing' deletes it."
)


class HalfVectors(Mapping[str, "NDArray[np.float32]"]):
    """Vectors as they came, decoded when looked at: of some 200 candidates of a hybrid search a reranker wants 60."""

    def __init__(self, encoded: dict[str, str]) -> None:
        self._encoded = encoded

    def __getitem__(self, document: str) -> NDArray[np.float32]:
        return from_half(self._encoded[document])

    def __iter__(self) -> Iterator[str]:
        return iter(self._encoded)

    def __len__(self) -> int:
        return len(self._encoded)

    def stacked(self, documents: Sequence[str], dimension: int) -> NDArray[np.float32]:
        """float32 ``(len(documents), dimension)``; a row of zeros for a document without a vector."""
        return from_halves([self._encoded.get(document) for document in documents], dimension)


@dataclass(frozen=True)
class Candidates:
    """What the signals found for one query.

    Attributes:
        query: The encoded query.
        lists: Signal name -> its ranking; a signal that the query says nothing to has an empty one.
        clauses: Signal name -> the clause as sent.
        vectors: Document id -> float32 ``(d,)``, where they were asked for.
        index: The generation that answered; documents are fetched from it, wherever the alias points by then.
        short: A list has fewer documents than asked for because the signal looked at too few passages.
        liked: float32 ``(n, d)``, vectors of documents known to be relevant, where the query was made of such.
    """

    query: Encoding
    lists: Mapping[str, Ranked]
    clauses: Mapping[str, Clause]
    vectors: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    index: str = ""
    short: bool = False
    liked: NDArray[np.float32] | None = None

    def passage(self, document: str, signals: Mapping[str, SignalScore]) -> int | None:
        """The passage that a hit shows: of the signal that gives it most, among those that found one."""
        for name in sorted(signals, key=lambda name: -signals[name].share):
            ranked = self.lists.get(name)
            if ranked is not None and document in ranked.scores:
                return ranked.passages.get(document)
        return None

    def matrix(self, documents: Sequence[str]) -> NDArray[np.float32]:
        """Their vectors, float32 ``(len(documents), d)``; a row of zeros for a document without one (no text, or not ours).

        The query has to have a vector.
        """
        import numpy as np  # noqa: PLC0415 - `--help` does not rank

        assert self.query.vector is not None
        if isinstance(self.vectors, HalfVectors):
            return self.vectors.stacked(documents, len(self.query.vector))
        nowhere = np.zeros_like(self.query.vector)
        return np.stack([self.vectors.get(document, nowhere) for document in documents])


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
    reach: int | None = None,
) -> Legs:
    """Build the searches of one query: ids and scores, and vectors as doc values where a reranker needs them.

    With `reach` documents lie in passages: the engine gives the best passage of each document, and signals that fix
    beforehand how many they find (k-NN) look for so many passages.
    """
    clauses = {}
    for signal in signals:
        clause = signal.clause(query, size=reach or depth, where=where, capabilities=capabilities)
        if clause is not None:
            clauses[signal.name] = clause
    columns = [VECTOR_FIELD] if with_vectors else []
    bodies: dict[str, dict[str, Any]] = {
        name: {
            "query": clause.query,
            "size": depth,
            # Equal scores are common with integer impacts: by id, who is cut off does not hang on the order of sending.
            # The answer repeats what it sorts by, so the id need not be asked for as a column too.
            # A hit has its `_score` from there, too: `track_scores` would have the engine score the best a second time, and follow
            # the best score of all, an eighth of its time (docs/latency.md).
            "sort": ["_score", {"id": "asc"}],
            # Not even `_id`: opening the stored fields of 100 hits cost 0.6 ms of 2.2 a leg (3.6.0).
            "stored_fields": "_none_",
            "docvalue_fields": columns,
            "track_total_hits": False,
        }
        for name, clause in clauses.items()
    }
    if reach is not None:
        for name, clause in clauses.items():
            bodies[name] |= {**grouped([*columns, "passage"]), "track_total_hits": clause.reach is not None}
    return Legs(query, clauses, bodies)


def unsorted(body: Mapping[str, Any]) -> dict[str, Any]:
    """A body of `legs` for what the engine can only sort by score: the id becomes a column."""
    kept = {key: value for key, value in body.items() if key != "sort"}
    return kept | {"docvalue_fields": ["id", *body["docvalue_fields"]]}


def grouped(columns: Sequence[str]) -> dict[str, Any]:
    """What makes a search answer with the best passage of each document; the first of equal ones."""
    return {
        "collapse": {"field": "id"},
        "sort": ["_score", {"id": "asc"}, {"passage": {"order": "asc", "unmapped_type": "integer"}}],
        "docvalue_fields": list(columns),
    }


def gather(
    engine: Engine, target: str, prepared: Sequence[Legs], signals: Sequence[Signal | FusedList], window: int | None = None
) -> tuple[list[Candidates], set[str]]:
    """Send the searches of any number of queries as one `_msearch`.

    Args:
        engine: Where to.
        target: Alias or concrete index.
        prepared: One `Legs` a query.
        signals: The signals they were built from.
        window: How many of each list count in the fusion; None: all.

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
        vectors: dict[str, str] = {}
        short = False
        for name, clause in each.clauses.items():
            answer = next(remaining)
            hits = hits_of(answer, name)
            signal = by_name[name]
            by_vector = signal.needs == "dense"  # of a document in passages the one that its vector found
            pairs: list[tuple[str, float]] = []
            passages: dict[str, int] = {}
            for hit in hits:
                fields = hit.get("fields", _NO_FIELDS)
                identity = hit["sort"][1] if "sort" in hit else fields.get("id", [None])[0]
                seen.add(hit["_index"])
                if identity is None:  # something else wrote it into the index; `verify` names it
                    continue
                pairs.append((identity, signal.score(hit["_score"], clause)))
                if "passage" in fields:
                    passages[identity] = fields["passage"][0]
                if VECTOR_FIELD in fields and (by_vector or identity not in vectors):
                    vectors[identity] = fields[VECTOR_FIELD][0]
            lists[name] = Ranked.of(pairs, window, signal, passages, clause.par)
            short = short or _is_short(answer["hits"], clause, each.bodies[name])
        gathered.append(Candidates(each.query, lists, each.clauses, HalfVectors(vectors), short=short))
    return gathered, seen


def _is_short(hits: Mapping[str, Any], clause: Clause, body: Mapping[str, Any]) -> bool:
    """Whether a wider search would find more documents: what was found are passages of too few."""
    if clause.reach is None or "collapse" not in body or len(hits["hits"]) >= body["size"]:
        return False
    total: int = hits["total"]["value"]
    return total >= clause.reach


def hits_of(answer: Mapping[str, Any], signal: str) -> list[dict[str, Any]]:
    """The hits of one signal's search in an `_msearch`.

    Raises:
        EngineError: It failed, or answered from a part of the shards only.
    """
    if "error" in answer:
        causes = answer["error"].get("root_cause") or [answer["error"]]
        reason = str(causes[0].get("reason", answer["error"])).rstrip(".")
        hint = _SEVERAL_IDS if "must be single valued" in reason else advice(answer.get("status", 0), answer["error"])
        raise EngineError(f"The engine could not search the signal {signal!r}: {reason}.", hint)
    failed = answer["_shards"]["failed"]
    if failed or answer.get("timed_out"):
        what = f"{failed} of {answer['_shards']['total']} shards failed" if failed else "it ran out of time"
        raise EngineError(
            f"The engine searched the signal {signal!r} only in part: {what}.",
            "A short list would be a wrong ranking; see 'termweave node logs'.",
        )
    hits: list[dict[str, Any]] = answer["hits"]["hits"]
    return hits
