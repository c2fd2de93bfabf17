"""Whether an enriched index is behind its application: documents without signals, and hits whose text is not the one that was enriched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from termweave.catalog.application_fields import named_fields
from termweave.catalog.layout import source_digest
from termweave.corpora.formats.fields import BadLine
from termweave.corpora.index.entries import enriched_document
from termweave.corpora.sources import Reading
from termweave.dialect import dialect_of
from termweave.search.retrieval.candidates import answers_to
from termweave.support.messages import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from termweave.search.opening import OpenGeneration


@dataclass(frozen=True)
class EnrichmentLag:
    """How far an enriched index is behind.

    Attributes:
        name: The name that `enrich` takes.
        documents: Documents that the searched name shows.
        lacking: Those of them that have no signals.
        changed: Hits that the application changed since they were enriched.
    """

    name: str
    documents: int
    lacking: int
    changed: int

    def __str__(self) -> str:
        parts = []
        if self.lacking:
            verb = "is" if self.lacking == 1 else "are"
            parts.append(f"{self.lacking:,} of {counted(self.documents, 'document')} {verb} not enriched yet and cannot be found")
        if self.changed:
            parts.append(f"{counted(self.changed, 'hit')} {'was' if self.changed == 1 else 'were'} changed since")
        return (
            f"{'; '.join(parts)}: run 'termweave enrich {self.name}', or leave 'termweave enrich {self.name} --watch 5' running."
        )


def of_hits(opened: OpenGeneration, ids: Sequence[str] = ()) -> EnrichmentLag | None:
    """How far an index is behind; None if it is not, or if it is termweave's own. One request.

    Args:
        opened: The index.
        ids: Ids of the hits that are shown.

    Raises:
        SearchFailed: A shard did not answer.
    """
    if opened.layout.application is None:
        return None
    # The server keeps the answer to a search of size 0 until a document changes.
    searches: list[tuple[str, dict[str, Any]]] = [
        ("documents", {"size": 0, "track_total_hits": True, "aggs": {"lacking": {"missing": {"field": "source_digest"}}}})
    ]
    fields = named_fields(opened.lineage)
    if ids and fields is not None:
        read = dialect_of(opened.engine.capabilities).source([*opened.layout.text_fields, "id", "source_digest"])
        searches.append(("hits", {"size": len(ids), "query": {"terms": {"id": list(ids)}}, "_source": read}))
    count, *answers = answers_to(opened.engine, opened.index, searches)
    hits = [hit for answer in answers for hit in answer["hits"]["hits"]]
    resolved, made = opened.name, opened.lineage
    lag = EnrichmentLag(
        made.name if resolved.partial else resolved.name,
        count["hits"]["total"]["value"],
        count["aggregations"]["lacking"]["doc_count"],
        sum(_changed(hit, Reading(fields=fields)) for hit in hits) if fields is not None else 0,
    )
    return lag if lag.lacking or lag.changed else None


def _changed(hit: Mapping[str, Any], reading: Reading) -> bool:
    """Whether a document has another title or text than those that its signals were made of."""
    own = {name: value for name, value in hit["_source"].items() if name != "source_digest"}
    try:
        return bool(source_digest(enriched_document(hit["_id"], own, reading)) != hit["_source"].get("source_digest"))
    except BadLine:  # it cannot be read any more
        return True
