"""The term_frequency signal: learned term weights, stored as term frequencies and scored by BM25 with its own k1 and b.

    tf(t, d) = round(100 * w(t, d) / w_max)
    score = sum over t in the query of w(t, q) * idf(t) * tf / (tf + k1 * (1 - b + b * |d| / avg|d|)),   |d| = sum of tf

(DeepCT, Dai and Callan 2020: tf = round(100 * y) for 0 <= y <= 1, k1 10, b .9.) The weights signal is a plain dot product. Here
the server weighs rare words more, saturates, and normalises by length, with its own statistics. The signal needs only core
OpenSearch (`delimited_term_freq`, 2.10 and newer). To change k1 and b, close the index, change its settings and open it again.

The server's behaviour (measured on 3.6.0): it splits a value ``"term|tf"`` at the first bar, and refuses the whole document if a
term contains a bar or a tf is below 1. It stores document lengths in one byte, with loss. The idf is computed per shard.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from termweave.signals.base import Clause, TermShare, clause_budget, filtered
from termweave.signals.dialect import OPENSEARCH, dialect_of
from termweave.signals.engine_explanation import term_shares
from termweave.signals.impacts import WeightedTerms, escape, to_send, unescape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from termweave.records import Capabilities, Document, Encoding
    from termweave.signals.dialect import ServerDialect

_FIELD = "term_frequency"
#: The character between a term and its frequency.
DELIMITER = "|"
#: Name of the filter, the analyzer and the similarity in the index settings.
_OURS = "termweave_term_frequency"


@dataclass(frozen=True)
class TermFrequency(WeightedTerms):
    """Learned term weights as term frequencies, scored by BM25.

    Attributes:
        levels: The term frequency of the impact `w_max`; heavier impacts are clipped to it.
        k1: BM25's saturation: the larger, the more a high term frequency counts.
        b: BM25's length normalisation, 0 to 1: how much a large sum of term frequencies lowers the score.
    """

    name: ClassVar[str] = "term_frequency"
    default: ClassVar[bool] = False  # it stores the same impacts as the weights signal, and ranks worse (docs/impacts.md)

    levels: int = 100
    k1: float = 10.0
    b: float = 0.9

    @classmethod
    def unavailable(cls, capabilities: Capabilities) -> str | None:
        """Elasticsearch has no token filter that reads term frequencies."""
        return None if dialect_of(capabilities) is OPENSEARCH else "Elasticsearch has no token filter 'delimited_term_freq'"

    def properties(self, dialect: ServerDialect = OPENSEARCH) -> dict[str, Any]:
        """A text field of terms with frequencies. A `match` query on it takes terms separated by spaces."""
        del dialect
        text = {"type": "text", "index_options": "freqs", "analyzer": _OURS, "search_analyzer": "whitespace", "similarity": _OURS}
        return {_FIELD: text}

    def settings(self, dialect: ServerDialect = OPENSEARCH) -> dict[str, Any]:
        """The filter that reads ``term|tf``, its analyzer, and the similarity."""
        del dialect
        return {
            f"index.analysis.filter.{_OURS}.type": "delimited_term_freq",
            f"index.analysis.filter.{_OURS}.delimiter": DELIMITER,
            f"index.analysis.analyzer.{_OURS}.type": "custom",
            f"index.analysis.analyzer.{_OURS}.tokenizer": "keyword",
            f"index.analysis.analyzer.{_OURS}.filter": [_OURS],
            f"index.similarity.{_OURS}.type": "BM25",
            f"index.similarity.{_OURS}.k1": self.k1,
            f"index.similarity.{_OURS}.b": self.b,
        }

    def fields(self, document: Document, encoding: Encoding) -> dict[str, Any]:
        """The values ``term|tf``, one per term."""
        weights = self.kept(document, encoding)
        if weights is None:
            return {}
        frequencies = self.quantise(weights.weights).tolist()
        return {
            _FIELD: [f"{escape(term, DELIMITER)}{DELIMITER}{tf}" for term, tf in zip(weights.terms, frequencies, strict=True)]
        }

    def canonical(self, stored: Mapping[str, Any]) -> bytes:
        """The sorted values, one per line."""
        return "\n".join(sorted(stored.get(_FIELD) or ())).encode()

    def levels_of(self, stored: Mapping[str, Any]) -> dict[str, float]:
        """Term -> term frequency; 1 if a value has none, as the server counts it (another program may have written such values)."""
        field = stored.get(_FIELD)
        values = field if isinstance(field, list) else [field]
        pairs = (str(value).partition(DELIMITER) for value in values if value is not None)
        return {unescape(name, DELIMITER): float(tf or 1) for name, _, tf in pairs}

    def clause(
        self, query: Encoding, *, size: int, where: Sequence[Mapping[str, Any]], capabilities: Capabilities
    ) -> Clause | None:
        """One `term` query per term, with the query's weight as boost. The lightest terms are dropped if the server allows fewer."""
        del size
        if query.weights is None:
            return None
        kept, dropped = to_send(query.weights, clause_budget(capabilities, where))
        if not kept:
            return None
        clauses = [{"term": {_FIELD: {"value": escape(term, DELIMITER), "boost": factor}}} for term, factor in kept.items()]
        match = {"bool": {"should": clauses, "minimum_should_match": 1}}
        return Clause(filtered(match, where), terms=kept, dropped=dropped)

    def explain(
        self, query: Encoding, clause: Clause, stored: Mapping[str, Any], engine_explanation: Mapping[str, Any] | None
    ) -> list[TermShare]:
        """The share of each term, read from the server's explanation: only the server knows the shard's statistics."""
        del query, clause, stored
        return [replace(each, term=unescape(each.term, DELIMITER)) for each in term_shares(engine_explanation, _FIELD)]
