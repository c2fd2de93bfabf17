"""The options of a search, each declared once: Python's keyword arguments, the command line, checks and help read these records."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Ge, Le

from termweave.declared_settings import Setting, check
from termweave.errors import UsageError
from termweave.search.features.collapse import CollapseOptions
from termweave.search.features.facets import FacetOptions
from termweave.search.features.highlight import HighlightOptions
from termweave.search.features.minimum_score import MinimumScoreOptions
from termweave.search.features.passages import PassageOptions
from termweave.search.features.pin import PinOptions
from termweave.search.features.sort import SortOptions
from termweave.search.features.totals import TotalsOptions
from termweave.search.option_lists import field_names, listed, texts
from termweave.search.paging import MAX_DEPTH

if TYPE_CHECKING:
    from termweave.rerank.rerankers import Reranker, Reranking
    from termweave.search.retrieval.filter_grammar import FilterExpression
    from termweave.search.rewriting.configuration import Rewriting

    Milliseconds = float
else:  # a command reads the annotations to print its help, and must not wait for these modules; no budget is infinity
    Reranker = Reranking = FilterExpression = Rewriting = Milliseconds = Any

#: Filters: a text of the filter grammar, or a list of such texts and of clauses of the query DSL.
Where = str | Mapping[str, Any] | FilterExpression | Sequence[str | Mapping[str, Any] | FilterExpression]
#: Candidates that each signal gives. Recall@100 is measured at this depth.
DEPTH = 100
#: The stored fields of a hit unless others are named.
FIELDS = ("title", "text", "metadata")
_EXPLAIN_WORDS = Setting(
    "Explain, with the words that the logit of a ranker depends on most. It scores each hit once without each of up to 64 words, which "
    "takes seconds.",
    heading="Options",
)


def _feature_file(value: Any) -> Any:
    from termweave.search.results.feature_log import check_name  # noqa: PLC0415 - not needed by `--help`

    return None if value is None else str(check_name(value))


#: One declaration, because explanations rank, too, and log nothing.
_LogFeatures = Annotated[
    str | None,
    Setting(
        "Write what a feature ranker (ltr) sees of each candidate to this file, for other tools: NAME.csv, or NAME.txt in the format of "
        "SVMrank and LETOR. An earlier file is replaced.",
        "FILE",
        heading="Options",
        convert=_feature_file,
    ),
]


def _rerank(value: Any) -> Any:
    """Check a reranker as far as that is possible without the index: a "ranker" may be that of the profile."""
    from termweave.rerank import rerankers  # noqa: PLC0415 - not needed by `--help`

    if not isinstance(value, str):
        rerankers.choose(value)
        return value
    for stage in rerankers.split_chain(value):
        if stage.partition("@")[0] != "ranker":
            rerankers.choose(stage)
    return value


def _milliseconds(value: Any) -> Any:
    """Return milliseconds: "80ms" and "0.5s" are read, and "none" is infinity."""
    if isinstance(value, str):
        if value.strip() == "none":
            return float("inf")
        match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s)", value.strip(), re.ASCII)
        value = float(match[1]) * (1000 if match[2] == "s" else 1) if match else value
    if value is not None and not (isinstance(value, int | float) and value >= 0):
        raise UsageError(
            f"{value!r} is not a time.", "Write 80ms or 0.5s (in Python: a number of milliseconds, rerank_budget=80)."
        )
    return value


def _rewriting(value: Any) -> Any:
    from termweave.search.rewriting.configuration import parse  # noqa: PLC0415 - not needed by `--help`

    return parse(value)


def _filters(where: Any) -> list[Mapping[str, Any] | FilterExpression]:
    """Parse filters, and refuse what cannot be a clause of the query DSL."""
    import orjson  # noqa: PLC0415 - not needed by `--help`

    from termweave.search.retrieval.filter_grammar import FilterExpression, parse  # noqa: PLC0415

    given = [where] if isinstance(where, str | Mapping | FilterExpression) else listed("where", "filters", where)
    filters: list[Mapping[str, Any] | FilterExpression] = []
    for each in given:
        if isinstance(each, FilterExpression):
            filters.append(each)
        elif isinstance(each, str) and not each.lstrip().startswith("{"):
            filters.append(parse(each))
        else:
            filters.append(_clause(each))
    try:
        orjson.dumps([each for each in filters if isinstance(each, Mapping)], option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError as error:
        raise UsageError(
            f"where has a value that JSON cannot represent: {error}.", "Use texts, numbers, lists and dicts."
        ) from None
    return filters


def _clause(clause: Any) -> Mapping[str, Any]:
    """Return a clause of the query DSL, which may be written as JSON: it has one key, and its value is an object."""
    import orjson  # noqa: PLC0415 - not needed by `--help`

    if isinstance(clause, str):
        try:
            clause = orjson.loads(clause)
        except orjson.JSONDecodeError as error:
            raise UsageError(
                f"The filter {clause!r} is not JSON: {error}.", 'Write {"range": {"typed.year": {"gte": 2020}}}, or year>=2020.'
            ) from None
    if not isinstance(clause, Mapping):
        raise UsageError(f"A filter is a text or a clause of the query DSL, not {type(clause).__name__}.", 'Write "year>=2020".')
    if len(clause) != 1:
        raise UsageError(
            f"The filter {clause!r} is not one clause of the query DSL.", 'Write {"range": {"typed.year": {"gte": 2020}}}.'
        )
    ((key, value),) = clause.items()
    if not isinstance(value, Mapping):
        shown = f"{key}={value}" if isinstance(value, str | int | float) else f"{key}=VALUE"
        raise UsageError(
            f"The filter {clause!r} is not a clause of the query DSL: there {key!r} has an object.",
            f'As an expression it is "{shown}".',
        )
    return clause


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
        rewrite: What is done with a query before it is searched: "operators", "spelling", "synonyms@FILE", "pins@FILE", several with
            commas, or "none" (`termweave.search.rewriting`). None: what the profile says, else nothing.
        candidates: How many documents each signal gives. Fused scores depend on it; further pages search deeper.
        where: Filters; all must match. Each is a text such as "year>=2020 AND kind=class"
            (`termweave.search.retrieval.filter_grammar`) or a clause of the query DSL as a dict or as JSON. One filter alone needs no list.
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
    rewrite: Annotated[
        str | Rewriting | None,
        Setting(
            'Read the query as it was typed: operators ("a phrase" must occur, -word must not), spelling (a word that no document holds is '
            "replaced by the nearest that one does), synonyms@FILE (Solr's format), pins@FILE (a table of query, document, pin or hide: what comes "
            "first and what never appears), or several: operators,spelling. none: nothing.",
            "HOW",
            "what the profile says, else nothing",
            convert=_rewriting,
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
    where: Annotated[
        Where,
        Setting(
            'Only documents that pass, for example kind=function or "year>=2020 AND (lang=en OR lang=de) AND NOT exists(draft)". '
            "Operators: = != < <= > >=. Or a clause of the query DSL (JSON), for which metadata are texts in metadata.FIELD and typed "
            "values in typed.FIELD. Given several times, all must pass.",
            "EXPRESSION",
            heading="Candidates",
            flag="--filter",
            repeatable=True,
            convert=_filters,
        ),
    ] = ()

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value that cannot be used."""
        check(self)


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(RankingOptions):
    """How one document is explained. `Index.explain` takes these.

    Attributes:
        explain_words: Add the words that the logit of a ranker depends on most: it scores the text once without each word.
    """

    explain_words: Annotated[bool, _EXPLAIN_WORDS] = False


@dataclass(frozen=True, kw_only=True)
class SearchOptions(
    # The options of features, in the order of their steps.
    PinOptions,
    MinimumScoreOptions,
    SortOptions,
    CollapseOptions,
    PassageOptions,
    HighlightOptions,
    FacetOptions,
    TotalsOptions,
    RankingOptions,
):
    """What a search returns. `Index.search` and `Index.answer` take these.

    Attributes:
        k: How many hits.
        start: How many hits to skip.
        explain: Explain each score now, in place of when `Hit.explain` is called.
        explain_words: Explain, and add the words that the logit of a ranker depends on most, as `ExplainOptions`.
        like: Ids of documents known to be relevant: search for similar ones (`termweave.search.retrieval.relevance_feedback`).
        fields: Stored fields of each hit. `*` in a name stands for any characters: "*" reads all fields of the source.
        server_fusion: Let the server fuse the signals. Its scores differ (`termweave.search.retrieval.server_fusion`) and cannot be
            explained.
        log_features: A file that gets the features of the candidates (`termweave.search.results.feature_log`); it is replaced.
    """

    heading: ClassVar[str] = "Hits"

    k: Annotated[
        int, Setting("How many hits.", default_text="10; with --queries 100", heading="Options", flag="-k"), Ge(1), Le(MAX_DEPTH)
    ] = 10
    start: Annotated[int, Setting("How many hits to skip.", heading="Options", flag="--from"), Ge(0), Le(MAX_DEPTH)] = 0
    explain: Annotated[
        bool, Setting("Show the parts of each score, and shade the words that contributed to it.", heading="Options")
    ] = False
    explain_words: Annotated[bool, _EXPLAIN_WORDS] = False
    like: Annotated[
        Sequence[str],
        Setting(
            "Search for documents similar to this one, with or without a QUERY; repeatable.",
            "ID",
            heading="Options",
            repeatable=True,
            convert=lambda ids: texts("like", "ids", "The id of a document", ids),
        ),
    ] = ()
    fields: Annotated[
        Sequence[str],
        Setting(
            "Stored fields of each hit, separated by commas; an entry of the metadata is named as in --filter, and '*' in a name stands for "
            "any characters ('*': all fields of the source). In a terminal, these fields are shown on a line below each hit.",
            "NAMES",
            convert=field_names("fields"),
        ),
    ] = FIELDS
    server_fusion: Annotated[
        bool,
        Setting(
            "Let the server fuse the signals by min-max (needs the plugin neural-search). The lowest hit of a list counts 0, so that "
            "scores and order differ from hybrid@min-max if few documents match. Not for passages."
        ),
    ] = False
    log_features: _LogFeatures = None

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value that cannot be used, or for values that exclude each other."""
        super().__post_init__()
        if self.last > MAX_DEPTH:
            raise UsageError(
                f"Hit {self.last:,} cannot be reached.",
                f"A server gives at most {MAX_DEPTH:,} candidates: lower -k or --from.",
            )
        if self.server_fusion and self.log_features:
            raise UsageError(
                "With --server-fusion the server returns one list, and features are of each signal.",
                "Remove --server-fusion or --log-features.",
            )
        object.__setattr__(self, "explain", self.explain or self.explain_words)
        if self.server_fusion and self.explain:
            from termweave.search.retrieval.server_fusion import unexplained  # noqa: PLC0415 - not needed by `--help`

            raise unexplained()

    @property
    def last(self) -> int:
        """Rank of the last hit of the page."""
        return self.start + self.k


#: The options that the requests of a search depend on; termweave itself does the rest, before or after them.
SENT = frozenset({"k", "start", "highlight", "fields", "server_fusion", *(each.name for each in fields(RankingOptions))})


@dataclass(frozen=True, kw_only=True)
class RunOptions(RankingOptions):
    """How a run is made. `Index.run` takes these.

    Attributes:
        k: How many documents for each query.
        workers: Requests sent at once.
        name: Name of the run; "": the mode and the reranker.
        log_features: A file that gets the features of the candidates of each query, as in `SearchOptions`.
    """

    heading: ClassVar[str] = "Many queries"

    k: Annotated[int, Setting("How many documents for each query."), Ge(1), Le(MAX_DEPTH)] = DEPTH
    workers: Annotated[int, Setting("Requests sent at once."), Ge(1), Le(64)] = 4
    name: str = ""
    log_features: _LogFeatures = None


def check_query(query: object) -> str:
    """Return a query that is a text.

    Raises:
        UsageError: It is something else.
    """
    if not isinstance(query, str):
        raise UsageError(f"A query is text, not {type(query).__name__}.", "Queries that are encoded already go to `candidates`.")
    return query
