"""Fit a query to the server's clause limit (1,024 by default): the terms that contribute least are left out.

A term gives a document at most its factor times the stored impact, which grows with the term's idf; a term that no document
holds gives nothing. Weighted terms are ordered by factor times idf. Words are ordered by the idf that the server's own analyzer
and counts give them (`_termvectors`, one more request, sent only for queries that are too long).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from termweave.contracts.signal import Signal, clause_budget
from termweave.errors import EngineError
from termweave.search.results.explanation import characters
from termweave.signals.lexical import pieces
from termweave.statistics import CorpusStatistics

if TYPE_CHECKING:
    from termweave.records import Capabilities, Encoding
    from termweave.search.opening import OpenGeneration
    from termweave.search.retrieval.candidates import SignalRequests


def fit(
    generation: OpenGeneration,
    query: Encoding,
    signals: Sequence[Signal],
    where: Sequence[Mapping[str, Any]],
    capabilities: Capabilities,
) -> tuple[Encoding, tuple[str, ...]]:
    """Shorten a query that has more terms than the server allows clauses.

    Args:
        generation: The generation that is searched.
        query: The encoded query.
        signals: The signals that are searched.
        where: Filters, whose clauses count towards the limit, too.
        capabilities: The features and limits of the server, with the number of clauses that one signal may use.

    Returns:
        The query with the weighted terms that fit and, if it has too many words, with its words ordered by their contribution,
        most first (the lexical signal keeps the first ones); and the weighted terms that were left out, heaviest first.
    """
    budget = clause_budget(capabilities, where)
    if query.rewritten and sum(pieces(each.text) for part in query.rewritten.parts for each in part) > budget:
        query = replace(query, rewritten=replace(query.rewritten, parts=()))  # a query that is too long has no synonyms
    left_out: tuple[str, ...] = ()
    weights = query.weights
    if weights is not None and len(weights) > budget and any(_weighted(signal) for signal in signals):
        factors = weights.weights.tolist()
        if generation.statistics is not None:
            factors = [factor * _idf(term, generation.statistics) for term, factor in zip(weights.terms, factors, strict=True)]
        order = sorted(range(len(factors)), key=lambda place: -factors[place])
        left_out = tuple(weights.terms[place] for place in order[budget:])
        query = replace(query, weights=weights.part(sorted(order[:budget])))
    words = next((signal for signal in signals if signal.text_fields), None)
    if words is not None and pieces(query.text) > budget // len(words.text_fields):
        field, analyzer = next(iter(words.text_fields)), words.text_field[1] if words.text_field else ""
        query = replace(query, text=_ordered(generation, query.text, field, analyzer))
    return query, left_out


def restored(prepared: SignalRequests, query: Encoding, left_out: tuple[str, ...], signals: Sequence[Signal]) -> SignalRequests:
    """Put the original query back into the searches that were built for its shortened form, and note in the clauses which terms were left out."""
    weighted = {signal.name for signal in signals if _weighted(signal)}
    clauses = {
        name: replace(clause, dropped=(*left_out, *clause.dropped)) if name in weighted else clause
        for name, clause in prepared.clauses.items()
    }
    return replace(prepared, query=query, clauses=clauses)


def _weighted(signal: Signal) -> bool:
    """Whether the clause of a signal has a part for each weighted term of a query."""
    return signal.needs == "weights" and not signal.text_fields


def _ordered(generation: OpenGeneration, text: str, field: str, analyzer: str) -> str:
    """The words of a text, each once, ordered by their contribution to BM25, largest first; the text as it is if the server gives no counts."""
    body: dict[str, Any] = {"doc": {field: text}, "fields": [field], "per_field_analyzer": {field: analyzer} if analyzer else {}}
    body |= {"term_statistics": True, "field_statistics": True, "positions": False, "payloads": False}
    answer: dict[str, Any] = {}
    with suppress(EngineError):  # the user's role may not allow it
        answer = generation.engine.request("POST", f"/{generation.name.indices[-1]}/_termvectors", body=body)
    vectors = answer.get("term_vectors", {}).get(field)
    if not vectors:
        return text
    words = text.split()
    starts, place = [], 0
    for word in words:
        place = text.index(word, place)
        starts.append(place)
        place += len(word)
    frequencies = {term: entry["doc_freq"] for term, entry in vectors["terms"].items() if entry.get("doc_freq", 0)}
    statistics = CorpusStatistics("", vectors["field_statistics"]["doc_count"], 0.0, frequencies)
    worth: dict[str, float] = defaultdict(float)
    offsets = characters(text)
    for term, entry in vectors["terms"].items():
        for token in entry["tokens"]:
            worth[words[bisect_right(starts, offsets[token["start_offset"]]) - 1]] += _idf(term, statistics)
    return " ".join(sorted(dict.fromkeys(words), key=lambda word: -worth[word]))


def _idf(term: str, statistics: CorpusStatistics) -> float:
    """The idf of a term; 0 for a term that no document holds."""
    return statistics.idf(term) if term in statistics.document_frequency else 0.0
