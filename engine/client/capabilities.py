"""What the server found can do: asked by dry requests, which change nothing, rather than read off its version.

Every probe may be forbidden to a user without cluster permissions (403, or 404 and 405 on managed services). Then the answer is
the conservative one, from what the other probes said. Answers quoted below were seen on 3.6.0.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from termweave.engine.failures import EngineResponseError
from termweave.errors import EngineError
from termweave.records import Capabilities

if TYPE_CHECKING:
    from collections.abc import Mapping

    from termweave.engine.connection import Engine

#: Matches no index, so a search over it parses its query and finds nothing.
_NOWHERE = "/termweave-probe-none-*/_search"

#: The server's own default, and the least that any version allows.
_CLAUSES = 1024

#: What the root page may answer and be an OpenSearch all the same: OpenSearch Serverless has none, and roles may not read it.
_NO_ROOT = frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, 0})


def probe(engine: Engine) -> Capabilities:
    """Ask a server what it can do.

    Raises:
        EngineUnreachable: It does not answer.
        EngineError: It does not let us in (401), cannot answer now, or is no OpenSearch.
    """
    version, distribution = _identity(engine)
    plugins = _plugins(engine)
    knn = _accepts_template(engine, {"index.knn": True}, {"v": _KNN_FIELD})
    if knn is None:
        # Simulating a template is forbidden. That the query is understood means the plugin is there; more we cannot see.
        knn = any("knn" in name for name in plugins) or _parses(engine, {"knn": {"v": {"vector": [1.0], "k": 1}}})
    number = _number(version)
    return Capabilities(
        version=version,
        distribution=distribution,
        plugins=plugins,
        knn=knn,
        neural_sparse=_parses(engine, {"neural_sparse": {"f": {"query_tokens": {"a": 1.0}}}}),
        # No dry request tells: before 3.7 the field has doc values too, but asking for them is a 500 ("doesn't support sorting").
        vector_doc_values=knn and number >= (3, 7),
        max_clause_count=_max_clause_count(engine),
    )


_KNN_FIELD: Mapping[str, Any] = {
    "type": "knn_vector",
    "dimension": 2,
    "method": {"name": "hnsw", "engine": "lucene", "space_type": "innerproduct"},
}


def _identity(engine: Engine) -> tuple[str, str]:
    try:
        found = engine.request("GET", "/")
    except EngineResponseError as error:
        if error.status not in _NO_ROOT:
            raise
        return "unknown", "opensearch"
    version = found.get("version")
    if not isinstance(version, dict) or "number" not in version:
        raise EngineError(f"What answers at {engine.url} is no OpenSearch.", "Check the address.")
    # Elasticsearch has no "distribution"; OpenSearch in compatibility mode says version 7.10.2 but keeps it.
    return str(version["number"]), str(version.get("distribution", "elasticsearch"))


def _plugins(engine: Engine) -> tuple[str, ...]:
    try:
        rows = engine.request("GET", "/_cat/plugins", params={"format": "json", "h": "component"})
    except EngineResponseError:
        return ()
    return tuple(sorted({str(row["component"]) for row in rows if "component" in row}))


def _parses(engine: Engine, query: Mapping[str, Any]) -> bool:
    """Whether the server knows a query: an unknown one is "unknown query [...]" (400), a known one finds nothing (200)."""
    try:
        engine.request(
            "POST", _NOWHERE, params={"allow_no_indices": True, "ignore_unavailable": True}, body={"size": 0, "query": query}
        )
    except EngineResponseError:
        return False
    return True


def _accepts_template(engine: Engine, settings: Mapping[str, Any], properties: Mapping[str, Any]) -> bool | None:
    """Whether an index with these settings and fields could be made; None where we may not ask.

    Simulating a template validates both: "No handler for type [knn_vector]", "unknown setting [...]" (400).
    """
    template = {"settings": settings, "mappings": {"properties": properties}}
    try:
        engine.request(
            "POST",
            "/_index_template/_simulate",
            body={"index_patterns": ["termweave-probe-none-*"], "priority": 2_000_000_000, "template": template},
        )
    except EngineResponseError as error:
        return False if error.status == HTTPStatus.BAD_REQUEST else None
    return True


def _max_clause_count(engine: Engine) -> int:
    """The limit as it stands: set while running, in the file, or by default."""
    try:
        found = engine.request(
            "GET",
            "/_cluster/settings",
            params={"include_defaults": True, "flat_settings": True, "filter_path": "*.indices*max_clause*"},
        )
    except EngineResponseError:
        return _CLAUSES
    for level in ("transient", "persistent", "defaults"):
        value = found.get(level, {}).get("indices.query.bool.max_clause_count")
        if value is not None:
            return int(value)
    return _CLAUSES


def _number(version: str) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match.group(1)), int(match.group(2))) if match else (0, 0)
