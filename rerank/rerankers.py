"""The contract that all rerankers fulfil, and the names under which `--rerank` finds rerankers.

A reranker names the data that it needs besides the query and the scores (`Need`). Search fetches exactly these data, in the same request as
the candidates. The reranker returns one number for each candidate, its share, and the factor by which it keeps the earlier score::

    final score = keep * earlier score + share

So the shares of the signals and of all rerankers sum to the final score, and explanations show each of them. Rerankers compose:
``rnn>mine`` gives the order of ``rnn`` to ``mine``. A package adds a reranker with an entry point in the group
``termweave.rerankers``; docs/python.md has an example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Any

from termweave import plugins
from termweave.errors import UsageError
from termweave.support import paths
from termweave.support.messages import counted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from termweave.catalog.layout import DocumentLayout
    from termweave.records import Encoding
    from termweave.signals.fusion import Ranked

#: "vectors", "texts", "metadata.NAME" for a typed metadata entry, "words.NAME" for the text of a field, or "signal.NAME" for the list of a
#: signal that the mode need not have.
Need = str
NEEDS = ("vectors", "texts")
METADATA, WORDS, SIGNAL = "metadata.", "words.", "signal."
#: Between the names of a chain: the order of the left one goes to the right one.
CHAIN = ">"
#: Rerankers that a process keeps, so that their models stay loaded; pages may name any number of rules.
_KEPT = 64
#: Rerankers whose option names fields and numbers, and no place.
RULES = ("boost", "decay", "match", "diverse")
_CLASS = "termweave.rerank.rerankers.Reranker"
_HOW_TO_GIVE_ONE = f'Write rerank="rnn", or give ReciprocalNeighbours(k=5) from termweave.rerank, or an object whose class inherits from {_CLASS}.'
#: What stands for the rerankers of the profile at the beginning of a chain.
PROFILE = "profile"
#: Rerankers in a chain: each scores all candidates again.
MOST_STAGES = 4


@dataclass(frozen=True, slots=True)
class IndexTerms:
    """How an index cuts texts into terms, and how much each term weighs.

    Attributes:
        cut: Cuts texts as the signal weights does: texts -> the terms of each text, repetitions included.
        idf: Gives the idf of a term in the index.
    """

    cut: Callable[[Sequence[str]], list[list[str]]]
    idf: Callable[[str], float]


@dataclass(frozen=True, slots=True)
class RerankRequest:
    """One query and the candidates to be reranked.

    Attributes:
        query: The encoded query. In a search for similar documents (`like`) its text is the text of these documents.
        ids: Ids of the candidates, best first, in the order that the fusion or the reranker before gave them.
        scores: Scores of the candidates so far, in the order of `ids`; fused scores lie in [0, 1].
        vectors: float32 ``(len(ids), d)``, a row of zeros for a document without a vector; None: the reranker does not need vectors.
        texts: Title and text of each document (of the best passage if it is cut into passages), "" for a document without text; None: the reranker
            does not need texts.
        liked: float32 ``(n, d)``: vectors of documents known to be relevant, if the search was made with `like`; None: it was not.
        lists: Signal name -> the ranked candidates of this signal, for each signal that the mode or the reranker searches.
        metadata: For each candidate: typed metadata entry -> its values, and "words.NAME" -> the texts of the field NAME. None: the reranker needs
            neither.
        index_terms: Cuts the texts of "words.NAME" into terms; None: the index does not have the signal weights.
    """

    query: Encoding
    ids: Sequence[str]
    scores: Sequence[float]
    vectors: NDArray[np.float32] | None = None
    texts: Sequence[str] | None = None
    liked: NDArray[np.float32] | None = None
    lists: Mapping[str, Ranked] = field(default_factory=dict)
    metadata: Sequence[Mapping[str, Sequence[Any]]] | None = None
    index_terms: IndexTerms | None = None

    def dense(self, reader: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The vectors of the query ``(d,)`` and of the candidates ``(n, d)``.

        Args:
            reader: Who reads the vectors, for the message of the error.

        Raises:
            UsageError: The query has no vector.
        """
        if self.query.vector is None or self.vectors is None:
            raise UsageError(f"{reader} needs vectors, and this index has no dense model.", "Leave it out, or use --dense.")
        return self.query.vector, self.vectors


@dataclass(frozen=True, slots=True)
class RerankResult:
    """The answer of a reranker to a request. The score of candidate i is ``keep * request.scores[i] + shares[i]``.

    Attributes:
        shares: One finite number for each candidate, in the order of the request.
        keep: Factor of the earlier scores, at least 0. With 0, the default, the shares replace the earlier scores.
        keep_below: Factor of the earlier scores of documents beyond the reranker's candidates. These documents stay below all candidates, whatever
            their scores. None: the same factor as `keep`, or 1 if `keep` is 0.
        details: From the row of a candidate to JSON values for its explanation; the keys "name", "share", "rank" and "terms" are taken. Called only
            for documents that are explained.
        details_below: From the earlier score of a document beyond the candidates to JSON values for its explanation.
        scored: How many of the candidates were scored before a time budget ended; None: all of them.
        word_effects: From the row of a candidate to the words of its text with the largest effect on the reranker's score, ``{"word", "effect"}``.
            Called only on request, because it is slow.
    """

    shares: Sequence[float]
    keep: float = 0.0
    keep_below: float | None = None
    details: Callable[[int], Mapping[str, Any]] = field(default=lambda _: {}, repr=False, compare=False)
    details_below: Callable[[float], Mapping[str, Any]] = field(default=lambda _: {}, repr=False, compare=False)
    scored: int | None = None
    word_effects: Callable[[int], list[dict[str, Any]]] = field(default=lambda _: [], repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class CutShort:
    """A note that a reranker's time budget ended before all candidates were scored.

    Attributes:
        name: Name of the reranker.
        scored: Number of documents that were scored in time.
        candidates: Number of documents that should have been scored.
    """

    name: str
    scored: int
    candidates: int

    def __str__(self) -> str:
        of = f"{self.scored:,} of {self.candidates:,} documents"
        return f"{self.name} scored {of} in its time budget; the others follow in the order that they had before"


def budgets_remark(cut_short: Sequence[CutShort], of: str = "") -> str:
    """A sentence for the user: how often a time budget ended the scoring early, and which share of the documents was scored by then.

    `of` names whose budgets they were, "" for nobody's.
    """
    share = sum(each.scored for each in cut_short) / sum(each.candidates for each in cut_short)
    return (
        f"The time budget{of and f' of {of}'} ended early {counted(len(cut_short), 'time')}: {share:.0%} of the documents were scored; "
        "the others follow in the order that they had before."
    )


class Reranker(ABC):
    """The base class of rerankers. Several threads may call one reranker at once.

    Creating a reranker must be cheap: load models in the first call of `rerank`.
    """

    __slots__ = ()
    if TYPE_CHECKING:  # a dataclass would take a real property for the default of its field

        @property
        def name(self) -> str:
            """The name that `--rerank` takes, with the option: "rnn", "rnn@dense"."""

        @property
        def candidates(self) -> int:
            """Number of the best documents that get new scores."""

    @property
    def needs(self) -> frozenset[Need]:
        """The data that search must fetch with the candidates, as `Need` describes them; none by default."""
        return frozenset()

    @property
    def budget(self) -> float | None:
        """Milliseconds in which the candidates of one query must be scored; None: no limit."""
        return None

    @abstractmethod
    def rerank(self, request: RerankRequest) -> RerankResult:
        """Score the candidates of one query."""

    def with_option(self, option: str) -> Reranker:
        """Return this reranker of a profile with the option that `--rerank` names.

        By default a reranker with another option has default parameters, not the profile's.
        """
        name = self.name.partition("@")[0]
        return self if self.name == f"{name}@{option}" else _create(name, option)

    def with_budget(self, milliseconds: float) -> Reranker | None:  # noqa: ARG002 - an override reads it
        """Return the same reranker with a time limit; infinity: without a limit. None, the default, means that this reranker cannot stop early."""
        return None

    def for_one_query(self) -> Reranker:
        """Return a reranker that is used for one query only, perhaps several times, and may keep what it computed for that query."""
        return self

    def check(self, layout: DocumentLayout) -> None:  # noqa: B027 - most rerankers take any type
        """Raise `UsageError` if an index of this layout stores a field that the reranker reads with a type that it cannot read."""


@dataclass(frozen=True, slots=True)
class Reranking:
    """The rerankers of a search, first to last.

    Attributes:
        stages: At least one reranker, at most `MOST_STAGES`. Each gets the order that the reranker before it made.
    """

    stages: tuple[Reranker, ...]

    def __post_init__(self) -> None:
        """Raise `UsageError` if there are too many stages."""
        if len(self.stages) > MOST_STAGES:
            raise UsageError(f"A chain has at most {MOST_STAGES} rerankers, not {len(self.stages):,}.", "Leave some out.")

    @property
    def name(self) -> str:
        """The name that `--rerank` takes for the whole chain: "rnn", "rnn>mine"."""
        return CHAIN.join(stage.name for stage in self.stages)

    @property
    def needs(self) -> frozenset[Need]:
        """The data that search must fetch for all stages together."""
        return frozenset[Need]().union(*(stage.needs for stage in self.stages))

    def for_page(self, start: int) -> Reranking:
        """Return the same rerankers for one page of one query. Each may rank several times, each time the candidates of a deeper search.

        Args:
            start: Number of hits on the pages before this page.

        Raises:
            UsageError: This is not the first page, and a reranker has a time budget, which could end at another document for each page.
        """
        if start and any(stage.budget is not None for stage in self.stages):
            hint = "Ask for more hits at once (-k), or leave the budget out (--rerank-budget none)."
            raise UsageError("With a time budget there is one page: the next one could repeat or leave out documents.", hint)
        return Reranking(tuple(stage.for_one_query() for stage in self.stages))

    def within(self, milliseconds: float) -> Reranking:
        """Return the same rerankers with a time budget in milliseconds, shared equally by the rerankers that can stop early.

        Raises:
            UsageError: No reranker of the chain can stop early.
        """
        limited = sum(stage.with_budget(inf) is not None for stage in self.stages)
        if not limited and milliseconds < inf:
            raise UsageError(f"The reranker {self.name!r} takes no time budget.", "Rankers take one: --rerank ranker@FOLDER.")
        share = milliseconds / max(1, limited)
        return Reranking(tuple(stage.with_budget(share) or stage for stage in self.stages))


def check_range(name: str, candidates: int, weight: float = 0.0) -> None:
    """Check the number of candidates and the weight of a reranker.

    Raises:
        UsageError: There are no candidates, or the weight does not lie in [0, 1].
    """
    if candidates < 1:
        raise UsageError(f"{name} needs at least 1 candidate, not {candidates}.", "Use --rerank none to leave it out.")
    if not 0 <= weight <= 1:
        raise UsageError(f"The weight of {name} is a number from 0 to 1, not {weight}.")


def choose(rerank: str | Reranker | Reranking | None, profile: Reranking | None = None) -> Reranking | None:
    """Return the rerankers that a user names for a search; None: no reranking.

    Args:
        rerank: Names as `--rerank` takes them ("none", "rnn", "rnn@dense", "rnn>mine"), or a reranker; None: the rerankers of the profile. A folder
            or ``hf:OWNER/NAME`` is short for ``ranker@FOLDER``, ``ranker@hf:OWNER/NAME``. "profile" stands for the profile's rerankers, so that
            "profile>boost@votes" puts a further reranker behind them.
        profile: The rerankers of the profile in use; None: no profile, or one without rerankers. A named reranker that the profile has, too, takes
            its parameters from there.

    Raises:
        UsageError: There is no such reranker, or `rerank` is neither a name nor a reranker.
    """
    if rerank is None:
        return profile
    if isinstance(rerank, Reranking):
        return rerank
    if isinstance(rerank, Reranker):
        return Reranking((rerank,))
    if not isinstance(rerank, str):
        raise UsageError(f"rerank is the name of a reranker, or a reranker, not {rerank!r}.", _HOW_TO_GIVE_ONE)
    if rerank.strip() == "none":
        return None
    names = split_chain(rerank)
    of_profile = profile.stages if profile and names[0] == PROFILE else ()
    stages = (*of_profile, *(_stage(name, profile) for name in names if name != PROFILE))
    return Reranking(stages) if stages else None


def split_chain(chain: str) -> list[str]:
    """Split a chain of rerankers, such as "rnn>mine", into the names of its rerankers.

    Raises:
        UsageError: "profile" stands elsewhere than at the beginning.
    """
    names = [name.strip() for name in chain.split(CHAIN)]
    if PROFILE in names[1:]:
        raise UsageError("The rerankers of the profile come first in a chain.", f"Write {PROFILE}{CHAIN}{names[0]}.")
    return names


def _stage(text: str, profile: Reranking | None) -> Reranker:
    """Return the reranker that one part of a chain names: NAME or NAME@OPTION."""
    name, _, option = text.partition("@")
    registered = plugins.names("rerankers")
    if name not in registered and (text.startswith("hf:") or paths.written_as_path(text)):
        name, option = "ranker", text
    if name not in registered:
        hint = f"Known: none, {', '.join(registered)}, or the folder of a cross-encoder; {CHAIN} joins several (rnn{CHAIN}NAME)."
        raise UsageError(f"There is no reranker {text!r}.", hint)
    for stage in profile.stages if profile else ():
        if stage.name.partition("@")[0] == name and name not in RULES:
            return stage.with_option(option) if option else stage
    return _create(name, option)


def rule(text: str) -> Reranker:
    """Return a rule (`boost`, `decay`, `match` or `diverse`) that a profile may store, because it reads only fields and opens no model.

    Raises:
        UsageError: The text names a reranker that is not a rule.
    """
    if text.partition("@")[0] not in RULES:
        hint = f"A profile keeps rnn first, then rules ({', '.join(RULES)}); 'termweave tune' stores a model in a profile."
        raise UsageError(f"A profile does not keep the reranker {text!r} here.", hint)
    return _stage(text, None)


@lru_cache(_KEPT)
def _create(name: str, option: str) -> Reranker:
    """Make a reranker by its name and option, once in a process, so that models stay loaded from search to search."""
    factory = plugins.load("rerankers", name)
    with plugins.answerable("rerankers", name):
        reranker: Reranker = factory(option) if option else factory()
        if not isinstance(reranker, Reranker):
            raise UsageError(f"The reranker {name!r} does not inherit from {_CLASS}.", "docs/python.md has an example.")
        _ = reranker.name, reranker.candidates
        for need in reranker.needs:
            if need not in NEEDS and not need.startswith((METADATA, WORDS, SIGNAL)):
                hint = f"Known: {', '.join(NEEDS)}, metadata.NAME, words.NAME, signal.NAME."
                raise UsageError(f"The reranker {name!r} needs {need!r}.", hint)
    return reranker
