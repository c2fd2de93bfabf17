"""Queries of more terms than the server allows clauses (1,024 by default): what contributes least is left out.

A term can give a document no more than its factor times what documents store of it, and that grows with its idf; a term that
no document holds gives nothing. Learned weights are ordered by factor times idf, words by what the server's own analyzer and
counts say of them (`_termvectors`, one request, for such a query only).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from termweave.errors import EngineError
from termweave.search.shading import characters
from termweave.signals.base import clause_budget
from termweave.signals.lexical import pieces
from termweave.statistics import CorpusStatistics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from termweave.engine import Engine
    from termweave.records import Capabilities, Encoding
    from termweave.search.candidates import Legs
    from termweave.search.hits import Opened
    from termweave.signals import Signal


def fitted(
    engine: Engine,
    opened: Opened,
    query: Encoding,
    signals: Sequence[Signal],
    where: Sequence[Mapping[str, Any]],
    capabilities: Capabilities,
) -> tuple[Encoding, tuple[str, ...]]:
    """A query that the server takes.

    Args:
        engine: Where the index is.
        opened: The generation searched.
        query: As it was asked.
        signals: That are asked.
        where: Filters; their clauses count too.
        capabilities: How many clauses a signal may send.

    Returns:
        The query with its words in the order of what they contribute, most first, where there are too many of them (the
        lexical signal keeps the first), and with the weighted terms that fit; and the weighted terms left out, heaviest first.
    """
    budget = clause_budget(capabilities, where)
    left_out: tuple[str, ...] = ()
    weights = query.weights
    if weights is not None and len(weights) > budget and any(signal.needs == "weights" for signal in signals):
        factors = weights.weights.tolist()
        if opened.statistics is not None:
            factors = [factor * _idf(term, opened.statistics) for term, factor in zip(weights.terms, factors, strict=True)]
        order = sorted(range(len(factors)), key=lambda place: -factors[place])
        left_out = tuple(weights.terms[place] for place in order[budget:])
        query = replace(query, weights=weights.part(sorted(order[:budget])))
    if any(signal.name == "lexical" for signal in signals) and pieces(query.text) > budget:
        query = replace(query, text=_ordered(engine, opened.index, query.text))
    return query, left_out


def said(prepared: Legs, query: Encoding, left_out: tuple[str, ...], signals: Sequence[Signal]) -> Legs:
    """The searches of a fitted query as those of the query that was asked, which say what was left out of it."""
    weighted = {signal.name for signal in signals if signal.needs == "weights"}
    clauses = {
        name: replace(clause, dropped=(*left_out, *clause.dropped)) if name in weighted else clause
        for name, clause in prepared.clauses.items()
    }
    return replace(prepared, query=query, clauses=clauses)


def _ordered(engine: Engine, index: str, text: str) -> str:
    """The words of a text, each once, those that contribute most to BM25 first; as they stand where the server does not say."""
    body = {
        "doc": {"content": text},
        "fields": ["content"],
        "term_statistics": True,
        "field_statistics": True,
        "positions": False,
        "payloads": False,
    }
    answer: dict[str, Any] = {}
    with suppress(EngineError):  # a role may not ask for it
        answer = engine.request("POST", f"/{index}/_termvectors", body=body)
    found = answer.get("term_vectors", {}).get("content")
    if not found:
        return text
    words = text.split()
    starts, place = [], 0
    for word in words:
        place = text.index(word, place)
        starts.append(place)
        place += len(word)
    held = {term: said["doc_freq"] for term, said in found["terms"].items() if said.get("doc_freq", 0)}
    statistics = CorpusStatistics("", found["field_statistics"]["doc_count"], 0.0, held)
    worth: dict[str, float] = defaultdict(float)
    offsets = characters(text)
    for term, said in found["terms"].items():
        for token in said["tokens"]:
            worth[words[bisect_right(starts, offsets[token["start_offset"]]) - 1]] += _idf(term, statistics)
    return " ".join(sorted(dict.fromkeys(words), key=lambda word: -worth[word]))


def _idf(term: str, statistics: CorpusStatistics) -> float:
    """What a term can be worth: its idf, and nothing where no document holds it."""
    return statistics.idf(term) if term in statistics.document_frequency else 0.0
