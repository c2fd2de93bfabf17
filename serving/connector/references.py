"""What in the cluster names a pipeline or a remote model, and fails once that is deleted: the server deletes both without asking (3.6.0)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from termweave.engine import Engine

#: Section of the cluster's state -> what its entries are. Of an index only the settings that name pipelines are read.
_SECTIONS: Mapping[str, str] = {
    "indices": "index",
    "templates": "index template",
    "index_template": "index template",
    "component_template": "component template",
    "ingest": "ingest pipeline",
    "search_pipeline": "search pipeline",
}
#: Ends of the keys that name a pipeline or a model.
_KEYS = ("pipeline", "name", "_id")
#: What stands around the settings of an index and of a template.
_WRAPPERS = frozenset({"", "settings", "template"})


class Reference(NamedTuple):
    """A place in the cluster that names a pipeline or a model.

    Attributes:
        kind: What names it: "index", "ingest pipeline" ...
        name: Name of that index, template or pipeline.
        key: The setting or parameter: ``index.search.default_pipeline``.
        part: Name of the pipeline, or id of the model.
    """

    kind: str
    name: str
    key: str
    part: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name} ({self.key}: {self.part})"


def references(engine: Engine, parts: Collection[str]) -> list[Reference]:
    """All places that name one of these pipelines (by name) and models (by id), but for those pipelines themselves.

    Raises:
        EngineError: This user may not read the cluster's state.
    """
    paths = [f"metadata.{section}" + (".*.settings.*pipeline" if section == "indices" else "") for section in _SECTIONS]
    params = {"flat_settings": True, "filter_path": ",".join(paths)}
    metadata = engine.request("GET", "/_cluster/state/metadata", params=params).get("metadata", {})
    return [
        Reference(kind, name, key, text)
        for section, kind in _SECTIONS.items()
        for name, entry in _entries(metadata.get(section, {}))
        for key, text in _texts(entry)
        if text in parts and key.endswith(_KEYS) and not (kind.endswith("pipeline") and name in parts)
    ]


def _entries(section: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Name and content of each entry of a section, which the state writes in three ways."""
    for name, entry in section.items():
        if name == "pipeline" and isinstance(entry, list):
            yield from ((each["id"], each["config"]) for each in entry)
        elif name in _SECTIONS:
            yield from entry.items()
        else:
            yield name, entry


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Key and value of each text inside a JSON value."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _texts(each, f"{key}.{name}" if key not in _WRAPPERS else name)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each, key)
    elif isinstance(value, str):
        yield key, value
