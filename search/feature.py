"""A feature of a search: its options, and its steps on the way of a query. `search.features` has one file for each."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, is_dataclass, make_dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from termweave import plugins
from termweave.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence

    from termweave.catalog.profiles import Profile
    from termweave.records import Encoding, Hit
    from termweave.rerank.rerankers import CutShort, Reranking
    from termweave.search.opening import OpenGeneration
    from termweave.search.ranking.order import Place
    from termweave.search.retrieval.candidates import Candidates
    from termweave.search.retrieval.plan import Retrieval
    from termweave.signals.modes import Mode

    #: Encodes a block of queries.
    Encode = Callable[[Sequence[str]], list[Encoding]]

_Options = TypeVar("_Options")
#: Class of options -> the feature that they are of.
_OF_OPTIONS: dict[type[Any], type[Feature[Any]]] = {}
#: Name of a part of an answer -> the feature that gives it.
_OF_PART: dict[str, type[Feature[Any]]] = {}


@dataclass(frozen=True, slots=True)
class Search:
    """A search, ready to take queries: the generation, mode, rerankers, plan and features.

    Attributes:
        generation: The generation, opened.
        target: The name to search: the alias or the concrete index.
        mode: The signals and their weights.
        reranking: The rerankers; None: no reranking.
        plan: What each signal is asked for. Features see it grow (`Feature.plan`).
        profile: The profile that the mode comes from; None: it is spelt out.
        features: The features that take part.
    """

    generation: OpenGeneration
    target: str
    mode: Mode
    reranking: Reranking | None
    plan: Retrieval
    profile: Profile | None = None
    features: Sequence[Feature[Any]] = ()

    def encode(self, texts: Sequence[str]) -> list[Encoding]:
        """Encode queries as the features wish: the first one that takes part is asked first, and the models last."""
        encode: Encode = self.generation.encode
        for each in reversed(self.features):
            encode = partial(each.encode, inner=encode)
        return encode(texts)


@dataclass(frozen=True, slots=True)
class Ranking:
    """The ranked documents of one round. A search is repeated deeper, in another round, until the page is full.

    Attributes:
        plan: What was retrieved.
        candidates: The documents that the signals returned.
        ranked: All of them, best first.
        places: Those that earlier rounds did not find, without what features left out.
        before: Number of documents that earlier rounds found.
        complete: Whether no deeper round follows, however many pages are asked for.
        cut_short: The rerankers that ran out of time.
        shown: Those of the places that are on the page.
        stored: Id of a shown document -> the stored fields that were read of it.
        memory: What features note of the rounds of one query: feature -> anything.
    """

    plan: Retrieval
    candidates: Candidates
    ranked: Sequence[Place]
    places: Sequence[Place]
    before: int
    complete: bool = False
    cut_short: Sequence[CutShort] = ()
    shown: Sequence[Place] = ()
    stored: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    memory: MutableMapping[Any, Any] = field(default_factory=dict)

    @property
    def pinned(self) -> Sequence[str]:
        """Ids of the documents that come first; none if a feature orders the documents."""
        return () if self.plan.ordered else self.candidates.pinned


@dataclass(frozen=True, slots=True)
class Answered:
    """A query of many, or a single one, that is ranked.

    Attributes:
        query: Its id; of a single query its text, or the ids of the documents that it was made of.
        rounds: Its rounds.
    """

    query: str
    rounds: Sequence[Ranking]


@dataclass(frozen=True, slots=True)
class Report:
    """The rounds and hits of a search, on which features and notices remark.

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
    def ranked(self) -> int:
        """Number of documents that the search ranked, on all pages."""
        return self.last.before + len(self.last.places)


class Feature(Generic[_Options]):
    """A feature of a search. It has no state: blocks of queries run in threads, and what one query needs later is in `Ranking.memory`.

    Attributes:
        Options: The dataclass that declares its options.
        part: Name of what `count` adds to the answer (`Answer.parts`); "": nothing.
        ranks: Whether it belongs to how documents are ranked: then runs and explanations have its options, too, if it is another package's.
        local: Whether it is work of termweave, which the requests to the server do not show (`Index.requests`).
        options: The options of the search.
        search: The search.
    """

    Options: ClassVar[type[Any]]
    part: ClassVar[str] = ""
    local: ClassVar[bool] = True
    ranks: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Let the options and the part find their feature."""
        super().__init_subclass__(**kwargs)
        _OF_OPTIONS[cls.Options] = cls
        if cls.part:
            _OF_PART[cls.part] = cls

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

    def encode(self, texts: Sequence[str], inner: Encode) -> list[Encoding]:
        """Encode a block of queries; `inner` does it without this feature."""
        return inner(texts)

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
            ranking: The round, with what was read.
        """
        del ranking
        return hits

    def count(self, rounds: Sequence[Ranking]) -> Any:
        """The part that the feature adds to the answer, beside the hits."""
        del rounds

    @staticmethod
    def json(part: Any) -> Any:
        """The part of the answer, as JSON has it."""
        return asdict(part) if is_dataclass(part) and not isinstance(part, type) else part

    @staticmethod
    def lines(part: Any) -> Iterator[str]:
        """The part of the answer, as lines below the hits."""
        yield str(part)

    def through(self, answered: Iterator[Answered]) -> Iterator[Answered]:
        """See all answers pass, in the order of the queries: what is opened before them is closed behind them."""
        return answered

    def remarks(self, report: Report) -> Iterator[str]:
        """Sentences that warn the user if the answer is probably not what was meant."""
        del report
        yield from ()


def of_part(name: str) -> type[Feature[Any]]:
    """The feature that gives a part of an answer."""
    return _OF_PART[name]


def known_to(options: type[Any]) -> list[type[Feature[Any]]]:
    """The features whose options a class inherits, in the order of their steps: that in which it names them."""
    return [_OF_OPTIONS[base] for base in options.__mro__ if base in _OF_OPTIONS]


def features_of(options: object, search: Search) -> list[Feature[Any]]:
    """The features that take part in a search."""
    return [feature(options, search) for feature in known_to(type(options)) if feature.takes_part(options)]


def with_features_from_outside(record: type[_Options], *, ranking: bool) -> type[_Options]:
    """The options of a search with those of other packages' features (entry points `termweave.search_features`), whose steps come last.

    Args:
        record: The class of options.
        ranking: Whether only features that belong to ranking count (`Feature.ranks`).

    Raises:
        UsageError: Two features have an option of the same name, or a package cannot be imported.
    """
    outside = {name: plugins.load("search_features", name) for name in plugins.names("search_features")}
    features = {name: each for name, each in outside.items() if each.ranks or not ranking}
    taken = dict.fromkeys((each.name for each in fields(record)), "of termweave")  # type: ignore[arg-type]
    for name, feature in features.items():
        for each in fields(feature.Options):
            if each.name in taken:
                raise UsageError(
                    f"The search feature {name!r} has the option {each.name!r}, and so has another one {taken[each.name]}.",
                    f"Uninstall the package of {feature.__module__!r}, or ask its authors to rename the option.",
                )
            taken[each.name] = f"({name!r})"
    if not features:
        return record
    bases = (record, *(each.Options for each in features.values()))
    extended = make_dataclass(record.__name__, [], bases=bases, frozen=True, kw_only=True)
    extended.__module__ = record.__module__
    return extended
