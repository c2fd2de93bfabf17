"""The dialects of OpenSearch and of Elasticsearch: how fields and queries are written for each server.

Signals, searches and the indexer ask the dialect of the server (`dialect_of`); no other module knows the difference. Both dialects give the same
scores for weights and vectors: an exact dot product of the stored integers, and 1 + ip or 1 / (1 - ip) for an inner product ip.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from termweave.records import Capabilities

#: Marks that a server is asked to put around a match: private-use characters, which texts do not contain.
OPEN, CLOSE = "\ue5f0", "\ue5f1"
MARKED = re.compile(f"{OPEN}(.*?){CLOSE}", re.DOTALL)
#: `neural_sparse` accepts only token weights in (0, 64].
_NEURAL_SPARSE_CAP = 64.0
#: Keys of a lower and of an upper bound in a range, and bounds that leave nothing out.
_FROM, _TO = frozenset({"gt", "gte", "from"}), frozenset({"lt", "lte", "to"})
_BELOW, _ABOVE = {"gte": ""}, {"lte": "\U0010ffff"}


class ServerDialect:
    """The dialect of OpenSearch: `rank_features`, `knn_vector`, `flat_object`. Dialects of other servers are subclasses."""

    #: Type of the field that holds all metadata as texts.
    metadata_type = "flat_object"
    #: The largest dimension of a vector.
    most_dimensions = 16_000
    #: What the mapping of a vector says further if its numbers are bytes; empty if the server is not asked to store such vectors.
    byte_vectors: Mapping[str, Any] = {"data_type": "byte"}
    #: Name of the highlighter's option that limits the characters it analyses.
    highlight_limit = "max_analyzer_offset"
    #: Types of fields whose values the server does not compare with < and >.
    unordered: Collection[str] = ("wildcard",)

    def weights_obstacle(self, capabilities: Capabilities) -> str | None:
        """The reason why this server cannot store weights; None: it can, because `rank_features` belongs to OpenSearch's core."""
        del capabilities
        return None

    def weights_field(self) -> dict[str, Any]:
        """The mapping of a field that stores terms with integers (impacts)."""
        return {"type": "rank_features"}

    def weights_query(self, field: str, factors: Mapping[str, float], capabilities: Capabilities) -> tuple[dict[str, Any], float]:
        """The query whose scores are the dot product of `factors` and the stored integers times a scale; return the query and the scale.

        `neural_sparse` if the server has its plugin (the request is shorter), else one `rank_feature` clause per term. The function
        `linear` is exact; without a function the server would saturate scores around a pivot that depends on the shard.
        """
        if capabilities.neural_sparse:
            scale = min(1.0, _NEURAL_SPARSE_CAP / max(factors.values()))
            tokens = {name: factor * scale for name, factor in factors.items()}
            return {"neural_sparse": {field: {"query_tokens": tokens}}}, scale
        features = [
            {"rank_feature": {"field": f"{field}.{name}", "boost": factor, "linear": {}}} for name, factor in factors.items()
        ]
        return {"bool": {"should": features, "minimum_should_match": 1}}, 1.0

    def vectors_obstacle(self, capabilities: Capabilities) -> str | None:
        """The reason why this server cannot store vectors, such as OpenSearch without the k-NN plugin; None: it can."""
        return None if capabilities.knn else "the server has no k-NN plugin, or this role may not see the server's plugins"

    def vector_field(self, dimension: int, m: int, ef_construction: int) -> dict[str, Any]:
        """The mapping of a field of vectors in an HNSW graph of full precision: `knn_vector` of the engine lucene (`signals.dense`)."""
        graph = {"m": m, "ef_construction": ef_construction}
        method = {"name": "hnsw", "engine": "lucene", "space_type": "innerproduct", "parameters": graph}
        return {"type": "knn_vector", "dimension": dimension, "method": method}

    def vector_settings(self) -> dict[str, Any]:
        """The index settings that `vector_field` needs."""
        return {"index.knn": True}

    def vector_query(self, field: str, vector: NDArray[Any], count: int, where: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The query for the `count` nearest documents that pass all filters, which are applied during graph search. Lucene explores `k` nodes."""
        knn: dict[str, Any] = {"vector": vector, "k": count}
        if where:
            knn["filter"] = {"bool": {"filter": list(where)}}
        return {"knn": {field: knn}}

    def source(self, fields: Sequence[str] | None = None) -> Any:
        """The value of `_source` for a search that reads `fields` back, weights and vectors included; None: it reads all fields."""
        return True if fields is None else list(fields) or False

    def filters(self, where: Sequence[Any], entries: Collection[str]) -> list[Any]:
        """Translate filters that are written for OpenSearch into the dialect of this server.

        Args:
            where: The filters, clauses of OpenSearch's query DSL.
            entries: Dotted names of the known entries of the metadata.
        """
        del entries
        return list(where)


class Elasticsearch(ServerDialect):
    """Elasticsearch 8.19 and newer: `sparse_vector`, `dense_vector`, `flattened` (run on 8.19.0 and 9.2.0)."""

    metadata_type = "flattened"
    most_dimensions = 4_096
    byte_vectors: Mapping[str, Any] = {}
    highlight_limit = "max_analyzed_offset"
    unordered = ()

    def weights_obstacle(self, capabilities: Capabilities) -> str | None:
        """The reason why this server cannot store weights; None: it can.

        `sparse_vector` prunes terms unless the mapping switches pruning off, which 8.19 and 9.1 were the first versions to allow.
        """
        obstacle = "this Elasticsearch is older than 8.19, or this role may not ask what it can do"
        return None if capabilities.sparse_vector else obstacle

    def weights_field(self) -> dict[str, Any]:
        """The mapping of a `sparse_vector` field. Its integers have 9 significant bits, like those of `rank_features`."""
        return {"type": "sparse_vector", "index_options": {"prune": False}}

    def weights_query(self, field: str, factors: Mapping[str, float], capabilities: Capabilities) -> tuple[dict[str, Any], float]:
        """The `sparse_vector` query and the scale of its scores, which is 1, because the query takes factors of any size."""
        del capabilities
        return {"sparse_vector": {"field": field, "query_vector": dict(factors), "prune": False}}, 1.0

    def vectors_obstacle(self, capabilities: Capabilities) -> str | None:
        """The reason why this server cannot store vectors, or why that is unknown because the role may not ask; None: it can."""
        return None if capabilities.knn else "the server has no dense_vector, or this role may not ask what it can do"

    def vector_field(self, dimension: int, m: int, ef_construction: int) -> dict[str, Any]:
        """The mapping of a `dense_vector` field. It names the graph, because 9.1 and newer quantise vectors from 384 numbers on to bits by default.

        `max_inner_product` scores as OpenSearch's `innerproduct`; `dot_product` would refuse a vector that is not exactly of unit length.
        """
        options = {"type": "hnsw", "m": m, "ef_construction": ef_construction}
        field = {"type": "dense_vector", "dims": dimension, "index": True, "similarity": "max_inner_product"}
        return {**field, "index_options": options}

    def vector_settings(self) -> dict[str, Any]:
        """Always empty, because `dense_vector` needs no settings."""
        return {}

    def vector_query(self, field: str, vector: NDArray[Any], count: int, where: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The `knn` query for the nearest documents, with filters applied during graph search. Lucene explores `num_candidates` nodes."""
        knn: dict[str, Any] = {"field": field, "query_vector": vector, "k": count, "num_candidates": count}
        if where:
            knn["filter"] = {"bool": {"filter": list(where)}}
        return {"knn": knn}

    def source(self, fields: Sequence[str] | None = None) -> Any:
        """The value of `_source`, with a key that asks for weights and vectors: 9.2 and newer leave them out otherwise, 8.19 ignores the key."""
        if fields is None:
            return {"exclude_vectors": False}
        return {"exclude_vectors": False, "includes": list(fields)} if fields else False

    def filters(self, where: Sequence[Any], entries: Collection[str]) -> list[Any]:
        """Translate filters so that each range of the metadata has both bounds, and an object of the metadata exists if an entry of it does.

        A key of a `flattened` field takes no range with one bound, and `flattened` knows the entries of an object, but not the object.
        """
        return [_flattened_clause(clause, entries) for clause in where]


def _flattened_clause(clause: Any, entries: Collection[str]) -> Any:
    """Translate a clause, or a part of a clause, for metadata in a field of the type `flattened`."""
    if isinstance(clause, list | tuple):
        return [_flattened_clause(part, entries) for part in clause]
    if not isinstance(clause, dict):
        return clause
    if clause.keys() == {"exists"}:
        return _exists_clause(clause, entries)
    return {
        key: _range_with_bounds(value) if key == "range" else _flattened_clause(value, entries) for key, value in clause.items()
    }


def _exists_clause(clause: dict[str, Any], entries: Collection[str]) -> dict[str, Any]:
    """Translate an `exists` clause; for an object of the metadata the new clause matches if a known entry of the object exists."""
    field = str(clause["exists"].get("field")) if isinstance(clause["exists"], dict) else ""
    inside = [f"metadata.{name}" for name in entries if f"metadata.{name}".startswith(f"{field}.")]
    if not field.startswith("metadata.") or not inside:
        return clause
    return {"bool": {"should": [{"exists": {"field": name}} for name in (field, *inside)], "minimum_should_match": 1}}


def _range_with_bounds(ranges: Any) -> Any:
    """Add missing bounds to the body of a `range` clause: an empty text is below all texts, the last character of Unicode above them."""
    if not isinstance(ranges, dict):
        return ranges
    return {
        name: {**({} if bounds.keys() & _FROM else _BELOW), **({} if bounds.keys() & _TO else _ABOVE), **bounds}
        if name.startswith("metadata.") and isinstance(bounds, dict)
        else bounds
        for name, bounds in ranges.items()
    }


#: The usual dialect.
OPENSEARCH = ServerDialect()
_DIALECTS: dict[str, ServerDialect] = {"elasticsearch": Elasticsearch()}


def dialect_of(capabilities: Capabilities) -> ServerDialect:
    """The dialect of a server; a server that is not Elasticsearch gets OpenSearch's dialect."""
    return _DIALECTS.get(capabilities.distribution, OPENSEARCH)
