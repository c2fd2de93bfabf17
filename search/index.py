"""An index to search, opened once and searched many times."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from termweave.catalog.lineage import Lineage, book_of, read_lineage, resolve_name, store_lineage
from termweave.catalog.profiles import Profile, adopted
from termweave.engine.client.payloads import ALL_SHARDS
from termweave.engine.client.resolved_name import by_ids
from termweave.errors import EngineError, UsageError
from termweave.records import Encoding, Hit, Run
from termweave.search import batch, single_query
from termweave.search.filters.filter_option import Where, translated
from termweave.search.opening import OpenGeneration, open_generation
from termweave.search.options import DEPTH, SENT, ExplainOptions, RankingOptions, RunOptions, SearchOptions, with_options
from termweave.search.results import hits
from termweave.search.retrieval import execution
from termweave.search.retrieval.execution import AliasMoved
from termweave.search.retrieval.plan import MAX_DEPTH, Retrieval, depths
from termweave.search.rewriting import rewriter
from termweave.support import arguments
from termweave.support.messages import few
from termweave.support.normal_form import query_text

if TYPE_CHECKING:
    from termweave.catalog.layout import DocumentLayout
    from termweave.engine import Engine
    from termweave.rerank.rerankers import Need, Reranker, Reranking
    from termweave.search.results.hits import Answer, Hits
    from termweave.search.retrieval.candidates import Candidates
    from termweave.search.rewriting.configuration import Rewriting
    from termweave.signals.modes import Mode

_T = TypeVar("_T")
#: How often a search starts anew because the alias moved; the last try searches the concrete index.
_TRIES = 4
#: Seconds after which a search looks what the name stands for now: a server, too, takes a second to show a change (`refresh_interval`).
_FRESH = 1.0
_DEFAULTS = SearchOptions()


class Index:
    """A live index, searched through its alias. Threads may share an object.

    The alias may move to a new generation at any time. Each search uses one generation from the encoding of the query to the
    hits: if another generation answers, the answer is discarded, the new generation is opened, and the search starts anew.

    Documents that the name hides in the server, by the filter or routing of an alias or by a default search pipeline, are hidden here, too.
    """

    def __init__(self, engine: Engine, name: str, models: Mapping[str, str | Path | None]) -> None:
        self._server = engine
        self.name = name
        self._models = models
        self._pinned = False
        self._looked = time.monotonic()
        self._now = self._open()

    @classmethod
    def open(cls, engine: Engine, name: str, **models: str | Path | None) -> Self:
        """Open an index by its name. Arguments and errors as `Connection.index`."""
        return cls(engine, name, models)

    @classmethod
    def pinned(cls, engine: Engine, name: str, **models: str | Path | None) -> Self:
        """Open the generation that a name stands for now. All answers come from this generation, even if the alias moves later."""
        return cls(engine, name, models).pin()

    def pin(self) -> Self:
        """Return this index tied to the generation that is open now; documents that the name hides stay hidden."""
        pinned = copy(self)
        pinned.name, pinned._pinned = self.generation, True  # noqa: SLF001
        return pinned

    @property
    def engine(self) -> Engine:
        """The server, restricted to documents that the name shows."""
        return self._now.engine

    @property
    def generation(self) -> str:
        """Name of the concrete index that searches use now."""
        return self._now.index

    @property
    def open_generation(self) -> OpenGeneration:
        """The generation that searches use now, with its lineage, layout, statistics and models."""
        return self._now

    @property
    def lineage(self) -> Lineage:
        """What the generation records about its origin."""
        return self._now.lineage

    @property
    def book(self) -> str:
        """Name of the book that keeps people's judgements about the documents of this index."""
        return book_of(self._now.name, self._now.lineage)

    @property
    def layout(self) -> DocumentLayout:
        """The signals and fields that the generation stores."""
        return self._now.layout

    @property
    def signals(self) -> list[str]:
        """Names of the signals that the generation stores."""
        return [signal.name for signal in self._now.layout.signals]

    def __repr__(self) -> str:
        return f"<Index {self.name!r}: {self.generation}, {', '.join(self.signals)}>"

    @with_options(SearchOptions, "")
    def search(self, query: str, options: SearchOptions) -> Hits:
        """The best documents for a query, best first.

        Args:
            query: Text of the query; may be empty with `like`.
            options: See below.
        """
        answer = self.answered(query, options)
        answer.hits.remarks = answer.all_remarks
        return answer.hits

    @with_options(RunOptions)
    def run(self, queries: Mapping[str, str], options: RunOptions) -> Run:
        """Rank the best documents for each of many queries (query id -> text)."""
        return batch.run(self, queries, options)

    @with_options(SearchOptions, "")
    def answer(self, query: str, options: SearchOptions) -> Answer:
        """The best documents for a query, with remarks on the answer.

        Args:
            query: Text of the query; may be empty with `like`.
            options: See below.
        """
        return self.answered(query, options)

    def answered(self, query: str, options: SearchOptions) -> Answer:
        """Answer a query, with the options as a record: `SearchOptions`, or a class of another package that inherits from it."""
        return self._consistently(lambda generation, target: single_query.answer(generation, target, query, options))

    @with_options(SearchOptions, "")
    async def asearch(self, query: str, options: SearchOptions) -> Hits:
        """Search without blocking the event loop: ``hits = await index.asearch("parse json")``.

        The search runs in a thread of asyncio's default executor.
        """
        answer = await asyncio.to_thread(self.answered, query, options)
        answer.hits.remarks = answer.all_remarks
        return answer.hits

    @with_options(SearchOptions, "")
    async def aanswer(self, query: str, options: SearchOptions) -> Answer:
        """Do as `answer` without blocking the event loop, in a thread of asyncio's default executor."""
        return await asyncio.to_thread(self.answered, query, options)

    @with_options(ExplainOptions)
    def explain(self, query: str, document: str, options: ExplainOptions) -> Hit:
        """Explain the score of one document for a query.

        A document that is not among the candidates has rank 0 and the score that it would have below the last candidate: one signal
        alone gives its own score, several fuse to 0. The explanation shows the score that each signal gives the document, and the lowest
        score among the candidates.
        If a filter excludes the document, the explanation has ``"excluded": True``.

        Args:
            query: Text of the query.
            document: Id of the document.
            options: See below.

        Raises:
            UsageError: The index does not hold the document.
        """
        arguments.document_ids("document")([document])
        return self._consistently(lambda generation, target: single_query.explain(generation, target, query, document, options))

    def mode(self, text: str) -> Mode:
        """Read the text of a mode (as `--mode` takes it): the name of a profile, or signals of this index."""
        return self.choose(text)[0]

    def choose(
        self, mode: str | None, rerank: str | Reranker | Reranking | None = None, rerank_budget: float | None = None
    ) -> tuple[Mode, Reranking | None]:
        """The mode and the rerankers that a search with these options uses; None in place of rerankers: no reranking. Arguments as `answer`."""
        RankingOptions(mode=mode, rerank_budget=rerank_budget)
        return single_query.choose(self._now.lineage, mode, rerank, rerank_budget)

    def adopt(self, profile: Profile, *, use: bool = True) -> None:
        """Store a profile with the generation. An earlier profile of the same name is kept as NAME-1 (`catalog.profiles.adopted`).

        Args:
            profile: The profile.
            use: Whether searches use the profile from now on; if not, only a search that names the profile as its mode uses it.
        """
        now = self._now
        store_lineage(self._server, now.index, adopted(read_lineage(self._server, now.index), profile, use=use))
        self._now = replace(now, lineage=read_lineage(self._server, now.index))

    def encode(
        self, queries: Sequence[str | Encoding], generation: OpenGeneration | None = None, rewrite: Rewriting | None = None
    ) -> list[Encoding]:
        """Encode queries with the models and statistics of a generation. Queries that are encoded already are returned as they are.

        Args:
            queries: Texts, or encoded queries.
            generation: The generation; None: the generation that is open now.
            rewrite: How texts are rewritten before; None: not at all.
        """
        listed = arguments.listed(queries)
        texts = [query_text(each) if isinstance(each, str) else each for each in listed if not isinstance(each, Encoding)]
        encoded = iter(rewriter.encode(generation or self._now, texts, rewrite))
        return [each if isinstance(each, Encoding) else next(encoded) for each in listed]

    def candidates(
        self,
        queries: Sequence[str | Encoding],
        signals: Sequence[str],
        *,
        depth: int = DEPTH,
        window: int | None = None,
        where: Where = (),
        needs: Collection[Need] = (),
        rewrite: Rewriting | None = None,
    ) -> list[Candidates]:
        """The candidates for each query: the best documents of each signal, found in one request.

        Args:
            queries: Texts, or queries that this generation encoded.
            signals: Names of the signals.
            depth: How many documents each signal returns.
            window: How many of these documents count in the fusion; None: `depth`.
            where: Filters, as `termweave.search.options.RankingOptions`.
            needs: The data that rerankers need of the candidates (`termweave.rerank.rerankers.Need`).
            rewrite: How texts are rewritten before; None: not at all.
        """
        listed, filters = arguments.listed(queries), RankingOptions(where=where).where

        def once(generation: OpenGeneration, target: str) -> list[Candidates]:
            plan = Retrieval(signals, depth, window, translated(filters, generation), needs)
            return execution.retrieve(generation, target, self.encode(listed, generation, rewrite), plan)

        return self._consistently(once)

    def _consistently(self, call: Callable[[OpenGeneration, str], _T]) -> _T:
        """Call a function with an open generation and the name to search; call it again if the alias moved or a hit was deleted meanwhile.

        The first tries search the alias, which costs no request to resolve it: the hits name the index that answered. The last
        try searches the concrete index, so that an alias that moves all the time cannot starve a search.
        """
        for _ in range(_TRIES - 1):
            generation = self._current()
            try:
                return call(generation, generation.index if generation.name.several else self.name)
            except (AliasMoved, hits.DocumentGone):
                self._follow(generation)
            except EngineError:
                # The alias may have moved: the other generation may have other fields, and this one may be deleted.
                if not self._follow(generation):
                    raise
        generation = self._now
        return call(generation, generation.index)

    def _current(self) -> OpenGeneration:
        """The generation to search: the open one, after a look at what the name stands for if the last look is more than a second ago."""
        if time.monotonic() - self._looked > _FRESH:
            self._looked = time.monotonic()  # other threads go on with what is open
            self._follow(self._now)
        return self._now

    def _follow(self, searched: OpenGeneration) -> bool:
        """Open the generation that the name stands for now, if it is another one than `searched`; return whether it is."""
        if self._now is not searched:  # another thread has opened it
            return True
        if self._pinned or resolve_name(self._server, self.name) == searched.name:
            return False
        self._now = self._open()
        return True

    @with_options(SearchOptions)
    def requests(self, query: str, options: SearchOptions) -> list[dict[str, Any]]:
        """The requests that `search` would send to the server, for applications that are not in Python. Arguments as `answer`.

        The first request has the key "dropped" (as in `Answer`) if the query has more terms than the server allows, and the key "left_out" if
        the search reranks or pins documents, because termweave does this with the server's answers.

        Raises:
            UsageError: An option asks for something that termweave does itself: like, pin, facets, sort, collapse, min_score, explain, ...
        """
        if local := [name for name, value in vars(options).items() if name not in SENT and value != getattr(_DEFAULTS, name)]:
            hint = "Use `search`, or leave the option out."
            raise UsageError(f"Requests cannot contain {few(local)}: termweave applies it to the server's answers.", hint)
        generation = self._current()
        engine, shown = generation.engine, generation.name
        search, encoded = single_query.of_query(single_query.prepare(generation, self.name, options), query)
        depth = next((depth for depth in depths(options.candidates) if depth >= options.last), MAX_DEPTH)
        reach = execution.first_reach(generation, depth)
        (sent,) = execution.prepare(generation, [encoded], replace(search.plan, depth=depth), reach)
        lines = shown.lines([line for body in sent.bodies.values() for line in (ALL_SHARDS, engine.without_pipeline(body))])
        # Both ask the alias: an application that keeps these requests needs them after this generation is gone.
        operation, fetch = hits.reading(["<the ids of the best after fusion>"], generation.layout)
        read = "&".join(f"{key}={value}" for key, value in hits.source_parameters(options.fields, generation).items())
        if operation == "_mget" and shown.partial:
            operation, fetch = "_search", by_ids(fetch["ids"])
        read += "&realtime=false" if operation == "_mget" else f"&routing={shown.routing}" if shown.routing else ""
        fetch = fetch if operation == "_mget" else engine.without_pipeline(shown.search(fetch))
        pins = encoded.rewritten.pinned if encoded.rewritten else ()
        left_out = [f"the reranker {search.reranking.name}"] if search.reranking else []
        left_out += [f"the pinned documents {few(pins)}"] if pins else []
        dropped = {name: list(clause.dropped) for name, clause in sent.clauses.items() if clause.dropped}
        notes = {key: value for key, value in {"dropped": dropped, "left_out": left_out}.items() if value}
        return [
            {"method": "POST", "path": f"/{self.name}/_msearch", "body": lines, **notes},
            {"method": "POST", "path": f"/{self.name}/{operation}?{read}", "body": fetch},
        ]

    def _open(self) -> OpenGeneration:
        return open_generation(self._server, self.name, self._models)
