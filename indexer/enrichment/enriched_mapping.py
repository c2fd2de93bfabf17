"""The fields that an enrichment adds to an index, whether the mapping and settings of the index allow them, and the lineage of the index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from termweave.catalog import statistics_store
from termweave.catalog.columns import text_fields
from termweave.catalog.layout import DocumentLayout, signal_class, source_digest
from termweave.catalog.lineage import Lineage, check_alike, predecessor, read_by
from termweave.corpora.index import entries
from termweave.corpora.index.point_in_time import shards_of
from termweave.dialect import dialect_of
from termweave.engine.client.capabilities import check_native_vectors
from termweave.engine.client.payloads import as_text, quote
from termweave.errors import UsageError
from termweave.indexer.build_plan import BuildPlan, plan
from termweave.signals.learned import ANALYZER
from termweave.signals.lexical import Lexical
from termweave.support.messages import few

if TYPE_CHECKING:
    from termweave.corpora.index.source import IndexSource
    from termweave.engine import Engine
    from termweave.indexer.options import BuildOptions
    from termweave.records import Document, Encoding
    from termweave.statistics import CorpusStatistics

#: The signals that an enrichment writes, where none is named. The lexical one searches the analysed fields of the application.
SIGNALS = ("weights", "dense")
#: The object that holds what termweave writes into a document. Earlier versions wrote these fields beside those of the application.
OBJECT = "termweave"
_EARLIER = ("weights", "weights_terms", "weights_sum", "learned", "vector", "vector_fp16", "source_digest", "encoding_digest")
_OWN = {"id": {"type": "keyword"}, "source_digest": {"type": "long"}, "encoding_digest": {"type": "long"}}
_KNN = (
    'index.knn is set when an index is created. Make a new index with the same mapping and settings and {"index.knn": true}, copy the documents '
    "with POST /_reindex, and point your alias at it; or write term weights only: --signals weights."
)
_BESIDE = "Build a separate index: termweave index opensearch:INDEX NAME."
#: What `_source` does not give back as it was written on Elasticsearch: vectors are left out or rounded, texts are inferred again.
_NOT_GIVEN_BACK = ("dense_vector", "sparse_vector", "rank_vectors", "semantic_text")


def whole_indices(source: IndexSource) -> list[str]:
    """Return the sorted names of the concrete indices that the name of a source stands for.

    Raises:
        UsageError: The name is an alias that shows only a part of the documents.
    """
    name, engine, indices = source.address.index, source.engine, sorted(source.mappings)
    if indices != [name] and shards_of(engine, name, indices) != [
        shard for each in indices for shard in shards_of(engine, each, [each])
    ]:
        whole = " and ".join(f"termweave enrich {index}" for index in indices)
        raise UsageError(f"{source.name} is an alias that hides a part of {few(indices)}.", f"Enrich the whole index: {whole}.")
    return indices


def lineages(source: IndexSource) -> dict[str, Lineage]:
    """Return index -> lineage for those indices of a source that were enriched before, in the order of the names."""
    metas = ((index, mapping.get("_meta") or {}) for index, mapping in sorted(source.mappings.items()))
    return {index: Lineage.from_meta(meta, index) for index, meta in metas if meta.get("termweave")}


def field_names(layout: DocumentLayout) -> list[str]:
    """Return the names of the fields that an enrichment writes into a document."""
    return [OBJECT] if layout.prefix else [*_OWN, *(name for signal in layout.signals for name in signal.properties())]


def lexical(source: IndexSource, weights: Mapping[str, float], prefix: str = f"{OBJECT}.") -> Lexical | None:
    """Make the signal that searches the application's own text fields; None: neither title nor text is read from a text field.

    Args:
        source: The index, or several.
        weights: Fields that the user named -> their weights; {}: those of title and text, with weight 1.
        prefix: `Signal.prefix` of the other signals.

    Raises:
        UsageError: A field that the user named cannot be searched by words.
    """
    texts = sorted({name for mapping in source.mappings.values() for name in text_fields(mapping, [OBJECT])})
    for name in weights:
        if name not in texts:
            message = (
                f"{name!r} is not a text field of the index {source.address.index!r}, so the signal lexical cannot search it."
            )
            raise UsageError(message, f"Its text fields: {few(texts, 12) if texts else 'none'}.")
    read = read_by(source.reading.fields)
    searched = weights or {name: 1.0 for name in (read.title, *read.text) if name in texts}
    return Lexical(of_application=searched, prefix=prefix) if searched else None


def about(words: Lexical | None) -> str:
    """Return a sentence that says which fields the signal lexical searches, or why there is no such signal."""
    if words is None:
        return "There is no signal lexical, because title and text are not read from text fields: name some with --lexical-field."
    fields = ", ".join(f"{name}^{weight:g}" for name, weight in words.text_fields.items())
    return f"The signal lexical searches the application's own {fields}."


def with_object(lineage: Lineage) -> Lineage:
    """Return a lineage for an index whose signal fields lie in the object `OBJECT`, even if an earlier version wrote those of another index elsewhere."""
    inside = {name: {**values, "prefix": f"{OBJECT}."} for name, values in lineage.signals.items()}
    return replace(lineage, signals=inside, source={**lineage.source, "enriched": OBJECT})


def plan_first(engine: Engine, source: IndexSource, options: BuildOptions) -> BuildPlan:
    """Plan a first enrichment, and check that every index of the name allows its fields.

    If the user names no signals, they are those of `SIGNALS` whose model the user did not turn off; the signal lexical writes nothing.
    """
    signals = tuple(name for name in options.signals or () if name != "lexical")
    if options.signals and not signals:
        hint = "Add weights, dense or learned to --signals."
        raise UsageError("The signal lexical searches fields that the index has, so there is nothing to write.", hint)
    signals = signals or tuple(name for name in SIGNALS if getattr(options, name) != "none")
    planned = plan(source, engine.capabilities, replace(options, signals=signals))
    for index in sorted(source.mappings):
        check_index(engine, source.of_index(index), index, planned.signals)
    return planned


def find_earlier(source: IndexSource, options: BuildOptions, weights: Mapping[str, float]) -> tuple[str, Lineage] | None:
    """Find the index whose models, fields and statistics an enrichment goes on with, and that index's lineage; None: the enrichment begins anew.

    The index is the last of the name's indices that is enriched, else the index that the name stood for before.

    Raises:
        UsageError: Indices of the name are enriched otherwise than the user asks for now, or otherwise than each other.
    """
    enriched = lineages(source)
    words = lexical(source, weights) if weights else None
    alike = {"lexical": words.parameters()} if words else {}  # all get these
    check_alike({index: replace(lineage, signals={**lineage.signals, **alike}) for index, lineage in enriched.items()})
    if enriched:
        index, lineage = [*enriched.items()][-1]
        _check_unchanged(source, lineage, options)
        return index, lineage
    before = predecessor(source.engine, source.address.index)
    if before is not None and not (options.weights or options.dense):
        with suppress(UsageError):  # with other fields or signals the new index is enriched anew
            _check_unchanged(source, before[1], options)
            return before
    return None


def _check_unchanged(source: IndexSource, lineage: Lineage, options: BuildOptions) -> None:
    """Check that the signals and fields that the user asks for are those of the first enrichment.

    Raises:
        UsageError: They are not; the message names the signals or fields of the first enrichment.
    """
    fields = lineage.named_fields
    written = lineage.signals.keys() - {"lexical"}
    if options.signals and {*options.signals} - {"lexical"} != written:
        first, flags = f"the signals {', '.join(sorted(written))}", "--signals"
    elif fields is not None and fields != source.reading.fields:
        first, flags = f"the fields {', '.join(fields.named()) or 'of usual names'}", "--title-field and --text-field"
    else:
        return
    hint = f"Leave {flags} out, or remove what was written by 'termweave enrich {lineage.name} --remove' and enrich it anew."
    raise UsageError(f"{lineage.name!r} was enriched with {first}.", hint)


def check_index(engine: Engine, source: IndexSource, index: str, signals: Sequence[str]) -> None:
    """Check that the mapping and settings of an index allow the fields of these signals.

    Raises:
        UsageError: They do not; the message names the conflict.
    """
    settings = settings_of(engine, index)
    knn = bool(dialect_of(engine.capabilities).vector_settings())
    if knn and "dense" in signals and settings.get("index.knn") != "true":
        raise UsageError(f"The index {index!r} cannot hold vectors that are searched: its setting index.knn is not true.", _KNN)
    mapping = source.mappings[index]
    check_native_vectors(engine, mapping, settings)
    # Documents that were copied from an enriched index have the object already.
    copied = [hit["_source"][OBJECT] for hit in source.sample if OBJECT in (hit["_source"] or {})]
    if any(not isinstance(each, dict) or each.keys() - {*_OWN, *_EARLIER} for each in (*copied, _inside(source, index))):
        message = f"The index {index!r} has a field {OBJECT!r} of its own, and an enrichment writes into one of this name."
        raise UsageError(message, f"Enrich a copy of the index without this field. {_BESIDE}")
    _check_source(engine, source, index, settings)
    if any(signal_class(name).needs == "weights" for name in signals) and statistics_store.is_taken(engine, index):
        message = f"{statistics_store.companion(index)!r}, where the statistics of an enrichment are stored, is an index of another application."
        raise UsageError(message, f"Write vectors only (--signals dense), or enrich a copy under another name. {_BESIDE}")


def settings_of(engine: Engine, index: str) -> dict[str, Any]:
    """Return the settings of an index: dotted name -> value."""
    answer = engine.request("GET", f"/{quote(index)}/_settings", params={"flat_settings": True})
    return dict(answer[index]["settings"])


def _inside(source: IndexSource, index: str) -> Mapping[str, Any]:
    """Return the fields (name -> definition) that the mapping of an index has inside the object `OBJECT`."""
    field = (source.mappings[index].get("properties") or {}).get(OBJECT, {})
    inside: Mapping[str, Any] = field.get("properties") or ({"": field} if field.get("type", "object") != "object" else {})
    return inside


def fields_of(engine: Engine, source: IndexSource, index: str, layout: DocumentLayout) -> dict[str, Any]:
    """Return the fields (name -> definition) that an enrichment adds to the mapping inside the object `OBJECT`.

    Raises:
        UsageError: The mapping has one of these fields with another type, from an enrichment with other models or from copied documents.
    """
    every = (signal.properties(dialect_of(engine.capabilities)) for signal in layout.signals)
    fields: dict[str, Any] = _OWN | {name: field for each in every for name, field in each.items()}
    for name, mapped in _inside(source, index).items():
        if any(mapped.get(key, "object") != fields.get(name, mapped).get(key, "object") for key in ("type", "dimension", "dims")):
            raise UsageError(
                f"The index {index!r} has the field '{OBJECT}.{name}' already, with another type than these models need.",
                f'Make a new index without this field in its mapping, copy the documents with POST /_reindex and {{"source": {{"_source": '
                f'{{"excludes": ["{OBJECT}"]}}}}}}, point your alias at the new index, and enrich it.',
            )
    return fields


def _check_source(engine: Engine, source: IndexSource, index: str, settings: Mapping[str, Any]) -> None:
    """Check that `_source` gives every field of the application back: writing a document loses the fields that `_source` lacks.

    Args:
        engine: The server.
        source: Reads the index.
        index: The index.
        settings: Settings of the index, with dotted names.

    Raises:
        UsageError: `_source` does not give every field back.
    """
    mapping = source.mappings[index]
    in_sample = {name for hit in source.sample for name in hit["_source"] or ()}

    def ours(name: str) -> bool:
        """Whether a field is an empty one that `enrich --remove` of this or an earlier version left."""
        earlier = name in _EARLIER and name not in in_sample and not count(engine, index, name)
        return name.startswith(f"{OBJECT}.") or earlier

    stored, mode = mapping.get("_source") or {}, settings.get("index.mapping.source.mode")
    rearranged = settings.get("index.mode") in {"logsdb", "time_series"} and mode is None
    fields, whose = entries.fields_of(mapping).items(), f"The _source of the index {index!r}"
    if left_out := [key for key in ("excludes", "includes") if stored.get(key)]:
        problem = f"{whose} leaves fields out ({left_out[0]}): writing a document back would lose them."
    elif settings.get("index.derived_source.enabled") == "true":
        problem = f"{whose} is derived from other fields (index.derived_source.enabled), and no server derives term weights and vectors."
    elif engine.capabilities.distribution != "elasticsearch":
        return
    elif rearranged or "synthetic" in {stored.get("mode"), mode}:
        problem = f"{whose} is synthetic: writing a document back could change the application's fields."
    elif numbers := [f"{name} ({kind})" for name, kind in fields if kind in _NOT_GIVEN_BACK and not ours(name)]:
        problem = f"The index {index!r} has fields that Elasticsearch may not give back as they were written: {', '.join(sorted(numbers))}."
    else:
        return
    raise UsageError(problem, _BESIDE)


def add_settings(engine: Engine, index: str, layout: DocumentLayout, *, close: bool) -> None:
    """Add the analyzers and similarities of the signals to the index, which must be closed for that.

    Args:
        engine: The server.
        index: The index.
        layout: The signals.
        close: Whether the index may be closed; it is opened again even if the server refuses the settings.

    Raises:
        UsageError: The index lacks some of these settings, and may not be closed.
    """
    stored = settings_of(engine, index)
    needed = layout.settings(dialect_of(engine.capabilities)).items()
    lacking = {name: value for name, value in needed if name != "index.knn" and stored.get(name) != as_text(value)}
    if not lacking:
        return
    if not close:
        raise UsageError(
            f"The index {index!r} lacks the analyzers of the signal 'learned', and a server adds analyzers only to a closed index.",
            "Add --yes: the index is closed and opened again, and answers no search for about a second. "
            "Or leave 'learned' out of --signals.",
        )
    _set_closed(engine, index, lacking)


def remove_settings(engine: Engine, index: str, *, close: bool) -> Iterator[str]:
    """Remove the analyzers of the signal `learned` from an index, as far as the server allows; yields sentences about analyzers that stay.

    No server removes a field from a mapping, and the field of `learned` needs its analyzer and its similarity. The search analyzer, which is
    nearly all of the settings, can be removed as soon as the field names another search analyzer.

    Args:
        engine: The server.
        index: The index.
        close: Whether the index may be closed; only then a server takes such settings.
    """
    settings = settings_of(engine, index)
    mapping = engine.request("GET", f"/{quote(index)}/_mapping")[index]["mappings"]
    fields = _learned_fields(mapping.get("properties") or {})
    if removable := [name for name in settings if f".{ANALYZER}_search" in name or (f".{ANALYZER}" in name and not fields)]:
        if close:
            engine.request("PUT", f"/{quote(index)}/_mapping", body={"properties": fields})
            _set_closed(engine, index, dict.fromkeys(removable))
        else:
            yield (
                f"Analyzers named {ANALYZER}_search stay: a server removes analyzers only while an index is closed. Add --yes, which closes it "
                "for about a second."
            )
    if fields:
        yield (
            f"The analyzer and the similarity {ANALYZER} stay, because the empty field in the mapping needs them. To get rid of them, copy "
            "the documents into a new index (POST /_reindex)."
        )


def _learned_fields(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the signal `learned` in a mapping (name -> definition), with a search analyzer that needs no settings of its own."""
    fields: dict[str, Any] = {}
    for name, field in properties.items():
        if field.get("analyzer") == ANALYZER:
            fields[name] = {**field, "search_analyzer": ANALYZER}
        elif inner := _learned_fields(field.get("properties") or {}):
            fields[name] = {"properties": inner}
    return fields


def _set_closed(engine: Engine, index: str, settings: Mapping[str, Any]) -> None:
    """Close an index, change settings, and open the index again, even if the server refuses the settings."""
    engine.request("POST", f"/{quote(index)}/_close")
    try:
        engine.request("PUT", f"/{quote(index)}/_settings", body=settings)
    finally:
        engine.request("POST", f"/{quote(index)}/_open", params={"wait_for_active_shards": 1})


def count(engine: Engine, index: str, field: str) -> int:
    """Count the documents that have a field."""
    enriched = {"size": 0, "track_total_hits": True, "query": {"exists": {"field": field}}}
    return int(engine.search(quote(index), enriched)["hits"]["total"]["value"])


def digest_field(layout: DocumentLayout) -> str:
    """Return the name of the digest field that every document has whose signals are searched."""
    return f"{layout.prefix}source_digest"


def signal_fields(
    layout: DocumentLayout, document: Document, encoding: Encoding, statistics: CorpusStatistics | None
) -> dict[str, Any]:
    """Return the fields that an enrichment writes into one document, digests included. `statistics`: the collection statistics behind its term weights."""
    every = (signal.fields(document, encoding, statistics) for signal in layout.signals)
    fields = {name: value for each in every for name, value in each.items()}
    digests = {"source_digest": source_digest(document), "encoding_digest": layout.encoding_digest(fields)}
    written = {"id": document.id, **fields, **digests}
    return {OBJECT: written} if layout.prefix else written


def agrees(layout: DocumentLayout, document: Document, stored: Mapping[str, Any]) -> bool:
    """Whether the fields that an enrichment stored in a document are present, undamaged, and made from the document's present content."""
    try:
        expected = (document.id, source_digest(document), layout.encoding_digest(stored))
        return (stored.get("id"), stored.get("source_digest"), stored.get("encoding_digest")) == expected
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, orjson.JSONEncodeError):
        return False  # the application wrote something else there
