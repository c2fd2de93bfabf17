"""An index that was just created, read back: index templates of the cluster may have given it what nobody asked for."""

from __future__ import annotations

from contextlib import suppress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from termweave.corpora.index.entries import fields_of
from termweave.engine.client.payloads import as_text
from termweave.errors import EngineError, UsageError
from termweave.support.messages import clipped, few

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from termweave.engine import Engine

#: Settings that change what is stored, or how it is found and scored; with a dot at the end all that begin so. A template may well define an
#: analyzer that `--analyzer` names.
_MATTER = (
    "index.similarity.default.", "index.analysis.analyzer.default_search.", "index.mode", "index.mapping.source.",
    "index.mapping.ignore_malformed", "index.derived_source.",
)  # fmt: skip
#: Their values where they change nothing.
_USUAL = ("BM25", "standard", "stored", "false")
#: Settings that a managed cluster may set as it likes: they decide how fast and how safe an index is.
_PACE = {"index.number_of_replicas", "index.refresh_interval"}


def check(engine: Engine, index: str, body: Mapping[str, Any]) -> None:
    """Compare an index with the body that it was created with.

    Raises:
        UsageError: It differs in what decides how documents are stored, found and scored; the message names each difference.
    """
    stored = engine.request("GET", f"/{index}", params={"flat_settings": True})[index]
    forced = [
        *_mapping_differences(stored["mappings"], body["mappings"]),
        *_setting_differences(stored["settings"], body["settings"]),
    ]
    if forced:
        raise UsageError(
            f"The cluster gives {index} what termweave did not ask for: {'; '.join(map(clipped, forced))}.", advice(engine, index)
        )


def advice(engine: Engine, index: str) -> str:
    """Say which index templates of the cluster apply to an index, and what to do about them; "" if none is known to."""
    if not (names := _templates(engine, index)):
        return ""
    noun = "The index template" if len(names) == 1 else "The index templates"
    return (
        f"{noun} {few([repr(name) for name in names])} of the cluster may do that: correct it, exclude this name from its patterns, "
        "or set what you want instead in the file of --settings."
    )


def _templates(engine: Engine, index: str) -> list[str]:
    """The templates that apply to an index: the composable one with the highest priority, else all of the older kind."""
    with suppress(EngineError):  # this role may not ask
        listed = engine.request("GET", "/_index_template")["index_templates"]
        fitting = [
            (each["index_template"].get("priority", 0), each["name"])
            for each in listed
            if any(fnmatchcase(index, pattern) for pattern in each["index_template"]["index_patterns"])
        ]
        if fitting:
            return [max(fitting)[1]]
        older = engine.request("GET", "/_template")
        return sorted(
            name for name, each in older.items() if any(fnmatchcase(index, pattern) for pattern in each["index_patterns"])
        )
    return []


def _mapping_differences(stored: Mapping[str, Any], asked: Mapping[str, Any]) -> Iterator[str]:
    """What a mapping has otherwise than it was asked for. Fields besides those are harmless, because no document has them."""
    source = {"enabled": True, "mode": "stored"} | (stored.get("_source") or {})
    yield from (f"_source.{part} {as_text(source[part])}" for part in ("excludes", "includes") if source.get(part))
    yield from (f"_source.{part} {as_text(source[part])}" for part in ("enabled", "mode") if source[part] not in {True, "stored"})
    if (stored.get("_routing") or {}).get("required"):
        yield "_routing.required true"
    if stored.get("dynamic", "true") != asked.get("dynamic", "true"):
        yield f"dynamic {stored.get('dynamic', 'true')}"
    kinds, wanted = fields_of(stored), fields_of(asked)
    yield from (f"{name} of type {kinds.get(name)}" for name, kind in wanted.items() if kinds.get(name) != kind)
    yield from (f"a runtime field {name}" for name in stored.get("runtime") or {} if name in wanted)


def _setting_differences(stored: Mapping[str, Any], asked: Mapping[str, Any]) -> Iterator[str]:
    """The settings that differ from what was asked for, and those that matter and nobody asked for."""
    for name in sorted(stored.keys() - _PACE):
        wanted, value = asked.get(name), as_text(stored[name])
        matters = any(name.startswith(each) if each.endswith(".") else name == each for each in _MATTER) and value not in _USUAL
        if matters if wanted is None else value != as_text(wanted):
            yield f"{name} {value}"
