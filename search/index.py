"""An index to search: opened once, asked many times."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from termweave import doors
from termweave.errors import EngineError, UsageError
from termweave.records import Encoding
from termweave.search import (
    batch,
    clause_limit,
    explanation,
    feedback,
    filters,
    highlighting,
    hits,
    lineage,
    modes,
    paging,
    profiles,
    remarks,
    server_side,
)
from termweave.search.candidates import Candidates, Legs, gather, legs
from termweave.search.execution import Execution
from termweave.search.options import checked
from termweave.search.ranking import Reranking, beneath, chosen_reranking, order
from termweave.words import readable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path
    from typing import Unpack

    from termweave.engine import Engine
    from termweave.records import Hit, Run
    from termweave.search.hits import Answer, Opened
    from termweave.search.lineage import Lineage
    from termweave.search.modes import Mode
    from termweave.search.options import ManyOptions, Options
    from termweave.search.profiles import Profile
    from termweave.signals import DocumentLayout, Signal

_T = TypeVar("_T")

#: Candidates a signal gives; recall@100 is measured at this depth.
DEPTH = 100
#: Fields of a hit unless others are asked for.
FIELDS = ("title", "text", "metadata")
PLAIN = Execution()


class AliasMoved(EngineError):
    """While an index was searched, its alias moved to another generation."""


class Index:
    """A live index behind its alias.

    The alias may move to a new generation at any time: an answer that comes from another index than the one opened is
    thrown away and the new generation is opened.
    """

    def __init__(self, engine: Engine, name: str, weights: str | Path | None, dense: str | Path | None) -> None:
        self.engine = engine
        self.name = name
        self._models = {"weights": weights, "dense": dense}
        self._now = self._open()

    @classmethod
    def open(cls, engine: Engine, name: str, *, weights: str | Path | None = None, dense: str | Path | None = None) -> Index:
        """Open an index. Arguments and errors as `Connection.index`."""
        return cls(engine, name, weights, dense)

    @classmethod
    def pinned(cls, engine: Engine, name: str, *, weights: str | Path | None = None, dense: str | Path | None = None) -> Index:
        """Open the generation that a name means now: all answers come from it, wherever the alias points later."""
        return cls(engine, lineage.resolve(engine, name), weights, dense)

    @property
    def generation(self) -> str:
        """The concrete index that answers."""
        return self._now.index

    @property
    def lineage(self) -> Lineage:
        """Where it comes from."""
        return self._now.lineage

    @property
    def layout(self) -> DocumentLayout:
        """Its signals."""
        return self._now.layout

    @property
    def signals(self) -> list[str]:
        """Names of its signals."""
        return [signal.name for signal in self._now.layout.signals]

    def __repr__(self) -> str:
        return f"<Index {self.name!r}: {self.generation}, {', '.join(self.signals)}>"

    def search(self, query: str = "", **options: Unpack[Options]) -> list[Hit]:
        """The best documents for a query, best first. Arguments as `answer`."""
        return self.answer(query, **options).hits

    def run(self, queries: Mapping[str, str], **options: Unpack[ManyOptions]) -> Run:
        """The best documents for each of many queries, query id -> text. Arguments as `termweave.search.batch.run`."""
        return batch.run(self, queries, **options)

    def answer(
        self,
        query: str = "",
        *,
        like: Sequence[str] = (),
        k: int = 10,
        mode: str | None = None,
        rerank: str | None = None,
        candidates: int = DEPTH,
        start: int = 0,
        fields: Sequence[str] = FIELDS,
        where: Sequence[Mapping[str, Any]] = (),
        reranking: Reranking | None = None,
        explain: bool = False,
        highlight: bool = False,
        two_phase: bool = False,
        server_fusion: bool = False,
    ) -> Answer:
        """The best documents for a query, and what was left out of it.

        Args:
            query: Text; may be empty with `like`.
            like: Ids of documents known to be relevant: others like them are searched (`termweave.search.feedback`).
            k: How many.
            mode: "lexical", "weights", "dense", "hybrid", a weighted list, ``weights:0.6,dense:0.4``, or a tuned profile; several
                signals may name their fusion, ``hybrid@rrf``. None: the profile that was adopted, else "hybrid".
            rerank: "none", "rnn" or "rnn@dense" (the paper's similarity); None: what the profile says, else none.
            candidates: How many each signal gives; fused scores depend on it, and pages behind them are searched for further.
            start: How many to skip.
            fields: Stored fields to bring along.
            where: Filters of the query DSL; all must hold.
            reranking: Parameters of "rnn".
            explain: Bring along how each score comes about.
            highlight: Bring along where lexical and weights matched, and the passage around it.
            two_phase: Let the heavy terms of weighted queries retrieve and the light ones rescore.
            server_fusion: Let the server fuse, which gives other scores (`search.server_side`) that cannot be explained.
        """
        like, fields, where = checked(query, like=like, fields=fields, where=where)
        last = paging.reachable(k, start, candidates)
        if server_fusion and explain:
            raise UsageError("The server says only the final score of what it fused.", "Leave --server-fusion or --explain out.")

        def once() -> Answer:
            opened = self.generation
            asked, options = self.choose(mode, rerank, reranking)
            liked = self._liked(query, like) if like else None
            names = list(asked.weights)
            words: str | Encoding = liked.query if liked else query
            chosen = server_side.answer_mode() if server_fusion else asked
            shown: list[Hit] = []
            seen: set[str] = set()
            dropped: dict[str, tuple[str, ...]] = {}
            for depth in paging.depths(candidates):
                (found,) = self.candidates(
                    [words],
                    names,
                    depth=depth,
                    window=candidates,
                    where=[*where, liked.left_out] if liked else where,
                    with_vectors=options is not None,
                    execution=Execution(two_phase, asked if server_fusion else None),
                )
                if found.index != opened:  # another thread follows the alias while a page is made of several searches
                    raise AliasMoved(f"The alias {self.name!r} has moved to {found.index!r}.", "Run it again.")
                words = found.query  # encoded once, however deep a page lies
                if liked:
                    found = replace(found, liked=liked.vectors)
                dropped |= {name: clause.dropped for name, clause in found.clauses.items() if clause.dropped}
                places = [place for place in order(found, chosen, options, last + len(seen)) if place.id not in seen]
                first, end = max(0, start - len(seen)), last - len(seen)
                page = hits.of(
                    self.engine, self._now, places[first:end], found, first=len(seen) + first + 1, fields=fields, explain=explain
                )
                if highlight:
                    page = highlighting.of(self.engine, found.index, self._now.encoder, self._signals(names), found.query, page)
                shown += page
                seen.update(place.id for place in places)
                if len(seen) >= last or all(len(ranked.scores) < depth for ranked in found.lists.values()):
                    break
            said = remarks.of(self.engine, self._now, found, shown, empty=not seen, fields=fields, where=where)
            return hits.Answer(shown, dropped, said)

        return self._on_the_live_one(once)

    def explain(
        self,
        query: str,
        document: str,
        *,
        mode: str | None = None,
        rerank: str | None = None,
        candidates: int = DEPTH,
        where: Sequence[Mapping[str, Any]] = (),
        reranking: Reranking | None = None,
    ) -> Hit:
        """How one document comes to its score for a query.

        A document that is not among the candidates has rank 0 and the score it would have below the last of them: a signal
        alone gives its own, several fuse to 0. Its explanation holds what each signal gives it and what it would take.
        `candidates` and `where`, as in `answer`, decide which these are; of a document that `where` excludes the explanation
        says ``"excluded": True``.

        Raises:
            UsageError: The index does not hold the document.
        """
        _, _, where = checked(query, like=[document], where=where)

        def once() -> Hit:
            chosen, options = self.choose(mode, rerank, reranking)
            names = list(chosen.weights)
            (found,) = self.candidates([query], names, depth=candidates, where=where, with_vectors=options is not None)
            places = order(found, chosen, options)
            for rank, place in enumerate(places, 1):
                if place.id == document:
                    return hits.of(self.engine, self._now, [place], found, first=rank, fields=FIELDS, explain=True)[0]
            excluded = bool(where) and not filters.passes(self.engine, found.index, document, where)
            if excluded:  # what the signals would give it: the clauses at hand hold the filter
                (found,) = self.candidates([found.query], names, depth=candidates)
            # Below the last candidate of every signal: one alone gives it its own score, several fuse to 0.
            below = beneath(places, document, options)
            hit = hits.of(self.engine, self._now, [below], found, first=0, fields=FIELDS, explain=True)[0]
            if excluded:
                return replace(hit, explanation={**(hit.explanation or {}), "excluded": True})
            return explanation.beyond(hit) if chosen.single and options is None else hit

        return self._on_the_live_one(once)

    def mode(self, text: str) -> Mode:
        """Read what `--mode` says against the profiles and signals there are."""
        return self.choose(text, None)[0]

    def choose(self, mode: str | None, rerank: str | None, reranking: Reranking | None = None) -> tuple[Mode, Reranking | None]:
        """How to search, of what was asked for; arguments as `answer`."""
        if not isinstance(mode, str | None):
            raise UsageError(f"mode is a text, not {type(mode).__name__}.", 'Several signals are one text: mode="weights,dense".')
        profile = profiles.find(self._now.lineage, mode)
        if profile is None:
            if mode is not None and mode.partition("@")[0] in self.lineage.profiles:
                raise UsageError(
                    f"The profile in {mode!r} names its own fusion.", f"Say --mode {mode.partition('@')[0]}, or tune again."
                )
            found = modes.parse("hybrid" if mode is None else mode, self.signals, self.lineage.profiles)
            return found, chosen_reranking(rerank, reranking)
        return profile.mode, chosen_reranking(rerank, reranking or profile.rerank)

    def adopt(self, profile: Profile) -> None:
        """Store a profile with the generation; searches use it from now on."""
        lineage.write(self.engine, self.generation, profiles.adopted(lineage.read(self.engine, self.generation), profile))
        self._now = self._open()

    def encode(self, queries: Sequence[str | Encoding]) -> list[Encoding]:
        """Encode queries with the models and statistics of the generation; what is encoded already stays as it is."""
        now, given = self._now, doors.listed(queries)
        texts = [readable(each) if isinstance(each, str) else each for each in given if not isinstance(each, Encoding)]
        encoded = iter(now.encoder.encode(texts, kind="query", statistics=now.statistics))
        return [each if isinstance(each, Encoding) else next(encoded) for each in given]

    def _liked(self, query: str, like: Sequence[str]) -> feedback.Liked:
        """A query made of stored documents, and of words where there are any."""
        words = self.encode([query])[0] if query.strip() else None
        return feedback.read(self.engine, self._now.index, list(dict.fromkeys(like)), self._now.layout.signals, words)

    def candidates(
        self,
        queries: Sequence[str | Encoding],
        signals: Sequence[str],
        *,
        depth: int = DEPTH,
        window: int | None = None,
        where: Sequence[Mapping[str, Any]] = (),
        with_vectors: bool = False,
        execution: Execution = PLAIN,
    ) -> list[Candidates]:
        """The candidates of each query from each signal, in one request.

        Raises:
            AliasMoved: The alias points at another generation by now; that one is open when this is raised.
        """
        now, where = self._now, list(where)  # another thread may open another generation meanwhile
        chosen = self._signals(signals)
        encoded = self.encode(queries)
        reach = paging.further(depth) if now.lineage.passages else None
        while True:
            prepared = self._legs(
                encoded, chosen, depth=depth, where=where, with_vectors=with_vectors, execution=execution, reach=reach
            )
            try:
                found, seen = gather(self.engine, self.name, prepared, execution.answering(chosen), window or depth)
            except EngineError as error:
                self._follow(now)  # the fields of another generation may be other ones
                filters.advise(error, where)
                raise
            if seen != {now.index}:
                self._follow(now)
            if reach is None or reach >= paging.MAX_DEPTH or not any(each.short for each in found):
                return [replace(each, index=now.index) for each in found]
            reach = paging.further(reach)  # the nearest passages are of few documents: look further

    def _follow(self, asked: Opened) -> None:
        """Open the generation that the alias points at, if it is another than the one asked."""
        if lineage.resolve(self.engine, self.name) != asked.index:
            if self._now is asked:
                self._now = self._open()
            raise AliasMoved(f"The alias {self.name!r} has moved to {self._now.index!r}.", "Run it again.")

    def _on_the_live_one(self, call: Callable[[], _T]) -> _T:
        """Call again, a few times, when the alias moved or a hit was deleted in between: other models, fields, documents hold then."""
        for _ in range(3):
            with suppress(AliasMoved, hits.DocumentGone):
                return call()
        return call()

    def requests(
        self,
        query: str,
        *,
        k: int = 10,
        mode: str | None = None,
        rerank: str | None = None,
        candidates: int = DEPTH,
        start: int = 0,
        fields: Sequence[str] = FIELDS,
        where: Sequence[Mapping[str, Any]] = (),
        two_phase: bool = False,
        server_fusion: bool = False,
    ) -> list[dict[str, Any]]:
        """The requests that `search` would send, for applications that are not in Python. Arguments as `answer`.

        The first says "dropped" as `Answer` does, where the query has more terms than the server takes.
        """
        _, fields, where = checked(query, fields=fields, where=where)
        chosen, options = self.choose(mode, rerank)
        last = paging.reachable(k, start, candidates)
        depth = next((depth for depth in paging.depths(candidates) if depth >= last), paging.MAX_DEPTH)
        (prepared,) = self._legs(
            self.encode([query]),
            self._signals(list(chosen.weights)),
            depth=depth,
            where=where,
            with_vectors=options is not None,
            execution=Execution(two_phase, chosen if server_fusion else None),
            reach=paging.further(depth) if self._now.lineage.passages else None,
        )
        lines: list[Any] = []
        for body in prepared.bodies.values():
            lines += [{}, body]
        # By the alias, as the first: what an application keeps has to hold when the next generation is live and this one is pruned.
        fetch = {"ids": ["<the ids of the best after fusion>"]}
        included = ",".join(hits.wanted(fields))
        dropped = {name: list(clause.dropped) for name, clause in prepared.clauses.items() if clause.dropped}
        return [
            {"method": "POST", "path": f"/{self.name}/_msearch", "body": lines, **({"dropped": dropped} if dropped else {})},
            {"method": "POST", "path": f"/{self.name}/_mget?_source_includes={included}&realtime=false", "body": fetch},
        ]

    def _signals(self, names: Collection[str]) -> list[Signal]:
        return [signal for signal in self._now.layout.signals if signal.name in names]

    def _legs(
        self,
        queries: Sequence[Encoding],
        signals: Sequence[Signal],
        *,
        depth: int,
        where: Sequence[Mapping[str, Any]],
        with_vectors: bool,
        execution: Execution,
        reach: int | None,
    ) -> list[Legs]:
        if with_vectors and "dense" not in self.signals:
            raise UsageError(
                "Reranking by neighbours needs the documents' vectors, and this index has none.",
                "Use --rerank none, or index with a dense model.",
            )
        execution.check(self.engine.capabilities, signals)
        capabilities = execution.room(self.engine.capabilities, signals)
        prepared = []
        for query in queries:
            fitting, left_out = clause_limit.fitted(self.engine, self._now, query, signals, where, capabilities)
            each = legs(fitting, signals, capabilities, depth=depth, where=where, with_vectors=with_vectors, reach=reach)
            if fitting is not query:
                each = clause_limit.said(each, query, left_out, signals)
            prepared.append(execution.shape(each, signals, capabilities, depth=depth, where=where))
        return prepared

    def _open(self) -> Opened:
        return hits.opened(self.engine, self.name, self._models)
