"""The weights signal: learned term weights, stored as `rank_features` and scored as an exact dot product.

Impacts are rounded to integers from 1 to `levels`, which OpenSearch stores exactly (9 significant bits: every integer up to 512,
measured on 3.6.0). Every term gets at least 1, so that rounding loses no word of a document.

Two forms of query give the same scores: `neural_sparse` if the server has its plugin (the request is shorter), else one
`rank_feature` clause per term. Its function `linear` is exact; without a function the server would saturate scores around a pivot
that depends on the shard.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from termweave.signals.base import Clause, TermShare, clause_budget, filtered
from termweave.signals.impacts import WeightedTerms, escape, to_send, unescape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from termweave.records import Capabilities, Document, Encoding

#: `neural_sparse` accepts only token weights in (0, 64].
_NEURAL_SPARSE_CAP = 64.0
#: `rank_feature` splits its field at the last dot. A term with a dot would match nothing, without an error (3.6.0), so dots are
#: escaped. Replacing them by "_" would merge 3.5 and 3_5.
SEPARATOR = "."


@dataclass(frozen=True)
class Weights(WeightedTerms):
    """Learned term weights; impacts above `w_max` are clipped."""

    name: ClassVar[str] = "weights"
    explains_from: ClassVar[tuple[str, ...]] = ("weights",)
    counted: ClassVar[tuple[str, str] | None] = ("weights_terms", "impacts")

    def properties(self) -> dict[str, Any]:
        """The features, and their number and sum as fields that can be aggregated (the features cannot)."""
        return {"weights": {"type": "rank_features"}, "weights_terms": {"type": "integer"}, "weights_sum": {"type": "long"}}

    def fields(self, document: Document, encoding: Encoding) -> dict[str, Any]:
        """The features of one document, their number and their sum. Empty features are left out."""
        weights = self.kept(document, encoding)
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
        """The features as JSON, sorted by name."""
        import orjson  # noqa: PLC0415 - not needed by `--help`

        return orjson.dumps(stored.get("weights") or {}, option=orjson.OPT_SORT_KEYS)

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
        """A `neural_sparse` clause, or one `rank_feature` per term. The lightest terms are dropped if the server allows fewer."""
        del size
        if query.weights is None:
            return None
        kept, dropped = to_send(query.weights, clause_budget(capabilities, where))
        if not kept:
            return None
        par = self.par(query.weights)
        if capabilities.neural_sparse:
            scale = min(1.0, _NEURAL_SPARSE_CAP / max(kept.values()))
            tokens = {escape(term, SEPARATOR): factor * scale for term, factor in kept.items()}
            sparse = {"neural_sparse": {"weights": {"query_tokens": tokens}}}
            return Clause(filtered(sparse, where), scale, kept, dropped, par=par)
        features = [
            {"rank_feature": {"field": f"weights.{escape(term, SEPARATOR)}", "boost": factor, "linear": {}}}
            for term, factor in kept.items()
        ]
        return Clause(filtered({"bool": {"should": features, "minimum_should_match": 1}}, where), 1.0, kept, dropped, par=par)

    def explain(
        self, query: Encoding, clause: Clause, stored: Mapping[str, Any], engine_explanation: Mapping[str, Any] | None
    ) -> list[TermShare]:
        """The share of each term: its factor times its stored impact. The shares sum to the server's score exactly."""
        del query, engine_explanation
        levels = self.levels_of(stored)
        shares = [TermShare(term, factor * levels[term]) for term, factor in (clause.terms or {}).items() if term in levels]
        return sorted(shares, key=lambda share: (-share.share, share.term))
