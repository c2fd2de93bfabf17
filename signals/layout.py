"""One document of an index: every signal's fields, the source's own, and the digests that verification compares."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING, Any

from termweave import plugins
from termweave.errors import EngineError
from termweave.records import Document, Passage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from termweave.records import Encoding
    from termweave.signals.base import Signal

#: Verification compares count and digest sums of this many buckets in one aggregation.
BUCKETS = 1024
#: OpenSearch refuses longer ids.
MAX_ID_BYTES = 512
#: A term of more than 32,766 bytes refuses the whole document, and `flat_object` makes terms of path and value (3.6.0).
_FILTERABLE_BYTES = 30_000
#: Where a passage lies; a document has all of these fields or none.
_PLACE = ("passage", "passage_start", "passage_end")
#: What termweave writes into a field, where OpenSearch takes other things too.
_WRITTEN: dict[str, type] = {"metadata": dict, "metadata_long": dict, **dict.fromkeys(_PLACE, int)}


def signal_class(name: str) -> type[Signal]:
    """The signal registered under a name.

    Raises:
        UsageError: There is none; the message lists those there are.
    """
    found: type[Signal] = plugins.load("signals", name)
    return found


def _made(name: str, values: Mapping[str, Any]) -> Signal:
    made = signal_class(name)
    try:
        return made(**values)
    except TypeError:
        raise EngineError(
            f"The index was made with other parameters of the signal {name!r} than the one here has.",
            "Install the version that made it, of termweave or of the package that brings the signal, or index again.",
        ) from None


def engine_id(source_id: str) -> str:
    """The `_id` of a source's document: the id itself, or a stable hash where it is too long for the engine."""
    encoded = source_id.encode("utf-8")
    return source_id if 0 < len(encoded) <= MAX_ID_BYTES else f"~{blake2b(encoded, digest_size=20).hexdigest()}"


def bucket_of(source_id: str) -> int:
    """Which of the `BUCKETS` a document counts in."""
    return int.from_bytes(blake2b(source_id.encode("utf-8"), digest_size=4).digest(), "big") % BUCKETS


def digest(*parts: bytes) -> int:
    """32 bits of a hash over the parts: the sum over a bucket stays far below 2^53, where doubles stop being exact."""
    framed = b"".join([each for part in parts for each in (len(part).to_bytes(8, "big"), part)])  # one call, not two a part
    return int.from_bytes(sha256(framed, usedforsecurity=False).digest()[:4], "big")  # processors have instructions for this one


def source_digest(document: Document) -> int:
    """Digest of what the source says of a document."""
    import orjson  # noqa: PLC0415

    metadata = orjson.dumps(dict(document.metadata), option=orjson.OPT_SORT_KEYS)
    parts = [document.id.encode(), document.title.encode(), document.text.encode(), metadata]
    if document.passage is not None:
        parts.append(b"%d-%d" % (document.passage.start, document.passage.end))
    return digest(*parts)


@dataclass(frozen=True)
class DocumentLayout:
    """How documents of one index look.

    Attributes:
        signals: Its signals.
        extra: Entries of the metadata that users have declared as fields of their own.
    """

    signals: Sequence[Signal]
    extra: Sequence[str] = ()

    @classmethod
    def from_meta(cls, parameters: Mapping[str, Mapping[str, Any]], extra: Sequence[str] = ()) -> DocumentLayout:
        """The layout that `_meta` describes: signal name -> parameters, and users' own fields."""
        return cls([_made(name, values) for name, values in parameters.items()], extra)

    def mapping(self, meta: Mapping[str, Any]) -> dict[str, Any]:
        """The strict mapping, with the lineage in `_meta`."""
        properties: dict[str, Any] = {
            "id": {"type": "keyword"},
            "passage": {"type": "integer"},
            "passage_start": {"type": "integer", "index": False},
            "passage_end": {"type": "integer", "index": False},
            "metadata": {"type": "flat_object"},
            "metadata_long": {"type": "object", "enabled": False},
            "bucket": {"type": "short"},
            "source_digest": {"type": "long"},
            "encoding_digest": {"type": "long"},
        }
        for signal in self.signals:
            properties |= signal.properties()
        properties.setdefault("title", {"type": "text", "index": False})
        properties.setdefault("text", {"type": "text", "index": False})
        return {"dynamic": "strict", "_meta": {"termweave": dict(meta)}, "properties": properties}

    @cached_property
    def names(self) -> frozenset[str]:
        """The fields that documents can have."""
        return frozenset((*self.mapping({})["properties"], *self.extra))

    def settings(self) -> dict[str, Any]:
        """Index settings of all signals."""
        merged: dict[str, Any] = {}
        for signal in self.signals:
            merged |= signal.settings()
        return merged

    def document(self, document: Document, encoding: Encoding) -> dict[str, Any]:
        """The body of one document as it is sent."""
        body: dict[str, Any] = {"id": document.source_id, "title": document.title, "text": document.text}
        if (part := document.passage) is not None:
            body |= {"passage": part.number, "passage_start": part.start, "passage_end": part.end}
        body |= _metadata_fields(document.metadata)
        body |= self._declared(document.metadata)
        for signal in self.signals:
            body |= signal.fields(document, encoding)
        body["bucket"] = bucket_of(document.id)
        body["source_digest"] = source_digest(document)
        body["encoding_digest"] = self.encoding_digest(body)
        return body

    def encoding_digest(self, stored: Mapping[str, Any]) -> int:
        """Digest of what the models gave, computed from a body before sending or from `_source` after reading back."""
        return digest(*(signal.canonical(stored) for signal in self.signals if signal.needs))

    def agrees(self, stored: Mapping[str, Any]) -> bool:
        """Whether the fields that users declared hold what the metadata of this `_source` do: no digest is made of them."""
        return {name: stored[name] for name in self.extra if name in stored} == self._declared(stored_metadata(stored))

    def _declared(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        return {name: metadata[name] for name in self.extra if name in metadata}


def as_written(stored: Mapping[str, Any]) -> dict[str, Any]:
    """A `_source` without what termweave never writes there: OpenSearch takes a list of metadata, and a passage without its place.

    For those who show a document, whatever wrote it; verification looks at what is there.
    """
    kept = {name: value for name, value in stored.items() if isinstance(value, _WRITTEN.get(name, object))}
    place = kept.keys() & _PLACE
    if len(place) < len(_PLACE):
        for name in place:
            del kept[name]
    return kept


def stored_metadata(stored: Mapping[str, Any]) -> dict[str, Any]:
    """A document's metadata from its `_source`."""
    return {**(stored.get("metadata") or {}), **(stored.get("metadata_long") or {})}


def stored_text(stored: Mapping[str, Any], name: str) -> str:
    """Title or text from a `_source`; empty where it is none, which something else wrote there."""
    value = stored.get(name)
    return value if isinstance(value, str) else ""


def stored_document(stored: Mapping[str, Any], fallback_id: str) -> Document:
    """The document, or the passage, as it was indexed, from its `_source`."""
    part = stored_passage(stored)
    identity = Passage.key(part.parent, part.number) if part else stored.get("id", fallback_id)
    return Document(identity, stored.get("text", ""), stored.get("title", ""), stored_metadata(stored), passage=part)


def stored_passage(stored: Mapping[str, Any]) -> Passage | None:
    """Which passage a `_source` is; None for a whole document."""
    if stored.get("passage") is None:
        return None
    return Passage(stored["id"], stored["passage"], stored["passage_start"], stored["passage_end"])


def filterable(key: str, value: Any) -> bool:
    """Whether an entry of the metadata is short enough to be filtered on."""
    import orjson  # noqa: PLC0415

    return len(orjson.dumps({key: value})) <= _FILTERABLE_BYTES


def _metadata_fields(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata that can be filtered on, and apart from it what is too long for that."""
    fields: dict[str, Any] = {}
    for key, value in metadata.items():
        fields.setdefault("metadata" if filterable(key, value) else "metadata_long", {})[key] = value
    return fields
