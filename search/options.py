"""The options of a search, declared once: `Index.search`, `explain`, `run`, `requests` and the command line make these records.

Each record checks its values, so that Python and the command line refuse the same values with the same sentences.
The `...Keywords` types are the same options as keyword arguments, for editors and type checkers; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import orjson

from termweave.errors import UsageError
from termweave.search import paging
from termweave.search.retrieval.filter_grammar import FilterExpression, parse
from termweave.search.retrieval.metadata_fields import check_order
from termweave.support.arguments import check_names

if TYPE_CHECKING:
    from termweave.search.ranking.rerankers import Reranker, Reranking

#: Filters: a text of the filter grammar, or a list of such texts and of clauses of the query DSL.
Where = str | Mapping[str, Any] | FilterExpression | Sequence[str | Mapping[str, Any] | FilterExpression]
#: Candidates that each signal gives. Recall@100 is measured at this depth.
DEPTH = 100
#: The stored fields of a hit unless others are named.
FIELDS = ("title", "text", "metadata")
_Record = TypeVar("_Record", bound="RankingOptions")
#: The most requests that `run` sends at once.
_MOST_WORKERS = 64


@dataclass(frozen=True, kw_only=True)
class RankingOptions:
    """How documents are ranked for a query.

    Attributes:
        mode: "lexical", "weights", "dense", "hybrid", a weighted list ("weights:0.6,dense:0.4") or a tuned profile. Several signals may
            name their fusion: "hybrid@rrf". None: the profile that was adopted, else "hybrid".
        rerank: "none", "rnn", "rnn@dense" (the paper's similarity), "ranker@FOLDER" (a cross-encoder; FOLDER or "hf:OWNER/NAME" for
            short), a chain ("rnn>mine") or a reranker. None: the profile's, else none.
        rerank_budget: Milliseconds in which a ranker scores the candidates of a query, best first. None: the profile's, else no limit;
            infinity: no limit.
        candidates: How many documents each signal gives. Fused scores depend on it; further pages search deeper.
        where: Filters; all must match. Each is a text such as "year>=2020 AND kind=class"
            (`termweave.search.retrieval.filter_grammar`) or a clause of the query DSL as a dict. One filter alone needs no list.
    """

    mode: str | None = None
    rerank: str | Reranker | Reranking | None = None
    rerank_budget: float | None = None
    candidates: int = DEPTH
    where: Where = ()

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value that cannot be used."""
        if not isinstance(self.mode, str | None):
            raise UsageError(
                f"mode is a text, not {type(self.mode).__name__}.", 'Several signals are one text: mode="weights,dense".'
            )
        if self.rerank_budget is not None and not (isinstance(self.rerank_budget, int | float) and self.rerank_budget >= 0):
            raise UsageError(
                f"rerank_budget is a number of milliseconds from 0 on, not {self.rerank_budget!r}.", "Write rerank_budget=80."
            )
        paging.reachable(1, 0, self.candidates)
        _keep(self, "where", _filters(self.where))


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(RankingOptions):
    """How one document is explained. `Index.explain` takes these.

    Attributes:
        explain_words: Add the words that the logit of a ranker depends on most: it scores the text once without each word.
    """

    explain_words: bool = False


@dataclass(frozen=True, kw_only=True)
class SearchOptions(RankingOptions):
    """What a search returns. `Index.search` and `Index.answer` take these.

    Attributes:
        k: How many hits.
        start: How many hits to skip.
        fields: Stored fields of each hit. `*` in a name stands for any characters: "*" reads all fields of the source.
        facets: Fields whose values are counted among the candidates (`Answer.facets`).
        sort: Sort the candidates by this field instead of by score: "year", or "year:desc" for the highest first.
        like: Ids of documents known to be relevant: search for similar ones (`termweave.search.retrieval.relevance_feedback`).
        explain: Explain each score now, in place of when `Hit.explain` is called.
        explain_words: Explain, and add the words that the logit of a ranker depends on most, as `ExplainOptions`.
        highlight: Mark the words that lexical and weights matched, and give the passage around them.
        server_fusion: Let the server fuse the signals. Its scores differ (`termweave.search.retrieval.server_fusion`) and cannot be
            explained.
    """

    k: int = 10
    start: int = 0
    fields: Sequence[str] = FIELDS
    facets: Sequence[str] = ()
    sort: str | None = None
    like: Sequence[str] = ()
    explain: bool = False
    explain_words: bool = False
    highlight: bool = False
    server_fusion: bool = False

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value that cannot be used, or for values that exclude each other."""
        super().__post_init__()
        paging.reachable(self.k, self.start, self.candidates)
        _keep(self, "fields", _texts("fields", "names", "The name of a field", self.fields))
        _keep(self, "facets", _texts("facets", "names", "The name of a field", self.facets))
        if self.sort is not None:
            if not isinstance(self.sort, str):
                raise UsageError(f"sort is the name of a field, not {type(self.sort).__name__}.", 'Write sort="year:desc".')
            check_order(self.sort)
        _keep(self, "like", _texts("like", "ids", "The id of a document", self.like))
        _keep(self, "explain", self.explain or self.explain_words)
        if self.server_fusion and self.explain:
            raise UsageError(
                "With --server-fusion the server returns only the final score, which cannot be explained.",
                "Remove --server-fusion or --explain.",
            )

    @property
    def last(self) -> int:
        """Rank of the last hit of the page."""
        return self.start + self.k


@dataclass(frozen=True, kw_only=True)
class RunOptions(RankingOptions):
    """How a run is made. `Index.run` takes these.

    Attributes:
        k: How many documents for each query.
        workers: Requests sent at once.
        name: Name of the run; "": the mode and the reranker.
    """

    k: int = DEPTH
    workers: int = 4
    name: str = ""

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value that cannot be used."""
        super().__post_init__()
        paging.reachable(self.k, 0, self.candidates)
        if not hasattr(self.workers, "__index__") or not 1 <= self.workers <= _MOST_WORKERS:
            raise UsageError(f"workers is a whole number from 1 on, at most {_MOST_WORKERS}, not {self.workers!r}.")


class RankingKeywords(TypedDict, total=False):
    """`RankingOptions` as keyword arguments."""

    mode: str | None
    rerank: str | Reranker | Reranking | None
    rerank_budget: float | None
    candidates: int
    where: Where


class ExplainKeywords(RankingKeywords, total=False):
    """`ExplainOptions` as keyword arguments."""

    explain_words: bool


class SearchKeywords(RankingKeywords, total=False):
    """`SearchOptions` as keyword arguments."""

    k: int
    start: int
    fields: Sequence[str]
    facets: Sequence[str]
    sort: str | None
    like: Sequence[str]
    explain: bool
    explain_words: bool
    highlight: bool
    server_fusion: bool


class RunKeywords(RankingKeywords, total=False):
    """`RunOptions` as keyword arguments."""

    k: int
    workers: int
    name: str


def given_as(record: type[_Record], options: Mapping[str, Any]) -> _Record:
    """Make an options record of keyword arguments.

    Raises:
        UsageError: An option does not exist, or has a value that cannot be used.
    """
    check_names(options, record, "A search has")
    return record(**options)


def check_query(query: object) -> str:
    """Return a query that is a text.

    Raises:
        UsageError: It is something else.
    """
    if not isinstance(query, str):
        raise UsageError(f"A query is text, not {type(query).__name__}.", "Queries that are encoded already go to `candidates`.")
    return query


def _keep(options: RankingOptions, name: str, value: Any) -> None:
    """Store the checked value of a field: what was given may be an iterator, which can be read only once."""
    object.__setattr__(options, name, value)


def _filters(where: Any) -> list[Mapping[str, Any] | FilterExpression]:
    given = [where] if isinstance(where, str | Mapping | FilterExpression) else _listed("where", "filters", where)
    filters = [parse(each) if isinstance(each, str) else each for each in given]
    if clauses := [each for each in filters if not isinstance(each, FilterExpression)]:
        for clause in clauses:
            _check_clause(clause)
        try:
            orjson.dumps(clauses, option=orjson.OPT_SERIALIZE_NUMPY)
        except TypeError as error:
            raise UsageError(
                f"where has a value that JSON cannot represent: {error}.", "Use texts, numbers, lists and dicts."
            ) from None
    return filters


def _check_clause(clause: Any) -> None:
    """Refuse what cannot be a clause of the query DSL: such a clause has one key, and its value is an object."""
    if not isinstance(clause, Mapping):
        raise UsageError(f"A filter is a text or a clause of the query DSL, not {type(clause).__name__}.", 'Write "year>=2020".')
    if wrong := next(((key, value) for key, value in clause.items() if not isinstance(value, Mapping)), None):
        key, value = wrong
        shown = f"{key}={value}" if isinstance(value, str | int | float) else f"{key}=VALUE"
        raise UsageError(
            f"The filter {clause!r} is no clause of the query DSL: there {key!r} has an object.",
            f'As an expression it is "{shown}".',
        )


def _texts(name: str, what: str, entry: str, given: object) -> list[str]:
    texts = _listed(name, what, given)
    if wrong := [each for each in texts if not isinstance(each, str)]:
        raise UsageError(f"{entry} is text, not {type(wrong[0]).__name__}.", f"Write {str(wrong[0])!r}.")
    return texts


def _listed(name: str, what: str, given: object) -> list[Any]:
    if given is None:
        raise UsageError(f"{name} is a list, not None.", f"Leave {name} out if you do not need it.")
    if isinstance(given, str):
        raise UsageError(f"{name} is a list of {what}, not the text {given!r}.", f"Write {name}=[{given!r}].")
    if not isinstance(given, Iterable):
        raise UsageError(f"{name} is a list of {what}, not {type(given).__name__}.", f"Write {name}=[...].")
    return list(given)
