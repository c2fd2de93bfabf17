"""One query, answered or explained by one generation: prepare, retrieve, rank, show, remark.

`Index` opens the generation and searches again where the alias has moved.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from termweave.dialect import dialect_of
from termweave.errors import UsageError
from termweave.rerank import rerankers
from termweave.rerank.rerankers import CutShort
from termweave.rerank.stored_rerankers import reranking_of
from termweave.search import paging, profiles
from termweave.search.feature import Ranking, Report, Search, features_of
from termweave.search.options import FIELDS, SearchOptions
from termweave.search.ranking.order import below_all, order
from termweave.search.results import explanation, feature_log, hits, notices
from termweave.search.results.hit_sequence import Hits
from termweave.search.retrieval import execution, filters, relevance_feedback, server_fusion
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
    from termweave.rerank.rerankers import Reranker, Reranking
    from termweave.search.feature import Feature
    from termweave.search.opening import OpenGeneration
    from termweave.search.options import ExplainOptions, RankingOptions
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
        features: The features that take part.
        liked: float32 ``(n, d)``, vectors of the documents that the query was made of; None for a query of words.
    """

    generation: OpenGeneration
    target: str
    query: Encoding
    mode: Mode
    reranking: Reranking | None
    retrieval: Retrieval
    features: Sequence[Feature[Any]] = ()
    liked: NDArray[np.float32] | None = None

    def candidates(self, depth: int) -> Candidates:
        """The best documents of each signal, `depth` of them."""
        wanted = replace(self.retrieval, depth=depth)
        (candidates,) = execution.retrieve(self.generation.engine, self.target, self.generation, [self.query], wanted)
        return candidates if self.liked is None else replace(candidates, liked=self.liked)


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
    first, last, report = rounds[0].candidates, rounds[-1], Report(rounds, page)
    if recorder and asked.log_features:
        with feature_log.created(Path(asked.log_features), recorder.reader.features) as log:
            log.add(query if query.strip() else " ".join(asked.like), recorder.features(first, prepared.mode))
    remarks = notices.collect(engine, generation, report, asked, fields)
    return hits.Answer(
        Hits(page),
        {name: clause.dropped for name, clause in last.candidates.clauses.items() if clause.dropped},
        (*(remark for each in prepared.features for remark in each.remarks(report)), *remarks),
        tuple(last.cut_short),
        **{each.part: each.count(rounds) for each in prepared.features if each.part},
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
    plan = Retrieval(list(mode.weights), asked.candidates, asked.candidates, where, needs)
    if isinstance(asked, SearchOptions) and asked.server_fusion:
        plan = replace(plan, server_fusion=mode)
    features = features_of(asked, Search(generation, target, ranking_mode(mode, plan), reranking, like))
    for each in features:
        plan = each.plan(plan)
    return PreparedQuery(generation, target, encoded, mode, reranking, plan.checked(), features, vectors)


def ranking_mode(mode: Mode, plan: Retrieval) -> Mode:
    """The mode that ranks what a plan retrieves: one list if the server fuses."""
    return mode if plan.server_fusion is None else server_fusion.answer_mode()


def encode(generation: OpenGeneration, texts: Sequence[str], rewriting: Rewriting | None) -> list[Encoding]:
    """Encode queries with the models and statistics of a generation, rewritten if that is asked for."""
    if rewriting is not None and rewriting != NOTHING:
        return rewriter.rewrite(generation.engine, generation, texts, rewriting)
    return generation.encoder.encode(texts, kind="query", statistics=generation.statistics)


def _search(prepared: PreparedQuery, asked: SearchOptions) -> Iterator[Ranking]:
    """Search and rank, deeper in each round, until the page is reached. Documents of a later round follow those before it."""
    reranking = prepared.reranking.for_page(asked.start) if prepared.reranking else None
    mode = ranking_mode(prepared.mode, prepared.retrieval)
    seen: set[str] = set()
    memory: dict[Any, Any] = {}
    for depth in paging.depths(asked.candidates):
        plan, cut_short = replace(prepared.retrieval, depth=depth), list[CutShort]()
        ranking = Ranking(plan, prepared.candidates(depth), (), (), len(seen), cut_short, memory)
        limit = None if plan.whole else asked.last + len(seen)
        ranked = order(replace(ranking.candidates, pinned=ranking.pinned), mode, reranking, limit, cut_short.append)
        ranking = replace(ranking, ranked=ranked, places=[place for place in ranked if place.id not in seen])
        for each in prepared.features:
            ranking = each.rank(ranking)
        yield ranking
        seen.update(place.id for place in ranking.places)
        exhausted = all(len(each.scores) < depth for each in ranking.candidates.lists.values())
        if exhausted or len(seen) >= asked.last or any(each.enough(ranking) for each in prepared.features):
            return


def _show(prepared: PreparedQuery, searched: Ranking, asked: SearchOptions, fields: Sequence[str]) -> list[Hit]:
    """The hits of a round that are on the page: stored fields, explanations and highlights."""
    generation, engine = prepared.generation, prepared.generation.engine
    begin, end = max(0, asked.start - searched.before), asked.last - searched.before
    places, rank = searched.places[begin:end], searched.before + begin + 1
    page = hits.fetch(engine, generation, places, searched.candidates, first=rank, fields=fields, explain=asked.explain)
    if asked.explain_words:
        page = explanation.with_word_effects(page, places)
    for each in prepared.features:
        page = each.show(page, searched)
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
    reranking = rerankers.choose(rerank, reranking_of(profile))
    if budget is not None:
        if reranking is None and budget < inf:
            raise UsageError("A time budget needs a reranker.", "Add --rerank ranker@FOLDER, or leave --rerank-budget out.")
        reranking = reranking.within(budget) if reranking else None
    if profile is not None:
        return profiles.mode_of(profile), reranking
    if mode is not None and (name := mode.partition("@")[0]) in made.profiles:
        raise UsageError(f"The profile in {mode!r} names its own fusion.", f"Use --mode {name}, or tune again.")
    signals = [signal.name for signal in made.layout.signals]
    return modes.parse("hybrid" if mode is None else mode, signals, made.profiles), reranking
