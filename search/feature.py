"""A feature of a search: its options, and its steps on the way of a query. `search.features` has one file for each."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping, Sequence

    from termweave.records import Hit
    from termweave.rerank.rerankers import CutShort, Reranking
    from termweave.search.opening import OpenGeneration
    from termweave.search.ranking.order import Place
    from termweave.search.retrieval.candidates import Candidates
    from termweave.search.retrieval.execution import Retrieval
    from termweave.signals.modes import Mode

_Options = TypeVar("_Options")
#: Class of options -> the feature that they are of.
_OF_OPTIONS: dict[type[Any], type[Feature[Any]]] = {}


@dataclass(frozen=True, slots=True)
class Search:
    """What a feature knows of a search when it begins.

    Attributes:
        generation: The generation, opened.
        target: The name to search: the alias or the concrete index.
        mode: The signals and their weights.
        reranking: The rerankers; None: no reranking.
        like: Ids of documents that the query is made of.
    """

    generation: OpenGeneration
    target: str
    mode: Mode
    reranking: Reranking | None
    like: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Ranking:
    """The ranked documents of one round. A search is repeated deeper, in another round, until the page is full.

    Attributes:
        plan: What was retrieved.
        candidates: The documents that the signals returned.
        ranked: All of them, best first.
        places: Those that earlier rounds did not find, without what features left out.
        before: Number of documents that earlier rounds found.
        cut_short: The rerankers that ran out of time.
        memory: What features note of the rounds of one query: feature -> anything.
    """

    plan: Retrieval
    candidates: Candidates
    ranked: Sequence[Place]
    places: Sequence[Place]
    before: int
    cut_short: Sequence[CutShort] = ()
    memory: MutableMapping[Any, Any] = field(default_factory=dict)

    @property
    def pinned(self) -> Sequence[str]:
        """Ids of the documents that come first; none if a feature orders the documents."""
        return () if self.plan.ordered else self.candidates.pinned


@dataclass(frozen=True, slots=True)
class Report:
    """What a search did, for remarks.

    Attributes:
        rounds: Its rounds; the last one reached the page, or there was nothing more.
        shown: The hits of the page.
    """

    rounds: Sequence[Ranking]
    shown: Sequence[Hit]

    @property
    def last(self) -> Ranking:
        """The last round."""
        return self.rounds[-1]

    @property
    def found(self) -> int:
        """How many documents the search ranked, on all pages."""
        return self.last.before + len(self.last.places)


class Feature(Generic[_Options]):
    """A feature of a search. It has no state: blocks of queries run in threads, and what one query needs later is in `Ranking.memory`.

    Attributes:
        Options: The dataclass that declares its options.
        part: The field of `Answer` that `count` gives; "": none.
        options: The options of the search.
        search: The search.
    """

    Options: ClassVar[type[Any]]
    part: ClassVar[str] = ""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Let the options find their feature."""
        super().__init_subclass__(**kwargs)
        _OF_OPTIONS[cls.Options] = cls

    def __init__(self, options: _Options, search: Search) -> None:
        """Serve one search."""
        self.options, self.search = options, search

    @classmethod
    def takes_part(cls, options: Any) -> bool:
        """Whether it takes part in a search with these options: one of its own is set."""
        return isinstance(options, cls.Options) and any(getattr(options, each.name) for each in fields(cls.Options))

    def plan(self, plan: Retrieval) -> Retrieval:
        """Say what is to be retrieved. Refuse what this index cannot do, before anything is sent."""
        return plan

    def rank(self, ranking: Ranking) -> Ranking:
        """Leave ranked documents out, or change their order."""
        return ranking

    def enough(self, ranking: Ranking) -> bool:
        """Whether a deeper search finds nothing else."""
        del ranking
        return False

    def show(self, hits: list[Hit], ranking: Ranking) -> list[Hit]:
        """Add to the hits of the page.

        Args:
            hits: Those of one round.
            ranking: The round.
        """
        del ranking
        return hits

    def count(self, rounds: Sequence[Ranking]) -> Any:
        """What it adds to the answer, beside the hits."""
        del rounds

    def remarks(self, report: Report) -> Iterator[str]:
        """Sentences that warn the user if the answer is probably not what was meant."""
        del report
        yield from ()


def known_to(options: type[Any]) -> list[type[Feature[Any]]]:
    """The features whose options a class inherits, in the order of their steps: that in which it names them."""
    return [_OF_OPTIONS[base] for base in options.__mro__ if base in _OF_OPTIONS]


def features_of(options: object, search: Search) -> list[Feature[Any]]:
    """The features that take part in a search."""
    return [feature(options, search) for feature in known_to(type(options)) if feature.takes_part(options)]
