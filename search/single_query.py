"""One query, answered or explained by one generation: encode, retrieve, order, fetch what is shown.

`Index` opens the generation and searches again where the alias has moved.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from termweave.errors import UsageError
from termweave.records import Encoding
from termweave.search import paging
from termweave.search.catalog import profiles
from termweave.search.options import FIELDS
from termweave.search.ranking import modes, rerankers
from termweave.search.ranking.order import below_all, order
from termweave.search.results import explanation, highlighting, hits, notices
from termweave.search.results.hit_sequence import Hits
from termweave.search.retrieval import execution, filters, metadata_fields, relevance_feedback, server_fusion
from termweave.search.retrieval.execution import Retrieval
from termweave.search.retrieval.filter_grammar import clauses
from termweave.signals import dialect_of
from termweave.support.messages import counted, readable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from termweave.engine import Engine
    from termweave.records import Hit
    from termweave.search.catalog.lineage import Lineage
    from termweave.search.catalog.opening import OpenGeneration
    from termweave.search.options import ExplainOptions, SearchOptions
    from termweave.search.ranking.modes import Mode
    from termweave.search.ranking.rerankers import CutShort, Reranker, Reranking
    from termweave.search.results.hits import Answer
    from termweave.search.retrieval.metadata_fields import FacetValue


def answer(engine: Engine, generation: OpenGeneration, target: str, query: str, asked: SearchOptions) -> Answer:
    """The best documents for a query, from one generation.

    Args:
        engine: The server.
        generation: The generation, opened.
        target: The name to search: the alias or the concrete index.
        query: Text; may be empty with `like`.
        asked: The options.
    """
    mode, reranking = choose(generation.lineage, asked.mode, asked.rerank, asked.rerank_budget)
    if reranking is not None:
        reranking = reranking.for_page(asked.start)
    liked = _liked(engine, generation, query, asked.like) if asked.like else None
    where = clauses(asked.where, generation.layout, dialect_of(engine.capabilities))
    what = Retrieval(
        list(mode.weights),
        asked.candidates,
        asked.candidates,
        [*where, liked.left_out] if liked else where,
        reranking.needs if reranking else (),
        mode if asked.server_fusion else None,
    )
    ranking_mode = server_fusion.answer_mode() if asked.server_fusion else mode
    fields = hits.stored_names(asked.fields, generation.layout)
    (encoded,) = [liked.query] if liked else encode(generation, [query])
    shown: list[Hit] = []
    seen: set[str] = set()
    dropped: dict[str, tuple[str, ...]] = {}
    cut_short: list[CutShort] = []
    facets: Mapping[str, tuple[FacetValue, ...]] = {}
    for depth in paging.depths(asked.candidates):
        (candidates,) = execution.retrieve(engine, target, generation, [encoded], replace(what, depth=depth))
        if liked:
            candidates = replace(candidates, liked=liked.vectors)
        dropped |= {name: clause.dropped for name, clause in candidates.clauses.items() if clause.dropped}
        cut_short.clear()
        limit = None if asked.sort else asked.last + len(seen)
        ranked = order(candidates, ranking_mode, reranking, limit, cut_short.append)
        if asked.facets and not facets:
            facets = metadata_fields.facets(engine, generation.index, generation.layout, candidates, asked.facets)
        if asked.sort:
            ranked = metadata_fields.ordered(engine, generation.index, generation.layout, ranked, asked.sort)
        places = [place for place in ranked if place.id not in seen]
        first, end = max(0, asked.start - len(seen)), asked.last - len(seen)
        page = hits.fetch(
            engine,
            generation,
            places[first:end],
            candidates,
            first=len(seen) + first + 1,
            fields=fields,
            explain=asked.explain,
        )
        if asked.explain_words:
            page = explanation.with_word_effects(page, places[first:end])
        if asked.highlight:
            signals = generation.signals(what.signals)
            page = highlighting.with_highlights(engine, generation.index, generation.encoder, signals, encoded, page)
        shown += page
        seen.update(place.id for place in places)
        if asked.sort or len(seen) >= asked.last or all(len(ranked.scores) < depth for ranked in candidates.lists.values()):
            break
    remarks = notices.collect(engine, generation, candidates, shown, empty=not seen, fields=fields, where=asked.where)
    if seen and not shown:
        beyond = f"The search ranks {counted(len(seen), 'document')}, and this page begins after {asked.start:,} of them."
        remarks = (beyond, *remarks)
    return hits.Answer(Hits(shown), dropped, remarks, tuple(cut_short), facets)


def explain(engine: Engine, generation: OpenGeneration, target: str, query: str, document: str, asked: ExplainOptions) -> Hit:
    """The score of one document for a query, explained from one generation. Arguments as `answer`."""
    mode, reranking = choose(generation.lineage, asked.mode, asked.rerank, asked.rerank_budget)
    needs = reranking.needs if reranking else ()
    encoded = encode(generation, [query])
    where = clauses(asked.where, generation.layout, dialect_of(engine.capabilities))
    what = Retrieval(list(mode.weights), asked.candidates, where=where, needs=needs)
    (candidates,) = execution.retrieve(engine, target, generation, encoded, what)
    places = order(candidates, mode, reranking)
    for rank, place in enumerate(places, 1):
        if place.id == document:
            found = hits.fetch(engine, generation, [place], candidates, first=rank, fields=FIELDS, explain=True)
            return (explanation.with_word_effects(found, [place]) if asked.explain_words else found)[0]
    excluded = bool(where) and not filters.passes(engine, generation.index, document, where)
    if excluded:  # what the signals would give it: the clauses so far contain the filter
        unfiltered = Retrieval(list(mode.weights), asked.candidates)
        (candidates,) = execution.retrieve(engine, target, generation, encoded, unfiltered)
    # Below the last candidate of every signal: one signal alone gives its own score, several fuse to 0.
    below = below_all(places, document, reranking)
    hit = hits.fetch(engine, generation, [below], candidates, first=0, fields=FIELDS, explain=True)[0]
    if excluded:
        return replace(hit, explanation={**(hit.explanation or {}), "excluded": True})
    return explanation.with_own_score(hit) if mode.single and reranking is None else hit


def encode(generation: OpenGeneration, queries: Sequence[str | Encoding]) -> list[Encoding]:
    """Encode queries with the models and statistics of a generation. Encoded queries are returned as they are."""
    texts = [readable(each) if isinstance(each, str) else each for each in queries if not isinstance(each, Encoding)]
    encoded = iter(generation.encoder.encode(texts, kind="query", statistics=generation.statistics))
    return [each if isinstance(each, Encoding) else next(encoded) for each in queries]


def _liked(engine: Engine, generation: OpenGeneration, query: str, like: Sequence[str]) -> relevance_feedback.Liked:
    """A query made of stored documents, and of words if there are any."""
    words = encode(generation, [query])[0] if query.strip() else None
    return relevance_feedback.read(engine, generation.index, list(dict.fromkeys(like)), generation.layout.signals, words)


def choose(
    made: Lineage, mode: str | None, rerank: str | Reranker | Reranking | None, budget: float | None = None
) -> tuple[Mode, Reranking | None]:
    """The mode and the rerankers for an index with this lineage.

    Raises:
        UsageError: The index has no such signal or profile, or there is no such reranker.
    """
    profile = profiles.find(made, mode)
    reranking = rerankers.choose(rerank, profile.rerank if profile is not None else None)
    if budget is not None:
        if reranking is None and budget < inf:
            raise UsageError("A time budget needs a reranker.", "Add --rerank ranker@FOLDER, or leave --rerank-budget out.")
        reranking = reranking.within(budget) if reranking else None
    if profile is not None:
        return profile.mode, reranking
    if mode is not None and (name := mode.partition("@")[0]) in made.profiles:
        raise UsageError(f"The profile in {mode!r} names its own fusion.", f"Use --mode {name}, or tune again.")
    signals = [signal.name for signal in made.layout.signals]
    return modes.parse("hybrid" if mode is None else mode, signals, made.profiles), reranking
