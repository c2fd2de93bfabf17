"""Answer or explain one query in one generation: prepare, retrieve, rank, show, remark.

`Index` opens the generation, and searches again if the alias has moved.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, MutableMapping
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

from termweave.errors import UsageError
from termweave.rerank import rerankers
from termweave.rerank.rerankers import CutShort, Reranker, Reranking
from termweave.rerank.stored_rerankers import reranking_of
from termweave.search import profiles
from termweave.search.feature import Answered, Feature, Ranking, Report, Search, known_to
from termweave.search.filters.documents import documents_passing
from termweave.search.options import FIELDS, check_query
from termweave.search.ranking.order import Place, below_all, order
from termweave.search.results import explanation, hits, notices
from termweave.search.retrieval import execution, hybrid_query
from termweave.search.retrieval.plan import MAX_DEPTH, Retrieval, depths
from termweave.signals import modes
from termweave.support.normal_form import query_text

if TYPE_CHECKING:
    from termweave.catalog.lineage import Lineage
    from termweave.records import Encoding, Hit
    from termweave.search.opening import OpenGeneration
    from termweave.search.options import ExplainOptions, RankingOptions, SearchOptions
    from termweave.search.results.hits import Answer
    from termweave.search.retrieval.candidates import Candidates
    from termweave.signals.modes import Mode


def answer(generation: OpenGeneration, target: str, query: str, options: SearchOptions) -> Answer:
    """Search for the best documents for a query in one generation.

    Args:
        generation: The opened generation.
        target: The name to search: the alias or the concrete index.
        query: Text of the query; may be empty with `like`.
        options: The options.
    """
    search, encoded = of_query(prepare(generation, target, options), query)
    fields = hits.stored_names(options.fields, generation.layout)
    rounds = list(_rounds(search, encoded, options))
    page: list[Hit] = []
    for ranking in rounds:
        begin, end = max(0, options.start - ranking.before), options.last - ranking.before
        places, first = ranking.places[begin:end], ranking.before + begin + 1
        shown, ranking_with_fields = hits.make(generation, ranking, places, first=first, fields=fields)
        for each in search.features:
            shown = each.show(shown, ranking_with_fields)
        page += shown
    name = query if query.strip() or encoded.liked is None else " ".join(encoded.liked.ids)
    answered: Iterator[Answered] = iter([Answered(name, rounds)])
    for each in search.features:
        answered = each.through(answered)
    list(answered)
    last, report = rounds[-1], Report(rounds, page)
    return hits.Answer(
        hits.Hits(page),
        {name: clause.dropped for name, clause in last.candidates.clauses.items() if clause.dropped},
        (
            *(remark for each in search.features for remark in each.remarks(report)),
            *notices.collect(generation, report, options, fields),
        ),
        tuple(last.cut_short),
        {each.part: part for each in search.features if each.part and (part := each.count(rounds)) is not None},
    )


def prepare(generation: OpenGeneration, target: str, options: RankingOptions) -> Search:
    """Choose mode and rerankers for a search, and let each feature add its needs to the plan.

    Args:
        generation: The opened generation.
        target: The name to search: the alias or the concrete index.
        options: The options.
    """
    profile = profiles.find(generation.lineage, options.mode)
    mode, reranking = choose(generation.lineage, options.mode, options.rerank, options.rerank_budget)
    needs = reranking.needs if reranking else ()
    plan = Retrieval(list(mode.weights), options.candidates, options.candidates, needs=needs)
    search = Search(generation, target, mode, reranking, plan, profile)
    features = [feature(options, search) for feature in known_to(type(options)) if feature.takes_part(options)]
    for each in features:
        plan = each.plan(plan)
    return replace(search, plan=plan, features=features)


def of_query(search: Search, text: str) -> tuple[Search, Encoding]:
    """Encode one query, and add to the plan the filters that its own text contains, such as excluded words."""
    (encoded,) = search.encode([query_text(check_query(text))])
    if encoded.rewritten is None:
        return search, encoded
    if encoded.rewritten.refusal:
        raise encoded.rewritten.refusal
    plan = replace(search.plan, where=[*search.plan.where, *encoded.rewritten.where])
    return replace(search, plan=plan), replace(encoded, rewritten=replace(encoded.rewritten, where=()))


def rank(
    search: Search,
    plan: Retrieval,
    candidates: Candidates,
    limit: int | None,
    earlier: Collection[str] = (),
    memory: MutableMapping[Any, Any] | None = None,
) -> Ranking:
    """Fuse and rerank the candidates of one query, and let each feature change the ranking.

    Args:
        search: The search.
        plan: What the signals were asked for.
        candidates: The candidates of one query.
        limit: How many documents are needed; None: all. Features that leave out, order or count documents get all of them in any case.
        earlier: Ids of documents that earlier rounds found.
        memory: What features remember from round to round of the query; None: there is only one round.
    """
    mode = search.mode if plan.server_fusion is None else hybrid_query.ANSWER_MODE
    if plan.counts or any(type(each).rank is not Feature.rank for each in search.features):
        limit = None
    cut_short = list[CutShort]()
    ranking = Ranking(plan, candidates, (), (), len(earlier), cut_short=cut_short, memory={} if memory is None else memory)
    ranked = order(replace(candidates, pinned=ranking.pinned), mode, search.reranking, limit, cut_short.append)
    ranking = replace(ranking, ranked=ranked, places=[place for place in ranked if place.id not in earlier])
    for each in search.features:
        ranking = each.rank(ranking)
    return ranking


def _rounds(search: Search, encoded: Encoding, options: SearchOptions) -> Iterator[Ranking]:
    """Search and rank in rounds, each deeper than the last, until the page is full; a later round adds only new documents."""
    if search.reranking:  # texts that one round has scored are not scored again
        search = replace(search, reranking=search.reranking.for_page(options.start))
    seen: set[str] = set()
    memory: dict[Any, Any] = {}
    for depth in depths(options.candidates):
        plan = replace(search.plan, depth=depth)
        (candidates,) = execution.retrieve(search.generation, search.target, [encoded], plan)
        ranking = rank(search, plan, candidates, options.last + len(seen), seen, memory)
        exhausted = depth == MAX_DEPTH or all(len(each.scores) < depth for each in candidates.lists.values())
        complete = exhausted or any(each.enough(ranking) for each in search.features)
        yield replace(ranking, complete=complete)
        seen.update(place.id for place in ranking.places)
        if complete or len(seen) >= options.last:
            return


def explain(generation: OpenGeneration, target: str, query: str, document: str, options: ExplainOptions) -> Hit:
    """Explain the score of one document for a query in one generation. Arguments as `answer`."""
    search, encoded = of_query(prepare(generation, target, options), query)
    search = replace(search, plan=search.plan.with_explanations())
    (candidates,) = execution.retrieve(generation, target, [encoded], search.plan)
    ranking = rank(search, search.plan, candidates, None)
    for number, place in enumerate(ranking.places, 1):
        if place.id == document:
            hit, ranking = _explained(search, ranking, place, number)
            for each in search.features:
                (hit,) = each.show([hit], ranking)
            return hit
    mode, where = search.mode, search.plan.where
    excluded = bool(where) and not documents_passing(generation.engine, generation.index, generation.layout, [document], where)
    if excluded:  # what the signals would give it: the clauses so far contain the filter
        (candidates,) = execution.retrieve(generation, target, [encoded], Retrieval(list(mode.weights), options.candidates))
        ranking = replace(ranking, candidates=candidates)
    # Below the last candidate of every signal: one signal alone gives its own score, several fuse to 0.
    hit, _ = _explained(search, ranking, below_all(ranking.places, document, search.reranking), 0)
    if excluded:
        return replace(hit, explanation={**(hit.explanation or {}), "excluded": True})
    return explanation.with_own_score(hit) if mode.single and search.reranking is None else hit


def _explained(search: Search, ranking: Ranking, place: Place, number: int) -> tuple[Hit, Ranking]:
    """Make an explained hit of a ranked document; return it, and the round with the stored fields that were read."""
    (hit,), ranking = hits.make(search.generation, ranking, [place], first=number, fields=FIELDS)
    parts = hits.explained(search.generation, ranking.candidates, [place], ranking.stored)
    return replace(hit, explanation=parts[place.id]), ranking


def choose(
    lineage: Lineage, mode: str | None, rerank: str | Reranker | Reranking | None, budget: float | None = None
) -> tuple[Mode, Reranking | None]:
    """The mode and the rerankers that a search of an index with this lineage uses; None in place of rerankers: no reranking.

    Raises:
        UsageError: The index has no such signal or profile, or there is no such reranker.
    """
    profile = profiles.find(lineage, mode)
    reranking = rerankers.choose(rerank, reranking_of(profile))
    if budget is not None:
        if reranking is None and budget < inf:
            raise UsageError("A time budget needs a reranker.", "Add --rerank ranker@FOLDER, or leave --rerank-budget out.")
        reranking = reranking.within(budget) if reranking else None
    if profile is not None:
        return profiles.mode_of(profile), reranking
    if mode is not None and (name := mode.partition("@")[0]) in lineage.profiles:
        message = f"The mode {mode!r} names a fusion, but the profile {name!r} has a fusion of its own."
        raise UsageError(message, f"Use --mode {name} for that fusion, or tune the profile again with another one.")
    signals = [signal.name for signal in lineage.layout.signals]
    return modes.parse("hybrid" if mode is None else mode, signals, lineage.profiles), reranking
