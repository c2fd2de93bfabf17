"""The documents that an index stores, read page by page: their digests, and whether their content agrees with these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from termweave.catalog.layout import bucket_of, engine_id, source_digest, stored_document
from termweave.dialect import dialect_of
from termweave.records import Passage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from termweave.catalog.layout import DocumentLayout
    from termweave.engine import Engine

#: Documents in one response: with digests only, and with their content.
_PAGE, _CONTENT_PAGE = 1000, 200


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A stored document or passage, with its digests.

    Attributes:
        id: Id of the document or passage; the `_id` if its fields do not belong to this `_id`.
        parent: Id of the document that a passage belongs to; None for a whole document.
        sound: Whether it is stored under its own id and in its own bucket. If not, termweave did not send it.
        source: Digest of its content in the source.
        encoding: Digest of its encoding.
    """

    id: str
    parent: str | None
    sound: bool
    source: int
    encoding: int


def stored_where(engine: Engine, index: str, query: Mapping[str, Any]) -> Iterator[StoredDocument]:
    """Read the documents and passages that match a query, in the order of their ids."""
    fields = ["id", "passage", "bucket", "source_digest", "encoding_digest"]
    for hit in scan(engine, index, query, {"_source": False, "docvalue_fields": fields}, _PAGE):
        values = {name: field[0] for name, field in hit.get("fields", {}).items()}
        document, number = values.get("id"), values.get("passage")
        identity = _identity(hit, document, number)
        known = document is not None and identity == Passage.key(document, number)
        yield StoredDocument(
            id=identity,
            parent=document if known and number is not None else None,
            sound=known and values.get("bucket") == bucket_of(identity),
            source=values.get("source_digest", 0),
            encoding=values.get("encoding_digest", 0),
        )


def undamaged(engine: Engine, index: str, layout: DocumentLayout, identities: Sequence[str]) -> set[str]:
    """Read these documents back; returns those whose content agrees with the digests stored beside it."""
    query = {"ids": {"values": [engine_id(identity) for identity in identities]}}
    return {identity for identity, agrees in contents(engine, index, layout, query) if agrees}


def contents(engine: Engine, index: str, layout: DocumentLayout, query: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Read documents back: the id of each, and whether its content agrees with the digests stored beside it."""
    for hit in scan(engine, index, query, {"_source": dialect_of(engine.capabilities).source()}, _CONTENT_PAGE):
        stored = hit["_source"]
        yield _identity(hit, stored.get("id"), stored.get("passage")), _agrees(stored, layout)


def _identity(hit: Mapping[str, Any], document: Any, number: Any) -> str:
    """The id of a stored document: that of its fields if it is stored under this id, else the engine's `_id`."""
    if not isinstance(document, str):
        return str(hit["_id"])
    identity = Passage.key(document, number)
    return identity if hit["_id"] == engine_id(identity) else str(hit["_id"])


def _agrees(stored: Mapping[str, Any], layout: DocumentLayout) -> bool:
    """Whether the digests of a stored document can be computed from its content."""
    try:
        document = stored_document(stored) if "id" in stored else None
        digests = (stored.get("source_digest"), stored.get("encoding_digest"))
        same = document is not None and (source_digest(document), layout.encoding_digest(stored)) == digests
        return same and layout.agrees(stored)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return False  # OpenSearch takes values that termweave never writes: a list of texts, a passage without its position


def scan(engine: Engine, index: str, query: Mapping[str, Any], parts: Mapping[str, Any], page: int) -> Iterator[dict[str, Any]]:
    """Read all hits of a query, page by page in the order of their ids.

    Args:
        engine: The server.
        index: The generation.
        query: Which documents.
        parts: Which parts of them, as keys of the request body.
        page: Hits in one response.
    """
    # Documents of other programs have no id. Two documents with one id need a further key, or a page would begin in the middle of them.
    passage = {"passage": {"order": "asc", "unmapped_type": "integer"}}  # an index of an older layout has no such field
    order: list[Any] = [{"id": {"order": "asc", "missing": ""}}, passage, "_seq_no"]
    body: dict[str, Any] = {"size": page, "query": query, "sort": order, "track_total_hits": False, **parts}
    while True:
        hits = engine.search(index, body)["hits"]["hits"]
        yield from hits
        if len(hits) < page:
            return
        body["search_after"] = hits[-1]["sort"]
