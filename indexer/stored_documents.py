"""Read the documents that an index stores, page by page: their digests, whether their content agrees with the digests, and a source of the documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar

from termweave.catalog.layout import DocumentLayout, bucket_of, engine_id, source_digest, stored_document
from termweave.corpora.file_source import EntrySource
from termweave.corpora.index.point_in_time import sequence_numbers
from termweave.dialect import dialect_of
from termweave.errors import InputError
from termweave.indexer.options import Window
from termweave.indexer.preparation.passages import spans
from termweave.records import Document, Passage

if TYPE_CHECKING:
    from termweave.catalog.generations import LiveGeneration
    from termweave.corpora.formats.fields import BadLine
    from termweave.corpora.sources import Progress
    from termweave.engine import Engine

#: The fields of a document that `LiveDocuments` reads.
_READ = ("id", "title", "text", "metadata", "metadata_long", "passage", "passage_start", "passage_end", "source_digest")
#: Documents in one response: with digests only, and with their content.
_PAGE, _CONTENT_PAGE = 1000, 200


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A stored document or passage, with its digests.

    Attributes:
        id: Id of the document or passage; the `_id` if its fields do not belong to this `_id`.
        parent: Id of the document that a passage belongs to; None for a whole document.
        sound: Whether the document is stored under its own id and in its own bucket. If not, termweave did not send it.
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
        ours = document is not None and identity == Passage.key(document, number)
        parent = document if ours and number is not None else None
        sound = ours and values.get("bucket") == bucket_of(identity)
        yield StoredDocument(identity, parent, sound, values.get("source_digest", 0), values.get("encoding_digest", 0))


def undamaged(engine: Engine, index: str, layout: DocumentLayout, identities: Sequence[str]) -> set[str]:
    """Read these documents back; returns the ids of those whose content agrees with the digests stored beside it."""
    query = {"ids": {"values": [engine_id(identity) for identity in identities]}}
    return {identity for identity, agrees in contents(engine, index, layout, query) if agrees}


def contents(engine: Engine, index: str, layout: DocumentLayout, query: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Read documents back; yields the id of each, and whether the content agrees with the digests stored beside it."""
    for hit in scan(engine, index, query, {"_source": dialect_of(engine.capabilities).source()}, _CONTENT_PAGE):
        stored = hit["_source"]
        yield _identity(hit, stored.get("id"), stored.get("passage")), _agrees(stored, layout)


def _identity(hit: Mapping[str, Any], document: Any, number: Any) -> str:
    """Return the id of a stored document: the id in its fields if the document is stored under that id, else the engine's `_id`."""
    if not isinstance(document, str):
        return str(hit["_id"])
    identity = Passage.key(document, number)
    return identity if hit["_id"] == engine_id(identity) else str(hit["_id"])


def _agrees(stored: Mapping[str, Any], layout: DocumentLayout) -> bool:
    """Whether the digests that a stored document carries are those that its content gives."""
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
        query: The query that finds the documents.
        parts: The parts of the documents to read, as keys of the request body.
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


class LiveDocuments(EntrySource):
    """The documents of a generation, in the order of their ids, each compared with the digest that was stored with it.

    The documents can be encoded again with other models although the corpus is not at hand.

    Passages are joined to the text that they were cut from; the white space between two passages becomes a paragraph break.

    Args:
        engine: The server.
        live: The generation.
    """

    LABEL: ClassVar[str] = "the documents of an index"
    KIND: ClassVar[str] = "live/1"
    ENTRY = "document"
    trial = True
    name = ""
    total = size = 0

    def __init__(self, engine: Engine, live: LiveGeneration) -> None:
        super().__init__()
        self._engine, self._live = engine, live
        self.name = live.lineage.source["name"]  # that of the corpus
        self.total = self.size = live.lineage.documents  # progress counts documents, for want of bytes
        self._window = Window.from_lineage(live.lineage.passages)

    @property
    def shown(self) -> str:
        """The name of the source in messages."""
        return f"the index {self._live.lineage.name}"

    @property
    def fingerprint(self) -> str:
        """Hash of the generation and of its last change."""
        lineage, index = self._live.lineage, self._live.index
        changes = sum(each["max_seq_no"] for each in sequence_numbers(self._engine, index).values())  # deletions included
        state = f"{self.KIND} {index} {lineage.source['fingerprint']} {lineage.updated} {changes}"
        return blake2b(state.encode(), digest_size=16).hexdigest()

    def entries(self, progress: Progress | None) -> Iterator[tuple[int | None, Document | BadLine]]:
        """Read all documents.

        Raises:
            InputError: A stored document differs from its digest, or passages cannot be joined to a text that is cut alike.
        """
        body = {"_source": {"includes": list(_READ)}}
        stored = (hit["_source"] for hit in scan(self._engine, self._live.index, {"match_all": {}}, body, _CONTENT_PAGE))
        for number, (identity, parts) in enumerate(groupby(stored, key=lambda source: source.get("id")), start=1):
            documents = []
            for part in parts:
                document = stored_document(part)
                if source_digest(document) != part.get("source_digest"):
                    hint = f"Look with 'termweave verify {self._live.lineage.name}', and build the index again."
                    raise InputError(f"The document {identity!r} of {self._live.index} differs from what was sent.", hint)
                documents.append(document)
            yield None, documents[0] if documents[0].passage is None else self._joined(documents)
            if progress is not None:
                progress(number)

    def _joined(self, passages: list[Document]) -> Document:
        """Return the document that these passages were cut from."""
        text = ""
        positions = [passage.passage for passage in passages if passage.passage is not None]
        for passage, position in zip(passages, positions, strict=True):
            text = text.ljust(position.start, "\n")[: position.start] + passage.text
        first = passages[0]
        if self._window is None or spans(text, self._window) != [(each.start, each.end) for each in positions]:
            hint = "Build the index again from its corpus."
            raise InputError(f"The passages of {first.source_id!r} in {self._live.index} do not show how its text was cut.", hint)
        return type(first)(first.source_id, text, first.title, first.metadata)
