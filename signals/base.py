"""What a signal is: everything OpenSearch needs to know about one way of answering a query.

A signal is a frozen dataclass whose fields are its parameters as JSON values. They go into the index's ``_meta``
and come back from there, so that a search weighs with exactly what the documents were written with.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from termweave.signals.pruning import Pruning

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from termweave.records import Capabilities, Document, Encoding

#: What an encoder can give and a signal can need.
Output = Literal["weights", "dense"]


@dataclass(frozen=True, slots=True)
class Fitting:
    """What is known of a corpus before the first document is sent.

    Attributes:
        capabilities: The server found.
        sample: Encodings of a sample of the documents.
        dimension: Of the dense vectors, if there are any.
        analyzer: Name of the OpenSearch analyzer for text.
        pruning: Which impacts are left out.
        saturation: `WeightedTerms.saturation` of the weights signal.
    """

    capabilities: Capabilities
    sample: Sequence[Encoding] = ()
    dimension: int | None = None
    analyzer: str = "english"
    pruning: Pruning = field(default_factory=Pruning)
    saturation: float | None = None


@dataclass(frozen=True, slots=True)
class Clause:
    """A query as it goes to the engine.

    Attributes:
        query: The clause of the query DSL.
        scale: The engine's score divided by this is the signal's (neural_sparse wants weights in (0, 64]).
        terms: Term -> factor as actually sent, for signals that weigh terms.
        dropped: Terms left out because the server allows no more clauses, heaviest first.
        reach: How many documents it finds at most, whatever the engine is asked for; None: all that match.
        par: `TermWeights.par` on the scale of the signal's scores; None where it is not known.
    """

    query: dict[str, Any]
    scale: float = 1.0
    terms: Mapping[str, float] | None = None
    dropped: tuple[str, ...] = ()
    reach: int | None = None
    par: float | None = None


@dataclass(frozen=True, slots=True)
class TermShare:
    """What one query term contributes to the score of one hit."""

    term: str
    share: float


@dataclass(frozen=True)
class Signal(ABC):
    """One way in which a document can answer a query."""

    name: ClassVar[str]
    #: The encoder output it stands on; None for plain text.
    needs: ClassVar[Output | None] = None
    #: Whether an index has it unless `--signals` says otherwise.
    default: ClassVar[bool] = True
    #: A numeric field, and what it counts in a document: `index` says the mean.
    counted: ClassVar[tuple[str, str] | None] = None

    @classmethod
    @abstractmethod
    def fit(cls, fitting: Fitting) -> Self:
        """Choose the parameters for a corpus (scale, dimension, analyzer)."""

    @classmethod
    def unavailable(cls, capabilities: Capabilities) -> str | None:
        """Why this server cannot carry the signal; None when it can."""
        del capabilities
        return None

    def parameters(self) -> dict[str, Any]:
        """The parameters as ``_meta`` keeps them."""
        return asdict(self)

    @abstractmethod
    def properties(self) -> dict[str, Any]:
        """The mapping's properties."""

    def settings(self) -> dict[str, Any]:
        """Index settings it needs."""
        return {}

    @abstractmethod
    def fields(self, document: Document, encoding: Encoding) -> dict[str, Any]:
        """The fields of one document."""

    def canonical(self, stored: Mapping[str, Any]) -> bytes:
        """What a model gave, as bytes that are the same before sending and after reading back: digests are made of them.

        Empty for a signal that stores only what the source says; that has a digest of its own.
        """
        del stored
        return b""

    @abstractmethod
    def clause(
        self, query: Encoding, *, size: int, where: Sequence[Mapping[str, Any]], capabilities: Capabilities
    ) -> Clause | None:
        """The query for the `size` best documents among those that pass `where`; None when the query says nothing to it."""

    def score(self, engine_score: float, clause: Clause) -> float:
        """The signal's own score from the engine's."""
        return engine_score / clause.scale

    #: The score of a document that the query says nothing to; None where every document has one that is not known.
    floor: ClassVar[float | None] = 0.0

    def spread(self, low: float, high: float, par: float | None = None) -> float:
        """How much the scores from `low` to `high` tell apart, in a unit that signals share: fusion trusts by it.

        For a signal of words: the part of the best score that the lowest lacks. Where even the best document has less than half of
        the query's words (its score lies below half of `par`), the square of the spread, which is what fusion counts, goes down
        with what it has of that half.
        """
        if high <= 0:
            return 0.0
        return (high - low) / high * math.sqrt(min(1.0, 2 * high / par) if par else 1.0)

    #: Stored fields that `explain` reads.
    explains_from: ClassVar[tuple[str, ...]] = ()
    #: Whether the engine's explanation of its clause says more than the score.
    engine_explains: ClassVar[bool] = True

    def explain(
        self, query: Encoding, clause: Clause, stored: Mapping[str, Any], engine_explanation: Mapping[str, Any] | None
    ) -> list[TermShare]:
        """Which terms gave how much of the signal's score; they sum to it. Empty for signals without terms."""
        del query, clause, stored, engine_explanation
        return []


#: Clauses that wrap a signal's own: the filter's bool, the ids of an explanation.
_WRAPPING = 16


def clause_budget(capabilities: Capabilities, where: Sequence[Mapping[str, Any]]) -> int:
    """How many clauses a signal may send: the server counts the whole rewritten tree, filters included."""
    return max(1, capabilities.max_clause_count - _WRAPPING - sum(_leaves(each) for each in where))


def _leaves(clause: Any) -> int:
    if isinstance(clause, dict):
        return max(1, sum(_leaves(value) for value in clause.values()))
    return sum(_leaves(each) for each in clause) if isinstance(clause, list | tuple) else 1


def filtered(query: dict[str, Any], where: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The query restricted to what passes all filters; scores stay as they are."""
    return {"bool": {"must": [query], "filter": list(where)}} if where else query
