"""Searches for pages and API: the parameters of a request become options of `Index.answer`, and an answer becomes JSON."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from termweave.catalog.layout import as_written, stored_text
from termweave.catalog.typed_fields import as_text
from termweave.errors import UsageError
from termweave.ui import parameters
from termweave.ui.comparison import DEPTH, ListComparison, compare
from termweave.ui.workspace import check_query

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from termweave.records import Hit
    from termweave.search import Index
    from termweave.search.results.hits import Answer
    from termweave.ui.workspace import Workspace

#: Passages of a document that are shown.
_PASSAGES = 1_000


@dataclass(frozen=True)
class SearchSide:
    """One configuration and its answer.

    Attributes:
        name: Name of the index as it was asked for.
        index: The index.
        mode: The mode as it was asked for; None: the default.
        rerank: The reranker, likewise.
        answer: The answer.
        took: Duration in milliseconds.
    """

    name: str
    index: Index
    mode: str | None
    rerank: str | None
    answer: Answer
    took: float


def ranking(workspace: Workspace, values: Mapping[str, Any], second: str = "") -> tuple[Index, str, dict[str, Any]]:
    """The index of a request, its name, and how it is to be ranked.

    Args:
        workspace: The open indices.
        values: The values of the parameters.
        second: "2" for the second configuration of a comparison.
    """
    check_query(values["q"])
    workspace.check_reranker(values[f"rerank{second}"])
    workspace.check_rewriting(values["rewrite"])
    name = workspace.chosen(values[f"index{second}"] or values["index"])
    options = {
        "mode": values[f"mode{second}"],
        "rerank": values[f"rerank{second}"],
        "candidates": values["candidates"],
        "where": list(values["filter"]),
        "rewrite": values["rewrite"],
    }
    return workspace.index(name), name, options


def answer(workspace: Workspace, values: Mapping[str, Any], second: str = "", **options: Any) -> SearchSide:
    """Answer the query of a request.

    Args:
        workspace: The open indices.
        values: The values of the parameters.
        second: "2" for the second configuration of a comparison.
        **options: Options of `Index.answer` besides those of `ranking`.
    """
    index, name, ranked = ranking(workspace, values, second)
    if not values["q"].strip() and not options.get("like"):
        raise UsageError("The query is empty.", "Give it some words, or the id of a document as 'like'.")
    began = time.perf_counter()
    answer = index.answer(values["q"], **ranked, **options)
    took = (time.perf_counter() - began) * 1000
    return SearchSide(name, index, ranked["mode"], ranked["rerank"], answer, took)


def display_options(values: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """The options of `Index.answer` besides those of `ranking`, as far as a request has them.

    Args:
        values: The values of the parameters.
        known: The parameters that count.
    """
    chosen = {*known} & values.keys() - {parameters.FILTER.name, parameters.REWRITE.name}
    shown = [each for each in parameters.SEARCH if each.option and each.name in chosen]
    return {each.option: values[each.name] for each in shown if values[each.name] not in (None, ())}


def heads(workspace: Workspace, values: Mapping[str, Any]) -> ListComparison:
    """Compare the first `DEPTH` documents of both configurations."""
    lists = []
    for second in ("", "2"):
        side = answer(workspace, values, second, k=DEPTH, fields=["title"], **display_options(values, parameters.SELECTION))
        lists.append([hit.id for hit in side.answer.hits])
    return compare(*lists)


def explained(workspace: Workspace, values: Mapping[str, Any], second: str = "") -> Hit:
    """Explain one document for the query of a request."""
    index, _, ranked = ranking(workspace, values, second)
    if not values["q"].strip():
        raise UsageError("The query is empty.", "Give it some words.")
    return index.explain(values["q"], values["id"], **ranked)


def titles(index: Index, ids: Collection[str]) -> dict[str, str]:
    """The titles of documents, for those that have one."""
    if not ids:
        return {}
    layout = index.layout
    body = {
        "size": len(ids),
        "query": {"terms": {"id": list(ids)}},
        "collapse": {"field": "id"},
        "_source": ["id", *layout.text_fields[:1]],
    }
    hits = index.engine.search(index.generation, body)["hits"]["hits"]
    return {hit["_source"]["id"]: title for hit in hits if (title := stored_text(layout.with_text(hit["_source"]), "title"))}


def content_of(index: Index, document: str) -> tuple[str, str, Any]:
    """Title, text and metadata of a document, its passages joined without what they share; all empty if the index does not hold it."""
    kept = ["passage", "passage_start", "passage_end", "metadata", *index.layout.text_fields]
    body: dict[str, Any] = {"size": _PASSAGES, "query": {"term": {"id": document}}, "_source": kept}
    if index.lineage.passages:
        body["sort"] = ["passage"]
    hits = index.engine.search(index.generation, body)["hits"]["hits"]
    stored = [index.layout.with_text(as_written(hit["_source"], index.layout)) for hit in hits]
    if not stored:
        return "", "", {}
    text, end = "", 0
    for source in stored:
        part = stored_text(source, "text")
        start = source.get("passage_start", end + 1) if index.lineage.passages else end + 1
        text += (" " if text and start > end else "") + part[max(0, end - start) :]
        end = max(end, start + len(part))
    return stored_text(stored[0], "title"), text, stored[0].get("metadata") or {}


def metadata_of(metadata: Any) -> list[tuple[str, str]]:
    """The metadata of a document as names and texts: a list with commas, and everything else that is not a text as JSON."""
    if not isinstance(metadata, dict):  # an application's own field `metadata`
        return [("metadata", _display_value(metadata))]
    return [(name, _display_value(value)) for name, value in metadata.items()]


def _display_value(value: Any) -> str:
    if isinstance(value, list) and not any(isinstance(each, list | dict) for each in value):
        return ", ".join(map(as_text, value))
    return as_text(value)


def as_curl(index: Index, query: str, options: Mapping[str, Any]) -> str:
    """The request that a search sends to the server, for a shell; it has as many answers as the search has signals."""
    sent = index.requests(query, **options)[0]
    lines = [orjson.dumps(each, option=orjson.OPT_SERIALIZE_NUMPY).decode() for each in sent["body"]]
    address = shlex.quote(f"{index.engine.addresses[0]}{sent['path']}")
    return "\n".join([f"curl -s -H 'content-type: application/x-ndjson' {address} --data-binary @- <<'END'", *lines, "END"])
