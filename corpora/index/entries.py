"""Turn documents of an index into entries with named fields, as files have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from termweave.catalog.columns import Column, walk
from termweave.catalog.source_fields import TEXT_KEYS, TITLE_KEY, Fields, ObjectValue, take, text_of
from termweave.corpora.formats.fields import BadLine, Mapper
from termweave.errors import UsageError
from termweave.support.messages import few

if TYPE_CHECKING:
    from termweave.corpora.sources import Reading
    from termweave.records import Document

#: Types of fields that hold hundreds of numbers, which are no metadata.
VECTORS = ("dense_vector", "knn_vector", "rank_features", "sparse_tokens", "sparse_vector")
#: Fields that a message names.
_NAMED = 30


def fields_of(mappings: Mapping[str, Any]) -> dict[str, str]:
    """Return the type of each field of a mapping by the field's dotted name."""
    return {column.path: column.type for column in _leaves(mappings)}


def _leaves(mappings: Mapping[str, Any]) -> list[Column]:
    """List the fields of a mapping, without objects that have fields of their own."""
    return [column for column, _ in walk(mappings.get("properties") or {}) if not column.mapping.get("properties")]


def check_stored(mappings: Mapping[str, Any], index: str, fields: Fields) -> None:
    """Check that an index keeps the `_source` of its documents, with title and text.

    Raises:
        UsageError: ``_source`` is off, or leaves a field out that is needed.
    """
    source = mappings.get("_source") or {}
    if source.get("enabled") is False:
        message = f"The index {index!r} stores no _source, so its documents cannot be read."
        raise UsageError(message, "Name the data that this index was made from.")
    texts = [name for name in TEXT_KEYS if name in fields_of(mappings)] if not (fields.title or fields.text) else []
    includes, excludes = source.get("includes") or ["*"], source.get("excludes") or ()
    left_out = [name for name in (*fields.named(), *texts) if _covered(name, excludes) or not _covered(name, includes)]
    usual = texts if set(left_out) >= set(texts) else []  # one of them suffices
    for name in left_out:
        if name != "_id" and name in (*fields.named(), *usual):
            raise UsageError(f"The _source of the index {index!r} leaves the field {name!r} out.", "Name a stored field.")


def check_held(
    sources: Sequence[Mapping[str, Any]], mappings: Sequence[Mapping[str, Any]], shown: str, fields: Fields
) -> list[str]:
    """Check that documents themselves hold title and text, and that the index does not fill these fields from others (``copy_to``, an alias).

    Args:
        sources: The `_source` of some documents.
        mappings: The mappings of the indices of these documents.
        shown: Name of the source in messages.
        fields: Fields that the user named.

    Returns:
        A remark for each field of title and text that no document of `sources` has for another reason.

    Raises:
        UsageError: The index fills such a field from others; the message names them.
    """
    leaves = [leaf for each in mappings for leaf in _leaves(each)]
    mapped = {leaf.path for leaf in leaves}
    absent = not fields.text and not any(key in source for source in sources for key in TEXT_KEYS)
    usual = [name for name in TEXT_KEYS if absent and name in mapped]
    remarks = []
    for name in (fields.title, *fields.text, *usual):
        if not name or not sources or any(take(dict(source), name) is not None for source in sources):
            continue
        origins = [leaf.mapping["path"] for leaf in leaves if leaf.path == name and leaf.kind == "alias"]
        for leaf in leaves:
            targets = leaf.mapping.get("copy_to", ())  # a name or several
            origins += [leaf.path] if name in ([targets] if isinstance(targets, str) else targets) else []
        if origins:
            hint = f"Name {origins[0]} instead, with --{'title' if name == fields.title else 'text'}-field."
            raise UsageError(f"{shown} fills the field {name!r} from {', '.join(origins)}, so no document holds it.", hint)
        remarks.append(f"{shown}: no document of the first {len(sources)} has the field {name!r}.")
    return remarks


def _covered(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) or name.startswith(f"{pattern}.") for pattern in patterns)


def check_named(types: Mapping[str, str], shown: str, fields: Fields) -> None:
    """Check that the index has the fields that the user named, or text under a usual name.

    Args:
        types: Type of each field of the mapping and of the documents.
        shown: Name of the source in messages.
        fields: Fields that the user named.

    Raises:
        UsageError: The index lacks such a field; the message lists the fields that it has, texts first.
    """
    order = sorted(types, key=lambda name: (types[name] not in {"text", "match_only_text"}, types[name] != "keyword", name))
    listed = few([f"{name} ({types[name]})" for name in order], _NAMED) or "none"
    usable = {"_id", *types, *(name.rpartition(".")[0] for name in types)}
    for name in fields.named():
        if name not in usable:
            raise UsageError(f"{shown} has no field {name!r}.", f"Its fields: {listed}.")
    if not fields.text and not fields.title and not {*TEXT_KEYS, TITLE_KEY} & types.keys():
        hint = f"Name its fields with --text-field and --title-field. Its fields: {listed}."
        raise UsageError(f"{shown} has no field of a usual name for the text ({', '.join(TEXT_KEYS)}).", hint)


def entry_of(hit: Mapping[str, Any], reading: Reading) -> dict[str, Any]:
    """Turn a document of an index into an entry that `corpora.formats.fields.Mapper` reads.

    Values of id, title and text may lie in objects and may be lists, numbers or dates. A field that the document lacks is empty.

    Raises:
        BadLine: The document cannot be read.
    """
    source = hit["_source"]
    if not isinstance(source, dict):
        raise BadLine("no _source")
    fields = reading.fields
    entry: dict[str, Any] = {"_id": hit["_id"]} if fields.id in {None, "_id"} else {}
    entry |= source
    for name in (fields.title, *fields.text):
        if name:
            entry[name] = _text(take(entry, name), name)
    if fields.id and fields.id != "_id" and (value := taken_id(entry, fields.id)) is not None:
        entry[fields.id] = value
    usual = (*(() if fields.title else (TITLE_KEY,)), *(() if fields.text else TEXT_KEYS))
    for name in usual:
        if name not in fields.named() and name in entry:
            entry[name] = _text(entry[name], name)
    if not fields.text and not any(name in entry for name in TEXT_KEYS):
        entry["text"] = None
    if reading.index.whole:
        check_id(source, hit["_id"])
        entry["metadata"] = dict(source)  # the mapper merges it, and what is title or text stays in it
    return entry


def check_id(source: Mapping[str, Any], identity: str) -> None:
    """Check that the field `id` of a document may be replaced by its `_id`, as termweave does.

    Raises:
        BadLine: The field `id` differs from the `_id`.
    """
    if source.get("id", identity) != identity:
        raise BadLine("the field 'id' of the document differs from its _id; termweave writes the _id into this field")


def enriched_document(identity: str, source: Mapping[str, Any], reading: Reading) -> Document:
    """Return a document of an enriched index as its signals are computed from it: title and text, with its `_id` as id.

    Args:
        identity: The `_id` of the document.
        source: The `_source` of the document: the fields of the application.
        reading: Options that tell which of these fields are title and text.

    Raises:
        BadLine: The document cannot be read.
    """
    entry = entry_of({"_id": identity, "_source": source}, reading)
    return replace(Mapper(reading.fields).document(entry, 1), id=identity, metadata={}).normal


def taken_id(entry: dict[str, Any], path: str) -> Any:
    """Remove the id in the field `path` from an entry and return it; None: the entry lacks this field."""
    value = take(entry, path)
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _text(value: Any, name: str) -> str | None:
    """Return the value of the field `name` as text.

    Raises:
        BadLine: The value is an object.
    """
    try:
        return text_of(value)
    except ObjectValue as error:
        raise BadLine(f"{name!r} is an object where text should be", f"Name a field inside it: {name}.{error.inner}.") from error
