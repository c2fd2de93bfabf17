"""The learned signal: learned term weights that a plain `match` query scores, from any client and without a model.

    f(t, d) = k1 * y / (1 - y),   y = w(t, d) / (2 * s_max * idf(t))
    score of a match query = sum over the words of the query of idf(t) * f / (f + k1) = sum of w(t, d) / (2 * s_max)

(after DeepCT, Dai and Callan 2020, which stores learned weights as term frequencies.) The server's BM25 multiplies by its own idf and
saturates; the stored frequency is the inverse of both. So the score is the dot product of the impacts with the counts of
the query's words, on the scale of BM25's scores, up to rounding and to the difference between the idf of the build and that of the server
(which counts each shard by itself, and goes on counting). Length normalisation is off: impacts have it.

The field needs only core OpenSearch (`delimited_term_freq`, 2.10 and newer). It splits a value ``"term|f"`` at the first bar, and refuses
the whole document if a term contains a bar or f is below 1 (3.6.0). The search analyzer cuts words as the model's analysis does
(`signals.search_analyzer`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from termweave.dialect import OPENSEARCH, dialect_of
from termweave.encoders.term_weighting.bm25_anchor import BM25
from termweave.signals.engine_explanation import term_shares
from termweave.signals.impacts import WeightedTerms, escape, scale, unescape
from termweave.signals.lexical import match_clause
from termweave.signals.search_analyzer import OF_ANALYSIS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from termweave.contracts.signal import Clause, Fitting, TermShare
    from termweave.dialect import ServerDialect
    from termweave.records import Capabilities, Document, Encoding
    from termweave.statistics import CorpusStatistics

FIELD = "learned"
#: The character between a term and its frequency.
DELIMITER = "|"
#: Name of the analyzer and of the similarity, and prefix of what belongs to them.
ANALYZER = "termweave_learned"
#: The largest y, so that f ends at 9 * k1.
_MOST = 0.9


@dataclass(frozen=True)
class LearnedWeights(WeightedTerms):
    """Learned term weights as term frequencies of a text field.

    Attributes:
        analysis: Id of the model's analysis, which the field's search analyzer repeats.
        k1: BM25's saturation, and the frequency of the impact `w_max`, which is divided by its term's idf here.
    """

    name: ClassVar[str] = "learned"
    default: ClassVar[bool] = False  # it stores the impacts of the weights signal once more, for clients without a model
    text_field: ClassVar[tuple[str, str] | None] = (FIELD, f"{ANALYZER}_search")

    analysis: str = ""
    k1: int = 1000

    @classmethod
    def fit(cls, fitting: Fitting) -> Self:
        """Take a high quantile of the sample's impacts, each divided by its term's idf, as `w_max`."""
        statistics = fitting.statistics
        sample = [each.weights for each in fitting.sample if each.weights is not None]
        shares = [_over_idf(weights.terms, weights.weights, statistics) for weights in sample] if statistics else []
        pruning = fitting.pruning
        return cls(
            w_max=scale(shares),
            prune_share=pruning.share,
            prune_below=pruning.below,
            unit=1.0,
            analysis=statistics.analysis if statistics else "",
        )

    @classmethod
    def unavailable(cls, capabilities: Capabilities, analysis: str | None = None) -> str | None:
        """Elasticsearch has no token filter that reads term frequencies, and other analyses no analyzer of the server."""
        if dialect_of(capabilities) is not OPENSEARCH:
            return "Elasticsearch has no token filter 'delimited_term_freq'"
        if analysis is not None and analysis not in OF_ANALYSIS:
            return f"no analyzer of the server cuts words as the model's analysis {analysis!r} does"
        return None

    def properties(self, dialect: ServerDialect = OPENSEARCH) -> dict[str, Any]:
        """A text field whose search analyzer takes ordinary text."""
        del dialect
        names = {"analyzer": ANALYZER, "search_analyzer": f"{ANALYZER}_search", "similarity": ANALYZER}
        return {FIELD: {"type": "text", "index_options": "freqs", "norms": False, **names}}

    def settings(self, dialect: ServerDialect = OPENSEARCH) -> dict[str, Any]:
        """The filter that reads ``term|f`` and its analyzer, the search analyzer, and the similarity."""
        del dialect
        return {
            f"index.analysis.filter.{ANALYZER}.type": "delimited_term_freq",
            f"index.analysis.filter.{ANALYZER}.delimiter": DELIMITER,
            f"index.analysis.analyzer.{ANALYZER}.type": "custom",
            f"index.analysis.analyzer.{ANALYZER}.tokenizer": "keyword",
            f"index.analysis.analyzer.{ANALYZER}.filter": [ANALYZER],
            f"index.similarity.{ANALYZER}.type": "BM25",
            f"index.similarity.{ANALYZER}.k1": float(self.k1),
            f"index.similarity.{ANALYZER}.b": 0.0,
            **OF_ANALYSIS[self.analysis](f"{ANALYZER}_search"),
        }

    def fields(self, document: Document, encoding: Encoding, statistics: CorpusStatistics | None = None) -> dict[str, Any]:
        """The values ``term|f``, one per term."""
        weights = self.stored_weights(document, encoding)
        if weights is None or statistics is None:
            return {}
        frequencies = self.quantise(_over_idf(weights.terms, weights.weights, statistics)).tolist()
        return {FIELD: [f"{escape(term, DELIMITER)}{DELIMITER}{f}" for term, f in zip(weights.terms, frequencies, strict=True)]}

    def quantise(self, impacts: NDArray[np.float32]) -> NDArray[np.int64]:
        """Round impacts divided by idf ``(n,)`` to frequencies from 1 to 9 * k1, so that rounding loses no word."""
        y = np.minimum(impacts.astype(np.float64) / (2 * self.w_max), _MOST)
        frequencies: NDArray[np.int64] = np.maximum(np.rint(self.k1 * y / (1 - y)), 1).astype(np.int64)
        return frequencies

    def canonical(self, stored: Mapping[str, Any]) -> bytes:
        """The sorted values, one per line."""
        return "\n".join(sorted(stored.get(FIELD) or ())).encode()

    def levels_of(self, stored: Mapping[str, Any]) -> dict[str, float]:
        """Term -> its frequency; 1 if a value has none, as the server counts it (another program may have written such values)."""
        field = stored.get(FIELD)
        values = field if isinstance(field, list) else [field]
        pairs = (str(value).partition(DELIMITER) for value in values if value is not None)
        return {unescape(name, DELIMITER): float(f or 1) for name, _, f in pairs}

    def clause(
        self, query: Encoding, *, size: int, where: Sequence[Mapping[str, Any]], capabilities: Capabilities
    ) -> Clause | None:
        """The `match` query that any client can send."""
        del size
        return match_clause(FIELD, query.text, where, capabilities)

    def explain(
        self, query: Encoding, clause: Clause, stored: Mapping[str, Any], engine_explanation: Mapping[str, Any] | None
    ) -> list[TermShare]:
        """The share of each term, read from the server's explanation: only the server knows the shard's statistics."""
        del query, clause, stored
        return term_shares(engine_explanation, FIELD)


def _over_idf(terms: Sequence[str], weights: NDArray[np.float32], statistics: CorpusStatistics) -> NDArray[np.float32]:
    """Weights ``(n,)``, each divided by the idf of its term."""
    shares: NDArray[np.float32] = (weights / BM25().idf(terms, statistics)).astype("float32")
    return shares
