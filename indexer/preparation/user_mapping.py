"""The index settings and mapping of the user, or of a source index (--keep-mapping), checked and merged with termweave's own.

The fields of a source index keep their names and definitions, so that queries of them find the same with the same scores; termweave's
fields stand beside them. Names that both need are conflicts, which are named together before anything is made. `title` and `text` are no
conflict where they are the fields that title and text are read from.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from termweave.catalog import typed_fields
from termweave.corpora.index.entries import VECTORS, fields_of
from termweave.engine.client.connection import quote
from termweave.engine.client.payloads import NO_PIPELINES
from termweave.errors import UsageError

if TYPE_CHECKING:
    from termweave.catalog.layout import DocumentLayout
    from termweave.corpora import Source
    from termweave.corpora.index.source import IndexSource
    from termweave.dialect import ServerDialect
    from termweave.engine import Engine
    from termweave.indexer.options import BuildOptions

#: Settings that are set by a build option.
_OPTIONS = {"index.number_of_shards": "--shards", "index.number_of_replicas": "--replicas"}
#: The parts of a mapping that a user may write, and that are taken over from a source.
_PARTS = ("properties", "dynamic_templates", "date_detection", "numeric_detection", "dynamic_date_formats")
#: Settings that decide what an index finds, with which scores, and what it accepts.
_KEPT = (
    "analysis.", "similarity.", "mapping.", "query.", "sort.", "number_of_shards", "number_of_routing_shards", "max_ngram_diff",
    "max_shingle_diff", "max_result_window", "max_inner_result_window", "max_terms_count", "max_regex_length", "highlight.", "refresh_interval",
)  # fmt: skip
#: Documents whose size is measured.
_SAMPLE = 100
#: Names of termweave's own fields, whatever the signals are.
_RESERVED = {
    "id", "passage", "passage_start", "passage_end", "title", "text", "content", "metadata", "metadata_long", "bucket", "source_digest",
    "encoding_digest", "weights", "weights_terms", "weights_sum", "vector", "vector_fp16", "learned", typed_fields.FIELD,
}  # fmt: skip


def settings_of(option: Any) -> Any:
    """Check index settings, which are given as a JSON file with nested or dotted keys, or as a mapping of flat keys.

    Returns:
        Flat key that begins with "index." -> value; an option that is neither a path nor a mapping is returned as it is.

    Raises:
        UsageError: The file is not a JSON object, a key does not begin with "index.", the setting is set by a build option, or it names an
            ingest pipeline.
    """
    settings, where = _object(option, "settings")
    if where:
        flat = dict(_flat(settings))
        settings = {key if key.startswith("index.") else f"index.{key}": value for key, value in flat.items()}
    where = where or "settings"
    for key, value in settings.items() if isinstance(settings, Mapping) else ():
        if not isinstance(key, str) or not key.startswith("index."):
            hint = 'Begin keys with "index.": {"index.codec": ...}.'
            raise UsageError(f"{where} contains {key!r}, which is not an index setting.", hint)
        if key in _OPTIONS:
            flag = _OPTIONS[key]
            raise UsageError(f"{where} sets {key}, which has an option.", f"Use {flag} (in Python: {flag.removeprefix('--')}=).")
        if value != NO_PIPELINES.get(key, value):
            hint = "Remove it, and change the documents before they are indexed."
            raise UsageError(f"{where} sets {key}: an ingest pipeline would change documents after they were encoded.", hint)
    return settings


def mapping_of(option: Any) -> Any:
    """Check and return an index mapping, which is given as a JSON file, with or without the key "mappings" around it, or as a mapping.

    Raises:
        UsageError: The file is not a JSON object, or a key is reserved for termweave or is not a part of a mapping.
    """
    mapping, where = _object(option, "mappings")
    if isinstance(mapping, Mapping) and (unknown := set(mapping) - set(_PARTS)):
        message = f"{where or 'mapping'} contains {', '.join(sorted(map(repr, unknown)))}: reserved for termweave, or not a part of a mapping."
        raise UsageError(message, 'Write a mapping such as {"properties": {"year": {"type": "integer"}}}.')
    return mapping


def merged(ours: Mapping[str, Any], theirs: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Merge termweave's settings or mapping with the user's, key by key.

    Raises:
        UsageError: Both set the same key to different values.

    Example:
        >>> merged({"text": {"type": "text"}}, {"text": {"fields": {"raw": {"type": "keyword"}}}, "year": {"type": "integer"}})
        {'text': {'type': 'text', 'fields': {'raw': {'type': 'keyword'}}}, 'year': {'type': 'integer'}}
    """
    result = dict(ours)
    for key, value in theirs.items():
        if key not in ours:
            result[key] = value
        elif isinstance(ours[key], dict) and isinstance(value, dict):
            result[key] = merged(ours[key], value, f"{where}{key}.")
        elif orjson.dumps(ours[key]) != orjson.dumps(value):
            hint = "Remove it, or choose another name for your field."
            raise UsageError(f"{where}{key} cannot be {value!r}: termweave needs {ours[key]!r} there.", hint)
    return result


def _object(option: Any, wrapper: str) -> tuple[Any, str]:
    """Return the JSON object in a file, or under the key `wrapper` of it, and the file's name; an option that is no path is returned as it is, with ""."""
    if not isinstance(option, str | Path):
        return option, ""
    try:
        content = orjson.loads(Path(option).read_bytes().removeprefix(BOM_UTF8))
    except (OSError, orjson.JSONDecodeError) as error:
        raise UsageError(f"{option} cannot be read: {error}.", "Name a file that contains one JSON object.") from None
    if isinstance(content, dict):
        content = content.get(wrapper, content)
    if not isinstance(content, dict):
        raise UsageError(f"{option} is not a JSON object.", f'Write {{"{wrapper}": {{...}}}}, or only the inner object.')
    return content, str(option)


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Flatten nested settings to pairs of a dotted key and a value."""
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def taken_over(source: Source, options: BuildOptions) -> BuildOptions:
    """Return the build options with the mapping, analysis and number of shards of the index that is the source.

    Raises:
        UsageError: The source is not an index, or a part of it cannot be taken over; the message names all conflicts.
    """
    if (index := source.index) is None:
        message = f"--keep-mapping takes over the mapping of an index, and {source.name} is not an index."
        raise UsageError(message, "Leave --keep-mapping out.")
    if not index.reading.index.whole:
        raise UsageError("The documents were read without all their fields.", "Open the source with IndexReading(whole=True).")
    if len(index.mappings) != 1:
        raise UsageError(f"--keep-mapping keeps one mapping, and {index.name} has {len(index.mappings)} indices.", "Name one.")
    ((concrete, mapping),) = index.mappings.items()
    answer = index.engine.request("GET", f"/{quote(concrete)}/_settings", params={"flat_settings": True})[concrete]["settings"]
    settings = {key: value for key, value in answer.items() if key.removeprefix("index.").startswith(_KEPT)}
    shards = int(settings.pop("index.number_of_shards", options.shards))
    if conflicts := _conflicts(mapping, index, options, shards):
        hint = "Leave --keep-mapping out, or take a copy of the source without these (the _reindex API renames fields)."
        raise UsageError(f"The mapping of {index.name} cannot be kept: {'; '.join(conflicts)}.", hint)
    return replace(options, mapping=_kept_mapping(mapping), settings={**settings, **options.settings}, shards=shards)


def merged_mapping(layout: DocumentLayout, options: BuildOptions, spelling: ServerDialect) -> dict[str, Any]:
    """Return the mapping of the signals merged with the user's mapping, or with the source's, whose title and text are copied into `content`."""
    ours = layout.mapping({}, spelling)
    if not options.keep_mapping:
        return merged(ours, options.mapping)
    theirs = options.mapping["properties"]
    properties = ours["properties"] | {name: field for name, field in theirs.items() if name not in ours["properties"]}
    for name in theirs.keys() & {"title", "text"}:
        field = dict(theirs[name])
        if "copy_to" in properties[name]:
            copies = field.get("copy_to", [])
            field["copy_to"] = [*([copies] if isinstance(copies, str) else copies), properties[name]["copy_to"]]
        properties[name] = field
    return {**ours, **options.mapping, "properties": properties}


def _conflicts(mapping: Mapping[str, Any], index: IndexSource, options: BuildOptions, shards: int) -> list[str]:
    """Describe the parts of a source's mapping that cannot stand beside termweave's fields, and the options that exclude --keep-mapping."""
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
    foreign = (*VECTORS, "rank_feature", "join", "percolator")
    wrong += [f"{name!r} is of type {kind}" for name, kind in fields_of(mapping).items() if kind in foreign]
    source = mapping.get("_source") or {}
    reasons = {
        "its documents need a routing": (mapping.get("_routing") or {}).get("required"),
        "its _source does not hold all fields": source.get("excludes") or source.get("includes"),
        "--id-field gives the documents other ids": fields.id and fields.id != "_id",
        "--passage-size stores several entries for a document, and queries of the old fields would find each": options.passages,
        "--mapping gives another mapping": options.mapping,
        # 1 is the default: nobody may have asked for it
        f"--shards {options.shards} is another number than its {shards}": options.shards not in {1, shards},
    }
    return wrong + [reason for reason, applies in reasons.items() if applies]


def sizes_of_hits(engine: Engine, index: str, layout: DocumentLayout, options: BuildOptions) -> list[str]:
    """Say how much larger termweave's fields make the hits of an application's queries, and how a query leaves these fields out.

    The fields stay in the stored `_source`: a partial update and `_reindex` make documents of it, and verification reads the fields there.
    """
    if not options.keep_mapping:
        return []
    hits = engine.request("POST", f"/{index}/_search", body={"size": _SAMPLE, "query": {"match_all": {}}})["hits"]["hits"]
    sources = [hit["_source"] for hit in hits if hit.get("_source")]
    if not sources:
        return []
    written = {name for source in sources for name in source}
    ours = sorted(written & set(layout.mapping({})["properties"]) - set(options.mapping["properties"]))
    rest = [{name: value for name, value in source.items() if name not in ours} for source in sources]
    with_ours, without = (sum(len(orjson.dumps(each)) for each in bodies) / len(bodies) for bodies in (sources, rest))
    sizes = f"{with_ours:,.0f} bytes on average, with termweave's fields, and {without:,.0f} without"
    return [f"A hit of the application's own queries has {sizes}: add _source_excludes={','.join(ours)} to their address."]


def _kept_mapping(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a source's mapping that are kept. The fields of termweave make the index strict, but objects stay as `dynamic` as they were."""
    inherited = mapping.get("dynamic", "true")
    properties = {
        name: {"dynamic": inherited, **field} if "properties" in field or field.get("type") in {"object", "nested"} else field
        for name, field in (mapping.get("properties") or {}).items()
    }
    return {part: mapping[part] for part in _PARTS if part in mapping} | {"properties": properties}
