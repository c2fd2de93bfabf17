"""Turn results into JSON, the same for the command line, Python and web pages. The schemas are in docs/schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from termweave.search.feature import of_part

if TYPE_CHECKING:
    from termweave.records import Hit
    from termweave.search.results.hits import Answer


def search(query: str, answer: Answer, took: float) -> dict[str, Any]:
    """Turn the answer to one query into JSON values.

    Args:
        query: Text of the query.
        answer: The answer, with its hits.
        took: Duration of the search in milliseconds.
    """
    result: dict[str, Any] = {
        "schema": "termweave.search/1",
        "query": query,
        "took_ms": round(took, 3),
        "hits": [hit.as_dict() for hit in answer.hits],
    }
    if answer.remarks:
        result["warnings"] = list(answer.remarks)
    if answer.dropped:
        result["dropped"] = {signal: list(terms) for signal, terms in answer.dropped.items()}
    result |= {name: of_part(name).json(part) for name, part in answer.parts.items()}
    if answer.cut_short:
        result["cut_short"] = [asdict(each) for each in answer.cut_short]
    return result


@dataclass(frozen=True)
class BatchSummary:
    """The summary of a batch search.

    Attributes:
        run: The file that the run was written to.
        name: Name of the run.
        generation: The concrete index that was searched.
        queries: Number of queries.
        seconds: Duration.
        shortened: Signal name -> number of queries that lost terms because the server allows no more clauses.
        empty: Number of queries without a hit.
    """

    run: str
    name: str
    generation: str
    queries: int
    seconds: float
    shortened: Mapping[str, int] = field(default_factory=dict)
    empty: int = 0


def batch(summary: BatchSummary) -> dict[str, Any]:
    """Turn the summary of a batch search into JSON values."""
    return {"schema": "termweave.batch/1", **asdict(summary), "seconds": round(summary.seconds, 3)}


def explain(query: str, hit: Hit) -> dict[str, Any]:
    """Turn an explained document into JSON values."""
    return {"schema": "termweave.explain/1", "query": query, "hit": hit.as_dict()}


def requests(sent: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Turn the requests of a search, as `Index.requests` returns them, into JSON values."""
    return {"schema": "termweave.requests/1", "requests": sent}
