"""The weights signal: learned term weights as `rank_features`, scored as an exact dot product.

Impacts are quantised to integers of 1 to `levels`, which OpenSearch stores exactly (9 significant bits: every integer up
to 512, seen on 3.6.0). A term keeps at least 1: no word of a document is ever lost to rounding.

Two query forms give the same scores. `neural_sparse` where the plugin is found (short bodies); else one `rank_feature`
clause a term, with the function `linear`, which is exact; without a function the engine would saturate with a
pivot from shard-local statistics.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from termweave.signals.base import Clause, TermShare, clause_budget, filtered
from termweave.signals.terms import WeightedTerms, escape, to_send, unescape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from termweave.records import Capabilities, Document, Encoding
    from termweave.signals.base import Fitting

#: `neural_sparse` refuses token weights outside (0, 64].
_NEURAL_SPARSE_CAP = 64.0
#: `rank_feature` splits its field at the last dot and then matches nothing, without an error (3.6.0). Replacing dots by "_"
#: would merge 3.5 and 3_5.
SEPARATOR = "."


@dataclass(frozen=True)
class Weights(WeightedTerms):
    """Learned term weights; impacts above `w_max` are clipped."""

    name: ClassVar[str] = "weights"
    explains_from: ClassVar[tuple[str, ...]] = ("weights",)
    counted: ClassVar[tuple[str, str] | None] = ("weights_terms", "impacts")

    @classmethod
    def fit(cls, fitting: Fitting) -> Self:
        """With the saturation asked for, too; term frequencies have BM25's."""
        return replace(super().fit(fitting), saturation=fitting.saturation)

    def properties(self) -> dict[str, Any]:
        """The features, and two companions that can be aggregated (the field itself cannot)."""
        return {"weights": {"type": "rank_features"}, "weights_terms": {"type": "integer"}, "weights_sum": {"type": "long"}}

    def fields(self, document: Document, encoding: Encoding) -> dict[str, Any]:
        """The features of one document; an empty object is left out."""
        weights = self.kept(document, encoding)
        if weights is None:
            return {"weights_terms": 0, "weights_sum": 0}
        impacts = self.quantise(weights.weights).tolist()
        joined = "\n".join(weights.terms)  # few texts need the escape: two looks at all terms are cheaper than two at each
        awkward = SEPARATOR in joined or "%" in joined
        names = [escape(term, SEPARATOR) for term in weights.terms] if awkward else map(str, weights.terms)  # of numpy's strings
        features = dict(zip(names, impacts, strict=True))
        return {"weights": features, "weights_terms": len(features), "weights_sum": sum(features.values())}

    def canonical(self, stored: Mapping[str, Any]) -> bytes:
        """The features as JSON, in the order of the names."""
        import orjson  # noqa: PLC0415 - not needed by `--help`

        return orjson.dumps(stored.get("weights") or {}, option=orjson.OPT_SORT_KEYS)

    def levels_of(self, stored: Mapping[str, Any]) -> dict[str, float]:
        """The features, by their terms."""
        features = stored.get("weights") or {}
        parts = features if isinstance(features, list) else [features]  # the engine takes several objects, and numbers in quotes
        return {unescape(name, SEPARATOR): float(level) for part in parts for name, level in part.items()}

    def clause(
        self, query: Encoding, *, size: int, where: Sequence[Mapping[str, Any]], capabilities: Capabilities
    ) -> Clause | None:
        """One weighted clause a term; terms beyond the server's limit are dropped, the lightest first, and named."""
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
        """Factor times stored impact, term by term: exactly the sum the engine made."""
        del query, engine_explanation
        levels = self.levels_of(stored)
        shares = [TermShare(term, factor * levels[term]) for term, factor in (clause.terms or {}).items() if term in levels]
        return sorted(shares, key=lambda share: (-share.share, share.term))
