"""The fields of an enrichment: which an index gets, whether its mapping and settings allow them, and its lineage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from termweave.engine.client.connection import quote
from termweave.errors import UsageError
from termweave.search.catalog.lineage import Lineage
from termweave.signals import signal_class
from termweave.signals.layout import source_digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from termweave.engine import Engine
    from termweave.engine.index_source.source import IndexSource
    from termweave.indexer.options import BuildOptions
    from termweave.records import Document, Encoding
    from termweave.signals import DocumentLayout

#: The signals of an enrichment. The lexical one would need a copy of all texts; the index has analysed fields of its own.
SIGNALS = ("weights", "dense")
_OWN: Mapping[str, Mapping[str, str]] = {
    "id": {"type": "keyword"},
    "source_digest": {"type": "long"},
    "encoding_digest": {"type": "long"},
}
_KNN = (
    'index.knn is set when an index is created. Make a new index with the same mapping and settings and {"index.knn": true}, copy the documents '
    "with POST /_reindex, and point your alias at it; or write term weights only: --signals weights."
)


def one_index(source: IndexSource) -> str:
    """The concrete index.

    Raises:
        UsageError: The alias stands for several.
    """
    if len(source.mappings) != 1:
        raise UsageError(f"{source.name} stands for {len(source.mappings)} indices.", "Enrich each of them.")
    return next(iter(source.mappings))


def lineage_of(source: IndexSource) -> Lineage | None:
    """The lineage of an earlier enrichment; None if there was none."""
    index = one_index(source)
    meta = source.mappings[index].get("_meta") or {}
    return Lineage.from_meta(meta, index) if meta.get("termweave") else None


def has_id(source: IndexSource) -> bool:
    """Whether the application itself has a field `id`."""
    return "id" in (source.mappings[one_index(source)].get("properties") or {})


def signals(options: BuildOptions) -> tuple[str, ...]:
    """The signals without those whose model the user turned off."""
    return tuple(name for name in SIGNALS if getattr(options, name) != "none")


def names(layout: DocumentLayout) -> list[str]:
    """The fields that an enrichment writes."""
    return [*_OWN, *(name for signal in layout.signals for name in signal.properties())]


def check_server(engine: Engine) -> None:
    """Refuse an Elasticsearch: from 9.2 on `_source` lacks vectors, and what is written back would lose those of the application.

    Raises:
        UsageError: The server is one.
    """
    if engine.capabilities.distribution == "elasticsearch":
        raise UsageError(
            "An index of Elasticsearch cannot be enriched: its _source lacks vectors, so that writing a document back could lose the application's.",
            "Build a separate index of it: termweave index elasticsearch:INDEX NAME.",
        )


def check(engine: Engine, source: IndexSource, index: str, signals: Sequence[str]) -> None:
    """Check that mapping and settings allow the fields.

    Raises:
        UsageError: They do not; the message names every conflict.
    """
    if "lexical" in signals or "term_frequency" in signals:
        raise UsageError(
            "An enrichment writes the signals weights and dense.", "Leave lexical out: the index has analysed fields of its own."
        )
    settings = engine.request("GET", f"/{quote(index)}/_settings", params={"flat_settings": True})[index]["settings"]
    if "dense" in signals and settings.get("index.knn") != "true":
        raise UsageError(f"The index {index!r} cannot hold vectors that are searched: its setting index.knn is not true.", _KNN)
    mapping = source.mappings[index]
    theirs = mapping.get("properties") or {}
    wanted = {*_OWN, *(name for signal in signals for name in _properties_of(signal))}
    conflicts = [
        f"{name} ({theirs[name].get('type', 'object')})"
        for name in sorted(wanted & theirs.keys())
        if not _same(name, theirs, source)
    ]
    if conflicts:
        raise UsageError(
            f"The index {index!r} has fields of names that an enrichment needs: {', '.join(conflicts)}.",
            "Enrich a copy without them, or build a separate index: termweave index opensearch:INDEX NAME.",
        )


def _properties_of(signal: str) -> Sequence[str]:
    return {"weights": ("weights", "weights_terms", "weights_sum"), "dense": ("vector", "vector_fp16")}.get(
        signal, (signal_class(signal).name,)
    )


def _same(name: str, theirs: Mapping[str, Any], source: IndexSource) -> bool:
    """Whether a field of the application serves as it is: a keyword `id` that equals the `_id`; else one that `enrich --remove` left."""
    if name == "id":
        return theirs[name].get("type") == "keyword" and all(
            (hit["_source"] or {}).get("id", hit["_id"]) == hit["_id"] for hit in source.sample
        )
    return not any(name in (hit["_source"] or {}) for hit in source.sample) and theirs[name].get("type") in {
        "long", "integer", "rank_features", "knn_vector", "binary",
    }  # fmt: skip


def put(engine: Engine, source: IndexSource, index: str, layout: DocumentLayout, made: Lineage) -> None:
    """Add the fields to the mapping, and the lineage to what `_meta` holds already."""
    properties = {name: dict(field) for name, field in _OWN.items()}
    for signal in layout.signals:
        properties |= signal.properties()
    engine.request("PUT", f"/{quote(index)}/_mapping", body={"properties": properties})
    source.mappings[index].setdefault("properties", {}).update(properties)
    write_lineage(engine, index, made)


def write_lineage(engine: Engine, index: str, made: Lineage | None) -> None:
    """Store the lineage beside what else the application has in `_meta`; None: take it out."""
    mapping = engine.request("GET", f"/{quote(index)}/_mapping")[index]["mappings"]
    meta = {key: value for key, value in (mapping.get("_meta") or {}).items() if key != "termweave"}
    engine.request(
        "PUT", f"/{quote(index)}/_mapping", body={"_meta": meta | ({} if made is None else {"termweave": made.as_meta()})}
    )


def body(layout: DocumentLayout, document: Document, encoding: Encoding) -> dict[str, Any]:
    """The fields of one document, with their digests."""
    fields: dict[str, Any] = {}
    for signal in layout.signals:
        fields |= signal.fields(document, encoding)
    return {
        "id": document.id,
        **fields,
        "source_digest": source_digest(document),
        "encoding_digest": layout.encoding_digest(fields),
    }


def agrees(layout: DocumentLayout, document: Document, stored: Mapping[str, Any]) -> bool:
    """Whether stored fields are there, undamaged, and of this content."""
    try:
        return (
            stored.get("id") == document.id
            and stored.get("source_digest") == source_digest(document)
            and stored.get("encoding_digest") == layout.encoding_digest(stored)
        )
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, orjson.JSONEncodeError):
        return False  # the application wrote something else there
