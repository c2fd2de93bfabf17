"""Count the documents that a query lists, those that pass its filters, and those that contain a word of the query: `--totals`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from termweave.catalog.layout import first_passages
from termweave.declared_settings import Setting
from termweave.search.feature import Feature, Ranking
from termweave.support.messages import counted

if TYPE_CHECKING:
    from termweave.search.retrieval.plan import Retrieval


@dataclass(frozen=True)
class Totals:
    """Numbers of documents: those that a query lists, those that pass the filters, and those that contain a word of the query.

    Attributes:
        listed: Documents on all pages, which facets count: the candidates, without those that a minimum score or collapsing leaves out, and
            with pinned ones.
        deeper: Whether further pages search deeper, and so list other documents behind these.
        candidates: Documents that the signals returned.
        passing: Documents of the index that pass the filters.
        matching: Those of them that contain a word of the query; None without such a signal (lexical), and for a query made of documents.
    """

    listed: int
    deeper: bool
    candidates: int
    passing: int
    matching: int | None

    def __str__(self) -> str:
        words = "" if self.matching is None else f", and {self.matching:,} of these contain a word of the query"
        listed = f"Listed: {counted(self.listed, 'document')}"
        listed += "" if self.listed == self.candidates else f" ({counted(self.candidates, 'candidate')})"
        listed += ", and further pages search deeper" * self.deeper
        return f"{listed}. {counted(self.passing, 'document')} pass the filters{words}."


@dataclass(frozen=True, kw_only=True)
class TotalsOptions:
    """Whether documents are counted.

    Attributes:
        totals: Count the documents on all pages, those that pass the filters, and those that contain a word of the query
            (`Answer.totals`); facets and a sorted page always do.
    """

    totals: Annotated[
        bool,
        Setting(
            "Count the documents on all pages, those that pass the filters, and those that contain a word of the query. Facets and a sorted "
            "page always do.",
            control="",
        ),
    ] = False


class CountedTotals(Feature[TotalsOptions]):
    """Counts documents if the user asks for totals, or if another feature does (by the plan)."""

    part, always = "totals", True  # another feature may ask for totals

    def plan(self, plan: Retrieval) -> Retrieval:
        """Ask that all candidates be ranked, so that they can be counted."""
        return replace(plan, counts=plan.counts or self.options.totals)

    def count(self, rounds: Sequence[Ranking]) -> Totals | None:
        """The totals of the first round, so that every page shows the same numbers; None: nobody asked for totals. One request is sent."""
        from termweave.search.retrieval import clause_limit  # noqa: PLC0415 - not needed by `--help`

        first, generation = rounds[0], self.search.generation
        if not first.plan.counts:
            return None
        candidates, capabilities = first.candidates, generation.engine.capabilities
        lexical = next((signal for signal in generation.layout.signals if signal.source_fields), None)
        clause = None
        if lexical is not None and candidates.query.text.strip() and candidates.query.liked is None:
            query, _ = clause_limit.fit(generation, candidates.query, [lexical], (), capabilities)
            clause = lexical.query_clause(query, size=1, where=(), capabilities=capabilities)
        # A word may stand in any passage of a document, so that documents are counted by their ids.
        documents = {"cardinality": {"field": "id", "precision_threshold": 40_000}}
        one = {"aggs": {"documents": documents}} if generation.lineage.passages else {}
        aggregations: dict[str, Any] = {"passing": {"filter": first_passages(generation.layout)}}
        if clause is not None:
            aggregations["matching"] = {"filter": clause.query, **one}
        body = {"size": 0, "query": {"bool": {"filter": list(first.plan.where)}}, "aggs": aggregations}
        counts = generation.engine.search(generation.index, body)["aggregations"]
        if (matching := counts.get("matching")) is not None:
            matching = matching["documents"]["value"] if one else matching["doc_count"]
        return Totals(len(first.places), not first.complete, len(candidates.documents), counts["passing"]["doc_count"], matching)
