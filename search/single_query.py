"""One query, answered or explained by one generation: prepare, retrieve, rank, show, remark.

`Index` opens the generation and searches again where the alias has moved.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from termweave.dialect import dialect_of
from termweave.errors import UsageError
from termweave.rerank import rerankers
from termweave.search import paging, profiles
from termweave.search.options import FIELDS
from termweave.search.ranking.minimum_score import MinimumScore
from termweave.search.ranking.order import below_all, order
from termweave.search.results import best_passages, explanation, feature_log, highlighting, hits, notices
from termweave.search.results.hit_sequence import Hits
from termweave.search.retrieval import execution, filters, metadata_fields, relevance_feedback, server_fusion, totals
from termweave.search.retrieval.execution import Retrieval
from termweave.search.retrieval.filter_grammar import clauses
from termweave.search.rewriting import rewriter
from termweave.search.rewriting.configuration import NOTHING
from termweave.search.rewriting.configuration import parse as rewriting_of
from termweave.signals import modes
from termweave.support.messages import readable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from termweave.catalog.lineage import Lineage
    from termweave.records import Encoding, Hit
    from termweave.rerank.rerankers import CutShort, Reranker, Reranking
    from termweave.search.opening import OpenGeneration
    from termweave.search.options import ExplainOptions, RankingOptions, SearchOptions
    from termweave.search.ranking.order import Place
    from termweave.search.results.hits import Answer
    from termweave.search.retrieval.candidates import Candidates
    from termweave.search.rewriting.configuration import Rewriting
    from termweave.signals.modes import Mode


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """A query, encoded for one generation, and how it is searched and ranked.

    Attributes:
        generation: The generation, opened.
        target: The name to search: the alias or the concrete index.
        query: The encoded query.
        mode: The signals and their weights.
        reranking: The rerankers; None: no reranking.
        retrieval: What each signal is asked for.
        liked: float32 ``(n, d)``, vectors of the documents that the query was made of; None for a query of words.
    """

    generation: OpenGeneration
    target: str
    query: Encoding
    mode: Mode
    reranking: Reranking | None
    retrieval: Retrieval
    liked: NDArray[np.float32] | None = None

    def candidates(self, depth: int) -> Candidates:
        """The best documents of each signal, `depth` of them."""
        wanted = replace(self.retrieval, depth=depth)
        (candidates,) = execution.retrieve(self.generation.engine, self.target, self.generation, [self.query], wanted)
        return candidates if self.liked is None else replace(candidates, liked=self.liked)


@dataclass(frozen=True, slots=True)
class SearchRound:
    """One search of a query, and the ranked documents that earlier rounds did not find.

    Attributes:
        candidates: The documents that the signals returned.
        places: The new documents, best first.
        before: Number of documents that earlier rounds found.
        cut_short: The rerankers that ran out of time.
        ranked: How many documents were ranked, before the minimum score left some out.
        remarks: Sentences about documents that are left out.
    """

    candidates: Candidates
    places: Sequence[Place]
    before: int
    cut_short: Sequence[CutShort]
    ranked: int
    remarks: Sequence[str]


def answer(generation: OpenGeneration, target: str, query: str, asked: SearchOptions) -> Answer:
    """The best documents for a query, from one generation.

    Args:
        generation: The generation, opened.
        target: The name to search: the alias or the concrete index.
        query: Text; may be empty with `like`.
        asked: The options.
    """
    engine = generation.engine
    prepared = prepare(generation, target, query, asked, asked.like)
    fields = hits.stored_names(asked.fields, generation.layout)
    recorder = feature_log.recorder(generation.layout, prepared.reranking) if asked.log_features else None
    if recorder:
        needs = {*prepared.retrieval.needs, *recorder.needs}
        prepared = replace(prepared, retrieval=replace(prepared.retrieval, needs=needs))
    rounds = list(_search(prepared, asked))
    page = [hit for each in rounds for hit in _show(prepared, each, asked, fields)]
    counted = bool(asked.totals or asked.facets or asked.sort)
    first, last = rounds[0].candidates, rounds[-1]
    if recorder and asked.log_features:
        with feature_log.created(Path(asked.log_features), recorder.reader.features) as log:
            log.add(query if query.strip() else " ".join(asked.like), recorder.features(first, prepared.mode))
    reached = last.before + len(last.places)
    return hits.Answer(
        Hits(page),
        {name: clause.dropped for name, clause in last.candidates.clauses.items() if clause.dropped},
        (*notices.collect(engine, generation, last, page, asked, fields, reached), *last.remarks),
        tuple(last.cut_short),
        metadata_fields.facets(engine, generation.index, generation.layout, first, asked.facets) if asked.facets else {},
        totals.totals(engine, generation, first, prepared.retrieval.where, asked.like) if counted else None,
    )


def prepare(
    generation: OpenGeneration, target: str, query: str, asked: RankingOptions, like: Sequence[str] = ()
) -> PreparedQuery:
    """Choose the mode and the rerankers, translate the filters, and encode the query.

    Args:
        generation: The generation, opened.
        target: The name to search.
        query: Text; may be empty with `like`.
        asked: The options.
        like: Ids of documents that the query is made of, too.
    """
    engine = generation.engine
    mode, reranking = choose(generation.lineage, asked.mode, asked.rerank, asked.rerank_budget)
    where: list[Mapping[str, Any]] = [*clauses(asked.where, generation.layout, dialect_of(engine.capabilities))]
    vectors = None
    rewriting = profiles.rewriting(generation.lineage, asked.mode, rewriting_of(asked.rewrite))
    words = None
    if query.strip() or not like:
        (words,) = encode(generation, [readable(query)], rewriting)
        if words.rewritten and words.rewritten.refusal and not (like and words.rewritten.operators):
            raise words.rewritten.refusal
        where = [*where, *(words.rewritten.where if words.rewritten else ())]
    if like:
        mixed = words if words and words.text.strip() else None  # a query may only exclude
        liked = relevance_feedback.read(engine, generation.index, list(dict.fromkeys(like)), generation.layout, mixed)
        encoded, vectors, where = liked.query, liked.vectors, [*where, liked.left_out]
        if words is not None and words.rewritten:
            encoded = replace(encoded, rewritten=replace(words.rewritten, where=(), parts=()))
    else:
        assert words is not None
        encoded = replace(words, rewritten=replace(words.rewritten, where=())) if words.rewritten else words
    needs = reranking.needs if reranking else ()
    retrieval = Retrieval(list(mode.weights), asked.candidates, asked.candidates, where, needs)
    return PreparedQuery(generation, target, encoded, mode, reranking, retrieval, vectors)


def encode(generation: OpenGeneration, texts: Sequence[str], rewriting: Rewriting | None) -> list[Encoding]:
    """Encode queries with the models and statistics of a generation, rewritten if that is asked for."""
    if rewriting is not None and rewriting != NOTHING:
        return rewriter.rewrite(generation.engine, generation, texts, rewriting)
    return generation.encoder.encode(texts, kind="query", statistics=generation.statistics)


def _search(prepared: PreparedQuery, asked: SearchOptions) -> Iterator[SearchRound]:
    """Search and rank, deeper in each round, until the page is reached. Documents of a later round follow those before it."""
    mode, reranking = prepared.mode, prepared.reranking
    if reranking is not None:
        reranking = reranking.for_page(asked.start)
    if asked.server_fusion:
        mode, prepared = server_fusion.answer_mode(), replace(prepared, retrieval=replace(prepared.retrieval, server_fusion=mode))
    floor = asked.min_score if isinstance(asked.min_score, MinimumScore) else MinimumScore()
    floor.check(mode.weights)
    generation = prepared.generation
    prepared = replace(prepared, retrieval=replace(prepared.retrieval, pin=asked.pin))
    seen: set[str] = set()
    collapsing = _Collapse(prepared, asked.collapse) if asked.collapse else None
    for depth in paging.depths(asked.candidates):
        candidates = prepared.candidates(depth)
        pinned = () if asked.sort else candidates.pinned  # sorted documents have an order of their own
        cut_short: list[CutShort] = []
        limit = None if asked.sort or asked.collapse or asked.min_score is not None else asked.last + len(seen)
        ranked = order(replace(candidates, pinned=pinned), mode, reranking, limit, cut_short.append)
        places = ranked if asked.min_score is None else [place for place in ranked if place.id in pinned or floor.keeps(place)]
        if asked.sort:
            places = metadata_fields.ordered(generation.engine, generation.index, generation.layout, places, asked.sort)
        new = [place for place in places if place.id not in seen]
        if collapsing:
            new = collapsing.kept(new)
        remarks = collapsing.remarks if collapsing and ranked else ()
        yield SearchRound(candidates, new, len(seen), cut_short, len(ranked), remarks)
        seen.update(place.id for place in new)
        if asked.sort or len(seen) >= asked.last or floor.exhausts(ranked, candidates, depth):
            return


class _Collapse:
    """Keeps the best documents of each value of a field, over all rounds of a search."""

    def __init__(self, prepared: PreparedQuery, text: str) -> None:
        self._prepared = prepared
        self._field, self._most = metadata_fields.parse_collapse(text)
        self._counts: Counter[Any] = Counter()

    @property
    def remarks(self) -> list[str]:
        """Say that no document has a value."""
        return [] if self._counts else [f"No document of this answer has a value of {self._field!r}, so that none is left out."]

    def kept(self, places: Sequence[Place]) -> list[Place]:
        """The documents whose group has fewer than the wanted number above them, and those without a value; the 10,001st and later are left out."""
        generation = self._prepared.generation
        first = places[: paging.MAX_DEPTH]
        values = metadata_fields.groups(
            generation.engine, generation.index, generation.layout, [place.id for place in first], self._field
        )
        kept = []
        for place in first:
            if (value := values.get(place.id)) is not None:
                self._counts[value] += 1
            if value is None or self._counts[value] <= self._most:
                kept.append(place)
        return kept


def _show(prepared: PreparedQuery, searched: SearchRound, asked: SearchOptions, fields: Sequence[str]) -> list[Hit]:
    """The hits of a round that are on the page: stored fields, explanations and highlights."""
    generation, engine = prepared.generation, prepared.generation.engine
    begin, end = max(0, asked.start - searched.before), asked.last - searched.before
    places, rank = searched.places[begin:end], searched.before + begin + 1
    page = hits.fetch(engine, generation, places, searched.candidates, first=rank, fields=fields, explain=asked.explain)
    if asked.explain_words:
        page = explanation.with_word_effects(page, places)
    if asked.passages is not None:
        page = best_passages.with_passages(engine, generation, searched.candidates, prepared.mode, page, asked.passages)
    if asked.highlight:
        signals = generation.signals(prepared.retrieval.signals)
        page = highlighting.with_highlights(engine, generation, signals, prepared.query, page)
    return page


def explain(generation: OpenGeneration, target: str, query: str, document: str, asked: ExplainOptions) -> Hit:
    """The score of one document for a query, explained from one generation. Arguments as `answer`."""
    engine = generation.engine
    prepared = prepare(generation, target, query, asked)
    mode, reranking, where = prepared.mode, prepared.reranking, prepared.retrieval.where
    candidates = prepared.candidates(asked.candidates)
    places = order(candidates, mode, reranking)
    for rank, place in enumerate(places, 1):
        if place.id == document:
            hit_of_document = hits.fetch(engine, generation, [place], candidates, first=rank, fields=FIELDS, explain=True)
            return (explanation.with_word_effects(hit_of_document, [place]) if asked.explain_words else hit_of_document)[0]
    excluded = bool(where) and not filters.documents_passing(engine, generation.index, [document], where)
    if excluded:  # what the signals would give it: the clauses so far contain the filter
        candidates = replace(prepared, retrieval=Retrieval(list(mode.weights), asked.candidates)).candidates(asked.candidates)
    # Below the last candidate of every signal: one signal alone gives its own score, several fuse to 0.
    below = below_all(places, document, reranking)
    hit = hits.fetch(engine, generation, [below], candidates, first=0, fields=FIELDS, explain=True)[0]
    if excluded:
        return replace(hit, explanation={**(hit.explanation or {}), "excluded": True})
    return explanation.with_own_score(hit) if mode.single and reranking is None else hit


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
