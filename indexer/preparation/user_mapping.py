"""What users add to an index: settings and mapping of their own, merged with termweave's, never against them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from termweave.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

#: Settings that have a flag of their own.
_FLAGS = {"index.number_of_shards": "--shards", "index.number_of_replicas": "--replicas"}


def read_settings(path: Path) -> dict[str, Any]:
    """Index settings from a JSON file, nested or with dots, as flat keys that begin with "index.".

    Raises:
        UsageError: The file holds no JSON object, or a setting that has a flag.
    """
    flat = {key if key.startswith("index.") else f"index.{key}": value for key, value in _flat(_object(path, "settings"))}
    for key, flag in _FLAGS.items():
        if key in flat:
            raise UsageError(f"{path} sets {key}.", f"Use {flag} for that.")
    return flat


def read_mapping(path: Path) -> dict[str, Any]:
    """A mapping from a JSON file, with or without the key "mappings" around it.

    Raises:
        UsageError: The file holds no JSON object, or one without "properties" or anything else that a mapping has.
    """
    mapping = _object(path, "mappings")
    unknown = set(mapping) - {"properties", "dynamic_templates", "date_detection", "numeric_detection", "dynamic_date_formats"}
    if unknown:
        raise UsageError(
            f"{path} holds {', '.join(sorted(map(repr, unknown)))}, which is termweave's own or no part of a mapping.",
            'Write {"properties": {"year": {"type": "integer"}}}.',
        )
    return mapping


def merged(ours: Mapping[str, Any], theirs: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Both, key by key.

    Raises:
        UsageError: They say different things of one key.

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
                "Leave it out, or choose another name for a field of your own.",
            )
    return result


def _object(path: Path, around: str) -> dict[str, Any]:
    try:
        found = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}.", "It should hold one JSON object.") from None
    if isinstance(found, dict):
        found = found.get(around, found)
    if not isinstance(found, dict):
        raise UsageError(f"{path} holds no JSON object.", f'Write {{"{around}": {{...}}}}, or what would stand in it.')
    return found


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
