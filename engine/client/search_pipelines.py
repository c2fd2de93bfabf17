"""The default search pipeline of an index (`index.search.default_pipeline`): which documents it hides.

termweave's searches run without it, because it may rename fields or change scores. The queries of its `filter_query` processors are kept:
applications hide drafts with them. A cluster has no default of its own (OpenSearch 3.6.0), and Elasticsearch no search pipelines.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from termweave.engine.client.payloads import quote
from termweave.engine.client.server_errors import EngineResponseError
from termweave.errors import UsageError
from termweave.support.messages import few

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from termweave.engine.client.connection import Engine

SETTING = "index.search.default_pipeline"
#: The tag of processors that `termweave connect` makes; termweave searches in their way without them.
OURS = "termweave"
#: Processors that hide no document: they change size, scores, order or fields of a search, or its query for a model (OpenSearch 3.6.0).
_HIDE_NOTHING = frozenset(
    [
        "agentic_context",
        "agentic_query_translator",
        "collapse",
        "hybrid_score_explanation",
        "ml_inference",
        "neural_query_enricher",
        "neural_sparse_two_phase_processor",
        "normalization-processor",
        "oversample",
        "personalize_search_ranking",
        "rename_field",
        "rerank",
        "retrieval_augmented_generation",
        "score-ranker-processor",
        "script",
        "sort",
        "split",
        "truncate_hits",
    ]
)


@dataclass(frozen=True)
class DefaultPipeline:
    """The default search pipeline of an index, as far as it concerns termweave.

    Attributes:
        name: Its name; "": there is none.
        filters: The queries of its `filter_query` processors.
        remarks: Sentences about the processors that do not run.
    """

    name: str = ""
    filters: Sequence[Mapping[str, Any]] = ()
    remarks: Sequence[str] = ()


def name_of(engine: Engine, index: str) -> str | None:
    """The name of the default search pipeline of a concrete index; None: it has none.

    Raises:
        EngineError: It cannot be read.
    """
    if not engine.has_search_pipelines:
        return None
    answer = _read(engine, f"/{quote(index)}/_settings/{SETTING}", flat_settings=True)
    name = answer.get(index, {}).get("settings", {}).get(SETTING, "_none")
    return None if name == "_none" else str(name)


def of_index(engine: Engine, index: str) -> DefaultPipeline:
    """The default search pipeline of a concrete index.

    Raises:
        UsageError: It does not exist, or has a processor of which termweave does not know what it hides.
        EngineError: It cannot be read.
    """
    name = name_of(engine, index)
    if name is None:
        return DefaultPipeline()
    pipeline = _read(engine, f"/_search/pipeline/{quote(name)}").get(name)
    if pipeline is None:  # the server, too, refuses to search
        raise UsageError(
            f"The default search pipeline {name!r} of the index {index!r} does not exist.",
            f"Create it, or take the setting {SETTING} away.",
        )
    processors = [
        (kind, body)
        for key, listed in pipeline.items()
        if key.endswith("_processors")
        for each in listed
        for kind, body in each.items()
    ]
    if unknown := sorted({kind for kind, _ in processors} - _HIDE_NOTHING - {"filter_query"}):
        raise UsageError(
            f"The default search pipeline {name!r} of the index {index!r} has processors that may hide documents: {few(unknown)}.",
            f"termweave cannot run them: copy what may be seen into an index of its own, or take the setting {SETTING} away.",
        )
    filters: list[Mapping[str, Any]] = []
    others: list[str] = []
    for kind, body in processors:
        if kind == "filter_query":
            filters += [body["query"]] if body["query"] not in filters else []
        elif body.get("tag") != OURS and kind not in others:
            others.append(kind)
    remark = f"The default search pipeline {name!r} of {index!r} does not run: termweave keeps its filters and leaves out {few(others)}."
    return DefaultPipeline(name, filters, [remark] if others else ())


def of_indices(engine: Engine, indices: Collection[str]) -> DefaultPipeline:
    """The default search pipeline of several indices that are read as one.

    Raises:
        UsageError: As `of_index`; or they have different ones.
    """
    pipelines = [of_index(engine, index) for index in indices]
    if any((each.name, each.filters) != (pipelines[0].name, pipelines[0].filters) for each in pipelines):
        raise UsageError(
            f"The indices {few(list(indices))} have different default search pipelines.", "Read each of them by itself."
        )
    return pipelines[0] if pipelines else DefaultPipeline()


def _read(engine: Engine, path: str, **params: Any) -> dict[str, Any]:
    """Read a part; {} if it does not exist.

    Raises:
        EngineError: This user may not, so that nobody knows what the index hides.
    """
    try:
        answer: dict[str, Any] = engine.request("GET", path, params=params)
    except EngineResponseError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return {}
        error.hint = f"A default search pipeline may hide documents, so that termweave must read it. {error.hint}".strip()
        raise
    return answer
