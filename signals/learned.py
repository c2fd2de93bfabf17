"""The learned signal: learned term weights that a plain `match` query scores, from any client and without a model.

    f(t, d) = k1 * y / (1 - y),   y = w(t, d) / (2 * s_max * idf(t))
    score of a match query = sum over the words of the query of idf(t) * f / (f + k1) = sum of w(t, d) / (2 * s_max)

(after DeepCT, Dai and Callan 2020, which stores learned weights as term frequencies.) The server's BM25 multiplies by its own idf and
saturates; the stored frequency is the inverse of both. So the score is the dot product of the impacts with the counts of
the query's words, on the scale of BM25's scores, up to rounding and to the difference between the idf of the build and that of the server
(which counts each shard by itself, and goes on counting). Length normalisation is off, because impacts are normalised already.

The field needs only core OpenSearch (`delimited_term_freq`, 2.10 and newer). It splits a value ``"term|f"`` at the first bar, and refuses
the whole document if a term contains a bar or f is below 1 (3.6.0).

The field's search analyzer cuts words as the model's analysis does, so that a plain `match` query finds the terms that documents store.
The analyzer's words are those of `encoders.analysis.words` except for three sorts of characters: those that Unicode named lately, which the
server's Java knows and the tokeniser does not; letters of Hangul and halves of Indic vowel signs that are written one by one, which the
model joins; and marks of musical notation.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from termweave.dialect import OPENSEARCH, ServerDialect, dialect_of
from termweave.encoders.analysis.words import ANALYSIS, LONGEST_TERM, STOP_WORDS, replacement
from termweave.encoders.term_weighting import BM25
from termweave.signals.lexical import MatchSignal
from termweave.signals.weights import WeightedTerms, escape, scale, unescape

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from termweave.contracts.signal import Fitting
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
class LearnedWeights(MatchSignal, WeightedTerms):
    """The signal `learned`: learned term weights, stored as the term frequencies of a text field.

    Attributes:
        analysis: Id of the model's analysis, which the field's search analyzer repeats.
        k1: BM25's saturation parameter, and the frequency of the impact `w_max`. An impact is divided by its term's idf in this signal.
    """

    name: ClassVar[str] = "learned"
    default: ClassVar[bool] = False  # it stores the impacts of the weights signal once more, for clients without a model
    text_field: ClassVar[tuple[str, str]] = (FIELD, f"{ANALYZER}_search")

    analysis: str = ""
    k1: int = 1000

    @classmethod
    def fit(cls, fitting: Fitting) -> Self:
        """Make the signal for an index: `w_max` is a high quantile of a sample's impacts, each divided by its term's idf."""
        statistics = fitting.statistics
        sample = [each.weights for each in fitting.sample if each.weights is not None]
        shares = [_over_idf(weights.terms, weights.weights, statistics) for weights in sample] if statistics else []
        analysis = statistics.analysis if statistics else ""
        return replace(super().fit(fitting), w_max=scale(shares), unit=1.0, analysis=analysis)

    @classmethod
    def unavailable(cls, capabilities: Capabilities, analysis: str | None = None) -> str | None:
        """The reason why an index cannot have this signal; None: it can.

        Elasticsearch has no token filter that reads term frequencies, and no server analyzer repeats other analyses than that of English words.
        """
        if dialect_of(capabilities) is not OPENSEARCH:
            return "Elasticsearch has no token filter 'delimited_term_freq'"
        if analysis not in {None, ANALYSIS}:
            return f"no analyzer of the server cuts words as the model's analysis {analysis!r} does"
        return None

    def properties(self, dialect: ServerDialect = OPENSEARCH) -> dict[str, Any]:
        """The mapping of the text field, whose search analyzer takes ordinary text."""
        names = {"analyzer": ANALYZER, "search_analyzer": f"{ANALYZER}_search", "similarity": ANALYZER}
        return {FIELD: {"type": "text", "index_options": "freqs", "norms": False, **names}}

    def settings(self, dialect: ServerDialect = OPENSEARCH) -> dict[str, Any]:
        """The index settings: the filter that reads ``term|f`` and its analyzer, the search analyzer, and the similarity."""
        return {
            f"index.analysis.filter.{ANALYZER}.type": "delimited_term_freq",
            f"index.analysis.filter.{ANALYZER}.delimiter": DELIMITER,
            f"index.analysis.analyzer.{ANALYZER}.type": "custom",
            f"index.analysis.analyzer.{ANALYZER}.tokenizer": "keyword",
            f"index.analysis.analyzer.{ANALYZER}.filter": [ANALYZER],
            f"index.similarity.{ANALYZER}.type": "BM25",
            f"index.similarity.{ANALYZER}.k1": float(self.k1),
            f"index.similarity.{ANALYZER}.b": 0.0,
            **english_words(f"{ANALYZER}_search"),
        }

    def fields(self, document: Document, encoding: Encoding, statistics: CorpusStatistics | None = None) -> dict[str, Any]:
        """The values ``term|f`` of a document, one for each term, as the index stores them; {} for a document without weights."""
        weights = self.stored_weights(document, encoding)
        if weights is None or statistics is None:
            return {}
        frequencies = self.quantise(_over_idf(weights.terms, weights.weights, statistics)).tolist()
        return {FIELD: [f"{escape(term, DELIMITER)}{DELIMITER}{f}" for term, f in zip(weights.terms, frequencies, strict=True)]}

    def quantise(self, impacts: NDArray[np.float32]) -> NDArray[np.int64]:
        """Round impacts that were divided by idf ``(n,)`` to term frequencies from 1 to 9 * k1; the least is 1, so that no word is lost."""
        y = np.minimum(impacts.astype(np.float64) / (2 * self.w_max), _MOST)
        frequencies: NDArray[np.int64] = np.maximum(np.rint(self.k1 * y / (1 - y)), 1).astype(np.int64)
        return frequencies

    def canonical(self, stored: Mapping[str, Any]) -> bytes:
        """Bytes for a document's digest: the stored values in sorted order, one per line."""
        return "\n".join(sorted(stored.get(FIELD) or ())).encode()

    def levels_of(self, stored: Mapping[str, Any]) -> dict[str, float]:
        """Term -> its frequency in a document's `_source`.

        A value without a frequency, which another program may have written, counts 1, as it does for the server.
        """
        field = stored.get(FIELD)
        values = field if isinstance(field, list) else [field]
        pairs = (str(value).partition(DELIMITER) for value in values if value is not None)
        return {unescape(name, DELIMITER): float(f or 1) for name, _, f in pairs}


def _over_idf(terms: Sequence[str], weights: NDArray[np.float32], statistics: CorpusStatistics) -> NDArray[np.float32]:
    """Divide each weight ``(n,)`` by the idf of its term."""
    return (weights / BM25().idf(terms, statistics)).astype("float32")


#: Ideographs, of which each is a word: the ranges of BERT.
_IDEOGRAPHS = r"\u3400-\u4DBF\u4E00-\u9FFF\uF900-\uFAFF\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}\x{2B740}-\x{2B81F}\x{2B820}-\x{2CEAF}\x{2F800}-\x{2FA1F}"
#: A symbol beyond ASCII; an ideograph; or letters, digits and all else but white space, punctuation and symbols.
_WORD = rf"[\p{{S}}&&[^\x00-\x7F]]|[{_IDEOGRAPHS}]|[^\s\p{{Z}}\p{{P}}\p{{S}}{_IDEOGRAPHS}]+"
#: Characters that vanish: marks, and what BERT takes for control characters.
_NOTHING = r"[\p{Mn}\p{Me}\p{Cf}\p{Co}\p{Cn}\uFFFD]|[\p{Cc}&&[^\t\n\r]]"
_HANGUL = range(0xAC00, 0xD7A4)


def _plain(character: str) -> str:
    """The form in which the model's tokeniser reads a character, except for upper and lower case."""
    read = replacement(character) or character
    if read.isspace():
        return " "
    bare = "".join(part for part in unicodedata.normalize("NFD", read.strip()) if unicodedata.category(part) != "Mn")
    return unicodedata.normalize("NFC", bare) if bare else character


@cache
def _mappings() -> list[str]:
    """The rules of a `mapping` character filter that writes accented letters, ligatures and separators as the tokeniser reads them."""
    characters = [chr(code) for code in range(sys.maxunicode + 1) if code not in _HANGUL and not 0xD800 <= code <= 0xDFFF]
    replaced = ((character, _plain(character)) for character in characters)
    return [f"{_written(character)}=>{_written(plain)}" for character, plain in replaced if plain != character]


def _written(text: str) -> str:
    """Write a text as a rule of a `mapping` filter must have it: with escapes for white space, line ends and other signs."""
    return "".join(sign if sign.isalpha() or sign > "\uffff" else f"\\u{ord(sign):04x}" for sign in text)


def english_words(name: str) -> dict[str, Any]:
    """The index settings of an analyzer `name` that repeats the model's analysis of English words; the names of its parts begin with `name`."""
    parts: Mapping[str, Mapping[str, Any]] = {
        f"char_filter.{name}_plain": {"type": "mapping", "mappings": _mappings()},
        f"char_filter.{name}_nothing": {"type": "pattern_replace", "pattern": _NOTHING, "replacement": ""},
        f"tokenizer.{name}": {"type": "pattern", "pattern": _WORD, "group": 0},
        f"filter.{name}_stop": {"type": "stop", "stopwords": sorted(STOP_WORDS)},
        f"filter.{name}_stem": {"type": "snowball", "language": "Porter"},
        f"filter.{name}_length": {"type": "length", "min": 1, "max": LONGEST_TERM},
        f"analyzer.{name}": {
            "type": "custom",
            "char_filter": [f"{name}_plain", f"{name}_nothing"],
            "tokenizer": name,
            "filter": ["lowercase", f"{name}_stop", f"{name}_stem", f"{name}_length"],
        },
    }
    return {f"index.analysis.{part}.{key}": value for part, settings in parts.items() for key, value in settings.items()}
