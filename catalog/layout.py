"""The layout of indexed documents: the fields of the signals and of the source, and the digests that verification compares."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING, Any

from termweave import plugins
from termweave.catalog import typed_fields
from termweave.catalog.columns import USES, Column, unlisted
from termweave.catalog.source_fields import text_at
from termweave.dialect import OPENSEARCH, ServerDialect
from termweave.errors import EngineError, UsageError
from termweave.records import Document, Encoding, Passage
from termweave.support.messages import few
from termweave.support.normal_form import forms

if TYPE_CHECKING:
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
    """Return the signal class that is registered under a name.

    Raises:
        UsageError: No signal has this name; the message lists the signals.
    """
    registered: type[Signal] = plugins.load("signals", name)
    return registered


def engine_id(source_id: str) -> str:
    """Return the `_id` of a document: the document's id in the source, or a stable hash of that id if OpenSearch does not take it as it is."""
    encoded = source_id.encode("utf-8")
    return source_id if 0 < len(encoded) <= MAX_ID_BYTES else f"~{blake2b(encoded, digest_size=20).hexdigest()}"


def bucket_of(source_id: str) -> int:
    """Return the bucket in which verification counts a document: a hash of the id, from 0 to `BUCKETS` - 1."""
    return int.from_bytes(blake2b(source_id.encode("utf-8"), digest_size=4).digest(), "big") % BUCKETS


def digest(*parts: bytes) -> int:
    """Return a 32-bit hash of the parts. The sum of a bucket's digests stays far below 2^53, so that doubles hold it exactly."""
    # One update is faster than two per part.
    framed = b"".join([each for part in parts for each in (len(part).to_bytes(8, "big"), part)])
    return int.from_bytes(sha256(framed, usedforsecurity=False).digest()[:4], "big")  # processors have instructions for sha256


def source_digest(document: Document) -> int:
    """Return the digest of a document's content in the source: id, title, text, metadata and passage."""
    import orjson  # noqa: PLC0415

    metadata = orjson.dumps(dict(document.metadata), option=orjson.OPT_SORT_KEYS)
    parts = [document.id.encode(), document.title.encode(), document.text.encode(), metadata]
    if document.passage is not None:
        parts.append(b"%d-%d" % (document.passage.start, document.passage.end))
    return digest(*parts)


@dataclass(frozen=True)
class ApplicationFields:
    """The fields of an application's own index that title and text are read from once `termweave enrich` has added signals.

    Attributes:
        title: The field of the title; "" if there is none.
        text: The fields of the text.
        joined: Whether the text is all fields of `text`, joined by line ends; if not, it is the first of them that a document has.
        strict: Whether the mapping of the index lists every field that a document may hold.
    """

    title: str
    text: Sequence[str]
    joined: bool
    strict: bool = True


@dataclass(frozen=True)
class DocumentLayout:
    """The fields of the documents of one index.

    Attributes:
        signals: The signals of the index.
        extra: Metadata entries that the user's mapping makes fields of their own.
        types: Metadata entry -> its type (`termweave.catalog.typed_fields`).
        notations: Metadata entry -> notation of its values (`termweave.catalog.typed_fields.NOTATIONS`), for entries whose notation was decided.
        application: The fields of title and text in an enriched index; None for an index that termweave built.
        mapped: Name of a field that the user's mapping or the application declares -> what the server can do with the field. Empty where
            the mapping was not read (`catalog.lineage.layout_with_fields`).
        models: Hashes of models and statistics of an enriched index, as one text, which enter the digests of encodings: an application
            may copy in a document whose encoding other models gave. "": digests cover no models, as in an index that termweave built.
    """

    signals: Sequence[Signal]
    extra: Sequence[str] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    notations: Mapping[str, str] = field(default_factory=dict)
    application: ApplicationFields | None = None
    mapped: Mapping[str, Column] = field(default_factory=dict)
    models: str = ""

    @classmethod
    def from_meta(
        cls, parameters: Mapping[str, Mapping[str, Any]], extra: Sequence[str] = (), forms: Mapping[str, str] | None = None
    ) -> DocumentLayout:
        """Make the layout of an index from what its lineage stores.

        Args:
            parameters: Signal name -> parameters.
            extra: Metadata entries that are fields of their own.
            forms: Metadata entry -> notation of its values, else their type; None: no entry has a type.

        Raises:
            EngineError: A signal does not know a parameter.
        """
        signals = []
        for name, values in parameters.items():
            try:
                signals.append(signal_class(name)(**values))
            except TypeError:
                message = f"The index stores parameters of the signal {name!r} that the installed version does not have."
                hint = (
                    "Install the version of termweave (or of the package with the signal) that built the index, or index again."
                )
                raise EngineError(message, hint) from None
        return cls(signals, extra).typed(forms or {})

    def typed(self, forms: Mapping[str, str]) -> DocumentLayout:
        """Return this layout with the types and notations of metadata entries in `forms` (entry -> notation, else type)."""
        notations = {name: form for name, form in forms.items() if form in typed_fields.NOTATIONS}
        types = {name: typed_fields.NOTATIONS.get(form, form) for name, form in forms.items()}
        return replace(self, types=types, notations=notations)

    def mapping(self, meta: Mapping[str, Any], dialect: ServerDialect = OPENSEARCH) -> dict[str, Any]:
        """Return the mapping of the index, which refuses unknown fields and holds the lineage (`meta`) in `_meta`."""
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

    @property
    def prefix(self) -> str:
        """The beginning of the names of all fields that termweave writes (`Signal.prefix`); "": the names have no prefix."""
        return self.signals[0].prefix if self.signals else ""

    @property
    def id_field(self) -> str:
        """The name of the field with the ids of documents, by which hits of equal scores are sorted."""
        return f"{self.prefix}id"

    def with_ids(self, ids: Collection[str]) -> dict[str, Any]:
        """Return the query clause for documents with these ids; in an enriched index by `_id`, which is all that a document newly written there has."""
        return {"terms": {"id": list(ids)}} if self.application is None else {"ids": {"values": list(ids)}}

    def id_of(self, hit: Mapping[str, Any]) -> str | None:
        """Return the document id of a hit: its field `id` or, in an enriched index, its `_id`; None: another program wrote the document."""
        identity: str | None = hit["_id"] if self.application is not None else hit.get("fields", {}).get("id", [None])[0]
        return identity

    def of_signals(self, stored: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the fields of a `_source` that termweave wrote, under their names without `prefix`."""
        inner = stored.get(self.prefix.removesuffix(".")) if self.prefix else stored
        return inner if isinstance(inner, dict) else {}

    @cached_property
    def forms(self) -> dict[str, str]:
        """Metadata entry -> notation of its values, or their type where no notation was decided."""
        return {**self.types, **self.notations}

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of the fields that documents can have."""
        return frozenset((*self.mapping({})["properties"], *self.extra))

    @property
    def text_fields(self) -> tuple[str, ...]:
        """Names of the stored fields that title and text are read from."""
        fields = self.application
        return ("title", "text") if fields is None else (*filter(None, [fields.title]), *fields.text)

    def with_text(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Return a `_source` with the entries `title` and `text` added, which an application may store under other names."""
        if (fields := self.application) is None:
            return dict(stored)
        texts = [text for name in fields.text if (text := text_at(stored, name))]
        return {**stored, "title": text_at(stored, fields.title), "text": "\n".join(texts if fields.joined else texts[:1])}

    @cached_property
    def columns(self) -> Mapping[str, Column]:
        """Field name -> column. A field declared in a mapping goes before the typed field of the same name if it can be counted and sorted."""
        if self.application:
            return self.mapped
        typed = {name: Column(f"{typed_fields.FIELD}.{name}", kind) for name, kind in self.types.items()}
        able = {name: column for name, column in self.mapped.items() if name not in typed or not column.obstacle("sort")}
        unread = {name: Column(name, "keyword") for name in self.extra if not self.mapped and name not in typed}
        entry = {"metadata.id": typed["id"]} if "id" in typed else {}  # `id` alone is the id of the document
        return {**typed, **unread, **able, **entry, "id": Column("id", "keyword")}

    def spelled(self, name: str) -> str:
        """Return the name of a field in the Unicode form that this index uses; a name that the index lacks is returned as it is."""
        return next((each for each in forms(name) if each in self.columns), name)

    def column(self, name: str) -> Column | None:
        """Return the column by which a metadata entry is filtered, counted and sorted; None: the index has no such field."""
        name = self.spelled(name)
        if column := self.columns.get(name) or (self.columns.get(f"metadata.{name}") if self.application else None):
            return column
        parts = name.split(".")
        above = (self.columns.get(".".join(parts[:end])) for end in range(len(parts) - 1, 0, -1))
        whole = next((column for column in above if column and column.kind == "flat"), None)
        return replace(whole, field=name, kind="keyword", path=name) if whole else None

    def usable(self, name: str, use: str = "sort") -> Column:
        """Return the column of a field by name, if it can serve a use: a key of `catalog.columns.USES`.

        Raises:
            UsageError: The index has no such field, or the field cannot serve the use; the message names fields that can.
        """
        column = self.column(name)
        why = column.obstacle(use) if column else ""
        if column is not None and not why:
            return column
        able = self.able(use)
        near = [] if why else [*filter(None, [self.nearest(name, able)])]
        inside = [each for each in able if each.startswith(f"{name}.")]
        hint = " ".join([*near, f"These can: {few(inside or able, 10)}." if able else "No field of this index can."])
        if not able and not self.application:
            hint = "The index has no typed metadata: its source has none, or an earlier version built it, so that it must be built again."
        if use == "filter" and why:
            hint += " Or write a clause of the query DSL."
        fault = f"The field {name!r} {why}, so that it cannot" if why else f"The index has no field {name!r} that can"
        raise UsageError(f"{fault} be {USES[use]}.", hint)

    def able(self, use: str = "sort") -> list[str]:
        """Return the sorted names of the fields that can serve a use (a key of `catalog.columns.USES`); a field with several names has only the first."""
        first: dict[str, str] = {}
        for name in sorted(self.columns, key=lambda name: (self.columns[name].path not in {"", name}, name)):
            if not self.columns[name].obstacle(use) and (name != "id" or self.application):
                first.setdefault(self.columns[name].field, name)
        return sorted(first.values())

    def may_hold(self, name: str) -> bool:
        """Whether a document of an application may hold a field: the mapping lists the field, or leaves open what documents hold in its place."""
        name = self.spelled(name)
        above = [self.mapped.get(name[:at]) for at, character in enumerate(name) if character == "."]
        anything = any(each is not None and (each.kind != "object" or unlisted(each.mapping)) for each in above)
        strict = self.application is not None and self.application.strict
        return not strict or anything or name in self.mapped or f"metadata.{name}" in self.mapped

    def is_nested(self, name: str) -> bool:
        """Whether a field is a nested object: filters look at each object of a list by itself."""
        return name in self.mapped and self.mapped[name].type == "nested"

    def nearest(self, name: str, among: Collection[str] | None = None) -> str:
        """Return the question whether an unknown field name means a similar one, of `among` or by default of any field; "": no name is similar."""
        names = {each.lower(): each for each in ((*self.columns, *self.extra) if among is None else among)}
        near = get_close_matches(name.removeprefix("metadata.").lower(), names, n=1)
        return f"Did you mean {names[near[0]]!r}?" if near else ""

    def short_texts(self, name: str) -> Column | None:
        """Return the typed field that termweave made of a metadata entry of short texts; None: the name is that of any other field."""
        typed = self.application is None and self.types.get(name) == "keyword" and name not in self.extra
        return self.column(name) if typed else None

    def paths(self, name: str) -> tuple[str, ...]:
        """Return the dotted paths at which a `_source` may hold the values of a field or metadata entry; (): no field with single values has this name."""
        column = self.column(name)
        if column and column.path:
            return () if column.kind in {"object", "flat", "range"} else (column.path,)
        if self.application is None and name in {*self.text_fields, *self.extra}:
            return (name,)
        return (f"metadata.{name}", f"metadata_long.{name}") if name in self.types else ()

    @property
    def kinds(self) -> dict[str, str]:
        """Name of each field that can be counted and sorted -> kind of its values (`Column.kind`)."""
        return {name: self.columns[name].kind for name in self.able()}

    def settings(self, dialect: ServerDialect = OPENSEARCH) -> dict[str, Any]:
        """Return the index settings that the signals need."""
        return {name: value for signal in self.signals for name, value in signal.settings(dialect).items()}

    def document(self, document: Document, encoding: Encoding, statistics: CorpusStatistics | None = None) -> dict[str, Any]:
        """Return the body of one document, as it is sent to the server. `statistics`: the collection statistics behind the document's term weights."""
        body: dict[str, Any] = {"id": document.source_id, "title": document.title, "text": document.text}
        if (part := document.passage) is not None:
            body |= {"passage": part.number, "passage_start": part.start, "passage_end": part.end}
        for key, value in document.metadata.items():  # what is too long for filters stands apart
            body.setdefault("metadata" if filterable(key, value) else "metadata_long", {})[key] = value
        body |= self._repeated(document.metadata)
        for signal in self.signals:
            body |= signal.fields(document, encoding, statistics)
        body["bucket"] = bucket_of(document.id)
        body["source_digest"] = source_digest(document)
        body["encoding_digest"] = self.encoding_digest(body)
        return body

    def encoding_digest(self, stored: Mapping[str, Any]) -> int:
        """Return the digest of the models' output for a document, from the document's body before sending or from its `_source` after reading back."""
        models = [self.models.encode()] if self.models else []
        return digest(*models, *(signal.canonical(stored) for signal in self.signals if signal.needs))

    def agrees(self, stored: Mapping[str, Any]) -> bool:
        """Whether the fields that repeat metadata (the user's and the typed ones) equal the metadata in a `_source`; the digests do not cover these fields."""
        repeated = {name: stored[name] for name in (*self.extra, typed_fields.FIELD) if name in stored}
        return repeated == self._repeated(stored_metadata(stored))

    def _repeated(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields that repeat metadata: the entries that the user's mapping declares, and the object of typed entries, if there are any."""
        values = typed_fields.typed_values(metadata, self.forms) if self.types else {}
        declared = {name: metadata[name] for name in self.extra if name in metadata}
        return declared | ({typed_fields.FIELD: values} if values else {})


def as_written(stored: Mapping[str, Any], layout: DocumentLayout) -> dict[str, Any]:
    """Return a `_source` without values that termweave never writes; in an enriched index all fields of the application stay.

    Another program may have written the document, and OpenSearch accepts a list as metadata, or a passage without its position.
    Code that shows documents uses this function; verification reads the `_source` itself.
    """
    if layout.application is not None:
        return dict(stored)
    written = {name: value for name, value in stored.items() if isinstance(value, _WRITTEN.get(name, object))}
    incomplete = set() if written.keys() >= {*_POSITION} else {*_POSITION}
    return {name: value for name, value in written.items() if name not in incomplete}


def stored_metadata(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of a document from the document's `_source`."""
    return {**(stored.get("metadata") or {}), **(stored.get("metadata_long") or {})}


def stored_text(stored: Mapping[str, Any], name: str) -> str:
    """Return title or text (`name`) from a `_source`; "": the value is not a string, because another program wrote the document."""
    value = stored.get(name)
    return value if isinstance(value, str) else ""


def stored_content(stored: Mapping[str, Any]) -> str:
    """Return title and text of a stored document or passage, joined as encoders see them."""
    return Document("", stored_text(stored, "text"), stored_text(stored, "title")).content


def stored_document(stored: Mapping[str, Any]) -> Document:
    """Return a document or passage as it was indexed, from its `_source`."""
    part = stored_passage(stored)
    identity = Passage.key(part.parent, part.number) if part else stored.get("id", "")
    return Document(identity, stored.get("text", ""), stored.get("title", ""), stored_metadata(stored), passage=part)


def stored_passage(stored: Mapping[str, Any]) -> Passage | None:
    """Return number and position of the passage that a `_source` holds; None: the `_source` is that of a whole document."""
    if stored.get("passage") is None:
        return None
    return Passage(stored["id"], stored["passage"], stored["passage_start"], stored["passage_end"])


def filterable(key: str, value: Any) -> bool:
    """Whether a metadata entry is short enough to be indexed for filters."""
    import orjson  # noqa: PLC0415

    return len(orjson.dumps({key: value})) <= _FILTERABLE_BYTES


def first_passages(layout: DocumentLayout) -> dict[str, Any]:
    """Return the query clause that finds every document once: whole documents, and the first passage of documents that are cut into passages."""
    if layout.application is not None:  # its documents are whole, and a field `passage` is its own
        return {"match_all": {}}
    whole = {"bool": {"must_not": [{"exists": {"field": "passage"}}]}}
    return {"bool": {"should": [{"term": {"passage": 1}}, whole], "minimum_should_match": 1}}


def among(documents: Sequence[str], layout: DocumentLayout) -> dict[str, Any]:
    """Return the query for documents with these ids; a document that is cut into passages counts once, with its first passage."""
    return {"bool": {"filter": [layout.with_ids(documents), first_passages(layout)]}}
