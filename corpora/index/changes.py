"""The documents of an index that changed since it was last read, and the ids of all its documents."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from termweave.corpora.index.entries import id_at
from termweave.corpora.index.pages import Pace
from termweave.corpora.index.point_in_time import PointInTime, ShardView, open_views
from termweave.corpora.index.source import IndexSource

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Ids in one response.
_IDS = 5000
#: The field whose values are sequence numbers, which every index has.
SEQUENCE = "_seq_no"
#: So many sequence numbers below the highest one are read again: a write with a lower number may become visible after one with a higher.
_MARGIN = 1000


class ChangedDocuments(IndexSource):
    """A source of the documents of an index that changed. `identities` gives the ids of all documents, so that deleted ones are found.

    Args:
        whole: The source that reads the whole index.
        clause: Query clause that the changed documents match; None: `marks` alone tell what changed.
        marks: Shard -> its highest sequence number when the index was last read; {}: no numbers are known.
    """

    def __init__(self, whole: IndexSource, clause: Mapping[str, Any] | None, marks: Mapping[str, int]) -> None:
        self._clause, self._before = clause, marks
        # Its query has the filters of the default search pipeline already.
        reading = replace(whole.reading, index=replace(whole.reading.index, build="", hidden=True))
        super().__init__(whole.address, whole.engine, reading)

    def identities(self) -> Iterator[list[str]]:
        """Yield the ids of all documents of the index, page by page, from the point in time of the changed documents."""
        field = self.reading.fields.id
        path = field if field and field != "_id" else None
        body = {"_source": [path] if path else False}
        pace = Pace(self.reading.index.rate)
        point = PointInTime(self.engine, self.reading.index.query, self._views)
        try:
            for view in point.views:
                for hits, _ in point.pages(view, 0, None, body, lambda: pace.turn(_IDS)):
                    ids = (id_at(hit["_source"], path) if path else hit["_id"] for hit in hits)
                    yield [identity for identity in ids if identity is not None]
        finally:
            point.close(delete=False)

    @property
    def query(self) -> dict[str, Any] | None:
        """The query clause that the changed documents match; None: there is no condition."""
        clauses = [each for each in (self.reading.index.query, self._clause) if each]
        return {"bool": {"filter": clauses}} if clauses else None

    @property
    def marks(self) -> str:
        """The highest sequence number of each shard that is known now, as text; "": changes were found by another field."""
        if not self._before:
            return ""
        return " ".join(f"{view.key}={max(view.last, self._before.get(view.key, -1))}" for view in self._views)

    def _open(self) -> list[ShardView]:
        after = {key: mark - _MARGIN for key, mark in self._before.items()}
        return open_views(self.engine, self.address.index, self.mappings, self.query, after)


def since_value(field: str, kind: str, value: Any) -> dict[str, Any]:
    """Make the query clause for documents whose field is not below a value, or that lack the field."""
    limits: dict[str, Any] = {"gte": value}
    if kind == "date":
        limits["format"] = "strict_date_optional_time"
    changed = [{"range": {field: limits}}, {"bool": {"must_not": [{"exists": {"field": field}}]}}]
    return {"bool": {"should": changed, "minimum_should_match": 1}}
