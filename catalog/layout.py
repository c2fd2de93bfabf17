"""The layout of indexed documents: the fields of the signals and of the source, and the digests that verification compares."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING, Any

from termweave import plugins
from termweave.catalog import typed_fields
from termweave.catalog.source_fields import text_at
from termweave.dialect import OPENSEARCH, ServerDialect
from termweave.errors import EngineError, UsageError
from termweave.records import Document, Encoding, Passage
from termweave.support.messages import few

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from termweave.contracts.signal import Signal
    from termweave.statistics import CorpusStatistics

#: Verification compares the document counts and digest sums of this many buckets in one aggregation.
BUCKETS = 1024
#: The longest id that OpenSearch accepts.
MAX_ID_BYTES = 512
#: OpenSearch refuses a document with a term of more than 32,766 bytes; the terms of a `flat_object` are path and value (3.6.0).
_FILTERABLE_BYTES = 30_000
#: Number and position of a passage; a document has all of these fields or none.
_POSITION = ("passage", "passage_start", "passage_end")
#: The types that termweave writes into fields for which OpenSearch accepts other types too.
_WRITTEN: dict[str, type] = {"metadata": dict, "metadata_long": dict, typed_fields.FIELD: dict, **dict.fromkeys(_POSITION, int)}


def signal_class(name: str) -> type[Signal]:
    """The signal class registered under a name.

    Raises:
        UsageError: No signal has this name; the message lists the signals.
    """
    registered: type[Signal] = plugins.load("signals", name)
    return registered


def _signal(name: str, values: Mapping[str, Any]) -> Signal:
    """The signal with the parameters that an index stores."""
    registered = signal_class(name)
    try:
        return registered(**values)
    except TypeError:
        raise EngineError(
            f"The index stores parameters of the signal {name!r} that the installed version does not have.",
            "Install the version of termweave (or of the package with the signal) that built the index, or index again.",
        ) from None


def engine_id(source_id: str) -> str:
    """The `_id` of a document: its id in the source, or a stable hash of it if it is too long for OpenSearch."""
    encoded = source_id.encode("utf-8")
    return source_id if 0 < len(encoded) <= MAX_ID_BYTES else f"~{blake2b(encoded, digest_size=20).hexdigest()}"


def bucket_of(source_id: str) -> int:
    """The bucket of a document, from 0 to `BUCKETS` - 1."""
    return int.from_bytes(blake2b(source_id.encode("utf-8"), digest_size=4).digest(), "big") % BUCKETS


def digest(*parts: bytes) -> int:
    """A 32-bit hash of the parts. The sum of a bucket's digests stays far below 2^53, so that doubles hold it exactly."""
    # One update is faster than two per part.
    framed = b"".join([each for part in parts for each in (len(part).to_bytes(8, "big"), part)])
    return int.from_bytes(sha256(framed, usedforsecurity=False).digest()[:4], "big")  # processors have instructions for sha256


def source_digest(document: Document) -> int:
    """Digest of the source's content of a document: id, title, text, metadata and passage."""
    import orjson  # noqa: PLC0415

    metadata = orjson.dumps(dict(document.metadata), option=orjson.OPT_SORT_KEYS)
    parts = [document.id.encode(), document.title.encode(), document.text.encode(), metadata]
    if document.passage is not None:
        parts.append(b"%d-%d" % (document.passage.start, document.passage.end))
    return digest(*parts)


@dataclass(frozen=True)
class Column:
    """A field of the server that filters, counts and sorts the values of an entry.

    Attributes:
        field: Name of the field on the server.
        kind: Its type (`termweave.catalog.typed_fields.TYPES`); "text" for analysed text, "geo_point" and "rank_feature", which cannot
            be compared, counted or sorted.
        doc_values: Whether the server keeps the values by document, which counting, sorting and features need and filters do not.
    """

    field: str
    kind: str
    doc_values: bool = True

    @property
    def number(self) -> str:
        """The type of the numbers that a rule reads of the documents themselves, because the server gives none; "" for anything else."""
        return "double" if self.kind == "rank_feature" else ""


@dataclass(frozen=True)
class ApplicationFields:
    """The fields of an application's own index that termweave reads after `enrich`.

    Attributes:
        columns: Name of a field -> what filters, counts and sorts it.
        title: The field of the title; "" if there is none.
        text: The fields of the text.
        joined: Whether the text is all of these fields, joined by line ends; else the first that a document has.
        types: Name of each field or object of the mapping -> its type, also of those that nothing compares.
        strict: Whether the mapping has every field that a document may hold.
    """

    columns: Mapping[str, Column]
    title: str
    text: Sequence[str]
    joined: bool
    types: Mapping[str, str] = field(default_factory=dict)
    strict: bool = True

    def may_hold(self, name: str) -> bool:
        """Whether a document may hold a field: the mapping has it, or does not say what documents hold in its place."""
        objects = [name[:at] for at, character in enumerate(name) if character == "."]
        unlisted = any(self.types.get(each, "object") not in {"object", "nested"} for each in objects)
        return not self.strict or unlisted or name in self.types or f"metadata.{name}" in self.types


@dataclass(frozen=True)
class DocumentLayout:
    """The fields of the documents of one index.

    Attributes:
        signals: The signals of the index.
        extra: Metadata entries that the user's mapping makes fields of their own.
        types: Metadata entry -> its type (`termweave.catalog.typed_fields`).
        application: The fields of the application in an enriched index; None for an index that termweave built.
    """

    signals: Sequence[Signal]
    extra: Sequence[str] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    application: ApplicationFields | None = None

    @classmethod
    def from_meta(
        cls, parameters: Mapping[str, Mapping[str, Any]], extra: Sequence[str] = (), types: Mapping[str, str] | None = None
    ) -> DocumentLayout:
        """The layout that `_meta` stores: signal name -> parameters, the metadata entries that are fields of their own, and types."""
        return cls([_signal(name, values) for name, values in parameters.items()], extra, types or {})

    def mapping(self, meta: Mapping[str, Any], dialect: ServerDialect = OPENSEARCH) -> dict[str, Any]:
        """The mapping of the index, which refuses unknown fields, with the lineage in `_meta`."""
        properties: dict[str, Any] = {
            "id": {"type": "keyword"},
            "passage": {"type": "integer"},
            "passage_start": {"type": "integer", "index": False},
            "passage_end": {"type": "integer", "index": False},
            "metadata": {"type": dialect.metadata_type},
            "metadata_long": {"type": "object", "enabled": False},
            "bucket": {"type": "short"},
            "source_digest": {"type": "long"},
            "encoding_digest": {"type": "long"},
        }
        if self.types:
            properties[typed_fields.FIELD] = {"properties": typed_fields.properties(self.types)}
        for signal in self.signals:
            properties |= signal.properties(dialect)
        properties.setdefault("title", {"type": "text", "index": False})
        properties.setdefault("text", {"type": "text", "index": False})
        return {"dynamic": "strict", "_meta": {"termweave": dict(meta)}, "properties": properties}

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of the fields that documents can have."""
        return frozenset((*self.mapping({})["properties"], *self.extra))

    @property
    def text_fields(self) -> tuple[str, ...]:
        """The stored fields that title and text are read from."""
        own = self.application
        return ("title", "text") if own is None else (*filter(None, [own.title]), *own.text)

    def with_text(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """A `_source` with the entries `title` and `text`, which an application may store under other names."""
        if (own := self.application) is None:
            return dict(stored)
        texts = [text for name in own.text if (text := text_at(stored, name))]
        return {**stored, "title": text_at(stored, own.title), "text": "\n".join(texts if own.joined else texts[:1])}

    def column(self, name: str) -> Column | None:
        """What filters, counts and sorts an entry of the metadata; None if there is no such field."""
        if self.application is not None:
            columns = self.application.columns
            return columns.get(name) or columns.get(f"metadata.{name}")
        if name == "id" or name in self.extra:
            return Column(name, self.types.get(name, "keyword"))
        return Column(f"{typed_fields.FIELD}.{name}", self.types[name]) if name in self.types else None

    def nearest(self, name: str, *others: str) -> str:
        """The question whether the name of a field that there is not means another one, or one of `others`; "" if none is near."""
        columns = self.types if self.application is None else self.application.columns
        known = {each.lower(): each for each in (*columns, *self.extra, *others)}
        near = get_close_matches(name.removeprefix("metadata.").lower(), known, n=1)
        return f"Did you mean {known[near[0]]!r}?" if near else ""

    def short_texts(self, name: str) -> Column | None:
        """The typed field that termweave made of a metadata entry of short texts; None for any other field."""
        own = self.application is None and self.types.get(name) == "keyword" and name not in self.extra
        return self.column(name) if own else None

    def paths(self, name: str) -> tuple[str, ...]:
        """Where a `_source` may hold the values of a field or metadata entry; () if there is no such field."""
        if self.application is not None:
            column = self.column(name)
            return tuple(path for path, each in self.application.columns.items() if each == column)[:1]
        if name in {*self.text_fields, *self.extra}:
            return (name,)
        return (f"metadata.{name}", f"metadata_long.{name}") if name in self.types else ()

    @property
    def sortable(self) -> list[str]:
        """The names of entries that can be counted and sorted."""
        if self.application is None:
            return sorted(self.types)
        columns = self.application.columns
        return sorted(name for name, column in columns.items() if column.kind in typed_fields.TYPES and column.doc_values)

    @property
    def kinds(self) -> dict[str, str]:
        """Entry that can be counted and sorted -> its type; in an enriched index as the mapping of the application says."""
        return {name: column.kind for name in self.sortable if (column := self.column(name))}

    def settings(self, dialect: ServerDialect = OPENSEARCH) -> dict[str, Any]:
        """The index settings of all signals."""
        merged: dict[str, Any] = {}
        for signal in self.signals:
            merged |= signal.settings(dialect)
        return merged

    def document(self, document: Document, encoding: Encoding, statistics: CorpusStatistics | None = None) -> dict[str, Any]:
        """The body of one document, as it is sent to the server. `statistics` are those that its weights were made with."""
        body: dict[str, Any] = {"id": document.source_id, "title": document.title, "text": document.text}
        if (part := document.passage) is not None:
            body |= {"passage": part.number, "passage_start": part.start, "passage_end": part.end}
        body |= _metadata_fields(document.metadata)
        body |= self._declared(document.metadata) | self._typed(document.metadata)
        for signal in self.signals:
            body |= signal.fields(document, encoding, statistics)
        body["bucket"] = bucket_of(document.id)
        body["source_digest"] = source_digest(document)
        body["encoding_digest"] = self.encoding_digest(body)
        return body

    def encoding_digest(self, stored: Mapping[str, Any]) -> int:
        """Digest of the models' output for a document, from its body before sending or from its `_source` after reading back."""
        return digest(*(signal.canonical(stored) for signal in self.signals if signal.needs))

    def agrees(self, stored: Mapping[str, Any]) -> bool:
        """Whether the user's and the typed fields equal the metadata of this `_source`. The digests do not cover these fields."""
        metadata = stored_metadata(stored)
        declared = {name: stored[name] for name in (*self.extra, typed_fields.FIELD) if name in stored}
        return declared == self._declared(metadata) | self._typed(metadata)

    def _declared(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """The metadata entries that are fields of their own."""
        return {name: metadata[name] for name in self.extra if name in metadata}

    def _typed(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """The object of the typed entries; {} if there are none."""
        values = typed_fields.typed_values(metadata, self.types) if self.types else {}
        return {typed_fields.FIELD: values} if values else {}


def as_written(stored: Mapping[str, Any], layout: DocumentLayout) -> dict[str, Any]:
    """Remove from a `_source` what termweave never writes; all fields of an application stay.

    Another program may have written the document, and OpenSearch accepts a list as metadata, or a passage without its position.
    Code that shows documents uses this function; verification reads the `_source` itself.
    """
    if layout.application is not None:
        return dict(stored)
    kept = {name: value for name, value in stored.items() if isinstance(value, _WRITTEN.get(name, object))}
    position = kept.keys() & _POSITION
    if len(position) < len(_POSITION):
        for name in position:
            del kept[name]
    return kept


def stored_metadata(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of a document, from its `_source`."""
    return {**(stored.get("metadata") or {}), **(stored.get("metadata_long") or {})}


def stored_text(stored: Mapping[str, Any], name: str) -> str:
    """Title or text from a `_source`; "" if it is not a string, because another program wrote the document."""
    value = stored.get(name)
    return value if isinstance(value, str) else ""


def stored_content(stored: Mapping[str, Any]) -> str:
    """Title and text of a stored document or passage, joined as encoders see them."""
    return Document("", stored_text(stored, "text"), stored_text(stored, "title")).content


def stored_document(stored: Mapping[str, Any]) -> Document:
    """The document or passage as it was indexed, from its `_source`."""
    part = stored_passage(stored)
    identity = Passage.key(part.parent, part.number) if part else stored.get("id", "")
    return Document(identity, stored.get("text", ""), stored.get("title", ""), stored_metadata(stored), passage=part)


def stored_passage(stored: Mapping[str, Any]) -> Passage | None:
    """The passage that a `_source` holds; None for a whole document."""
    if stored.get("passage") is None:
        return None
    return Passage(stored["id"], stored["passage"], stored["passage_start"], stored["passage_end"])


def filterable(key: str, value: Any) -> bool:
    """Whether a metadata entry is short enough to be indexed for filters."""
    import orjson  # noqa: PLC0415

    return len(orjson.dumps({key: value})) <= _FILTERABLE_BYTES


def _metadata_fields(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata as two fields: the entries that filters can use, and the entries that are too long for that."""
    fields: dict[str, Any] = {}
    for key, value in metadata.items():
        fields.setdefault("metadata" if filterable(key, value) else "metadata_long", {})[key] = value
    return fields


def sortable(name: str, layout: DocumentLayout) -> Column:
    """The field of the server that counts and sorts an entry.

    Raises:
        UsageError: The index has no such typed field.
    """
    column = layout.column(name)
    if column is not None and column.kind in typed_fields.TYPES and column.doc_values:
        return column
    if column is None and (near := layout.nearest(name)):
        hint = near
    elif layout.application is not None:
        hint = f"Its mapping has {few(layout.sortable, 10) or 'none'}; a text needs a subfield of type keyword, and every field its doc_values."
    elif layout.types:
        hint = f"These can be counted and sorted: {few(sorted(layout.types), 10)}. Texts of more than 256 characters cannot."
    else:
        hint = (
            "The index has no typed metadata: its source has none, or it was built by an earlier version and must be built again."
        )
    raise UsageError(f"The index has no field {name!r} that can be counted or sorted.", hint)


def first_passages(layout: DocumentLayout) -> dict[str, Any]:
    """The clause for whole documents, and for the first passage of those that are cut into passages."""
    if layout.application is not None:  # its documents are whole, and a field `passage` is its own
        return {"match_all": {}}
    whole = {"bool": {"must_not": [{"exists": {"field": "passage"}}]}}
    return {"bool": {"should": [{"term": {"passage": 1}}, whole], "minimum_should_match": 1}}


def among(documents: Sequence[str], layout: DocumentLayout) -> dict[str, Any]:
    """The query for documents; a document in passages counts once, with its first passage."""
    return {"bool": {"filter": [{"terms": {"id": list(documents)}}, first_passages(layout)]}}
