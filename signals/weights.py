"""The weights signal: learned term weights, stored as `rank_features` (Elasticsearch: `sparse_vector`) and scored as an exact dot product.

Impacts are rounded to integers from 1 to `levels`, which the server stores exactly (9 significant bits: every integer up to 512,
measured on OpenSearch 3.6.0 and Elasticsearch 9.2.0). Every term gets at least 1, so that rounding loses no word of a document.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from termweave.contracts.signal import Clause, TermShare, clause_budget, filtered
from termweave.dialect import OPENSEARCH, dialect_of
from termweave.signals.impacts import WeightedTerms, escape, to_send, unescape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from termweave.dialect import ServerDialect
    from termweave.records import Capabilities, Document, Encoding
    from termweave.statistics import CorpusStatistics

#: `rank_feature` splits its field at the last dot. A term with a dot would match nothing, without an error (3.6.0), so dots are
#: escaped. Replacing them by "_" would merge 3.5 and 3_5.
SEPARATOR = "."


@dataclass(frozen=True)
class Weights(WeightedTerms):
    """Learned term weights; impacts above `w_max` are clipped."""

    name: ClassVar[str] = "weights"
    explains_from: ClassVar[tuple[str, ...]] = ("weights",)
    counted: ClassVar[tuple[str, str] | None] = ("weights_terms", "impacts")

    @classmethod
    def unavailable(cls, capabilities: Capabilities, analysis: str | None = None) -> str | None:
        """Ask the dialect of the server."""
        del analysis
        return dialect_of(capabilities).weights_obstacle(capabilities)

    def properties(self, dialect: ServerDialect = OPENSEARCH) -> dict[str, Any]:
        """The features, and their number and sum as fields that can be aggregated (the features cannot)."""
        return {"weights": dialect.weights_field(), "weights_terms": {"type": "integer"}, "weights_sum": {"type": "long"}}

    def fields(self, document: Document, encoding: Encoding, statistics: CorpusStatistics | None = None) -> dict[str, Any]:
        """The features of one document, their number and their sum. Empty features are left out."""
        del statistics
        weights = self.stored_weights(document, encoding)
        if weights is None:
            return {"weights_terms": 0, "weights_sum": 0}
        impacts = self.quantise(weights.weights).tolist()
        joined = "\n".join(weights.terms)  # few texts need escapes: two searches in all terms are faster than two in each
        special = SEPARATOR in joined or "%" in joined
        names = (
            [escape(term, SEPARATOR) for term in weights.terms] if special else map(str, weights.terms)
        )  # from numpy's strings
        features = dict(zip(names, impacts, strict=True))
        return {"weights": features, "weights_terms": len(features), "weights_sum": sum(features.values())}

    def canonical(self, stored: Mapping[str, Any]) -> bytes:
        """The features as JSON, sorted by name. Elasticsearch 9.2 makes the integers it returns from its index: 3.0 is the same as 3."""
        import orjson  # noqa: PLC0415 - not needed by `--help`

        features = stored.get("weights") or {}
        if isinstance(features, dict) and float in set(map(type, features.values())):
            features = {name: _whole(level) for name, level in features.items()}
        return orjson.dumps(features, option=orjson.OPT_SORT_KEYS)

    def levels_of(self, stored: Mapping[str, Any]) -> dict[str, float]:
        """Term -> its integer."""
        features = stored.get("weights") or {}
        parts = (
            features if isinstance(features, list) else [features]
        )  # the server accepts lists of objects, and numbers in quotes
        return {unescape(name, SEPARATOR): float(level) for part in parts for name, level in part.items()}

    def clause(
        self, query: Encoding, *, size: int, where: Sequence[Mapping[str, Any]], capabilities: Capabilities
    ) -> Clause | None:
        """The dot product with the query's weights. The lightest terms are dropped if the server allows fewer clauses."""
        del size
        if query.weights is None:
            return None
        kept, dropped = to_send(query.weights, clause_budget(capabilities, where))
        if not kept:
            return None
        full_match_score = self.full_match_score(query.weights)
        product, scale = dialect_of(capabilities).weights_query("weights", _features(kept), capabilities)
        return Clause(filtered(product, where), scale, kept, dropped, full_match_score=full_match_score)

    def query_features(self, query: Encoding, capabilities: Capabilities) -> dict[str, float]:
        """The features of a query with the factors that `clause` sends, for a client that makes the clause itself."""
        clause = self.clause(query, size=1, where=(), capabilities=capabilities)
        return {} if clause is None else _features({term: factor * clause.scale for term, factor in (clause.terms or {}).items()})

    def explain(
        self, query: Encoding, clause: Clause, stored: Mapping[str, Any], engine_explanation: Mapping[str, Any] | None
    ) -> list[TermShare]:
        """The share of each term: its factor times its stored impact. The shares sum to the server's score exactly."""
        del query, engine_explanation
        levels = self.levels_of(stored)
        shares: dict[str, float] = {}
        for alternatives in clause.parts or [[clause.terms or {}]]:
            counted = [
                {term: factor * levels[term] for term, factor in terms.items() if term in levels} for terms in alternatives
            ]
            for term, share in max(counted, key=lambda each: sum(each.values())).items():
                shares[term] = shares.get(term, 0.0) + share
        ordered = sorted(shares.items(), key=lambda pair: (-pair[1], pair[0]))
        return [TermShare(term, share) for term, share in ordered]


def _features(weights: Mapping[str, float]) -> dict[str, float]:
    """Weights of terms under the names that the field has for them."""
    return {escape(term, SEPARATOR): weight for term, weight in weights.items()}


def _whole(level: Any) -> Any:
    """A whole number as an integer; other values as they are."""
    return int(level) if isinstance(level, float) and level.is_integer() else level
