"""The options of a search, each declared once: Python's keyword arguments, the command line, checks and help read these records."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Concatenate, ParamSpec, Protocol, TypeVar, overload

from annotated_types import Ge, Le

from termweave.declared_settings import Setting, check
from termweave.errors import UsageError
from termweave.search.feature import known_to, with_features_from_outside
from termweave.search.features.collapse import CollapseOptions
from termweave.search.features.explain import ExplanationOptions
from termweave.search.features.facets import FacetOptions
from termweave.search.features.highlight import HighlightOptions
from termweave.search.features.like import LikeOptions
from termweave.search.features.log_features import LogOptions
from termweave.search.features.minimum_score import MinimumScoreOptions
from termweave.search.features.passages import PassageOptions
from termweave.search.features.pin import PinOptions
from termweave.search.features.server_fusion import ServerFusionOptions
from termweave.search.features.sort import SortOptions
from termweave.search.features.totals import TotalsOptions
from termweave.search.features.word_effects import WordEffectOptions
from termweave.search.filters.filter_option import FilterOptions
from termweave.search.retrieval.plan import MAX_DEPTH
from termweave.search.rewriting.rewriting_option import RewritingOptions
from termweave.support.arguments import check_names, field_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from termweave.rerank.rerankers import Reranker, Reranking

    Milliseconds = float
else:  # a command reads the annotations to print its help, and must not wait for these modules; no budget is infinity
    Reranker = Reranking = Milliseconds = Any

_Fields = ParamSpec("_Fields")
_Record_co = TypeVar("_Record_co", covariant=True)
_Self = TypeVar("_Self")
_First = TypeVar("_First")
_Second = TypeVar("_Second")
_Result = TypeVar("_Result")
#: Candidates that each signal gives. Recall@100 is measured at this depth.
DEPTH = 100
#: The stored fields of a hit unless others are named.
FIELDS = ("title", "text", "metadata")


def _rerank(value: Any) -> Any:
    """Return the value of `rerank` after the checks that need no index; a "ranker" is not checked, because a profile may define it."""
    from termweave.rerank import rerankers  # noqa: PLC0415 - not needed by `--help`

    if not isinstance(value, str):
        rerankers.choose(value)
        return value
    for stage in rerankers.split_chain(value):
        if stage.partition("@")[0] != "ranker":
            rerankers.choose(stage)
    return value


def _milliseconds(value: Any) -> Any:
    """Turn a time such as "80ms" or "0.5s" into milliseconds, and "none" into infinity; return numbers and None as they are."""
    if isinstance(value, str):
        if value.strip() == "none":
            return float("inf")
        match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s)", value.strip(), re.ASCII)
        value = float(match[1]) * (1000 if match[2] == "s" else 1) if match else value
    if value is not None and not (isinstance(value, int | float) and value >= 0):
        hint = "Write 80ms or 0.5s (in Python: a number of milliseconds, rerank_budget=80)."
        raise UsageError(f"{value!r} is not a time.", hint)
    return value


@dataclass(frozen=True, kw_only=True)
class RankingOptions(RewritingOptions, FilterOptions):
    """The options of ranking: mode, rerankers and depth.

    Attributes:
        mode: "lexical", "weights", "dense", "hybrid", a weighted list ("weights:0.6,dense:0.4") or a tuned profile. Several signals may
            name their fusion: "hybrid@rrf". None: the profile that was adopted, else "hybrid".
        rerank: "none", "rnn", "rnn@dense" (the paper's similarity), "ranker@FOLDER" (a cross-encoder; FOLDER or "hf:OWNER/NAME" for
            short), a chain ("rnn>mine") or a reranker. None: the profile's, else none.
        rerank_budget: Milliseconds in which a ranker scores the candidates of a query, best first. None: the profile's, else no limit;
            infinity: no limit.
        candidates: How many documents each signal gives. Fused scores depend on it; further pages search deeper.
    """

    heading: ClassVar[str] = "Ranking"

    mode: Annotated[
        str | None,
        Setting(
            "lexical, weights, learned, dense, hybrid, or a weighted list (weights:0.6,dense:0.4); after @ the fusion: "
            "adaptive, min-max, z-score, rrf or sum (hybrid@rrf). Or the name of a profile that 'termweave tune' made.",
            default_text="the adopted profile, else hybrid",
        ),
    ] = None
    rerank: Annotated[
        str | Reranker | Reranking | None,
        Setting(
            "none, rnn (reciprocal nearest neighbours), rnn@dense (which mixes in the inner product, as the paper does, in place of the "
            "fused score), ranker@FOLDER or ranker@hf:OWNER/NAME (a cross-encoder; FOLDER or hf:OWNER/NAME for short), ltr@FOLDER (trees over "
            "scores and metadata), boost@FIELD:SHARE, decay@FIELD:SHARE:30d (dates), match@FIELD:SHARE (words), diverse@SHARE, a reranker of an installed "
            "package, or a chain: 'rnn>NAME', 'profile>boost@votes:0.2'.",
            "NAME",
            "what the profile says, else none",
            convert=_rerank,
        ),
    ] = None
    rerank_budget: Annotated[
        Milliseconds | None,
        Setting(
            "Time in which a ranker scores the candidates of a query, in the order so far: 80ms or 0.5s. Documents that it cannot score in "
            "time follow in their former order. Loading the model does not count. none: no limit.",
            "TIME",
            "what the profile says, else none",
            convert=_milliseconds,
        ),
    ] = None
    candidates: Annotated[
        int,
        Setting(
            "How many documents each signal returns. Fused scores depend on this number; later pages ask for more.",
            heading="Candidates",
        ),
        Ge(1),
        Le(MAX_DEPTH),
    ] = DEPTH

    def __post_init__(self) -> None:
        """Raise `UsageError` for an option with a value that cannot be used."""
        check(self)


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(
    WordEffectOptions,
    RankingOptions,
):
    """The options of an explanation. `Index.explain` takes these."""


@dataclass(frozen=True, kw_only=True)
class SearchOptions(
    # The options of features, in the order of their steps.
    ServerFusionOptions,
    LogOptions,
    LikeOptions,
    PinOptions,
    MinimumScoreOptions,
    SortOptions,
    CollapseOptions,
    ExplanationOptions,
    WordEffectOptions,
    PassageOptions,
    HighlightOptions,
    FacetOptions,
    TotalsOptions,
    RankingOptions,
):
    """The options of a search. `Index.search` and `Index.answer` take these.

    Attributes:
        k: How many hits.
        start: How many hits to skip.
        fields: Stored fields of each hit. `*` in a name stands for any characters: "*" reads all fields of the source.
    """

    heading: ClassVar[str] = "Hits"

    k: Annotated[
        int, Setting("How many hits.", default_text="10; with --queries 100", heading="Options", flag="-k"), Ge(1), Le(MAX_DEPTH)
    ] = 10
    start: Annotated[int, Setting("How many hits to skip.", heading="Options", flag="--from"), Ge(0), Le(MAX_DEPTH)] = 0
    fields: Annotated[
        Sequence[str],
        Setting(
            "Stored fields of each hit, separated by commas; an entry of the metadata is named as in --filter, and '*' in a name stands for "
            "any characters ('*': all fields of the source). In a terminal, these fields are shown on a line below each hit.",
            "NAMES",
            convert=field_names("fields"),
        ),
    ] = FIELDS

    def __post_init__(self) -> None:
        """Raise `UsageError` for an option with a value that cannot be used, or for a page beyond the server's limit."""
        super().__post_init__()
        if self.last > MAX_DEPTH:
            hint = f"A server returns at most {MAX_DEPTH:,} candidates: lower -k or --from."
            raise UsageError(f"Hit {self.last:,} cannot be reached.", hint)

    @property
    def last(self) -> int:
        """Rank of the last hit of the page."""
        return self.start + self.k


if not TYPE_CHECKING:
    SearchOptions = with_features_from_outside(SearchOptions, ranking=False)
    ExplainOptions = with_features_from_outside(ExplainOptions, ranking=True)

#: The options that the requests of a search depend on; termweave itself does the rest, before or after them.
SENT = frozenset(each.name for each in fields(SearchOptions)).difference(
    *([each.name for each in fields(feature.Options)] for feature in known_to(SearchOptions) if feature.local)
)


@dataclass(frozen=True, kw_only=True)
class RunOptions(
    LogOptions,
    RankingOptions,
):
    """The options of a run. `Index.run` takes these.

    Attributes:
        k: How many documents for each query.
        workers: Requests sent at once.
        name: Name of the run; "": the mode and the reranker.
    """

    heading: ClassVar[str] = "Many queries"

    k: Annotated[int, Setting("How many documents for each query."), Ge(1), Le(MAX_DEPTH)] = DEPTH
    workers: Annotated[int, Setting("Requests sent at once."), Ge(1), Le(64)] = 4
    name: str = ""


if not TYPE_CHECKING:
    RunOptions = with_features_from_outside(RunOptions, ranking=True)


def check_query(query: object) -> str:
    """Return a query after a check that it is a text.

    Raises:
        UsageError: The query is not a text.
    """
    if not isinstance(query, str):
        raise UsageError(f"A query is text, not {type(query).__name__}.", "Queries that are encoded already go to `candidates`.")
    return query


class _Decorator(Protocol[_Fields, _Record_co]):
    """The type of a decorator that replaces the last argument of a method, a record, by keyword arguments."""

    @overload
    def __call__(
        self, method: Callable[[_Self, _First, _Record_co], _Result]
    ) -> Callable[Concatenate[_Self, _First, _Fields], _Result]: ...
    @overload
    def __call__(
        self, method: Callable[[_Self, _First, _Second, _Record_co], _Result]
    ) -> Callable[Concatenate[_Self, _First, _Second, _Fields], _Result]: ...


def with_options(record: Callable[_Fields, _Record_co], default: str | None = None) -> _Decorator[_Fields, _Record_co]:
    """Make a decorator for methods whose last argument is a record of options: callers give the fields of the record as keyword arguments.

    The decorated method has a signature and a documentation with the record's fields.

    Args:
        record: The class of the record, a dataclass. Its base classes describe their fields under "Attributes:".
        default: Default value of the method's first argument; None: the argument has no default.
    """
    options_class: type[Any] = record  # type: ignore[assignment]

    def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
        this, *arguments, _ = inspect.signature(method).parameters.values()
        if default is not None:
            arguments[0] = arguments[0].replace(default=default)
        names = [each.name for each in arguments]

        @functools.wraps(method)
        def call(self: Any, *positional: Any, **keywords: Any) -> Any:
            if len(positional) > len(names):
                example = f"k={positional[-1]!r}" if hasattr(options_class, "k") else 'mode="lexical"'
                raise UsageError(f"{method.__name__}() takes its options by name.", f"Write {example}, for example.")
            first = {name: keywords.pop(name) for name in names if name in keywords}
            if default is not None and not positional:
                first.setdefault(names[0], default)
            check_names(keywords, options_class, "A search has", names)
            return method(self, *positional, **first, options=options_class(**keywords))

        options = [
            inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=each.type)
            for each in fields(options_class)
        ]
        vars(call)["__signature__"] = inspect.signature(method).replace(parameters=[this, *arguments, *options])
        described = "".join(_described(each) for each in reversed(options_class.__mro__))
        call.__doc__ = f"{inspect.cleandoc(method.__doc__ or '')}\n\nOptions:\n{described}"
        return call

    return decorate


def _described(record: type[Any]) -> str:
    """The description of the fields of one class, from its docstring, indented for another docstring."""
    _, heading, entries = (record.__doc__ or "").partition("Attributes:\n")
    return "".join(f"{line[4:]}\n" for line in entries.rstrip().splitlines()) if heading else ""
