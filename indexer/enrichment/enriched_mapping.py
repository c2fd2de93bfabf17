"""The fields of an enrichment: which an index gets, whether its mapping and settings allow them, and its lineage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from termweave.catalog import statistics_store
from termweave.catalog.layout import DocumentLayout, signal_class, source_digest
from termweave.catalog.lineage import Lineage
from termweave.corpora.index import entries
from termweave.corpora.index.point_in_time import shards_of
from termweave.dialect import dialect_of
from termweave.engine.client.capabilities import check_native_vectors
from termweave.engine.client.payloads import as_text, quote
from termweave.errors import UsageError
from termweave.signals.learned import ANALYZER

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from termweave.corpora.index.source import IndexSource
    from termweave.engine import Engine
    from termweave.records import Document, Encoding
    from termweave.statistics import CorpusStatistics

#: The signals of an enrichment, where none is named. The lexical one would need a copy of all texts; the index has analysed fields of its own.
SIGNALS = ("weights", "dense")
_OWN = {"id": {"type": "keyword"}, "source_digest": {"type": "long"}, "encoding_digest": {"type": "long"}}
_KNN = (
    'index.knn is set when an index is created. Make a new index with the same mapping and settings and {"index.knn": true}, copy the documents '
    "with POST /_reindex, and point your alias at it; or write term weights only: --signals weights."
)
_BESIDE = "Build a separate index: termweave index opensearch:INDEX NAME."
#: What `_source` does not give back as it was written on Elasticsearch: vectors are left out or rounded, texts are inferred again.
_NOT_GIVEN_BACK = ("dense_vector", "sparse_vector", "rank_vectors", "semantic_text")


def one_index(source: IndexSource) -> str:
    """The concrete index.

    Raises:
        UsageError: The alias stands for several, or shows a part of its documents.
    """
    if len(source.mappings) != 1:
        raise UsageError(f"{source.name} stands for {len(source.mappings)} indices.", "Enrich each of them.")
    (index,) = source.mappings
    name, engine = source.address.index, source.engine
    if name != index and shards_of(engine, name, [index]) != shards_of(engine, index, [index]):
        raise UsageError(
            f"{source.name} is an alias that hides a part of {index}.", f"Enrich all of it: termweave enrich {index}."
        )
    return index


def lineage_of(source: IndexSource, index: str) -> Lineage | None:
    """The lineage of an earlier enrichment; None if there was none."""
    meta = source.mappings[index].get("_meta") or {}
    return Lineage.from_meta(meta, index) if meta.get("termweave") else None


def own_fields(source: IndexSource) -> set[str]:
    """The fields of the first documents, in the mapping or not."""
    return {name for hit in source.sample for name in hit["_source"] or ()}


def field_names(layout: DocumentLayout) -> list[str]:
    """The fields that an enrichment writes."""
    return [*_OWN, *(name for signal in layout.signals for name in signal.properties())]


def check_index(engine: Engine, source: IndexSource, index: str, signals: Sequence[str]) -> None:
    """Check that mapping and settings allow the fields.

    Raises:
        UsageError: They do not; the message names every conflict.
    """
    if "lexical" in signals:
        raise UsageError(
            "An enrichment writes the signals weights, dense and learned.",
            "Leave lexical out: the index has analysed fields of its own.",
        )
    settings = engine.request("GET", f"/{quote(index)}/_settings", params={"flat_settings": True})[index]["settings"]
    knn = bool(dialect_of(engine.capabilities).vector_settings())
    if knn and "dense" in signals and settings.get("index.knn") != "true":
        raise UsageError(f"The index {index!r} cannot hold vectors that are searched: its setting index.knn is not true.", _KNN)
    mapping = source.mappings[index]
    check_native_vectors(engine, mapping, settings)
    theirs = mapping.get("properties") or {}
    wanted = {*_OWN, *(name for signal in signals for name in _properties_of(signal))}
    possible = wanted.union(*map(_properties_of, (*SIGNALS, "learned")))
    left = {name for name in possible & theirs.keys() if _may_stay(engine, index, name, theirs, source)}
    _check_source(engine, index, mapping, settings, left)
    conflicts = [f"{name} ({theirs[name].get('type', 'object')})" for name in sorted((wanted & theirs.keys()) - left)]
    unmapped = (wanted & own_fields(source)) - theirs.keys() - ({"id"} if source.ids_agree else set())
    conflicts += [f"{name} (not in the mapping)" for name in sorted(unmapped)]
    if conflicts:
        raise UsageError(
            f"The index {index!r} has fields of names that an enrichment needs: {', '.join(conflicts)}.",
            f"Enrich a copy without them. {_BESIDE}",
        )
    if any(signal_class(name).needs == "weights" for name in signals) and statistics_store.is_taken(engine, index):
        raise UsageError(
            f"{statistics_store.companion(index)!r}, where the statistics of an enrichment are stored, is an index of another application.",
            f"Write vectors only (--signals dense), or enrich a copy under another name. {_BESIDE}",
        )


def _check_source(
    engine: Engine, index: str, mapping: Mapping[str, Any], settings: Mapping[str, Any], left: Collection[str]
) -> None:
    """Check that `_source` gives every field of the application back: a partial update and a whole write lose all others.

    Args:
        engine: The server.
        index: The index.
        mapping: Its mapping.
        settings: Its settings, flat.
        left: Empty fields that `enrich --remove` left.

    Raises:
        UsageError: It does not.
    """
    stored, mode = mapping.get("_source") or {}, settings.get("index.mapping.source.mode")
    rearranged = settings.get("index.mode") in {"logsdb", "time_series"} and mode is None
    fields, whose = entries.fields_of(mapping).items(), f"The _source of the index {index!r}"
    if left_out := [key for key in ("excludes", "includes") if stored.get(key)]:
        problem = f"{whose} leaves fields out ({left_out[0]}), which writing a document back would lose."
    elif engine.capabilities.distribution != "elasticsearch":
        return
    elif rearranged or "synthetic" in {stored.get("mode"), mode}:
        problem = f"{whose} is synthetic: writing a document back could change the application's fields."
    elif numbers := [f"{name} ({kind})" for name, kind in fields if kind in _NOT_GIVEN_BACK and name not in left]:
        named = ", ".join(sorted(numbers))
        problem = f"The index {index!r} has fields that Elasticsearch may not give back as they were written: {named}."
    else:
        return
    raise UsageError(problem, _BESIDE)


def _properties_of(signal: str) -> Sequence[str]:
    several = {"weights": ("weights", "weights_terms", "weights_sum"), "dense": ("vector", "vector_fp16")}
    return several.get(signal, (signal_class(signal).name,))


def _may_stay(engine: Engine, index: str, name: str, theirs: Mapping[str, Any], source: IndexSource) -> bool:
    """Whether a field of the application serves as it is: a keyword `id` that equals the `_id`; else one that `enrich --remove` left."""
    kind = theirs[name].get("type")
    if name == "id":
        return kind == "keyword" and source.ids_agree
    ours = {"long", "integer", "rank_features", "sparse_vector", "knn_vector", "dense_vector", "binary"}
    if kind not in ours and theirs[name].get("analyzer") != ANALYZER:
        return False
    if any(name in (hit["_source"] or {}) for hit in source.sample):
        return False
    if kind == "rank_features":  # it takes no `exists`
        return True
    body = {"size": 0, "terminate_after": 1, "track_total_hits": True, "query": {"exists": {"field": name}}}
    return not engine.search(quote(index), body)["hits"]["total"]["value"]


def add_settings(engine: Engine, index: str, layout: DocumentLayout, *, close: bool) -> None:
    """Add the analyzers and similarities of the signals to the index, which must be closed for that.

    Args:
        engine: The server.
        index: The index.
        layout: The signals.
        close: Whether the index may be closed; it is opened again even if the server refuses the settings.

    Raises:
        UsageError: The index lacks some of them, and may not be closed.
    """
    wanted = {name: value for name, value in layout.settings(dialect_of(engine.capabilities)).items() if name != "index.knn"}
    settings = engine.request("GET", f"/{quote(index)}/_settings", params={"flat_settings": True})[index]["settings"]
    lacking = {name: value for name, value in wanted.items() if settings.get(name) != as_text(value)}
    if not lacking:
        return
    if not close:
        raise UsageError(
            f"The index {index!r} lacks the analyzers of the signal learned, which a server takes only while an index is closed.",
            "Add --yes: the index is closed and opened again, and answers no search for about a second. "
            "Or leave learned out of --signals.",
        )
    engine.request("POST", f"/{quote(index)}/_close")
    try:
        engine.request("PUT", f"/{quote(index)}/_settings", body=lacking)
    finally:
        engine.request("POST", f"/{quote(index)}/_open", params={"wait_for_active_shards": 1})


def add_fields(engine: Engine, source: IndexSource, index: str, layout: DocumentLayout, made: Lineage) -> None:
    """Add the fields to the mapping, and the lineage to what `_meta` holds already."""
    properties: dict[str, Any] = dict(_OWN)
    for signal in layout.signals:
        properties |= signal.properties(dialect_of(engine.capabilities))
    engine.request("PUT", f"/{quote(index)}/_mapping", body={"properties": properties})
    source.mappings[index].setdefault("properties", {}).update(properties)
    write_lineage(engine, index, made)


def write_lineage(engine: Engine, index: str, made: Lineage | None) -> None:
    """Store the lineage beside what else the application has in `_meta`; None: take it out."""
    mapping = engine.request("GET", f"/{quote(index)}/_mapping")[index]["mappings"]
    meta = {key: value for key, value in (mapping.get("_meta") or {}).items() if key != "termweave"}
    meta |= {} if made is None else {"termweave": made.as_meta()}
    engine.request("PUT", f"/{quote(index)}/_mapping", body={"_meta": meta})


def count(engine: Engine, index: str) -> int:
    """Count the documents that have the fields."""
    enriched = {"size": 0, "track_total_hits": True, "query": {"exists": {"field": "source_digest"}}}
    return int(engine.search(quote(index), enriched)["hits"]["total"]["value"])


def signal_fields(
    layout: DocumentLayout, document: Document, encoding: Encoding, statistics: CorpusStatistics | None
) -> dict[str, Any]:
    """The fields of one document, with their digests. `statistics` are those that its weights were made with."""
    fields: dict[str, Any] = {}
    for signal in layout.signals:
        fields |= signal.fields(document, encoding, statistics)
    digests = {"source_digest": source_digest(document), "encoding_digest": layout.encoding_digest(fields)}
    return {"id": document.id, **fields, **digests}


def agrees(layout: DocumentLayout, document: Document, stored: Mapping[str, Any]) -> bool:
    """Whether stored fields are there, undamaged, and of this content."""
    try:
        expected = (document.id, source_digest(document), layout.encoding_digest(stored))
        return (stored.get("id"), stored.get("source_digest"), stored.get("encoding_digest")) == expected
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, orjson.JSONEncodeError):
        return False  # the application wrote something else there
