"""Searches for pages and API: turn the parameters of a request into options of `Index.answer`, explain a hit, and compare two result lists."""

from __future__ import annotations

import shlex
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from termweave.catalog.layout import among, as_written, stored_text
from termweave.catalog.typed_fields import as_text
from termweave.errors import UsageError
from termweave.ui.parameters import RANKING, SEARCH, SELECTION
from termweave.ui.workspace import Workspace, check_query

if TYPE_CHECKING:
    from termweave.records import Hit
    from termweave.search import Index
    from termweave.search.results.hits import Answer

    Values = Mapping[str, Any]

#: Passages of a document that are shown.
_PASSAGES = 1_000
#: Length of the lists that are compared, and of their heads, whose overlap readers care about.
DEPTH, HEAD = 50, 10


@dataclass(frozen=True)
class SearchSide:
    """One way to search (index and parameters), and the answer that it gave.

    Attributes:
        index: The index that was searched.
        values: The values of the request's parameters.
        answer: The answer of the search.
        took: Duration of the search in milliseconds.
    """

    index: Index
    values: Values
    answer: Answer
    took: float


@dataclass(frozen=True)
class ListComparison:
    """The agreement of two ranked lists.

    Attributes:
        head: Number of documents in the head of the longer list, at most `HEAD`.
        shared: Number of documents that are among the first `HEAD` of both lists.
        both: Number of documents that are in both lists.
        correlation: Kendall's tau of the documents in both lists: 1 for the same order, -1 for the opposite; None: there are fewer than two.
        first: Document id -> rank in the first list, from 1.
        second: Document id -> rank in the second list.
    """

    head: int
    shared: int
    both: int
    correlation: float | None
    first: Mapping[str, int]
    second: Mapping[str, int]

    def as_dict(self) -> dict[str, Any]:
        """The comparison as JSON values, with the ranks of each document in both lists."""
        moved = {each: {"first": self.first.get(each), "second": self.second.get(each)} for each in (*self.first, *self.second)}
        return {"head": self.head, "shared": self.shared, "both": self.both, "correlation": self.correlation, "ranks": moved}


def both(values: Values) -> tuple[Values, Values]:
    """Split the parameters of a comparison into the parameters of the first and of the second list, each as a search takes them."""
    second = {"index": values["index2"] or values["index"], "mode": values["mode2"], "rerank": values["rerank2"]}
    return values, {**values, **second}


def index_of(workspace: Workspace, values: Values) -> Index:
    """Open the index that a request names, after checks of its query, reranker and rewriting.

    Raises:
        UsageError: There is no such index, or pages may not search in this way.
    """
    check_query(values["q"])
    workspace.check_reranker(values["rerank"])
    if "@" in (values["rewrite"] or ""):  # a request must not make this process read a file
        raise UsageError(f"Pages may not use {values['rewrite']!r}, which names a file.", "Known: operators, spelling, none.")
    return workspace.index(workspace.chosen(values["index"]))


def options(values: Values, *names: str) -> dict[str, Any]:
    """The search options that a request sets: option -> value; with `names` only the options of the parameters with these names."""
    parameters = [each for each in SEARCH if each.option and each.name in (names or values)]
    return {each.option: values[each.name] for each in parameters if values[each.name] not in (None, ())}


def answer(workspace: Workspace, values: Values, options: Mapping[str, Any]) -> SearchSide:
    """Search for the query of a request, with the given options of `Index.answer`, and measure the duration."""
    index = index_of(workspace, values)
    if not values["q"].strip() and "like" not in options:
        raise UsageError("The query is empty.", "Give it some words, or the id of a document as 'like'.")
    began = time.perf_counter()
    answer = index.answer(values["q"], **options)
    return SearchSide(index, values, answer, (time.perf_counter() - began) * 1000)


def compared(workspace: Workspace, values: Values) -> ListComparison:
    """Search in the two ways that a request gives, and compare the first `DEPTH` documents of both lists."""
    names = {*RANKING, *SELECTION} & values.keys()
    sides = [answer(workspace, each, {**options(each, *names), "k": DEPTH, "fields": ["title"]}) for each in both(values)]
    return compare(*([hit.id for hit in side.answer.hits] for side in sides))


def compare(first: Sequence[str], second: Sequence[str]) -> ListComparison:
    """Compare two ranked lists of document ids, best first and without duplicates."""
    ranks = [{document: rank for rank, document in enumerate(listed, 1)} for listed in (first, second)]
    both = [ranks[1][document] for document in first if document in ranks[1]]
    head, shared = min(HEAD, max(len(first), len(second))), len(set(first[:HEAD]) & set(second[:HEAD]))
    pairs = len(both) * (len(both) - 1) // 2
    in_order = sum(early < late for place, early in enumerate(both) for late in both[place + 1 :])
    return ListComparison(head, shared, len(both), (2 * in_order - pairs) / pairs if pairs else None, *ranks)


def explained(workspace: Workspace, values: Values) -> Hit:
    """Explain the score of the document that a request names, for the query of the request."""
    index = index_of(workspace, values)
    if not values["q"].strip():
        raise UsageError("The query is empty.", "Give it some words.")
    return index.explain(values["q"], values["id"], **options(values, *RANKING))


def titles(index: Index, ids: Collection[str]) -> dict[str, str]:
    """Look up titles of documents: document id -> title; documents without a title are left out."""
    if not ids:
        return {}
    layout = index.layout
    body = {"size": len(ids), "query": among([*ids], layout), "docvalue_fields": [layout.id_field]}
    body["_source"] = [*layout.text_fields[:1]]
    hits = index.engine.search(index.generation, body)["hits"]["hits"]
    return {str(layout.id_of(hit)): title for hit in hits if (title := stored_text(layout.with_text(hit["_source"]), "title"))}


def content_of(index: Index, document: str) -> tuple[str, str, Any]:
    """Title, text and metadata of a document, with passages joined and their overlaps left out; all empty if the index lacks the document."""
    stored_fields = ["passage", "passage_start", "passage_end", "metadata", *index.layout.text_fields]
    body: dict[str, Any] = {"size": _PASSAGES, "query": index.layout.with_ids([document]), "_source": stored_fields}
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
    """The metadata of a document as pairs of name and text: a list with commas between its values, other values that are no texts as JSON."""
    if not isinstance(metadata, dict):  # an application's own field `metadata`
        return [("metadata", _display_value(metadata))]
    return [(name, _display_value(value)) for name, value in metadata.items()]


def _display_value(value: Any) -> str:
    if isinstance(value, list) and not any(isinstance(each, list | dict) for each in value):
        return ", ".join(map(as_text, value))
    return as_text(value)


def as_curl(index: Index, values: Values) -> str:
    """The request that a search sends to the server, as a curl command for a shell; the server gives one answer for each signal."""
    sent = index.requests(values["q"], **options(values, *RANKING))[0]
    lines = [orjson.dumps(each, option=orjson.OPT_SERIALIZE_NUMPY).decode() for each in sent["body"]]
    address = shlex.quote(f"{index.engine.addresses[0]}{sent['path']}")
    return "\n".join([f"curl -s -H 'content-type: application/x-ndjson' {address} --data-binary @- <<'END'", *lines, "END"])
