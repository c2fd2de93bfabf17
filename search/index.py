"""An index to search: opened once, asked many times."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from termweave.errors import EngineError, ModelError, UsageError
from termweave.records import Document, Hit
from termweave.search import explanation, feedback, lineage, modes, shading, stored_statistics
from termweave.search.candidates import Candidates, Legs, gather, legs
from termweave.search.ranking import Place, Reranking, order
from termweave.signals import DocumentLayout
from termweave.signals.layout import engine_id, stored_metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from termweave.encoders import TextEncoder
    from termweave.engine import Engine
    from termweave.records import Encoding
    from termweave.search.lineage import Lineage
    from termweave.search.modes import Mode
    from termweave.signals import Signal
    from termweave.statistics import CorpusStatistics

_T = TypeVar("_T")

#: Candidates a signal gives; recall@100 is measured at this depth.
DEPTH = 100
#: `index.max_result_window`, and the k that k-NN allows.
MAX_DEPTH = 10_000
#: Fields of a hit unless others are asked for.
FIELDS = ("title", "text", "metadata")


@dataclass(frozen=True)
class _Opened:
    """One generation, ready to be searched."""

    index: str
    lineage: Lineage
    layout: DocumentLayout
    statistics: CorpusStatistics | None
    encoder: TextEncoder


class AliasMoved(EngineError):
    """While an index was searched, its alias moved to another generation."""


@dataclass(frozen=True)
class Answer:
    """Hits, and what a user should know of how they were found.

    Attributes:
        hits: Best first.
        dropped: Signal -> query terms it left out because the server allows no more clauses, heaviest first.
    """

    hits: list[Hit]
    dropped: Mapping[str, tuple[str, ...]]


class Index:
    """A live index behind its alias.

    The alias may move to a new generation at any time: an answer that comes from another index than the one opened is
    thrown away and the new generation is opened.
    """

    def __init__(self, engine: Engine, name: str, weights: str | None, dense: str | None) -> None:
        self.engine = engine
        self.name = name
        self._models = {"weights": weights, "dense": dense}
        self._now = self._open()

    @classmethod
    def open(cls, engine: Engine, name: str, *, weights: str | None = None, dense: str | None = None) -> Index:
        """Open an index. Arguments and errors as `Connection.index`."""
        return cls(engine, name, weights, dense)

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

    def search(self, query: str = "", **options: Any) -> list[Hit]:
        """The best documents for a query, best first. Arguments as `answer`."""
        return self.answer(query, **options).hits

    def answer(
        self,
        query: str = "",
        *,
        like: Sequence[str] = (),
        k: int = 10,
        mode: str = "hybrid",
        rerank: str = "none",
        candidates: int = DEPTH,
        start: int = 0,
        fields: Sequence[str] = FIELDS,
        where: Sequence[Mapping[str, Any]] = (),
        reranking: Reranking | None = None,
        explain: bool = False,
    ) -> Answer:
        """The best documents for a query, and what was left out of it.

        Args:
            query: Text; may be empty with `like`.
            like: Ids of documents known to be relevant: others like them are searched (`termweave.search.feedback`).
            k: How many.
            mode: "lexical", "weights", "dense", "hybrid" or a weighted list, ``weights:0.6,dense:0.4``.
            rerank: "none" or "rnn".
            candidates: How many each signal gives, at least `start + k`; min-max normalised scores depend on it.
            start: How many to skip.
            fields: Stored fields to bring along.
            where: Filters of the query DSL; all must hold.
            reranking: Parameters of "rnn".
            explain: Bring along how each score comes about.
        """
        options = _reranking(rerank, reranking)
        depth = max(candidates, start + k)
        if depth > MAX_DEPTH:
            raise UsageError(
                f"Hit {depth:,} cannot be reached.", f"An engine gives {MAX_DEPTH:,} candidates at most: lower -k or --from."
            )

        def once() -> Answer:
            chosen = self.mode(mode)
            liked = self._liked(query, like) if like else None
            (found,) = self.candidates(
                [liked.query if liked else query],
                list(chosen.weights),
                depth=depth,
                window=candidates,
                where=[*where, liked.left_out] if liked else where,
                with_vectors=options is not None,
            )
            if liked:
                found = replace(found, liked=liked.vectors)
            places = order(found, chosen, options)[start : start + k]
            hits = self._hits(places, found, first=start + 1, fields=fields, explain=explain)
            return Answer(hits, {name: clause.dropped for name, clause in found.clauses.items() if clause.dropped})

        return self._on_the_live_one(once)

    def explain(
        self, query: str, document: str, *, mode: str = "hybrid", rerank: str = "none", reranking: Reranking | None = None
    ) -> Hit:
        """How one document comes to its score for a query.

        A document that is not among the candidates has rank 0 and the score it would have below the last of them: a signal
        alone gives its own, several fuse to 0. Its explanation holds what each signal gives it and what it would take.

        Raises:
            UsageError: The index does not hold the document.
        """
        options = _reranking(rerank, reranking)

        def once() -> Hit:
            chosen = self.mode(mode)
            (candidates,) = self.candidates([query], list(chosen.weights), with_vectors=options is not None)
            for rank, place in enumerate(order(candidates, chosen, options), 1):
                if place.id == document:
                    return self._hits([place], candidates, first=rank, fields=FIELDS, explain=True)[0]
            # Below the last candidate of every signal: one alone gives it its own score, several fuse to 0.
            hit = self._hits([Place(document, 0.0)], candidates, first=0, fields=FIELDS, explain=True)[0]
            return explanation.beyond(hit) if chosen.single and options is None else hit

        return self._on_the_live_one(once)

    def mode(self, text: str) -> Mode:
        """Read what `--mode` says against the signals there are."""
        return modes.parse(text, self.signals)

    def encode(self, queries: Sequence[str | Encoding]) -> list[Encoding]:
        """Encode queries with the models and statistics of the generation; what is encoded already stays as it is."""
        now = self._now
        texts = [each for each in queries if isinstance(each, str)]
        encoded = iter(now.encoder.encode(texts, kind="query", statistics=now.statistics))
        return [next(encoded) if isinstance(each, str) else each for each in queries]

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
    ) -> list[Candidates]:
        """The candidates of each query from each signal, in one request.

        Raises:
            AliasMoved: The alias points at another generation by now; that one is open when this is raised.
        """
        chosen = self._signals(signals)
        prepared = self._legs(queries, chosen, depth=depth, where=where, with_vectors=with_vectors)
        try:
            found, seen = gather(self.engine, self.name, prepared, chosen, window)
        except EngineError:
            self._follow()  # the fields of another generation may be other ones
            raise
        if seen != {self._now.index}:
            self._follow()
        return [replace(each, index=self._now.index) for each in found]

    def _follow(self) -> None:
        """Open the generation that the alias points at, if it is another one."""
        if lineage.resolve(self.engine, self.name) != self._now.index:
            self._now = self._open()
            raise AliasMoved(f"The alias {self.name!r} has moved to {self._now.index!r}.", "Run it again.")

    def _on_the_live_one(self, call: Callable[[], _T]) -> _T:
        """Call again, a few times, when the alias moved in between: other models and fields hold then."""
        for _ in range(3):
            with suppress(AliasMoved):
                return call()
        return call()

    def requests(
        self, query: str, *, k: int = 10, mode: str = "hybrid", rerank: str = "none", where: Sequence[Mapping[str, Any]] = ()
    ) -> list[dict[str, Any]]:
        """The requests that `search` would send, for applications that are not in Python."""
        chosen = self._signals(list(self.mode(mode).weights))
        (prepared,) = self._legs(
            [query], chosen, depth=max(DEPTH, k), where=where, with_vectors=_reranking(rerank, None) is not None
        )
        lines: list[Any] = []
        for body in prepared.bodies.values():
            lines += [{}, body]
        fetch = {"ids": ["<the ids of the best after fusion>"]}
        return [
            {"method": "POST", "path": f"/{self.name}/_msearch", "body": lines},
            {"method": "POST", "path": f"/{self.generation}/_mget?_source_includes={','.join(FIELDS)}", "body": fetch},
        ]

    def _signals(self, names: Sequence[str]) -> list[Signal]:
        return [signal for signal in self._now.layout.signals if signal.name in names]

    def _legs(
        self,
        queries: Sequence[str | Encoding],
        signals: Sequence[Signal],
        *,
        depth: int,
        where: Sequence[Mapping[str, Any]],
        with_vectors: bool,
    ) -> list[Legs]:
        if with_vectors and "dense" not in self.signals:
            raise UsageError(
                "Reranking by neighbours needs the documents' vectors, and this index has none.",
                "Use --rerank none, or index with a dense model.",
            )
        capabilities = self.engine.capabilities
        return [
            legs(each, signals, capabilities, depth=depth, where=where, with_vectors=with_vectors)
            for each in self.encode(queries)
        ]

    def _hits(
        self, places: Sequence[Place], candidates: Candidates, *, first: int, fields: Sequence[str], explain: bool
    ) -> list[Hit]:
        if not places:
            return []
        stored = self._stored(candidates.index, [place.id for place in places], self._wanted(fields, explain=explain))
        parts = self._explained(candidates, places, stored) if explain else {}
        return [
            Hit(
                id=place.id,
                score=place.score,
                rank=rank,
                fields=_fields(stored[place.id], fields),
                signals=place.signals,
                explanation=parts.get(place.id),
                explainer=partial(self._explain_later, candidates, place),
            )
            for rank, place in enumerate(places, first)
        ]

    def _wanted(self, fields: Sequence[str], *, explain: bool) -> list[str]:
        """Stored fields to ask for: those named, and what signals explain from."""
        long = [each.replace("metadata", "metadata_long", 1) for each in fields if each.partition(".")[0] == "metadata"]
        explained = [name for signal in self._now.layout.signals for name in signal.explains_from] if explain else []
        return sorted({*fields, *long, *explained, *(("title", "text") if explain else ()), "id"})

    def _stored(self, index: str, documents: Sequence[str], fields: Sequence[str]) -> dict[str, Any]:
        """Document id -> the stored fields."""
        params = {"_source_includes": ",".join(fields)}
        answer = self.engine.request(
            "POST", f"/{index}/_mget", params=params, body={"ids": [engine_id(each) for each in documents]}
        )
        stored = {
            document: found["_source"] for document, found in zip(documents, answer["docs"], strict=True) if found.get("found")
        }
        missing = [document for document in documents if document not in stored]
        if missing:
            raise UsageError(
                f"The index {self.name!r} has no document {missing[0]!r}.",
                "Ids are those of the source; 'termweave search' shows them.",
            )
        return stored

    def _explained(self, candidates: Candidates, places: Sequence[Place], stored: Mapping[str, Any]) -> dict[str, Any]:
        words = self._words(candidates.query.text)
        explained = explanation.of(
            self.engine, candidates.index, self._now.layout.signals, candidates, places, stored=stored, words=words
        )
        for document, said in explained.items():
            source = stored[document]
            said["text"] = Document(document, source.get("text") or "", source.get("title") or "").content
            said["words"] = shading.shade(
                said["text"], said["parts"], encoder=self._now.encoder, engine=self.engine, index=candidates.index
            )
        return explained

    def _explain_later(self, candidates: Candidates, place: Place) -> Mapping[str, Any]:
        stored = self._stored(candidates.index, [place.id], self._wanted((), explain=True))
        explained: Mapping[str, Any] = self._explained(candidates, [place], stored)[place.id]
        return explained

    def _words(self, query: str) -> dict[str, str]:
        """Term -> the word of the query it stands for: people read "delay", not "delai"."""
        encoder, statistics = self._now.encoder, self._now.statistics
        if encoder.analysis is None:
            return {}
        return {each.term: query[each.start : each.end] for each in encoder.shade(query, statistics=statistics, kind="query")}

    def _open(self) -> _Opened:
        index = lineage.resolve(self.engine, self.name)
        found = lineage.read(self.engine, index)
        encoder = self._encoder(found)
        statistics = None
        if found.statistics:
            statistics = stored_statistics.load(self.engine, index, found.statistics["hash"])
        return _Opened(index, found, DocumentLayout.from_meta(found.signals), statistics, encoder)

    def _encoder(self, found: Lineage) -> TextEncoder:
        from termweave import encoders  # noqa: PLC0415 - the runtime loads only where a model is needed

        names = {
            output: (self._models[output] or found.models[output].name) if output in found.models else "none"
            for output in self._models
        }
        encoder = encoders.load(weights=names["weights"], dense=names["dense"])
        for output, model in found.models.items():
            here = encoder.models.get(output)
            if here is None:
                raise ModelError(
                    f"The index {self.name!r} needs its {output} model {model.name!r}.", f"Name its folder with --{output}."
                )
            if here.hash != model.hash:
                raise ModelError(
                    f"The index {self.name!r} was made with the {output} model {model.name!r} ({model.hash}); "
                    f"the one found here is {here.name!r} ({here.hash}).",
                    f"Name the right model folder with --{output}, or index again: scores of another model would be wrong.",
                )
        return encoder


def _reranking(name: str, parameters: Reranking | None) -> Reranking | None:
    if name == "none":
        return None
    if name != "rnn":
        raise UsageError(f"There is no reranker {name!r}.", "Known: none, rnn.")
    return parameters or Reranking()


def _fields(stored: Mapping[str, Any], wanted: Sequence[str]) -> dict[str, Any]:
    """The fields asked for, metadata in one piece."""
    roots = {each.partition(".")[0] for each in wanted}
    fields = {name: value for name, value in stored.items() if name in roots}
    if "metadata" in roots and (metadata := stored_metadata(stored)):
        fields["metadata"] = metadata
    return fields
