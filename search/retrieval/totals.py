"""How many documents a query ranks, how many pass its filters, and how many of those contain a word of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from termweave.engine.client.payloads import ALL_SHARDS
from termweave.search.retrieval import clause_limit
from termweave.search.retrieval.metadata_fields import first_passages
from termweave.support.messages import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from termweave.engine import Engine
    from termweave.search.opening import OpenGeneration
    from termweave.search.retrieval.candidates import Candidates


@dataclass(frozen=True)
class Totals:
    """Numbers of documents.

    Attributes:
        candidates: Documents that the signals returned; only these are ranked, sorted, and counted by facets.
        passing: Documents of the index that pass the filters.
        matching: Those of them that contain a word of the query; None without the signal lexical, and for a query made of documents.
    """

    candidates: int
    passing: int
    matching: int | None

    def __str__(self) -> str:
        words = "" if self.matching is None else f", and {self.matching:,} of these contain a word of the query"
        return f"{counted(self.candidates, 'candidate')}; {counted(self.passing, 'document')} pass the filters{words}."


def totals(
    engine: Engine, generation: OpenGeneration, candidates: Candidates, where: Sequence[Mapping[str, Any]], like: Sequence[str]
) -> Totals:
    """Count documents, with one request.

    Args:
        engine: The server.
        generation: The generation that answered.
        candidates: The candidates.
        where: Filters of the query DSL.
        like: Ids of documents that the query was made of, whose words are not words of a query.
    """
    lexical = next((signal for signal in generation.layout.signals if signal.name == "lexical"), None)
    clause = None
    if lexical is not None and candidates.query.text.strip() and not like:
        query, _ = clause_limit.fit(engine, generation, candidates.query, [lexical], (), engine.capabilities)
        clause = lexical.query_clause(query, size=1, where=(), capabilities=engine.capabilities)
    # A word may stand in any passage of a document, so that documents are counted by their ids.
    documents = {"cardinality": {"field": "id", "precision_threshold": 40_000}} if generation.lineage.passages else None
    aggregations: dict[str, Any] = {"passing": {"filter": first_passages(generation.layout)}}
    if clause is not None:
        aggregations["matching"] = {"filter": clause.query, **({"aggs": {"documents": documents}} if documents else {})}
    body = {"size": 0, "query": {"bool": {"filter": list(where)}}, "aggs": aggregations}
    counts = engine.request("POST", f"/{generation.index}/_search", params=ALL_SHARDS, body=body)["aggregations"]
    matching = counts.get("matching")
    if matching is not None:
        matching = matching["documents"]["value"] if documents else matching["doc_count"]
    return Totals(len(candidates.documents), counts["passing"]["doc_count"], matching)
