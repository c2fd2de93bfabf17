"""The search requests of one query: one for each signal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from termweave.catalog.layout import DocumentLayout
from termweave.catalog.typed_fields import INSTANT
from termweave.rerank.rerankers import METADATA, WORDS
from termweave.signals.dense import VECTOR_FIELD

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from termweave.catalog.columns import Column
    from termweave.contracts.signal import Clause, Signal
    from termweave.records import Capabilities, Encoding
    from termweave.rerank.rerankers import Need

#: The layout of an index that termweave built, without metadata.
_LAYOUT = DocumentLayout(())


@dataclass(frozen=True)
class SignalRequests:
    """The searches of one query, ready to be sent.

    Attributes:
        query: The encoded query.
        clauses: Signal name -> clause; none for a signal that cannot match anything of the query.
        bodies: Signal name -> request body.
        entries: Metadata entry that a reranker reads, or "words.NAME" of short texts -> what holds it.
        words: "words.NAME" -> where a `_source` holds the text of any other field.
        numbers: Metadata entry of numbers that only a `_source` holds -> its field.
    """

    query: Encoding
    clauses: Mapping[str, Clause]
    bodies: Mapping[str, dict[str, Any]]
    entries: Mapping[str, Column] = field(default_factory=dict)
    words: Mapping[str, Sequence[str]] = field(default_factory=dict)
    numbers: Mapping[str, Column] = field(default_factory=dict)


def signal_requests(
    query: Encoding,
    signals: Sequence[Signal],
    capabilities: Capabilities,
    *,
    depth: int,
    where: Sequence[Mapping[str, Any]] = (),
    needs: Collection[Need] = (),
    reach: int | None = None,
    layout: DocumentLayout = _LAYOUT,
) -> SignalRequests:
    """Build the searches of one query. They ask for ids and scores, and for what a reranker needs.

    Args:
        query: The encoded query.
        signals: The signals to search with.
        capabilities: What the server can do.
        depth: How many documents each signal returns.
        where: Filters of the query DSL; all must match.
        needs: "vectors" asks for the documents' vectors (as doc values), "texts" for titles and texts, "metadata.NAME" for an
            entry, "words.NAME" for the text of a field.
        reach: Set if documents are stored as passages. The server then returns the best passage of each document, and k-NN
            searches look for this many passages.
        layout: Says which fields of the server hold title, text and metadata.
    """
    clauses = {}
    for signal in signals:
        clause = signal.query_clause(query, size=reach or depth, where=where, capabilities=capabilities)
        if clause is not None:
            clauses[signal.name] = clause
    columns: list[Any] = [f"{layout.prefix}{VECTOR_FIELD}"] if "vectors" in needs else []
    names = [need.removeprefix(METADATA) for need in sorted(needs) if need.startswith(METADATA)]
    read = {name: column for name in names if (column := layout.column(name))}
    numbers = {name: column for name, column in read.items() if column.number}
    read = {name: column for name, column in read.items() if name not in numbers}
    words = {need: layout.paths(need.removeprefix(WORDS)) for need in sorted(needs) if need.startswith(WORDS)}
    # Short texts are read as columns: the `_source` of 300 hits took 9 ms of 19 (3.6.0).
    typed = {need: column for need in words if (column := layout.short_texts(need.removeprefix(WORDS)))}
    words = {need: paths for need, paths in words.items() if need not in typed}
    read |= typed
    # An application may store dates in a format of its own.
    columns += [
        {"field": each.field, "format": INSTANT} if each.kind == "date" else each.field for each in dict.fromkeys(read.values())
    ]
    # Without texts not even `_id` is asked for: opening the stored fields of 100 hits cost 0.6 ms of 2.2 a search (3.6.0). A document that
    # an application has just written has no other id.
    wanted = [*(layout.text_fields if "texts" in needs else ()), *(path for paths in words.values() for path in paths)]
    unread = {"stored_fields": "_none_"} if layout.application is None else {"_source": False}
    wanted += [column.field for column in numbers.values()]
    stored: dict[str, Any] = {"_source": wanted} if wanted else unread
    bodies: dict[str, dict[str, Any]] = {
        name: {
            "query": clause.query,
            "size": depth,
            # Equal scores are common with integer impacts. Sorting them by id makes the cut independent of the order of sending.
            # The answer repeats the sort values, so that the id and the `_score` come from there. `track_scores` would have the
            # server score the best documents a second time, which takes an eighth of its time (docs/latency.md).
            "sort": ["_score", {layout.id_field: "asc"}],
            **stored,
            "docvalue_fields": columns,
            "track_total_hits": False,
        }
        for name, clause in clauses.items()
    }
    if reach is not None:
        for name, clause in clauses.items():
            bodies[name] |= {**grouped([*columns, "passage"]), "track_total_hits": clause.reach is not None}
    return SignalRequests(query, clauses, bodies, read, words, numbers)


def unsorted(body: Mapping[str, Any]) -> dict[str, Any]:
    """A body of `signal_requests` for queries that the server can only sort by score: the id becomes a column."""
    kept = {key: value for key, value in body.items() if key != "sort"}
    return kept | {"docvalue_fields": [*body["sort"][1], *body["docvalue_fields"]]}


def grouped(columns: Sequence[Any]) -> dict[str, Any]:
    """The part of a request that groups passages by document: the best one of each, the first of equal ones."""
    return {
        "collapse": {"field": "id"},
        "sort": ["_score", {"id": "asc"}, {"passage": {"order": "asc", "unmapped_type": "integer"}}],
        "docvalue_fields": list(columns),
    }
