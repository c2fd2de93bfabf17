"""Remarks on an answer: sentences that warn the user if it is probably not what he meant, or if documents have changed since they were enriched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from termweave.catalog.layout import DocumentLayout, source_digest
from termweave.corpora.formats.fields import BadLine
from termweave.corpora.index.entries import enriched_document
from termweave.corpora.sources import Reading
from termweave.dialect import dialect_of
from termweave.errors import InputError, UsageError
from termweave.search.filters import documents
from termweave.search.filters.filter_option import listed_fields
from termweave.search.results.hits import flat
from termweave.search.retrieval.candidates import answers_to
from termweave.support.messages import counted, few

if TYPE_CHECKING:
    from termweave.records import Hit
    from termweave.search.feature import Report
    from termweave.search.opening import OpenGeneration
    from termweave.search.options import SearchOptions


def collect(generation: OpenGeneration, report: Report, options: SearchOptions, fields: Sequence[str]) -> tuple[str, ...]:
    """Collect the remarks on an answer, besides those of features.

    Args:
        generation: The generation that answered.
        report: The rounds and hits of the search.
        options: The options of the search.
        fields: The requested stored fields, named as `hits.stored_names` returns them.
    """
    shown, ranked = report.shown, report.ranked
    candidates, remarks = report.last.candidates, list(generation.name.remarks)
    if lag := enrichment_lag(generation, [hit.id for hit in shown]):
        if candidates.lists.keys() - {signal.name for signal in generation.layout.signals if not signal.needs}:
            lag.check_empty(ranked)
        remarks.append(str(lag))
    if ranked and not shown:
        remarks.append(f"This page begins after hit {options.start:,}, but the search ranks only {counted(ranked, 'document')}.")
    liked = candidates.query.liked is not None  # then the vector is a mean of document vectors
    if not ranked and not liked and not candidates.query.text.strip():
        remarks.append("The query is empty. Give it some words.")
    by_vector = {signal.name for signal in generation.layout.signals if signal.needs == "dense"}
    words, finding = candidates.lists.keys() - by_vector, {name for name, ranked in candidates.lists.items() if ranked.scores}
    if candidates.query.text.strip() and words and shown and finding and finding <= by_vector and not lag:
        which = "No document that passes the filters" if options.where else "No document"
        when = "" if generation.layout.application is None else ", as far as the index is enriched"
        remarks.append(f"{which} contains a word of the query{when}. These hits were found by vectors alone.")
    if not liked and by_vector & candidates.lists.keys() and (beyond := _unseen(generation, candidates.query.text)):
        remarks.append(
            f"The dense model reads only the first {beyond[0]:,} of the {beyond[1]:,} word-pieces of the query. Shorten the query."
        )
    if (unknown := _unknown(generation, shown, fields)) and shown:
        remarks.append(f"Neither these hits nor the index's mapping have {listed_fields(unknown)}.")
    return tuple(remarks)


def _unseen(generation: OpenGeneration, query: str) -> tuple[int, int] | None:
    """The number of word-pieces that the dense model reads, and the number in the query; None: the model reads the whole query."""
    models = generation.encoder.models
    longest = models.get("dense_query", models["dense"]).max_length
    # An ASCII character is at most one word-piece, so ordinary queries need not be tokenised again.
    if query.isascii() and len(query) < longest // 2:
        return None
    (length,) = generation.encoder.lengths([query])
    return (longest, length) if length > longest else None


def _unknown(generation: OpenGeneration, shown: Sequence[Hit], fields: Sequence[str]) -> list[str]:
    """The requested fields that neither a hit nor the index's mapping has, though documents that are not shown may have them.

    Raises:
        UsageError: A field was requested by its full name, and no document has it.
    """
    layout, enriched = generation.layout, generation.layout.application is not None
    names = {name for hit in shown for name, _ in flat(hit.fields)} | layout.names | layout.mapped.keys()
    names |= {f"metadata.{name}" for name in layout.types}
    unknown = [
        field
        for field in fields
        if not any(name == field or name.startswith(f"{field}.") or fnmatchcase(name, field) for name in names)
    ]
    exact = [field for field in unknown if "*" not in field and field.partition(".")[0] not in layout.names - {"metadata"}]
    absent = [name for name in exact if not layout.may_hold(name)] if enriched else documents.absent(generation, exact)
    for name in absent:
        able = [*layout.mapped] if enriched else [*layout.text_fields, *layout.able()]
        hint = layout.nearest(name, able) or f"There are: {few(able, 10)}."
        raise UsageError(f"No document has a field {name.removeprefix('metadata.')!r} that could be shown.", hint)
    return unknown


@dataclass(frozen=True)
class EnrichmentLag:
    """How far an enriched index is behind its application: documents and hits whose signals are missing or outdated.

    Attributes:
        name: The name that `termweave enrich` takes for the index.
        documents: Number of documents that the searched name shows.
        lacking: Number of these documents that have no signals yet.
        changed: Number of hits that the application changed since they were enriched.
        finished: Whether an enrichment has ever run to its end.
        words: Whether the signal lexical finds documents that have no signals yet.
    """

    name: str
    documents: int
    lacking: int
    changed: int
    finished: bool
    words: bool

    def check_empty(self, ranked: int) -> None:
        """Refuse an answer without documents if too little is enriched to say that nothing was found.

        Args:
            ranked: Number of documents that the search ranked.

        Raises:
            InputError: Nothing was found, some documents lack signals, and no enrichment ran to its end, or no enriched document is left.
        """
        enriched = self.documents - self.lacking
        if not ranked and self.lacking and not (self.finished and enriched):
            few_enriched = f"only {enriched:,} of {counted(self.documents, 'document')} of {self.name!r} are enriched"
            raise InputError(f"The search found nothing, but {few_enriched}.", f"Run 'termweave enrich {self.name}': it goes on.")

    def __str__(self) -> str:
        parts = []
        if self.lacking:
            verb = "is" if self.lacking == 1 else "are"
            findable = "found by lexical alone" if self.words else "cannot be found"
            parts.append(f"{self.lacking:,} of {counted(self.documents, 'document')} {verb} not enriched yet and {findable}")
        if self.changed:
            were = "was changed after it was" if self.changed == 1 else "were changed after they were"
            parts.append(f"{counted(self.changed, 'hit')} {were} enriched")
        return (
            f"{'; '.join(parts)}: run 'termweave enrich {self.name}', or leave 'termweave enrich {self.name} --watch 5' running."
        )


def enrichment_lag(generation: OpenGeneration, ids: Sequence[str] = ()) -> EnrichmentLag | None:
    """Count the documents and hits of an enriched index whose signals are missing or outdated. One request is sent.

    None: no signals are missing or outdated, or termweave built the index itself.

    Args:
        generation: The generation that is searched.
        ids: Ids of the hits that are shown.

    Raises:
        SearchFailed: A shard did not answer.
    """
    if generation.layout.application is None:
        return None
    digest = f"{generation.layout.prefix}source_digest"
    # The server keeps the answer to a search of size 0 until a document changes.
    searches: list[tuple[str, dict[str, Any]]] = [
        ("documents", {"size": 0, "track_total_hits": True, "aggs": {"lacking": {"missing": {"field": digest}}}})
    ]
    fields = generation.lineage.named_fields
    if ids and fields is not None:
        read = dialect_of(generation.engine.capabilities).source([*generation.layout.text_fields, digest])
        searches.append(("hits", {"size": len(ids), "query": generation.layout.with_ids(ids), "_source": read}))
    count, *answers = answers_to(
        generation.engine, generation.name.name if generation.name.lacking else generation.index, searches
    )
    hits = [hit for answer in answers for hit in answer["hits"]["hits"] if hit["_index"] in generation.name.indices]
    resolved, lineage = generation.name, generation.lineage
    lag = EnrichmentLag(
        lineage.name if resolved.partial else resolved.name,
        count["hits"]["total"]["value"],
        count["aggregations"]["lacking"]["doc_count"],
        sum(_changed(hit, Reading(fields=fields), generation.layout) for hit in hits) if fields is not None else 0,
        lineage.complete,
        "lexical" in lineage.signals and not resolved.lacking,
    )
    return lag if lag.lacking or lag.changed else None


def _changed(hit: Mapping[str, Any], reading: Reading, layout: DocumentLayout) -> bool:
    """Whether a hit's title or text differ from those of which its signals were made."""
    written = layout.of_signals(hit["_source"]).get("source_digest")
    source = {
        name: value for name, value in hit["_source"].items() if name not in {"source_digest", layout.prefix.removesuffix(".")}
    }
    try:
        return bool(source_digest(enriched_document(hit["_id"], source, reading)) != written)
    except BadLine:  # it cannot be read any more
        return True
