"""The term_frequency signal: the same learned weights as term frequencies, scored by BM25 with parameters of its own.

    tf(t, d) = round(100 * w(t, d) / w_max)
    score = sum over t in the query of w(t, q) * idf(t) * tf / (tf + k1 * (1 - b + b * |d| / avg|d|)),   |d| = sum of tf

(DeepCT, Dai and Callan 2020: tf = round(100 * y) for 0 <= y <= 1, k1 10, b .9.) The weights signal is a plain dot product; here
the engine weighs rare words, saturates and normalises by length with statistics of its own. It needs nothing but core
OpenSearch (`delimited_term_freq`, 2.10 and newer), and k1 and b can be changed without indexing again (close, settings, open).

What the engine does (run on 3.6.0): a value is ``"term|tf"``, split at the first bar, so that a bar inside a term refuses the
whole document, and so does a tf below 1; document lengths are kept in a lossy byte; idf is that of a shard.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from termweave.signals.base import Clause, TermShare, clause_budget, filtered
from termweave.signals.engine_explanation import term_shares
from termweave.signals.terms import WeightedTerms, escape, to_send, unescape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from termweave.records import Capabilities, Document, Encoding

_FIELD = "term_frequency"
#: Between a term and its frequency.
DELIMITER = "|"
#: Name of filter, analyzer and similarity in the index's settings.
_OURS = "termweave_term_frequency"


@dataclass(frozen=True)
class TermFrequency(WeightedTerms):
    """Learned term weights as term frequencies under BM25.

    Attributes:
        levels: The term frequency of `w_max`; heavier impacts are clipped to it.
        k1: How fast a term frequency stops counting.
        b: How much documents with a large sum of term frequencies are held back.
    """

    name: ClassVar[str] = "term_frequency"
    default: ClassVar[bool] = False  # it repeats what the weights signal holds, and is the weaker of the two (docs/impacts.md)

    levels: int = 100
    k1: float = 10.0
    b: float = 0.9

    def properties(self) -> dict[str, Any]:
        """Tokens with frequencies; a `match` of one's own takes terms separated by spaces."""
        text = {"type": "text", "index_options": "freqs", "analyzer": _OURS, "search_analyzer": "whitespace", "similarity": _OURS}
        return {_FIELD: text}

    def settings(self) -> dict[str, Any]:
        """The filter that reads ``term|tf``, and the similarity."""
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
        """``term|tf``, one a term."""
        weights = self.kept(document, encoding)
        if weights is None:
            return {}
        frequencies = self.quantise(weights.weights).tolist()
        return {
            _FIELD: [f"{escape(term, DELIMITER)}{DELIMITER}{tf}" for term, tf in zip(weights.terms, frequencies, strict=True)]
        }

    def canonical(self, stored: Mapping[str, Any]) -> bytes:
        """The tokens, sorted; a token holds no line break that is not its term's own, and its tf is behind the last bar."""
        return "\n".join(sorted(stored.get(_FIELD) or ())).encode()

    def levels_of(self, stored: Mapping[str, Any]) -> dict[str, float]:
        """The term frequencies, by their terms; 1 where a token has none, as the engine counts what another program wrote so."""
        found = stored.get(_FIELD)
        tokens = (
            str(token).partition(DELIMITER) for token in (found if isinstance(found, list) else [found]) if token is not None
        )
        return {unescape(name, DELIMITER): float(tf or 1) for name, _, tf in tokens}

    def clause(
        self, query: Encoding, *, size: int, where: Sequence[Mapping[str, Any]], capabilities: Capabilities
    ) -> Clause | None:
        """One `term` a term, with the query's weight as boost; those beyond the server's limit are dropped, the lightest first."""
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
        """The engine's own explanation, term by term: only it knows the shard's statistics."""
        del query, clause, stored
        return [replace(each, term=unescape(each.term, DELIMITER)) for each in term_shares(engine_explanation, _FIELD)]
