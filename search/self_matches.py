"""Queries that are documents of the index themselves, as in ArguAna or Quora: as in BEIR, the hit with a query's own id does not count.

The same id is not enough, because queries and documents may both be numbered 1, 2, 3: the query's text must also be the document's text or
title (`Query.is_document`). A query's own document does count if the judgements name it as an answer, as where known documents are sought.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from termweave.catalog.layout import DocumentLayout, engine_id, stored_passage, stored_text
from termweave.records import Document, Encoding, Passage, Qrels, Query, RewrittenQuery, Run
from termweave.search.results.hits import read_stored
from termweave.support.messages import counted

if TYPE_CHECKING:
    from termweave.search.opening import OpenGeneration
    from termweave.search.retrieval.candidates import Candidates


def without_own(
    generation: OpenGeneration,
    queries: Sequence[Query],
    retrieved: Sequence[Candidates],
    again: Callable[[list[Encoding]], list[Candidates]],
    qrels: Qrels | None = None,
) -> tuple[list[Candidates], set[str]]:
    """Leave each query's own document out of its candidates. Such a query is searched again without the document, so that no place is lost.

    Args:
        generation: The generation that was searched.
        queries: The queries.
        retrieved: The candidates of each query.
        again: Searches encoded queries again, and returns their candidates.
        qrels: Judgements; a query's own document counts if they grade it above 0. None: there are no judgements.

    Returns:
        The candidates of each query, and the ids of the queries that are documents themselves.
    """
    judged = qrels or {}
    possible = [
        query
        for query, each in zip(queries, retrieved, strict=True)
        if query.id in {*each.documents, *each.pinned} and judged.get(query.id, {}).get(query.id, 0) <= 0
    ]
    if not possible or not (self_matching := _which_are_documents(generation, possible)):
        return list(retrieved), set()
    pairs = list(zip(queries, retrieved, strict=True))
    searched = iter(
        again([_without(each.query, query.id, generation.layout) for query, each in pairs if query.id in self_matching])
    )
    return [next(searched) if query.id in self_matching else each for query, each in pairs], self_matching


def _which_are_documents(generation: OpenGeneration, queries: Sequence[Query]) -> set[str]:
    """The ids of those queries that are documents of the index themselves."""
    numbers = (None, 1) if generation.lineage.passages else (None,)
    keys = {engine_id(Passage.key(query.id, number)): query.id for query in queries for number in numbers}
    stored = read_stored(generation, generation.index, keys, ("title", "text"))
    documents = {}
    for key, each in stored.items():  # a field `passage` of an application is its own
        passage = stored_passage(each) if generation.lineage.passages else None
        documents[key] = Document(key, stored_text(each, "text"), stored_text(each, "title"), passage=passage)
    return {query.id for query in queries if query.id in documents and query.is_document(documents[query.id])}


def _without(query: Encoding, document: str, layout: DocumentLayout) -> Encoding:
    """Add to an encoded query a filter that leaves one document out."""
    rewritten = query.rewritten or RewrittenQuery(query.text)
    clause = {"bool": {"must_not": [layout.with_ids([document])]}}
    return replace(query, rewritten=replace(rewritten, where=(*rewritten.where, clause)))


def of_other_program(run: Run, self_matching: Collection[str]) -> Run:
    """Leave out of a saved run each hit that is its own query."""
    scores = {
        query: {document: score for document, score in ranked.items() if document != query} if query in self_matching else ranked
        for query, ranked in run.scores.items()
    }
    return replace(run, scores=scores)


def remarks(self_matching: Collection[str]) -> list[str]:
    """A sentence, in a list, about queries that are documents themselves; [] if there are none.

    Args:
        self_matching: Ids of these queries.
    """
    if not self_matching:
        return []
    are = "is a document" if len(self_matching) == 1 else "are documents"
    queries = counted(len(self_matching), "query", "queries")
    return [f"{queries} {are} of the index: the hit with the query's own id does not count."]
