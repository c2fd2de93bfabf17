"""Queries that are documents of the index, as in ArguAna or Quora: the hit with a query's own id does not count, as BEIR has it.

The same id is not enough: queries and documents may both be numbered 1, 2, 3. The query's text must be the document's text or title
(`Query.is_document`). And a document that the judgements name as an answer to its own query counts: somebody looks for what is known.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from termweave.catalog.layout import engine_id, stored_passage, stored_text
from termweave.records import Document, Passage, RewrittenQuery
from termweave.search.results.hits import read_stored
from termweave.support.messages import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from termweave.catalog.layout import DocumentLayout
    from termweave.records import Encoding, Qrels, Query, Run
    from termweave.search.opening import OpenGeneration
    from termweave.search.retrieval.candidates import Candidates


def without_own(
    generation: OpenGeneration,
    queries: Sequence[Query],
    found: Sequence[Candidates],
    again: Callable[[list[Encoding]], list[Candidates]],
    qrels: Qrels | None = None,
) -> tuple[list[Candidates], set[str]]:
    """The candidates without the queries' own documents: whoever found its own is searched again without it, so that no place is lost.

    Args:
        generation: The generation that was searched.
        queries: The queries.
        found: Their candidates.
        again: Searches encoded queries once more.
        qrels: Judgements; the own document of a query that they grade above 0 counts. None: there are none.

    Returns:
        The candidates of each query, and the ids of the queries that are documents.
    """
    judged = qrels or {}
    possible = [
        query
        for query, each in zip(queries, found, strict=True)
        if query.id in {*each.documents, *each.pinned} and judged.get(query.id, {}).get(query.id, 0) <= 0
    ]
    if not possible or not (own := _documents(generation, possible)):
        return list(found), set()
    pairs = list(zip(queries, found, strict=True))
    searched = iter(again([_without(each.query, query.id, generation.layout) for query, each in pairs if query.id in own]))
    return [next(searched) if query.id in own else each for query, each in pairs], own


def _documents(generation: OpenGeneration, queries: Sequence[Query]) -> set[str]:
    """The ids of the queries that are documents of the index."""
    numbers = (None, 1) if generation.lineage.passages else (None,)
    keys = {engine_id(Passage.key(query.id, number)): query.id for query in queries for number in numbers}
    stored = read_stored(generation, generation.index, keys, ("title", "text"))
    found = [(query, stored[query.id]) for query in queries if query.id in stored]
    return {query.id for query, each in found if query.is_document(_document(query.id, each, generation))}


def _document(key: str, stored: Mapping[str, Any], generation: OpenGeneration) -> Document:
    """A stored document, or its first passage; a field `passage` of an application is its own."""
    passage = stored_passage(stored) if generation.lineage.passages else None
    return Document(key, stored_text(stored, "text"), stored_text(stored, "title"), passage=passage)


def _without(query: Encoding, document: str, layout: DocumentLayout) -> Encoding:
    """An encoded query that does not find a document."""
    rewritten = query.rewritten or RewrittenQuery(query.text)
    clause = {"bool": {"must_not": [layout.with_ids([document])]}}
    return replace(query, rewritten=replace(rewritten, where=(*rewritten.where, clause)))


def of_other_program(run: Run, own: Collection[str]) -> Run:
    """A saved run without the own documents of queries that are documents."""
    scores = {
        query: {document: score for document, score in ranked.items() if document != query} if query in own else ranked
        for query, ranked in run.scores.items()
    }
    return replace(run, scores=scores)


def remarks(own: Collection[str]) -> list[str]:
    """A sentence about queries that are documents; [] where none is.

    Args:
        own: Their ids.
    """
    are = "is a document" if len(own) == 1 else "are documents"
    if not own:
        return []
    return [f"{counted(len(own), 'query', 'queries')} {are} of the index: the hit with the query's own id does not count."]
