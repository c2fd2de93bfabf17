"""Resolve an index name or alias to its concrete indices, and to the filter that decides which of their documents a search of it sees.

An alias may have a filter and a routing, and an index a default search pipeline whose `filter_query` hides documents: drafts, for example.
termweave searches the concrete index, without that pipeline (`Engine.without_pipeline`), because it may rename fields or change scores. So
the server applies neither the alias's filter nor the pipeline's: an engine narrowed to a resolved name (`Engine.narrowed`) adds both to every
request that reads documents. A cluster has no default pipeline of its own (OpenSearch 3.6.0), and Elasticsearch no search pipelines.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from termweave.engine.client.payloads import ALL_SHARDS, quote
from termweave.engine.client.retries import endpoint
from termweave.engine.client.server_errors import EngineResponseError
from termweave.errors import UsageError
from termweave.support.batching import in_parts
from termweave.support.messages import few

if TYPE_CHECKING:
    from termweave.engine.client.connection import Engine

#: Documents that one search reads by their ids.
_IDS = 1000
#: Characters of names of indices in the address of a request; a server takes 4,096 in all.
_LONGEST = 2000
SETTING = "index.search.default_pipeline"
#: The tag of processors that `termweave connect` makes; termweave searches in their way without them.
OURS = "termweave"
#: Processors that hide no document: they change size, scores, order or fields of a search, or its query for a model (OpenSearch 3.6.0).
_HIDE_NOTHING = frozenset(
    """
    agentic_context agentic_query_translator collapse hybrid_score_explanation ml_inference neural_query_enricher
    neural_sparse_two_phase_processor normalization-processor oversample personalize_search_ranking rename_field rerank
    retrieval_augmented_generation score-ranker-processor script sort split truncate_hits
    """.split()  # noqa: SIM905 - reads better than twenty quoted strings
)


@dataclass(frozen=True)
class ResolvedName:
    """An index name or alias, the concrete indices that it stands for, and the filters that hold for searches of it.

    Attributes:
        name: The name: that of an index, an alias or a data stream.
        index: The concrete index that requests name in their path; several are joined by commas.
        filters: Clauses of the query DSL that a document must match to be seen.
        routing: The alias's routing values, which select the shards that are searched; "": all shards are searched.
        remarks: Sentences about processors of the default search pipeline that searches of termweave do not run.
        several: The indices that are searched, if the name stands for several; (): the name stands for one index.
        lacking: Further indices of the name, which cannot be searched because termweave has not enriched them yet.
    """

    name: str
    index: str
    filters: Sequence[Mapping[str, Any]] = ()
    routing: str = ""
    remarks: Sequence[str] = ()
    several: Sequence[str] = ()
    lacking: Sequence[str] = ()

    @property
    def indices(self) -> list[str]:
        """The concrete indices that are searched, the newest last."""
        return [*self.several] or [self.index]

    @property
    def partial(self) -> bool:
        """Whether a search of the name sees only some of the documents."""
        return bool(self.filters or self.routing)

    def covers(self, path: str) -> bool:
        """Whether a request with this path reads documents of the name's indices."""
        return endpoint(path) in {"_search", "_msearch", "_mget"} and unquote(path.split("/")[1]) in {self.name, self.index}

    def search(self, body: Mapping[str, Any] | None) -> dict[str, Any]:
        """Add the name's filters to the body of a search. Scores stay the same."""
        if not self.filters:
            return dict(body or {})
        return {**(body or {}), "query": self._joined((body or {}).get("query") or {"match_all": {}})}

    def lines(self, lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Add the name's filters and routing to the lines of an `_msearch`."""
        routing = {"routing": self.routing} if self.routing else {}
        return [self.search(line) if number % 2 else {**line, **routing} for number, line in enumerate(lines)]

    def params(self, params: Mapping[str, Any] | None) -> dict[str, Any]:
        """Add the name's routing to the query parameters of a search."""
        return {**(params or {}), **({"routing": self.routing} if self.routing else {})}

    def documents(self, engine: Engine, path: str, params: Mapping[str, Any], ids: Sequence[str]) -> dict[str, Any]:
        """Read documents by id that a search of the name sees, and answer in the form of `_mget`, which itself takes no filter."""
        read = {**{key: value for key, value in params.items() if key != "realtime"}, **ALL_SHARDS}
        path = path.replace("/_mget", "/_search")
        documents: dict[str, dict[str, Any]] = {}
        for part in in_parts(ids, _IDS):
            hits = engine.request("POST", path, params=read, body=by_ids(part))["hits"]["hits"]
            documents |= {hit["_id"]: {**hit, "found": True} for hit in hits}
        return {"docs": [documents.get(each, {"_id": each, "found": False}) for each in ids]}

    def _joined(self, query: Mapping[str, Any]) -> dict[str, Any]:
        if "hybrid" in query:  # the server takes no clause around it
            hybrid = query["hybrid"]
            return {"hybrid": {**hybrid, "queries": [self._joined(each) for each in hybrid["queries"]]}}
        return {"bool": {"must": [query], "filter": list(self.filters)}}


def by_ids(ids: Sequence[str]) -> dict[str, Any]:
    """The body of a search that reads documents by their ids."""
    return {"query": {"ids": {"values": list(ids)}}, "size": len(ids)}


def stands_for(engine: Engine, name: str) -> tuple[list[str], dict[str, Mapping[str, Any]]]:
    """The concrete indices that a name stands for, and the properties of these indices' aliases: alias -> properties.

    Raises:
        UsageError: An alias of several indices has a different filter or routing for each.
        EngineResponseError: The status is 404: no index, alias or data stream has this name.
    """
    entries: dict[str, Any] = {}
    try:
        entries = engine.of_indices(f"/{quote(name)}/_alias", "aliases")
    except EngineResponseError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
    indices = list(entries)
    # A data stream is no alias on OpenSearch; Elasticsearch lists the aliases of a data stream under its name, not under its indices.
    if not entries or engine.product == "Elasticsearch":
        indices = list(engine.of_indices(f"/{quote(name)}/_mapping", "mappings"))
    ways = [entry["aliases"].get(name, {}) for entry in entries.values()]
    if any(each.get(key) != ways[0].get(key) for each in ways for key in ("filter", "search_routing")):
        hint = "Search each index by its own name, or give the alias the same filter for all of them."
        raise UsageError(f"The alias {name!r} has different filters or routings for the indices {few(sorted(entries))}.", hint)
    return sorted(indices), {alias: each for entry in entries.values() for alias, each in entry["aliases"].items()}


def uuids_of(engine: Engine, name: str) -> dict[str, str]:
    """Concrete index -> its UUID, for the indices of a name; an index deleted and made again gets a new UUID. {}: nothing has this name."""
    try:
        answer = engine.request("GET", f"/{quote(name)}/_settings/index.uuid", params={"flat_settings": True})
    except EngineResponseError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return {}
        raise
    return {index: str(each["settings"]["index.uuid"]) for index, each in sorted(answer.items())}


def narrowing(
    engine: Engine, name: str, indices: Sequence[str], aliases: Mapping[str, Mapping[str, Any]], lacking: Sequence[str] = ()
) -> ResolvedName:
    """Find the filters and the routing that decide which documents a search of a name sees.

    Args:
        engine: The server.
        name: The name.
        indices: The concrete indices that are searched.
        aliases: Properties of these indices' aliases: alias -> properties.
        lacking: Further indices of the name, which cannot be searched.

    Raises:
        UsageError: A default search pipeline does not exist, or has a processor that termweave cannot replace.
    """
    alias = aliases.get(name, {})
    pipeline = shared_pipeline(engine, indices)
    filters = [each for each in (alias.get("filter"), *pipeline.filters) if each]
    several, routing = indices if lacking or len(indices) > 1 else (), str(alias.get("search_routing", ""))
    return ResolvedName(name, target(name, indices, lacking), filters, routing, pipeline.remarks, several, lacking)


def target(name: str, indices: Sequence[str], lacking: Sequence[str]) -> str:
    """The part of a request's path that names these indices: their names joined by commas, or `name` if that would be too long."""
    return name if not lacking and sum(map(len, indices)) > _LONGEST else ",".join(indices)


@dataclass(frozen=True)
class DefaultPipeline:
    """The parts of an index's default search pipeline that termweave reads.

    Attributes:
        name: Name of the pipeline; "": the index has no default pipeline.
        filters: The queries of the pipeline's `filter_query` processors.
        remarks: Sentences about the pipeline's other processors, which do not run.
    """

    name: str = ""
    filters: Sequence[Mapping[str, Any]] = ()
    remarks: Sequence[str] = ()


def default_pipeline_name(engine: Engine, index: str) -> str | None:
    """The name of the default search pipeline of a concrete index; None: the index has no default pipeline.

    Raises:
        EngineError: The index's setting cannot be read.
    """
    if not engine.has_search_pipelines:
        return None
    answer = _read_or_nothing(engine, f"/{quote(index)}/_settings/{SETTING}", flat_settings=True)
    name = answer.get(index, {}).get("settings", {}).get(SETTING, "_none")
    return None if name == "_none" else str(name)


def default_pipeline(engine: Engine, index: str) -> DefaultPipeline:
    """The default search pipeline of a concrete index.

    Raises:
        UsageError: The pipeline does not exist, or has a processor that may hide documents in a way that termweave does not know.
        EngineError: The pipeline cannot be read.
    """
    name = default_pipeline_name(engine, index)
    if name is None:
        return DefaultPipeline()
    pipeline = _read_or_nothing(engine, f"/_search/pipeline/{quote(name)}").get(name)
    subject = f"The default search pipeline {name!r} of {index!r}"
    if pipeline is None:  # the server, too, refuses to search
        raise UsageError(f"{subject} does not exist.", f"Create the pipeline, or remove the setting {SETTING}.")
    lists = [listed for key, listed in pipeline.items() if key.endswith("_processors")]
    processors = [processor for listed in lists for each in listed for processor in each.items()]
    if unknown := sorted({kind for kind, _ in processors} - _HIDE_NOTHING - {"filter_query"}):
        hint = f"termweave cannot run these processors: copy the documents that may be seen into another index, or remove the setting {SETTING}."
        raise UsageError(f"{subject} has processors that may hide documents: {few(unknown)}.", hint)
    queries = [body["query"] for kind, body in processors if kind == "filter_query"]
    filters = [query for number, query in enumerate(queries) if query not in queries[:number]]
    others = list(dict.fromkeys(kind for kind, body in processors if kind != "filter_query" and body.get("tag") != OURS))
    remark = f"{subject} does not run: termweave keeps its filters and leaves out {few(others)}."
    return DefaultPipeline(name, filters, [remark] if others else ())


def shared_pipeline(engine: Engine, indices: Collection[str]) -> DefaultPipeline:
    """The default search pipeline of several indices that are read as one.

    Raises:
        UsageError: As `default_pipeline`; or the indices have different default pipelines.
    """
    pipelines = [default_pipeline(engine, index) for index in indices]
    if any((each.name, each.filters) != (pipelines[0].name, pipelines[0].filters) for each in pipelines):
        hint = "Read each index by itself."
        raise UsageError(f"The indices {few(list(indices))} have different default search pipelines.", hint)
    return pipelines[0] if pipelines else DefaultPipeline()


def _read_or_nothing(engine: Engine, path: str, **params: Any) -> dict[str, Any]:
    """Read a setting or a search pipeline; {} if it does not exist.

    Raises:
        EngineError: This user may not read it, so that termweave cannot know which documents the index hides.
    """
    try:
        answer: dict[str, Any] = engine.request("GET", path, params=params)
    except EngineResponseError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return {}
        error.hint = f"A default search pipeline may hide documents, so that termweave must read it. {error.hint}".strip()
        raise
    return answer
