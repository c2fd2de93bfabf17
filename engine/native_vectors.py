"""Vector fields that need a native library, which the embedded node does not have: with the first document of such a field it would end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from termweave.engine.client.server_errors import EngineResponseError
from termweave.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from termweave.engine.client.connection import Engine

#: The attribute of a node whose k-NN plugin has no native libraries, which `embedded.process` sets.
ATTRIBUTE = "native_vectors"
_MISSING = "none"
#: Its line in opensearch.yml.
SETTING = f"node.attr.{ATTRIBUTE}: {_MISSING}"


def check(engine: Engine, mapping: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Refuse an index whose vectors need a library that the server does not have.

    Args:
        engine: The server.
        mapping: The index's mapping.
        settings: Its settings, flat. Without `index.knn` vectors are only stored.

    Raises:
        UsageError: The server would end with the first document.
    """
    if str(settings.get("index.knn")).lower() != "true":
        return
    field = next(_native_fields(mapping, "A field of a dynamic template"), None)
    if field is not None and _lacking(engine):
        raise UsageError(
            f"{field} is a knn_vector of an engine in native code (Faiss, unless another is named), which would end the embedded node.",
            'Give the field "method": {"name": "hnsw", "engine": "lucene"}, or use another OpenSearch.',
        )


def _native_fields(part: Any, name: str) -> Iterator[str]:
    """Names of all fields of the type knn_vector, but those of the engine lucene; templates of fields count, too."""
    if isinstance(part, list):
        for each in part:
            yield from _native_fields(each, name)
    if not isinstance(part, dict):
        return
    if part.get("type") == "knn_vector" and not (
        isinstance(method := part.get("method"), dict) and method.get("engine") == "lucene"
    ):
        yield name
    for key, value in part.items():
        yield from _native_fields(value, key if isinstance(value, dict) and "type" in value and key != "mapping" else name)


def _lacking(engine: Engine) -> bool:
    """Whether a node says of itself that it has no native libraries; False for a user who may not ask."""
    try:
        answer = engine.request("GET", "/_nodes", params={"filter_path": f"nodes.*.attributes.{ATTRIBUTE}"})
    except EngineResponseError:
        return False
    return any(node["attributes"][ATTRIBUTE] == _MISSING for node in (answer.get("nodes") or {}).values())
