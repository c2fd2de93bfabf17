"""An index to search: opened once, searched many times."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from termweave.engine.client.payloads import ALL_SHARDS
from termweave.errors import EngineError, UsageError
from termweave.records import Encoding
from termweave.search import batch, paging
from termweave.search.asynchronous import AsyncSearches
from termweave.search.catalog import lineage, profiles
from termweave.search.catalog.opening import open_generation
from termweave.search.options import DEPTH, FIELDS, ExplainOptions, RankingOptions, RunOptions, SearchOptions, check_query
from termweave.search.ranking import modes, rerankers
from termweave.search.ranking.order import below_all, order
from termweave.search.results import explanation, highlighting, hits, notices
from termweave.search.results.hit_sequence import Hits
from termweave.search.retrieval import execution, filters, metadata_fields, relevance_feedback, server_fusion
from termweave.search.retrieval.execution import AliasMoved, Retrieval
from termweave.search.retrieval.filter_grammar import clauses
from termweave.search.signatures import with_options
from termweave.signals import dialect
from termweave.support import arguments
from termweave.support.messages import readable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path
    from typing import Unpack

    from termweave.engine import Engine
    from termweave.records import Hit, Run
    from termweave.search.catalog.lineage import Lineage
    from termweave.search.catalog.opening import OpenGeneration
    from termweave.search.catalog.profiles import Profile
    from termweave.search.options import ExplainKeywords, RunKeywords, SearchKeywords, Where
    from termweave.search.ranking.modes import Mode
    from termweave.search.ranking.rerankers import CutShort, Need, Reranker, Reranking
    from termweave.search.results.hits import Answer
    from termweave.search.retrieval.candidates import Candidates
    from termweave.search.retrieval.metadata_fields import FacetValue
    from termweave.signals import DocumentLayout
    from termweave.signals.dialect import ServerDialect

_T = TypeVar("_T")
#: How often a search starts anew because the alias moved; the last try searches the concrete index.
_TRIES = 4


class Index(AsyncSearches):
    """A live index behind its alias. Threads may share it.

    The alias may move to a new generation at any time. Each search uses one generation from the encoding of the query to the
    hits: if another generation answers, the answer is discarded, the new generation is opened, and the search starts anew.
    """

    def __init__(self, engine: Engine, name: str, models: Mapping[str, str | Path | None]) -> None:
        self.engine = engine
        self.name = name
        self._models = models
        self._now = self._open()

    @classmethod
    def open(cls, engine: Engine, name: str, **models: str | Path | None) -> Index:
        """Open an index. Arguments and errors as `Connection.index`."""
        return cls(engine, name, models)

    @classmethod
    def pinned(cls, engine: Engine, name: str, **models: str | Path | None) -> Index:
        """Open the generation that a name stands for now: all answers come from it, even if the alias moves later."""
        return cls(engine, lineage.resolve(engine, name), models)

    @property
    def generation(self) -> str:
        """Name of the concrete index that is searched."""
        return self._now.index

    @property
    def lineage(self) -> Lineage:
        """The lineage of the generation."""
        return self._now.lineage

    @property
    def layout(self) -> DocumentLayout:
        """The signals and fields of the generation."""
        return self._now.layout

    @property
    def signals(self) -> list[str]:
        """Names of the signals."""
        return [signal.name for signal in self._now.layout.signals]

    def __repr__(self) -> str:
        return f"<Index {self.name!r}: {self.generation}, {', '.join(self.signals)}>"

    @with_options(SearchOptions)
    def search(self, query: str = "", **options: Unpack[SearchKeywords]) -> Hits:
        """The best documents for a query, best first.

        Args:
            query: Text; may be empty with `like`.
            **options: See below.
        """
        return self.answer(query, **options).hits

    @with_options(RunOptions)
    def run(self, queries: Mapping[str, str], **options: Unpack[RunKeywords]) -> Run:
        """The best documents for each of many queries (query id -> text). Options: `termweave.search.options.RunOptions`."""
        return batch.run(self, queries, **options)

    @with_options(SearchOptions)
    def answer(self, query: str = "", **options: Unpack[SearchKeywords]) -> Answer:
        """The best documents for a query, with remarks on the answer.

        Args:
            query: Text; may be empty with `like`.
            **options: See below.
        """
        asked = SearchOptions(**options)
        check_query(query)
        return self._consistently(lambda generation, target: self._answer(generation, target, query, asked))

    def _answer(self, generation: OpenGeneration, target: str, query: str, asked: SearchOptions) -> Answer:
        """`answer` from one generation."""
        mode, reranking = _choose(generation.lineage, asked.mode, asked.rerank, asked.rerank_budget)
        if reranking is not None:
            reranking = reranking.for_page(asked.start)
        liked = self._liked(generation, query, asked.like) if asked.like else None
        where = clauses(asked.where, generation.layout, self._dialect)
        what = Retrieval(
            list(mode.weights),
            asked.candidates,
            asked.candidates,
            [*where, liked.left_out] if liked else where,
            reranking.needs if reranking else (),
            mode if asked.server_fusion else None,
        )
        ranking_mode = server_fusion.answer_mode() if asked.server_fusion else mode
        (encoded,) = [liked.query] if liked else self.encode([query], generation)
        shown: list[Hit] = []
        seen: set[str] = set()
        dropped: dict[str, tuple[str, ...]] = {}
        cut_short: list[CutShort] = []
        facets: Mapping[str, tuple[FacetValue, ...]] = {}
        for depth in paging.depths(asked.candidates):
            (candidates,) = execution.retrieve(self.engine, target, generation, [encoded], replace(what, depth=depth))
            if liked:
                candidates = replace(candidates, liked=liked.vectors)
            dropped |= {name: clause.dropped for name, clause in candidates.clauses.items() if clause.dropped}
            cut_short.clear()
            limit = None if asked.sort else asked.last + len(seen)
            ranked = order(candidates, ranking_mode, reranking, limit, cut_short.append)
            if asked.facets and not facets:
                facets = metadata_fields.facets(self.engine, generation.index, generation.layout, candidates, asked.facets)
            if asked.sort:
                ranked = metadata_fields.ordered(self.engine, generation.index, generation.layout, ranked, asked.sort)
            places = [place for place in ranked if place.id not in seen]
            first, end = max(0, asked.start - len(seen)), asked.last - len(seen)
            page = hits.of(
                self.engine,
                generation,
                places[first:end],
                candidates,
                first=len(seen) + first + 1,
                fields=asked.fields,
                explain=asked.explain,
            )
            if asked.explain_words:
                page = explanation.with_word_effects(page, places[first:end])
            if asked.highlight:
                signals = generation.signals(what.signals)
                page = highlighting.of(self.engine, generation.index, generation.encoder, signals, encoded, page)
            shown += page
            seen.update(place.id for place in places)
            if asked.sort or len(seen) >= asked.last or all(len(ranked.scores) < depth for ranked in candidates.lists.values()):
                break
        remarks = notices.of(self.engine, generation, candidates, shown, empty=not seen, fields=asked.fields, where=asked.where)
        return hits.Answer(Hits(shown), dropped, remarks, tuple(cut_short), facets)

    @with_options(ExplainOptions)
    def explain(self, query: str, document: str, **options: Unpack[ExplainKeywords]) -> Hit:
        """Explain the score of one document for a query.

        A document that is not among the candidates has rank 0 and the score it would have below the last of them: one signal
        alone gives its own score, several fuse to 0. Its explanation shows what each signal gives it and the score it lacks.
        If a filter excludes the document, the explanation has ``"excluded": True``.

        Args:
            query: Text.
            document: Id of the document.
            **options: See below.

        Raises:
            UsageError: The index does not hold the document.
        """
        asked = ExplainOptions(**options)
        SearchOptions(like=[document])  # checks the id
        check_query(query)
        return self._consistently(lambda generation, target: self._explain(generation, target, query, document, asked))

    def _explain(self, generation: OpenGeneration, target: str, query: str, document: str, asked: ExplainOptions) -> Hit:
        """`explain` from one generation."""
        mode, reranking = _choose(generation.lineage, asked.mode, asked.rerank, asked.rerank_budget)
        needs = reranking.needs if reranking else ()
        encoded = self.encode([query], generation)
        where = clauses(asked.where, generation.layout, self._dialect)
        what = Retrieval(list(mode.weights), asked.candidates, where=where, needs=needs)
        (candidates,) = execution.retrieve(self.engine, target, generation, encoded, what)
        places = order(candidates, mode, reranking)
        for rank, place in enumerate(places, 1):
            if place.id == document:
                found = hits.of(self.engine, generation, [place], candidates, first=rank, fields=FIELDS, explain=True)
                return (explanation.with_word_effects(found, [place]) if asked.explain_words else found)[0]
        excluded = bool(where) and not filters.passes(self.engine, generation.index, document, where)
        if excluded:  # what the signals would give it: the clauses so far contain the filter
            unfiltered = Retrieval(list(mode.weights), asked.candidates)
            (candidates,) = execution.retrieve(self.engine, target, generation, encoded, unfiltered)
        # Below the last candidate of every signal: one signal alone gives its own score, several fuse to 0.
        below = below_all(places, document, reranking)
        hit = hits.of(self.engine, generation, [below], candidates, first=0, fields=FIELDS, explain=True)[0]
        if excluded:
            return replace(hit, explanation={**(hit.explanation or {}), "excluded": True})
        return explanation.beyond(hit) if mode.single and reranking is None else hit

    def mode(self, text: str) -> Mode:
        """The mode that a text names (as `--mode` takes it): a profile, or signals of this index."""
        return self.choose(text)[0]

    def choose(
        self, mode: str | None, rerank: str | Reranker | Reranking | None = None, rerank_budget: float | None = None
    ) -> tuple[Mode, Reranking | None]:
        """The mode and the rerankers of a search. Arguments as `answer`."""
        RankingOptions(mode=mode, rerank_budget=rerank_budget)
        return _choose(self._now.lineage, mode, rerank, rerank_budget)

    def adopt(self, profile: Profile) -> None:
        """Store a profile with the generation; searches use it from now on."""
        lineage.write(self.engine, self.generation, profiles.adopted(lineage.read(self.engine, self.generation), profile))
        self._now = self._open()

    def encode(self, queries: Sequence[str | Encoding], generation: OpenGeneration | None = None) -> list[Encoding]:
        """Encode queries with the models and statistics of a generation. Encoded queries are returned as they are.

        Args:
            queries: Texts, or encoded queries.
            generation: The generation; None: the one that is open now.
        """
        opened, given = generation or self._now, arguments.listed(queries)
        texts = [readable(each) if isinstance(each, str) else each for each in given if not isinstance(each, Encoding)]
        encoded = iter(opened.encoder.encode(texts, kind="query", statistics=opened.statistics))
        return [each if isinstance(each, Encoding) else next(encoded) for each in given]

    def _liked(self, generation: OpenGeneration, query: str, like: Sequence[str]) -> relevance_feedback.Liked:
        """A query made of stored documents, and of words if there are any."""
        words = self.encode([query], generation)[0] if query.strip() else None
        return relevance_feedback.read(self.engine, generation.index, list(dict.fromkeys(like)), generation.layout.signals, words)

    def candidates(
        self,
        queries: Sequence[str | Encoding],
        signals: Sequence[str],
        *,
        depth: int = DEPTH,
        window: int | None = None,
        where: Where = (),
        needs: Collection[Need] = (),
    ) -> list[Candidates]:
        """The candidates of each query from each signal, in one request.

        Args:
            queries: Texts, or queries that this generation encoded.
            signals: Names of the signals.
            depth: How many documents each signal gives.
            window: How many of them count in the fusion; None: `depth`.
            where: Filters, as `termweave.search.options.RankingOptions`.
            needs: What rerankers need: "vectors", "texts".
        """
        given, kept = arguments.listed(queries), RankingOptions(where=where).where

        def once(generation: OpenGeneration, target: str) -> list[Candidates]:
            what = Retrieval(signals, depth, window, clauses(kept, generation.layout, self._dialect), needs)
            return execution.retrieve(self.engine, target, generation, self.encode(given, generation), what)

        return self._consistently(once)

    def _consistently(self, call: Callable[[OpenGeneration, str], _T]) -> _T:
        """Call with an open generation and the name to search, and again if the alias moved or a hit was deleted meanwhile.

        The first tries search the alias, which costs no request to resolve it: the hits name the index that answered. The last
        try searches the concrete index, so that an alias that moves all the time cannot starve a search.
        """
        for _ in range(_TRIES - 1):
            generation = self._now
            try:
                return call(generation, self.name)
            except (AliasMoved, hits.DocumentGone):
                self._follow(generation)
            except EngineError:
                # The alias may have moved: the other generation may have other fields, and this one may be deleted.
                if not self._follow(generation):
                    raise
        generation = self._now
        return call(generation, generation.index)

    def _follow(self, searched: OpenGeneration) -> bool:
        """If the alias points at another generation than the one searched, open it; return whether it does."""
        if self._now is not searched:  # another thread has opened it
            return True
        if lineage.resolve(self.engine, self.name) == searched.index:
            return False
        self._now = self._open()
        return True

    def requests(self, query: str, **options: Unpack[SearchKeywords]) -> list[dict[str, Any]]:
        """The requests that `search` would send, for applications that are not in Python. Arguments as `answer`.

        The first request has "dropped" like `Answer` if the query has more terms than the server allows.
        """
        asked = SearchOptions(**options)
        generation = self._now
        mode, reranking = _choose(generation.lineage, asked.mode, asked.rerank, asked.rerank_budget)
        depth = next((depth for depth in paging.depths(asked.candidates) if depth >= asked.last), paging.MAX_DEPTH)
        what = Retrieval(
            list(mode.weights),
            depth,
            where=clauses(asked.where, generation.layout, self._dialect),
            needs=reranking.needs if reranking else (),
            server_fusion=mode if asked.server_fusion else None,
        )
        encoded = self.encode([check_query(query)], generation)
        (prepared,) = execution.prepare(self.engine, generation, encoded, what, execution.first_reach(generation, depth))
        lines: list[Any] = []
        for body in prepared.bodies.values():
            lines += [ALL_SHARDS, body]
        # Both ask the alias: an application that keeps these requests needs them after this generation is gone.
        fetch = {"ids": ["<the ids of the best after fusion>"]}
        included = ",".join(hits.wanted(asked.fields))
        dropped = {name: list(clause.dropped) for name, clause in prepared.clauses.items() if clause.dropped}
        return [
            {"method": "POST", "path": f"/{self.name}/_msearch", "body": lines, **({"dropped": dropped} if dropped else {})},
            {"method": "POST", "path": f"/{self.name}/_mget?_source_includes={included}&realtime=false", "body": fetch},
        ]

    @property
    def _dialect(self) -> ServerDialect:
        return dialect.of(self.engine.capabilities)

    def _open(self) -> OpenGeneration:
        return open_generation(self.engine, self.name, self._models)


def _choose(
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
