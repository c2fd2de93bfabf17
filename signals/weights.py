"""The weights signal: learned term weights, stored as `rank_features` (Elasticsearch: `sparse_vector`) and scored as an exact dot product.

`WeightedTerms` is the base class of signals with weighted terms: it says how impacts become integers, and which terms are stored and sent.
Impacts are rounded to integers from 1 to `levels`, which the server stores exactly (9 significant bits: every integer up to 512,
measured on OpenSearch 3.6.0 and Elasticsearch 9.2.0). Every term gets at least 1, so that rounding loses no word of a document.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from termweave.contracts.signal import Clause, Fitting, Output, Pruning, Signal, TermShare, clause_budget, filtered
from termweave.dialect import OPENSEARCH, ServerDialect, dialect_of
from termweave.errors import ModelError
from termweave.records import Capabilities, Document, Encoding, TermWeights
from termweave.support import LazyModule

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from termweave.statistics import CorpusStatistics
else:  # `--help` reads the signals, and needs no numpy
    np = LazyModule("numpy")

#: `rank_feature` splits its field at the last dot. A term with a dot would match nothing, without an error (3.6.0), so dots are
#: escaped. Replacing them by "_" would merge 3.5 and 3_5.
SEPARATOR = "."
#: Longer terms are dropped: they are not words, and the server refuses a document with a term of more than 32,766 bytes.
_LONGEST = 200
#: The share of the sample's impacts that the scale covers; larger impacts are clipped.
_QUANTILE = 0.999


@dataclass(frozen=True)
class WeightedTerms(Signal):
    """The base class of signals that store term weights as integers.

    Attributes:
        w_max: The impact at the top of the scale, which becomes the integer `levels`; chosen before the first document is sent.
        levels: The integer that stores the impact `w_max`; heavier impacts are clipped to it.
        prune_share: Which weights are left out, as `Pruning.share` says.
        prune_below: Which weights are left out, as `Pruning.below` says.
        unit: The spread that counts as much as the whole score: of a foreign sparse model its measured spread, of other models 1. 0: an index of an
            earlier version, which has no unit.
    """

    needs: ClassVar[Output | None] = "weights"

    w_max: float = 1.0
    levels: int = 255
    prune_share: float = 0.0
    prune_below: float = 0.0
    unit: float = 0.0

    @classmethod
    def fit(cls, fitting: Fitting) -> Self:
        """Make the signal for an index: `w_max` is a high quantile of a sample's impacts."""
        w_max, pruning = scale([each.weights.weights for each in fitting.sample if each.weights is not None]), fitting.pruning
        return cls(w_max=w_max, prune_share=pruning.share, prune_below=pruning.below, unit=fitting.weights_spread or 1.0)

    def parameters(self) -> dict[str, Any]:
        """The parameters that the lineage stores; `unit` only if it is not 0, so that an index of an earlier version stays as it is."""
        return {name: value for name, value in super().parameters().items() if name != "unit" or value}

    def spread(self, low: float, high: float, full_match_score: float | None = None) -> float:
        """The difference of two scores as a share of the best score, times the share of the query's words that the best document holds.

        The share of the words is the best score over `full_match_score`, at most 1. In an index of an earlier version the square of the spread is reduced
        in proportion if even the best document has less than half of the words.
        """
        apart = super().spread(low, high, full_match_score)
        if full_match_score:
            apart *= min(1.0, high / full_match_score) if self.unit else math.sqrt(min(1.0, 2 * high / full_match_score))
        return apart / (self.unit or 1.0)

    def quantise(self, impacts: NDArray[np.float32]) -> NDArray[np.int64]:
        """Round impacts ``(n,)`` to integers from 1 to `levels`; the least is 1, so that rounding loses no word."""
        rounded = np.rint(impacts.astype(np.float64) * (self.levels / self.w_max))
        return np.minimum(np.maximum(rounded, 1), self.levels).astype(np.int64)  # np.clip is four times as slow on one text

    def impacts_of(self, stored: Mapping[str, Any]) -> TermWeights:
        """The impacts of a document, read from the integers in its `_source`; rounding and clipping are not undone."""
        by_term = self.levels_of(stored)
        return TermWeights(tuple(by_term), (np.array([*by_term.values()]) * (self.w_max / self.levels)).astype(np.float32))

    def full_match_score(self, query: TermWeights) -> float | None:
        """The score of an average document that holds each term of the query once, on the scale of the stored integers; None: the model has no such unit."""
        if query.full_match_score is None or float(query.weights.sum()) <= 0:
            return None
        return query.full_match_score * (self.levels / self.w_max)

    def rounded(self, weights: TermWeights) -> TermWeights:
        """Round the weights of a text to the integers that an index would store."""
        return TermWeights(weights.terms, self.quantise(weights.weights).astype("float32"))

    @abstractmethod
    def levels_of(self, stored: Mapping[str, Any]) -> dict[str, float]:
        """Term -> the integer that a document's `_source` holds for it."""

    def stored_weights(self, document: Document, encoding: Encoding) -> TermWeights | None:
        """The weights of a document that the index stores, after pruning; None: the document has no weights.

        Raises:
            ModelError: A weight is NaN or infinite.
        """
        if encoding.weights is None or not len(encoding.weights):
            return None
        if not math.isfinite(encoding.weights.weights.dot(encoding.weights.weights)):
            raise _not_finite(f"document {document.id!r}")
        weights = Pruning(self.prune_share, self.prune_below).apply(encoding.weights, self.w_max)
        if max(map(len, weights.terms)) <= _LONGEST and "" not in weights.terms:
            return weights
        return weights.part([place for place, term in enumerate(weights.terms) if _storable(term)])


def scale(sample: Sequence[NDArray[np.float32]]) -> float:
    """Compute `WeightedTerms.w_max` from the impacts of a sample of texts; 1 if there are no impacts.

    Raises:
        ModelError: An impact is NaN or infinite.
    """
    impacts = np.concatenate(sample) if sample else np.zeros(0)
    if not np.isfinite(impacts).all():
        raise _not_finite("a sample of the documents")
    return (float(np.quantile(impacts, _QUANTILE, method="higher")) if len(impacts) else 0.0) or 1.0


def _not_finite(texts: str) -> ModelError:
    return ModelError(f"The model gave a term weight that is NaN or infinity for {texts}.", "The model folder is damaged.")


def escape(term: str, sign: str) -> str:
    """Escape the character `sign`, which has a special meaning in the field, in a term. `unescape` reverses this.

    Example:
        >>> escape("3.5", "."), escape("100%", ".")
        ('3%2E5', '100%25')
    """
    return term.replace("%", "%25").replace(sign, f"%{ord(sign):02X}")


def unescape(name: str, sign: str) -> str:
    """Turn an escaped name back into the term that `escape` got."""
    return name.replace(f"%{ord(sign):02X}", sign).replace("%25", "%")


def _storable(term: str) -> bool:
    """Whether a term is short enough, and not empty, to be stored."""
    return 0 < len(term) <= _LONGEST


@dataclass(frozen=True)
class Weights(WeightedTerms):
    """The signal `weights`: learned term weights as features, scored as a dot product; impacts above `w_max` are clipped."""

    name: ClassVar[str] = "weights"
    explains_from: ClassVar[tuple[str, ...]] = ("weights",)
    counted: ClassVar[tuple[str, str] | None] = ("weights_terms", "impacts")

    @classmethod
    def unavailable(cls, capabilities: Capabilities, analysis: str | None = None) -> str | None:
        """The reason why this server cannot search learned weights; None: it can."""
        return dialect_of(capabilities).weights_obstacle(capabilities)

    def properties(self, dialect: ServerDialect = OPENSEARCH) -> dict[str, Any]:
        """The mapping of the features (term -> integer), of their number, and of their sum; only the last two can be aggregated."""
        return {"weights": dialect.weights_field(), "weights_terms": {"type": "integer"}, "weights_sum": {"type": "long"}}

    def fields(self, document: Document, encoding: Encoding, statistics: CorpusStatistics | None = None) -> dict[str, Any]:
        """The features of one document (term -> integer), their number and their sum, as the index stores them. A document without weights has no features."""
        weights = self.stored_weights(document, encoding)
        if weights is None:
            return {"weights_terms": 0, "weights_sum": 0}
        impacts = self.quantise(weights.weights).tolist()
        joined = "\n".join(weights.terms)  # few texts need escapes: two searches in all terms are faster than two in each
        special = SEPARATOR in joined or "%" in joined
        names = [escape(term, SEPARATOR) if special else str(term) for term in weights.terms]  # numpy's strings become Python's
        features = dict(zip(names, impacts, strict=True))
        return {"weights": features, "weights_terms": len(features), "weights_sum": sum(features.values())}

    def canonical(self, stored: Mapping[str, Any]) -> bytes:
        """Bytes for a document's digest: the features as JSON, sorted by name.

        Elasticsearch 9.2 computes the integers that it returns from its index, so that 3.0 is the same as 3.
        """
        import orjson  # noqa: PLC0415 - importing a verb of the command line does not load it

        features = stored.get("weights") or {}
        if isinstance(features, dict) and float in set(map(type, features.values())):
            features = {
                name: int(level) if isinstance(level, float) and level.is_integer() else level for name, level in features.items()
            }
        return orjson.dumps(features, option=orjson.OPT_SORT_KEYS)

    def levels_of(self, stored: Mapping[str, Any]) -> dict[str, float]:
        """Term -> the integer that a document's `_source` holds for it."""
        features = stored.get("weights") or {}
        # The server accepts lists of objects, and numbers in quotes.
        parts = features if isinstance(features, list) else [features]
        return {unescape(name, SEPARATOR): float(level) for part in parts for name, level in part.items()}

    def clause(
        self, query: Encoding, *, size: int, where: Sequence[Mapping[str, Any]], capabilities: Capabilities
    ) -> Clause | None:
        """The dot product with the query's weights; the lightest terms are dropped if the server allows fewer clauses. None: no term is left."""
        # Heaviest first.
        weights = query.weights.as_dict() if query.weights is not None else {}
        ordered = [(term, weight) for term, weight in weights.items() if weight > 0 and _storable(term)]
        budget = clause_budget(capabilities, where)
        terms, dropped = dict(ordered[:budget]), tuple(term for term, _ in ordered[budget:])
        if query.weights is None or not terms:
            return None
        full_match_score = self.full_match_score(query.weights)
        product, scale = dialect_of(capabilities).weights_query(f"{self.prefix}weights", _features(terms), capabilities)
        return Clause(filtered(product, where), scale, terms, dropped, full_match_score=full_match_score)

    def query_features(self, query: Encoding, capabilities: Capabilities) -> dict[str, float]:
        """The features of a query with the factors that `clause` sends, for a client that builds the clause itself."""
        clause = self.clause(query, size=1, where=(), capabilities=capabilities)
        return {} if clause is None else _features({term: factor * clause.scale for term, factor in (clause.terms or {}).items()})

    def explain(
        self, query: Encoding, clause: Clause, stored: Mapping[str, Any], engine_explanation: Mapping[str, Any] | None
    ) -> list[TermShare]:
        """The share of each term in the score: its factor times its stored impact. The shares sum exactly to the server's score."""
        levels = self.levels_of(stored)
        shares: dict[str, float] = {}
        for variants in clause.parts or [[clause.terms or {}]]:
            matched = [{term: factor * levels[term] for term, factor in terms.items() if term in levels} for terms in variants]
            for term, share in max(matched, key=lambda each: sum(each.values())).items():
                shares[term] = shares.get(term, 0.0) + share
        return [TermShare(term, share) for term, share in sorted(shares.items(), key=lambda pair: (-pair[1], pair[0]))]


def _features(weights: Mapping[str, float]) -> dict[str, float]:
    """Weights of terms, under the escaped names that the field has for the terms."""
    return {escape(term, SEPARATOR): weight for term, weight in weights.items()}
