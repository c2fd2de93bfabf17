"""Take over mapping and analysis of a source index (--keep-mapping), so that queries of its own fields find the same with the same scores.

The fields of the source keep their names and definitions; termweave's fields stand beside them. Names that both need are conflicts, which
are named together before anything is made. `title` and `text` are no conflict where they are the fields that title and text are read from.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from termweave.catalog import typed_fields
from termweave.corpora.index.entries import VECTORS, fields_of
from termweave.engine import EngineResponseError
from termweave.engine.client.connection import quote
from termweave.errors import EngineError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from termweave.catalog.layout import DocumentLayout
    from termweave.corpora import Source
    from termweave.corpora.index.source import IndexSource
    from termweave.engine import Engine
    from termweave.indexer.options import BuildOptions

#: Settings that decide what an index finds, with which scores, and what it accepts.
_KEPT = (
    "analysis.", "similarity.", "mapping.", "query.", "sort.", "number_of_shards", "number_of_routing_shards", "max_ngram_diff",
    "max_shingle_diff", "max_result_window", "max_inner_result_window", "max_terms_count", "max_regex_length", "highlight.", "refresh_interval",
)  # fmt: skip
#: Documents whose size is measured.
_SAMPLE = 100
#: Parts of a mapping that are taken over.
_PARTS = ("properties", "dynamic_templates", "date_detection", "numeric_detection", "dynamic_date_formats")
#: Names of termweave's own fields, whatever the signals are.
_RESERVED = {
    "id", "passage", "passage_start", "passage_end", "title", "text", "content", "metadata", "metadata_long", "bucket", "source_digest",
    "encoding_digest", "weights", "weights_terms", "weights_sum", "vector", "vector_fp16", "learned", typed_fields.FIELD,
}  # fmt: skip


def taken_over(source: Source, options: BuildOptions) -> BuildOptions:
    """The options of a build with mapping, analysis and number of shards of its source.

    Raises:
        UsageError: The source is not an index, or something of it cannot be taken over; the message names all conflicts.
    """
    if (index := source.index) is None:
        raise UsageError(
            f"--keep-mapping takes over the mapping of an index, and {source.name} is not an index.", "Leave it out."
        )
    if not index.reading.index.whole:
        raise UsageError("The documents were read without all their fields.", "Open the source with IndexReading(whole=True).")
    if len(index.mappings) != 1:
        raise UsageError(f"{index.name} stands for {len(index.mappings)} indices.", "Name one: it has one mapping.")
    ((concrete, mapping),) = index.mappings.items()
    settings = _settings(index, concrete)
    shards = int(settings.pop("index.number_of_shards", options.shards))
    if conflicts := [*_conflicts(mapping, index), *_options(options, shards)]:
        raise UsageError(
            f"The mapping of {index.name} cannot be kept: {'; '.join(conflicts)}.",
            "Leave --keep-mapping out, or take a copy of the source without these (the _reindex API renames fields).",
        )
    return replace(options, mapping=_mapping(mapping), settings={**settings, **options.settings}, shards=shards)


def with_copies(properties: dict[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a generation, where `title` and `text` are defined as in the source and copied into termweave's `content`."""
    result = dict(properties)
    for name in ("title", "text"):
        if name in theirs:
            field = dict(theirs[name])
            if "copy_to" in properties[name]:
                copies = field.get("copy_to", [])
                field["copy_to"] = [*([copies] if isinstance(copies, str) else copies), properties[name]["copy_to"]]
            result[name] = field
    return result


def _options(options: BuildOptions, shards: int) -> list[str]:
    """What the options ask for that cannot be had at the same time."""
    wrong = []
    if options.passages:
        wrong.append("--passage-size stores several entries for a document, and queries of the old fields would find each")
    if options.mapping:
        wrong.append("--mapping gives another mapping")
    if options.shards not in {1, shards}:  # 1 is the default: nobody may have asked for it
        wrong.append(f"--shards {options.shards} is another number than its {shards}")
    return wrong


def _conflicts(mapping: Mapping[str, Any], index: IndexSource) -> list[str]:
    """Name the parts of a mapping that cannot stand beside termweave's fields."""
    fields = index.reading.fields
    wrong = []
    texts = {"title": (fields.title or "title",), "text": fields.text or ("text",)}
    for name, field in (mapping.get("properties") or {}).items():
        kind = field.get("type", "object")
        if name in texts and texts[name] == (name,) and kind in {"text", "match_only_text"}:
            continue
        if name == "id" and kind == "keyword" and index.ids_agree:
            continue
        if name in _RESERVED:
            wrong.append(f"{name!r} ({kind}) has the name of a field that termweave writes")
    for name, kind in fields_of(mapping).items():
        if kind in (*VECTORS, "join", "percolator"):
            wrong.append(f"{name!r} is of type {kind}")
    if (mapping.get("_routing") or {}).get("required"):
        wrong.append("its documents need a routing")
    source = mapping.get("_source") or {}
    if source.get("excludes") or source.get("includes"):
        wrong.append("its _source does not hold all fields")
    if fields.id and fields.id != "_id":
        wrong.append("--id-field gives the documents other ids")
    return wrong


def sizes_of_hits(engine: Engine, index: str, layout: DocumentLayout, options: BuildOptions) -> list[str]:
    """Say how much larger the hits of an application's query are, and how it leaves termweave's fields out.

    They stay in the stored `_source`: a partial update and `_reindex` make documents of it, and verification reads them there.
    """
    if not options.keep_mapping:
        return []
    hits = engine.request("POST", f"/{index}/_search", body={"size": _SAMPLE, "query": {"match_all": {}}})["hits"]["hits"]
    sources = [hit["_source"] for hit in hits if hit.get("_source")]
    if not sources:
        return []
    written = {name for source in sources for name in source}
    ours = sorted(written & set(layout.mapping({})["properties"]) - set(options.mapping["properties"]))
    whole = sum(len(orjson.dumps(source)) for source in sources) / len(sources)
    own = sum(len(orjson.dumps({k: v for k, v in source.items() if k not in ours})) for source in sources) / len(sources)
    note = (
        f"A hit of the application's own queries has {whole:,.0f} bytes on average, with termweave's fields, and {own:,.0f} without: "
        f"add _source_excludes={','.join(ours)} to their address."
    )
    return [note]


def _mapping(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a mapping that a user's mapping may have. The fields of termweave make the index strict: objects stay as they were."""
    kept = {part: mapping[part] for part in _PARTS if part in mapping}
    inherited = mapping.get("dynamic", "true")
    kept["properties"] = {
        name: {"dynamic": inherited, **field} if "properties" in field or field.get("type") in {"object", "nested"} else field
        for name, field in (mapping.get("properties") or {}).items()
    }
    return kept


def _settings(index: IndexSource, concrete: str) -> dict[str, Any]:
    """The settings that decide about hits and scores."""
    try:
        answer = index.engine.request("GET", f"/{quote(concrete)}/_settings", params={"flat_settings": True})
    except EngineResponseError as error:
        raise EngineError(f"The settings of {index.name} cannot be read: {error.reason}.", error.hint) from error
    return {key: value for key, value in answer[concrete]["settings"].items() if key.removeprefix("index.").startswith(_KEPT)}
