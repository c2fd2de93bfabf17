"""Read and check the index settings and mapping of the user, and merge them with termweave's own, which they must not contradict."""

from __future__ import annotations

from codecs import BOM_UTF8
from typing import TYPE_CHECKING, Any

import orjson

from termweave.engine.client.payloads import NO_PIPELINES
from termweave.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

#: Settings that are set by a build option.
_OPTIONS = {"index.number_of_shards": "--shards", "index.number_of_replicas": "--replicas"}
#: The parts of a mapping that a user may write.
_PARTS = {"properties", "dynamic_templates", "date_detection", "numeric_detection", "dynamic_date_formats"}


def read_settings(path: Path) -> dict[str, Any]:
    """Read index settings from a JSON file, nested or with dots.

    Returns:
        Flat keys that begin with "index.".

    Raises:
        UsageError: The file is not a JSON object, or contains a setting that is set by a build option.
    """
    settings = dict(_flat(_read_object(path, "settings")))
    flat = {key if key.startswith("index.") else f"index.{key}": value for key, value in settings.items()}
    check_settings(flat, str(path))
    return flat


def check_settings(settings: Mapping[str, Any], where: str) -> None:
    """Check index settings.

    Args:
        settings: Flat keys.
        where: Where they come from, for messages: a file, or the option.

    Raises:
        UsageError: A key does not begin with "index.", the setting is set by a build option, or it names an ingest pipeline.
    """
    for key, value in settings.items():
        if not isinstance(key, str) or not key.startswith("index."):
            raise UsageError(
                f"{where} contains {key!r}, which is not an index setting.", 'Begin keys with "index.": {"index.codec": ...}.'
            )
        if key in _OPTIONS:
            flag = _OPTIONS[key]
            raise UsageError(
                f"{where} sets {key}, which has an option.", f"Use {flag} instead (in Python: {flag.removeprefix('--')}=)."
            )
        if value != NO_PIPELINES.get(key, value):
            raise UsageError(
                f"{where} sets {key}, and a document that a pipeline changes is not the one that was encoded.",
                "Remove it, and change the documents before they are indexed.",
            )


def read_mapping(path: Path) -> dict[str, Any]:
    """Read a mapping from a JSON file, with or without the key "mappings" around it.

    Raises:
        UsageError: The file is not a JSON object, or has keys that a user's mapping cannot have.
    """
    mapping = _read_object(path, "mappings")
    check_mapping(mapping, str(path))
    return mapping


def check_mapping(mapping: Mapping[str, Any], where: str) -> None:
    """Check a mapping.

    Args:
        mapping: The mapping.
        where: Where it comes from, for messages: a file, or the option.

    Raises:
        UsageError: A key is reserved for termweave or is not a part of a mapping.
    """
    if unknown := set(mapping) - _PARTS:
        raise UsageError(
            f"{where} contains {', '.join(sorted(map(repr, unknown)))}: reserved for termweave, or not a part of a mapping.",
            'Write a mapping such as {"properties": {"year": {"type": "integer"}}}.',
        )


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
            raise UsageError(
                f"{where}{key} cannot be {value!r}: termweave needs {ours[key]!r} there.",
                "Remove it, or choose another name for your field.",
            )
    return result


def _read_object(path: Path, wrapper: str) -> dict[str, Any]:
    """Read the JSON object of a file, or the one under the key `wrapper` in it."""
    try:
        content = orjson.loads(path.read_bytes().removeprefix(BOM_UTF8))
    except (OSError, orjson.JSONDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}.", "Name a file that contains one JSON object.") from None
    if isinstance(content, dict):
        content = content.get(wrapper, content)
    if not isinstance(content, dict):
        raise UsageError(f"{path} is not a JSON object.", f'Write {{"{wrapper}": {{...}}}}, or only the inner object.')
    return content


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Flatten nested settings to pairs of a dotted key and a value."""
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
