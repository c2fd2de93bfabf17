"""The base class of signals: the fields, queries and explanations of one way to score documents in a search server.

A signal is a frozen dataclass whose fields are its parameters, as JSON values. The index stores them in its mapping's ``_meta``,
so that a search uses exactly the parameters that the documents were written with.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias

from termweave.declared_settings import number_in
from termweave.dialect import OPENSEARCH, ServerDialect
from termweave.errors import UsageError

if TYPE_CHECKING:
    from termweave.records import Capabilities, Document, Encoding, TermWeights
    from termweave.statistics import CorpusStatistics

#: Clauses of the query DSL that every hit must pass.
Filters: TypeAlias = "Sequence[Mapping[str, Any]]"
#: The outputs that an encoder can have and a signal can need.
Output = Literal["weights", "dense"]


@dataclass(frozen=True, slots=True)
class Pruning:
    """A rule for the impacts (document term weights) that are not stored (`index --prune`; docs/impacts.md). The heaviest term of a document is always stored.

    Attributes:
        share: The share of each document's terms that is left out, the lightest first; 0 to 1.
        below: Impacts below this share of `WeightedTerms.w_max` are left out; 0 to 1.
    """

    share: float = 0.0
    below: float = 0.0

    def __str__(self) -> str:
        return f"{100 * self.share:g}%" if self.share else f"{self.below:g}" if self.below else "none"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``0.05`` (a threshold, as a share of the largest impact) or ``30%`` (a share of each document's terms).

        Raises:
            UsageError: The text is neither.

        Example:
            >>> Pruning.parse("30%"), Pruning.parse("0.05")
            (Pruning(share=0.3, below=0.0), Pruning(share=0.0, below=0.05))
        """
        value = number_in(text)
        if not 0 <= value < 1:
            hint = "Write 0.05 for impacts below .05 of the largest, or 30% for the lightest 30 % of each document's terms."
            raise UsageError(f"{text!r} is not a value for --prune.", hint)
        return cls(share=value) if text.endswith("%") else cls(below=value)

    def apply(self, weights: TermWeights, w_max: float) -> TermWeights:
        """Keep the terms of one document whose impacts are stored, in their order; `w_max` is the impact at the top of the stored scale."""
        import numpy as np  # noqa: PLC0415

        if not len(weights) or not (self.share or self.below):
            return weights
        stored = weights.weights >= min(self.below * w_max, float(weights.weights.max()))
        if self.share:
            lightest = np.argsort(weights.weights, kind="stable")[: int(self.share * len(weights))]
            stored[lightest] = False
        return weights.part(np.flatnonzero(stored).tolist())


@dataclass(frozen=True, slots=True)
class Fitting:
    """The input of `Signal.fit`: facts about a corpus and a server that are known before the first document is sent.

    Attributes:
        capabilities: The capabilities of the server.
        sample: Encodings of a sample of the documents.
        dimension: Dimension of the dense vectors; None: there is no dense model.
        analyzer: Name of the OpenSearch analyzer for text.
        pruning: The rule for the impacts that are not stored.
        byte_vectors: Whether vectors are stored as bytes.
        dense_spread: How far the similarities of the dense model lie apart (`encoders.calibration.spread`); 0 if unknown.
        weights_spread: How far the scores of a sparse model not made by termweave lie apart (`encoders.calibration.spread`); 0:
            the model is an anchored one, to which fusion was fitted.
        statistics: Counts of the corpus's terms, as the weights model's analysis makes them; None: there are no term weights.
    """

    capabilities: Capabilities
    sample: Sequence[Encoding] = ()
    dimension: int | None = None
    analyzer: str = "english"
    pruning: Pruning = field(default_factory=Pruning)
    byte_vectors: bool = False
    dense_spread: float = 0.0
    weights_spread: float = 0.0
    statistics: CorpusStatistics | None = None

    @property
    def average_length(self) -> float:
        """Mean number of terms of a document; 0: it is unknown."""
        return self.statistics.average_length if self.statistics else 0.0


@dataclass(frozen=True, slots=True)
class Clause:
    """The query of one signal, as it is sent to the server.

    Attributes:
        query: The clause in the server's query DSL.
        scale: The server's score divided by `scale` is the signal's score (neural_sparse accepts only weights in (0, 64]).
        terms: Term -> factor as sent to the server, for signals of weighted terms; None: the signal has none.
        dropped: Terms left out because the server allows no more clauses, heaviest first.
        reach: The most documents that the clause can return, however many are requested; None: it returns all that match.
        full_match_score: `TermWeights.full_match_score` on the scale of the signal's scores; None: it is unknown.
        parts: With synonyms, for each part of the query the terms (term -> factor) of each alternative; in a part only the
            alternative with the highest score counts.
    """

    query: dict[str, Any]
    scale: float = 1.0
    terms: Mapping[str, float] | None = None
    dropped: tuple[str, ...] = ()
    reach: int | None = None
    full_match_score: float | None = None
    parts: Sequence[Sequence[Mapping[str, float]]] = ()


@dataclass(frozen=True, slots=True)
class TermShare:
    """The share of one query term in the score of one hit."""

    term: str
    share: float


@dataclass(frozen=True)
class Signal(ABC):
    """One way to score documents for a query."""

    #: Begins the names of its fields: "" in an index that termweave built, "termweave." in one that it enriches.
    prefix: str = field(default="", kw_only=True)

    name: ClassVar[str]
    #: The encoder output that the signal needs; None: it needs only the text.
    needs: ClassVar[Output | None] = None
    #: The text field in which the words of the query are searched, and their analyzer ("": that of the field); None: what a model gives
    #: of the query is searched.
    text_field: ClassVar[tuple[str, str] | None] = None
    #: Whether an index has the signal without `--signals`.
    default: ClassVar[bool] = True
    #: A numeric field, and the name of what it counts in a document. `termweave index` reports its mean.
    counted: ClassVar[tuple[str, str] | None] = None

    @property
    def text_fields(self) -> Mapping[str, float]:
        """Name -> weight, of the text fields in which the words of the query are searched."""
        return {f"{self.prefix}{self.text_field[0]}": 1.0} if self.text_field else {}

    @property
    def source_fields(self) -> tuple[str, ...]:
        """Names of the fields whose terms are words of the document's text, as the server's analyzer cuts them; (): a model gives the terms."""
        return () if self.needs else tuple(self.text_fields)

    @classmethod
    @abstractmethod
    def fit(cls, fitting: Fitting) -> Self:
        """Choose the parameters for a corpus (scale, dimension, analyzer)."""

    @classmethod
    def unavailable(cls, capabilities: Capabilities, analysis: str | None = None) -> str | None:
        """The reason why this server, or a model with this analysis, does not support the signal; None: both support it."""
        del capabilities, analysis
        return None

    def parameters(self) -> dict[str, Any]:
        """The parameters of the signal, as the index's ``_meta`` stores them."""
        return {name: value for name, value in asdict(self).items() if name != "prefix" or value}

    @abstractmethod
    def properties(self, dialect: ServerDialect = OPENSEARCH) -> dict[str, Any]:
        """The signal's fields in the mapping of the index; here and in methods that read or make documents names are without `prefix`."""

    def settings(self, dialect: ServerDialect = OPENSEARCH) -> dict[str, Any]:
        """The index settings that the signal needs."""
        del dialect
        return {}

    @abstractmethod
    def fields(self, document: Document, encoding: Encoding, statistics: CorpusStatistics | None = None) -> dict[str, Any]:
        """The signal's fields of one document. `statistics` are the collection statistics with which the document's weights were made."""

    def canonical(self, stored: Mapping[str, Any]) -> bytes:
        """The model's output for a document as bytes, which are the same before sending and after reading back, so that digests can be compared.

        b"" for a signal that stores only the document's text, which has its own digest.
        """
        del stored
        return b""

    @abstractmethod
    def clause(self, query: Encoding, *, size: int, where: Filters, capabilities: Capabilities) -> Clause | None:
        """Make the clause for the `size` best documents that pass the filters `where`; None: the query gives the signal nothing to search for."""

    def query_clause(self, query: Encoding, *, size: int, where: Filters, capabilities: Capabilities) -> Clause | None:
        """Make the clause of a query that may have synonyms: the scores of its parts add up, and in each part the best alternative counts."""
        whole = self.clause(query, size=size, where=where, capabilities=capabilities)
        if query.rewritten is None or not query.rewritten.parts or self.needs == "dense" or whole is None:
            return whole

        def clause_of(alternative: Encoding) -> Clause | None:
            # Stored impacts do not tell where a word stands, so that an explanation could not repeat a phrase.
            phrase = alternative.rewritten.where if alternative.rewritten and self.text_fields else ()
            return self.clause(alternative, size=size, where=phrase, capabilities=capabilities)

        parts = [clauses for each in query.rewritten.parts if (clauses := list(filter(None, map(clause_of, each))))]
        if not parts:  # synonyms without words stand in place of the whole query
            return None
        scaled = [[_scaled(clause) for clause in clauses] for clauses in parts]
        queries = [each[0] if len(each) == 1 else {"dis_max": {"queries": each}} for each in scaled]
        together = queries[0] if len(queries) == 1 else {"bool": {"should": queries, "minimum_should_match": 1}}
        terms = [[clause.terms or {} for clause in clauses] for clauses in parts]
        joined = {term: factor for part in terms for each in part for term, factor in each.items()}
        both, of_parts = filtered(together, where), terms if joined else ()
        return Clause(both, 1.0, joined or None, whole.dropped, full_match_score=whole.full_match_score, parts=of_parts)

    def restricted(
        self, clause: Clause, query: Encoding, where: Filters, *, size: int, capabilities: Capabilities
    ) -> dict[str, Any]:
        """Restrict a clause's query to the documents that pass the filters `where`, so that it finds at least `size` if so many match."""
        del query, size, capabilities
        return filtered(clause.query, where)

    def score(self, engine_score: float, clause: Clause) -> float:
        """Convert the server's score to the signal's score."""
        return engine_score / clause.scale

    #: The score of a document that does not match the query; None if every document matches (dense), so that it is unknown.
    floor: ClassVar[float | None] = 0.0

    def spread(self, low: float, high: float, full_match_score: float | None = None) -> float:
        """The distance between the scores `low` and `high`, in a unit that all signals share. Fusion weighs signals by the distance's square.

        For a signal of words it is the difference as a share of the score `high`. `full_match_score` comes from the clause.
        """
        del full_match_score
        return (high - low) / high if high > 0 else 0.0

    #: The stored fields that `explain` reads.
    explains_from: ClassVar[tuple[str, ...]] = ()
    #: Whether the server's explanation of the clause is more detailed than the score.
    engine_explains: ClassVar[bool] = True

    def explain(
        self, query: Encoding, clause: Clause, stored: Mapping[str, Any], engine_explanation: Mapping[str, Any] | None
    ) -> list[TermShare]:
        """The share of each query term in the signal's score of one hit; the shares sum to the score. [] for signals without terms."""
        del query, clause, stored, engine_explanation
        return []


def _scaled(clause: Clause) -> dict[str, Any]:
    """The query of a clause, rescaled so that the server returns the signal's own score."""
    return clause.query if clause.scale == 1 else {"bool": {"must": [clause.query], "boost": 1 / clause.scale}}


#: Clauses around the signal's own clause: the bool of filters, the ids of an explanation.
_WRAPPING = 16


def clause_budget(capabilities: Capabilities, where: Filters) -> int:
    """The number of clauses that a signal may send; the filters are subtracted, because the server counts the whole query."""
    return max(1, capabilities.max_clause_count - _WRAPPING - sum(_leaves(each) for each in where))


def _leaves(clause: Any) -> int:
    """Estimate the clauses that the server (OpenSearch 3.6.0) counts for a clause: one for each value, but two for a list of values or a range.

    For a list on a field of dates the server does count each value.
    """
    if isinstance(clause, dict):
        if len(clause) == 1 and clause.keys() <= {"terms", "range", "ids"}:
            return 2
        return max(1, sum(_leaves(value) for value in clause.values()))
    return sum(_leaves(each) for each in clause) if isinstance(clause, list | tuple) else 1


def filtered(query: dict[str, Any], where: Filters) -> dict[str, Any]:
    """Restrict a query to the documents that pass all filters. The scores do not change."""
    return {"bool": {"must": [query], "filter": list(where)}} if where else query
