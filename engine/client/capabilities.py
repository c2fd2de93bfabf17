"""Find out the capabilities of a server, with requests that change nothing and not from its version number.

A user without cluster permissions may not send some of these requests (403, or 404 and 405 on managed services). Then the server is
taken to be able to do only what the other requests show. Responses quoted below were seen on OpenSearch 3.6.0, and on
Elasticsearch 8.19.0 and 9.2.0.

This module is the only one that looks at the version. Everything else reads `Capabilities`; `termweave.dialect` chooses the
spelling of fields and queries from its `distribution`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from termweave.engine.client.server_errors import EngineResponseError
from termweave.errors import EngineError, UsageError
from termweave.records import Capabilities

if TYPE_CHECKING:
    from termweave.engine.client.connection import Engine

#: A search of no index: the server parses the query and finds nothing.
_NOWHERE = "/termweave-probe-none-*/_search"
_NO_INDEX = {"allow_no_indices": True, "ignore_unavailable": True}

#: The server's default clause limit, which is the lowest of all versions, and its setting.
_CLAUSES, _LIMIT = 1024, "indices.query.bool.max_clause_count"

#: The attribute of a node whose k-NN plugin has no native libraries, and its line in the embedded node's opensearch.yml.
_ATTRIBUTE = "native_vectors"
WITHOUT_NATIVE_VECTORS = f"node.attr.{_ATTRIBUTE}: none"
#: Statuses of the root page on a server that may still be OpenSearch: Serverless has no such page, and some roles may not read it.
_NO_ROOT = frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, 0})


def probe(engine: Engine) -> Capabilities:
    """Find out the capabilities of a server.

    Raises:
        EngineUnreachable: The server does not respond.
        EngineError: The server rejects the user (401), cannot respond now, or is neither OpenSearch nor Elasticsearch.
    """
    version, distribution = _identity(engine)
    if distribution == ELASTICSEARCH:
        engine.use_elasticsearch()
        return _elasticsearch(engine, version)
    plugins = _plugins(engine)
    query = {"knn": {"v": {"vector": [1.0], "k": 1}}}
    knn = _accepts(engine, {"v": _KNN}, query, settings={"index.knn": True}, likely=any("knn" in name for name in plugins))
    return Capabilities(
        version,
        distribution,
        plugins,
        knn,
        neural_sparse=_parses(engine, {"neural_sparse": {"f": {"query_tokens": {"a": 1.0}}}}),
        # No harmless request shows this: before 3.7 the field has doc values, but reading them fails with 500 ("doesn't support sorting").
        vector_doc_values=knn and [*map(int, re.findall(r"\d+", version)[:2])] >= [3, 7],
        max_clause_count=_max_clause_count(engine),
    )


def has_search_pipelines(engine: Engine) -> bool:
    """Whether a search may bring a search pipeline of its own (OpenSearch 2.9 and newer): other servers refuse such a search (400).

    Raises:
        EngineError: The server does not answer this request, and would not answer a search either.
    """
    if engine.product == "Elasticsearch":
        return False
    try:
        engine.request("POST", _NOWHERE, params=_NO_INDEX, body={"size": 0, "search_pipeline": {}})
    except EngineResponseError as error:
        if error.status not in _NO_ROOT | {HTTPStatus.BAD_REQUEST}:
            raise
        return error.status != HTTPStatus.BAD_REQUEST and engine.product != "Elasticsearch"
    return True


def _elasticsearch(engine: Engine, version: str) -> Capabilities:
    """The capabilities of an Elasticsearch server.

    Its limit of clauses in a query follows from heap and threads, is at least 1,024, and cannot be read: the setting that limits clauses
    in OpenSearch has no effect there.
    """
    sparse = {"sparse_vector": {"field": "w", "query_vector": {"a": 1.0}, "prune": False}}
    weights = _accepts(engine, {"w": _SPARSE}, sparse)
    vectors = _accepts(engine, {"v": _DENSE}, {"knn": {"field": "v", "query_vector": [1.0], "num_candidates": 1}})
    return Capabilities(version, ELASTICSEARCH, _plugins(engine), vectors, weights, max_clause_count=_CLAUSES)


#: `Capabilities.distribution` of Elasticsearch.
ELASTICSEARCH = "elasticsearch"
_SPARSE = {"type": "sparse_vector", "index_options": {"prune": False}}
_DENSE = {"type": "dense_vector", "dims": 2, "index": True, "similarity": "max_inner_product", "index_options": {"type": "hnsw"}}
_KNN = {"type": "knn_vector", "dimension": 2, "method": {"name": "hnsw", "engine": "lucene", "space_type": "innerproduct"}}


def _identity(engine: Engine) -> tuple[str, str]:
    """Version and distribution of the server."""
    try:
        root = engine.request("GET", "/")
    except EngineResponseError as error:
        if error.status not in _NO_ROOT:
            raise
        if engine.product != "Elasticsearch":
            return "unknown", "opensearch"
        # Its archive for integration tests has no root page.
        nodes = _answer(engine, "/_nodes", filter_path="nodes.*.version").get("nodes", {})
        return str(min((node["version"] for node in nodes.values()), default="unknown")), ELASTICSEARCH
    version = root.get("version")
    if not isinstance(version, dict) or "number" not in version:
        raise EngineError(f"The server at {engine.url} is neither an OpenSearch nor an Elasticsearch.", "Check the address.")
    # Elasticsearch has no "distribution". OpenSearch in compatibility mode reports version 7.10.2, but has one.
    return str(version["number"]), str(version.get("distribution", ELASTICSEARCH))


def _answer(engine: Engine, path: str, **params: Any) -> Any:
    """The server's answer to a GET request; {} if it answers with an error, as for a user who may not send the request."""
    try:
        return engine.request("GET", path, params=params)
    except EngineResponseError:
        return {}


def _plugins(engine: Engine) -> tuple[str, ...]:
    rows = _answer(engine, "/_cat/plugins", format="json", h="component")
    return tuple(sorted({str(row["component"]) for row in rows if "component" in row}))


def _parses(engine: Engine, query: Mapping[str, Any]) -> bool:
    """Whether the server knows a type of query: an unknown one fails with "unknown query [...]" (400)."""
    try:
        engine.request("POST", _NOWHERE, params=_NO_INDEX, body={"size": 0, "query": query})
    except EngineResponseError:
        return False
    return True


def _accepts(
    engine: Engine, properties: Mapping[str, Any], query: Mapping[str, Any], *, likely: bool = False, **template: Any
) -> bool:
    """Whether an index with these fields and settings could be created.

    Simulating a template validates both: "No handler for type [knn_vector]", "unknown setting [...]" (400). Where this user may not
    simulate one, a server that understands the query, or `likely` does, is taken to have the fields.
    """
    template["mappings"] = {"properties": properties}
    body = {"index_patterns": ["termweave-probe-none-*"], "priority": 2_000_000_000, "template": template}
    try:
        engine.request("POST", "/_index_template/_simulate", body=body)
    except EngineResponseError as error:
        return error.status != HTTPStatus.BAD_REQUEST and (likely or _parses(engine, query))
    return True


def _max_clause_count(engine: Engine) -> int:
    """The server's current limit of clauses in a query, whether it is set at run time, in the configuration file, or by default."""
    path, form = "/_cluster/settings", {"include_defaults": True, "flat_settings": True}
    settings = _answer(engine, path, **form, filter_path="*.indices*max_clause*")
    levels = (settings.get(level, {}) for level in ("transient", "persistent", "defaults"))
    return int(next((level[_LIMIT] for level in levels if level.get(_LIMIT) is not None), _CLAUSES))


def check_native_vectors(engine: Engine, mapping: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Raise an error if the vectors of an index need a native library that the embedded node lacks: the first document would end the node.

    Args:
        engine: The server.
        mapping: The index's mapping.
        settings: The index's settings, flat. Without `index.knn` vectors are stored, but not indexed.

    Raises:
        UsageError: The server lacks the library.
    """
    if str(settings.get("index.knn")).lower() != "true":
        return
    field = next(_native_fields(mapping, "A field of a dynamic template"), None)
    if field is None:
        return
    nodes = _answer(engine, "/_nodes", filter_path=f"nodes.*.attributes.{_ATTRIBUTE}").get("nodes") or {}
    if any(node["attributes"][_ATTRIBUTE] == "none" for node in nodes.values()):
        native = "an engine in native code (by default Faiss), whose library the embedded node lacks: the first document would end the node"
        hint = 'Give the field "method": {"name": "hnsw", "engine": "lucene"}, or use another OpenSearch.'
        raise UsageError(f"{field} is a knn_vector of {native}.", hint)


def _native_fields(part: Any, name: str) -> Iterator[str]:
    """The names of all fields of the type knn_vector whose engine is not lucene, in a part of a mapping; templates of fields count, too."""
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
