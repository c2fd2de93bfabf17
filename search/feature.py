"""The contract of a search feature: its options, and its steps while a query is answered. `search.features` has one file for each feature."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, make_dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, get_args, get_origin

from termweave import plugins
from termweave.errors import UsageError

if TYPE_CHECKING:
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
    """Everything that a search needs before its queries come: the generation, mode, rerankers, plan and features.

    Attributes:
        generation: The opened generation.
        target: The name to which requests are sent: the alias or the concrete index.
        mode: The signals and their weights.
        reranking: The rerankers; None: no reranking.
        plan: What each signal is asked for. Each feature may add to the plan (`Feature.plan`).
        profile: The profile that the mode names; None: the mode names signals.
        features: The features that take part in this search.
    """

    generation: OpenGeneration
    target: str
    mode: Mode
    reranking: Reranking | None
    plan: Retrieval
    profile: Profile | None = None
    features: Sequence[Feature[Any]] = ()

    def encode(self, texts: Sequence[str]) -> list[Encoding]:
        """Encode queries. Each feature may change how: the first feature is asked first, and the models of the generation last."""
        encode: Encode = self.generation.encode
        for each in reversed(self.features):
            encode = partial(each.encode, inner=encode)
        return encode(texts)


@dataclass(frozen=True, slots=True)
class Ranking:
    """The ranked documents of one round. A round searches all signals to one depth; further, deeper rounds follow until the page is full.

    Attributes:
        plan: What the signals were asked for.
        candidates: The documents that the signals returned in this round.
        ranked: All candidates of this round, best first.
        places: The ranked documents that earlier rounds did not find, without documents that features left out.
        before: Number of documents that earlier rounds found.
        complete: Whether no deeper round could follow, however many pages are asked for.
        cut_short: The rerankers whose time budget ended early.
        shown: The places of this round that are on the page.
        stored: Id of a shown document -> the stored fields that were read of it.
        memory: What features remember from round to round of one query: feature -> anything.
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
        """Ids of the pinned documents, which come first; none if a feature orders the documents, as `sort` does."""
        return () if self.plan.ordered else self.candidates.pinned


@dataclass(frozen=True, slots=True)
class Answered:
    """A query with its ranked documents.

    Attributes:
        query: Id of the query; for a single search the query's text, or the ids of the documents that the query was made of.
        rounds: The rounds of the query, each with its ranked documents.
    """

    query: str
    rounds: Sequence[Ranking]


@dataclass(frozen=True, slots=True)
class Report:
    """The rounds and hits of a finished search, about which features and notices make remarks.

    Attributes:
        rounds: The rounds of the search. With the last round the page was full, or no further documents were found.
        shown: The hits of the page.
    """

    rounds: Sequence[Ranking]
    shown: Sequence[Hit]

    @property
    def last(self) -> Ranking:
        """The last ranking: a search that pages deeply ranks several times, each time more candidates."""
        return self.rounds[-1]

    @property
    def ranked(self) -> int:
        """Number of documents that the search ranked in all rounds, on all pages."""
        return self.last.before + len(self.last.places)


class Feature(Generic[_Options]):
    """The base class of search features, such as facets. An object serves one search, and keeps no state of single queries.

    Blocks of queries run in threads; what a feature must remember of one query goes into `Ranking.memory`.

    Attributes:
        Options: The dataclass that declares the options of the feature; by default the argument of the base class: `Feature[FacetOptions]`.
        part: Name under which the result of `count` is in the answer (`Answer.parts`); "": the feature adds no part.
        ranks: Whether the feature affects the ranking. If so, runs and explanations have the options of a feature of another package, too.
        always: Whether the feature takes part in every search, also where none of its options is set.
        local: Whether termweave itself does the work, so that the requests to the server do not show the feature (`Index.requests`).
        options: The options of the search, with those of the feature.
        search: The search that the feature serves.
    """

    Options: ClassVar[type[Any]]
    part: ClassVar[str] = ""
    always: ClassVar[bool] = False
    local: ClassVar[bool] = True
    ranks: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Register the feature under its class of options and under the name of its part."""
        super().__init_subclass__(**kwargs)
        if "Options" not in vars(cls):
            for base in vars(cls).get("__orig_bases__", ()):
                if get_origin(base) is Feature:
                    (cls.Options,) = get_args(base)
        _OF_OPTIONS[cls.Options] = cls
        if cls.part:
            _OF_PART[cls.part] = cls

    def __init__(self, options: _Options, search: Search) -> None:
        """Make the feature for one search."""
        self.options, self.search = options, search

    @classmethod
    def takes_part(cls, options: Any) -> bool:
        """Whether the feature takes part in a search with these options; by default if `always`, or if one of its own options is set."""
        return isinstance(options, cls.Options) and (
            cls.always or any(getattr(options, each.name) for each in fields(cls.Options))
        )

    def plan(self, plan: Retrieval) -> Retrieval:
        """Return the plan with what the feature needs. An index that cannot do this is refused here, before anything is sent."""
        return plan

    def encode(self, texts: Sequence[str], inner: Encode) -> list[Encoding]:
        """Encode a block of queries; `inner` encodes queries as without this feature."""
        return inner(texts)

    def rank(self, ranking: Ranking) -> Ranking:
        """Return the round with some ranked documents left out, or in another order."""
        return ranking

    def enough(self, ranking: Ranking) -> bool:
        """Whether the search is finished with this round, because a deeper search would find nothing that the feature keeps."""
        del ranking
        return False

    def show(self, hits: list[Hit], ranking: Ranking) -> list[Hit]:
        """Return the hits of the page with what the feature adds to each hit.

        Args:
            hits: The hits of the page that come from one round.
            ranking: The round, with the stored fields that were read.
        """
        del ranking
        return hits

    def count(self, rounds: Sequence[Ranking]) -> Any:
        """The feature's part of the answer, beside the hits; None: it adds no part."""
        del rounds

    @staticmethod
    def json(part: Any) -> Any:
        """Turn the feature's part of the answer into JSON values."""
        return asdict(part) if is_dataclass(part) and not isinstance(part, type) else part

    @staticmethod
    def lines(part: Any) -> Iterator[str]:
        """Turn the feature's part of the answer into lines that are printed below the hits."""
        yield str(part)

    def through(self, answered: Iterator[Answered]) -> Iterator[Answered]:
        """Pass on the answers in the order of the queries. A feature may open a file before the first answer, and close it after the last."""
        return answered

    def remarks(self, report: Report) -> Iterator[str]:
        """Sentences that warn the user where the answer is probably not what he meant."""
        del report
        yield from ()


def of_part(name: str) -> type[Feature[Any]]:
    """The feature that gives the part of this name in an answer."""
    return _OF_PART[name]


def known_to(options: type[Any]) -> list[type[Feature[Any]]]:
    """The features whose options a class of options inherits, in the order in which the class names them, which is the order of their steps."""
    return [_OF_OPTIONS[base] for base in options.__mro__ if base in _OF_OPTIONS]


def with_features_from_outside(record: type[_Options], *, ranking: bool) -> type[_Options]:
    """Extend a class of search options by the options of other packages' features (entry points `termweave.search_features`).

    The steps of these features come last.

    Args:
        record: The class of options that is extended.
        ranking: Whether only features that affect the ranking are added (`Feature.ranks`).

    Raises:
        UsageError: Two features have an option of the same name, or a package cannot be imported.
    """
    outside = {name: plugins.load("search_features", name) for name in plugins.names("search_features")}
    features = {name: each for name, each in outside.items() if each.ranks or not ranking}
    taken = dict.fromkeys((each.name for each in fields(record)), "one of termweave")  # type: ignore[arg-type]
    for name, feature in features.items():
        for each in fields(feature.Options):
            if each.name in taken:
                hint = f"Uninstall the package of {feature.__module__!r}, or ask its authors to rename the option."
                raise UsageError(f"The search feature {name!r} and {taken[each.name]} both have the option {each.name!r}.", hint)
            taken[each.name] = repr(name)
    if not features:
        return record
    bases = (record, *(each.Options for each in features.values()))
    extended = make_dataclass(record.__name__, [], bases=bases, frozen=True, kw_only=True)
    extended.__module__ = record.__module__
    return extended
