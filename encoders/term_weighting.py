"""Compute term weights: the BM25 anchor, the form of the weight function, and term weights from the logits of word-pieces.

The anchor of a learned weight is the BM25 impact of the same term in the same document:

    bm25(t, d) = idf(t) * tf * (k1 + 1) / (tf + k1 * (1 - b + b * dl / avgdl))      (Robertson and Zaragoza 2009, eq. 3.15)

with Lucene's idf, ``ln(1 + (N - df + .5) / (df + .5))``. Lucene omits the constant ``(k1 + 1)`` since version 8.0. It is
kept here, so that a term which occurs once in a document of average length has exactly its idf as impact. The ranking is the same.
Worked example: N = 10, df = 1, so idf = ln(1 + 9.5 / 1.5) = 1.99; tf = 2 in a document of average length with k1 = 1.2:
2 * 2.2 / (2 + 1.2) = 1.375; the impact is 2.74.

========  ===================  ====================================  =========================================
anchor    weight of a term     weight of a query's term              with z = 0, or for a word that the model cannot see
========  ===================  ====================================  =========================================
bm25      idf(t) * f^p * m(z)  sum over its occurrences of m(z)      idf(t) * f^p; p = 1: its BM25 impact
idf       idf(t) * m(z)        the same                              its idf
none      m(z)                 the same                              0; for an unseen word the text's mean weight, or 0
========  ===================  ====================================  =========================================

``f`` is BM25's frequency part, bm25(t, d) / idf(t), and p is its power (`Form.tf_power`), which decides how much repetitions count:
1 is BM25, 0 is idf. A power in between ranks better than both on most collections (docs/term-weights.md).

``m`` is the activation: softplus(z + ln(e - 1)), which is 1 at z = 0; log(1 + ReLU(z)) (FecTek, Eq. 1); or max(z, 0), the output of a
regression without its negative part (LE-BS, 3.2). ``z`` of a word is the maximum over its pieces, or their sum (LE-BS, 3.2.1: the
weight of a Chinese word is distributed over its characters); that of a document's term is the maximum over its occurrences. If the model
did not see a word, softplus gives 1: with the anchor bm25 the dot product of document and query is then BM25's score.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from termweave.errors import ModelError
from termweave.records import TermWeights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from termweave.encoders.analysis.words import Words
    from termweave.statistics import CorpusStatistics


@dataclass(frozen=True, slots=True)
class BM25:
    """BM25 with its two parameters.

    Attributes:
        k1: How fast repetitions of a term stop counting.
        b: How strongly the length of a document counts, 0 to 1.
    """

    k1: float = 1.2
    b: float = 0.75

    @classmethod
    def from_anchor(cls, anchor: Mapping[str, Any]) -> BM25:
        """Read the parameters from the `anchor` of a manifest."""
        return cls(**{name: float(anchor[name]) for name in ("k1", "b") if name in anchor})

    def idf(self, terms: Sequence[str], statistics: CorpusStatistics) -> NDArray[np.float64]:
        """The idf of many terms, as `CorpusStatistics.idf` computes it: float64 ``(len(terms),)``; a term that was never counted has df 0."""
        get = statistics.document_frequency.get
        frequencies = np.fromiter((get(term, 0) for term in terms), dtype=np.float64, count=len(terms))
        rest = np.maximum(statistics.documents - frequencies, 0.0)
        return np.log1p((rest + 0.5) / (frequencies + 0.5))

    def impacts(
        self, idf: NDArray[np.float64], term_frequencies: NDArray[np.float64], length: int, statistics: CorpusStatistics
    ) -> NDArray[np.float64]:
        """The BM25 impact of each term of one document.

        Args:
            idf: The idf of each term, ``(n,)``.
            term_frequencies: Occurrences of each term in the whole document, ``(n,)``.
            length: Number of terms of the whole document, repetitions included.
            statistics: The statistics of the corpus; only `average_length` is used.

        Returns:
            float64 ``(n,)``.
        """
        average = statistics.average_length
        relative = length / average if average > 0 else 1.0
        norm = self.k1 * (1.0 - self.b + self.b * relative)
        return idf * term_frequencies * (self.k1 + 1.0) / (term_frequencies + norm)


#: The number whose softplus is 1.
UNIT = math.log(math.e - 1.0)
#: Tags for the place of a piece in its word; 0 is no place ([CLS], [SEP], padding).
BEGIN, MIDDLE, END, SINGLE = 1, 2, 3, 4


@dataclass(frozen=True, slots=True)
class Form:
    """The form of the weight function; the formulas are in the docstring of the module.

    Attributes:
        kind: The anchor of a document's weight.
        activation: The function from logit to multiplier (with anchor "none": to weight).
        pieces: How the logits of a word's pieces become the word's logit: their maximum or their sum.
        query: The weights of a query: learned like a document's, idf, or 1 per occurrence.
        tf_power: With kind "bm25", the power of its frequency part: 1 is BM25, 0 is idf.
        beyond: With kind "none", the weight of a word behind the cut of its text, which the model did not read: "mean" gives it
            the mean weight of the other words, "none" no weight, as if the text ended at the cut.
    """

    kind: Literal["bm25", "idf", "none"] = "bm25"
    activation: Literal["softplus", "log", "linear"] = "softplus"
    pieces: Literal["max", "sum"] = "max"
    query: Literal["learned", "idf", "one"] = "learned"
    tf_power: float = 1.0
    beyond: Literal["mean", "none"] = "mean"

    @classmethod
    def from_anchor(cls, anchor: Mapping[str, Any]) -> Form:
        """The form that the `anchor` of a manifest describes; missing entries have their defaults."""
        return cls(**{field.name: anchor[field.name] for field in fields(cls) if field.name in anchor})

    def activate(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """Apply the activation ``m`` to each logit."""
        if self.activation == "softplus":
            return np.logaddexp(0.0, logits + UNIT)
        positive = np.maximum(logits, 0.0)
        return np.log1p(positive) if self.activation == "log" else positive

    def of_words(self, logits: NDArray[np.float64], word_of_piece: NDArray[np.int64], words: int) -> NDArray[np.float64]:
        """The multiplier ``m`` of each word, from the logits of its pieces; NaN for a word that the model did not see: ``(pieces,) -> (words,)``."""
        seen = word_of_piece >= 0
        if self.pieces == "max":
            joined = np.full(words, -np.inf)
            np.maximum.at(joined, word_of_piece[seen], logits[seen])
        else:
            joined = np.bincount(word_of_piece[seen], weights=logits[seen], minlength=words).astype(np.float64)
        pieces = np.bincount(word_of_piece[seen], minlength=words)
        return np.where(pieces > 0, self.activate(joined), np.nan)

    @property
    def averages(self) -> bool:
        """Whether an unseen word gets the mean multiplier of the seen words instead of 1."""
        return self.activation != "softplus" and self.beyond == "mean"

    def unseen(self, seen: NDArray[np.float64]) -> float:
        """The multiplier ``m`` of a word that the model could not see, given the multipliers `seen` of the text's other indexed words."""
        if self.activation == "softplus":
            return 1.0
        return float(seen.mean()) if len(seen) and self.averages else 0.0


def place_tags(word_of_piece: NDArray[np.int64]) -> NDArray[np.float32]:
    """Tag each piece with its place in its word (begin, middle, end or single): float32 ``(pieces,)``, 0 for special pieces.

    Example:
        >>> place_tags(np.array([-1, 0, 0, 0, 1, 2, 2, -1])).tolist()
        [0.0, 1.0, 2.0, 3.0, 4.0, 1.0, 3.0, 0.0]
    """
    outside = np.array([-2], dtype=np.int64)
    first = word_of_piece != np.concatenate((outside, word_of_piece[:-1]))
    last = word_of_piece != np.concatenate((word_of_piece[1:], outside))
    tags = np.select([first & last, first, last], [SINGLE, BEGIN, END], MIDDLE)
    return np.where(word_of_piece < 0, 0, tags).astype(np.float32)


Kind = Literal["document", "query"]

#: The divisor of idf and BM25 in the features of a head (`encoders.models.joint_model`).
FEATURE_SCALE = 10.0
_DEFAULT = Form()


def check_finite(values: NDArray[np.float32]) -> None:
    """Check that all outputs of a model are finite numbers.

    Raises:
        ModelError: An output is NaN or infinite.
    """
    if not np.isfinite(values).all():
        raise ModelError("The model gave a term weight that is not a number (NaN or infinity).", "The model folder is damaged.")


@dataclass(frozen=True, slots=True)
class Anchored:
    """The distinct terms of one text before the model runs: their anchors, and the words that they come from.

    Attributes:
        terms: m distinct terms, by first occurrence.
        anchor: float64 ``(m,)``: of each term the BM25 impact in a document, or the number of occurrences in a query.
        idf: float64 ``(m,)``, the idf of each term.
        term_of_word: int64 ``(words,)``: the index into `terms` of each word, -1 for a dropped word.
        form: How logits become weights.
    """

    terms: tuple[str, ...]
    anchor: NDArray[np.float64]
    idf: NDArray[np.float64]
    term_of_word: NDArray[np.int64]
    form: Form = _DEFAULT

    def features(self, word_of_piece: NDArray[np.int64], kind: Kind) -> NDArray[np.float32]:
        """The scalar inputs of the heads: float32 ``(pieces, 2)``, idf/10 and (documents only) BM25/10 of each piece's word."""
        term = self.term_of_piece(word_of_piece)
        is_term = term >= 0
        features = np.zeros((len(term), 2), dtype=np.float32)
        features[is_term, 0] = self.idf[term[is_term]] / FEATURE_SCALE
        if kind == "document":
            features[is_term, 1] = self.anchor[term[is_term]] / FEATURE_SCALE
        return features

    def term_of_piece(self, word_of_piece: NDArray[np.int64]) -> NDArray[np.int64]:
        """int64 ``(pieces,)``: the index into `terms` of each piece's term; -1 for [CLS], [SEP] and pieces of dropped words."""
        if not len(self.term_of_word):
            return np.full(len(word_of_piece), -1, dtype=np.int64)
        return np.where(word_of_piece >= 0, self.term_of_word[word_of_piece], -1)

    def weights(self, logits: NDArray[np.float32], word_of_piece: NDArray[np.int64], kind: Kind) -> TermWeights:
        """Make term weights of the logits.

        Args:
            logits: The logit z of every piece that the model saw, ``(pieces,)``.
            word_of_piece: int64 ``(pieces,)``: the index of each piece's word, -1 for [CLS] and [SEP].
            kind: "document" or "query": which formula applies.

        Raises:
            ModelError: A logit is NaN or infinite: it would count as a word that the model did not see.
        """
        check_finite(logits)
        impacts = (self._document if kind == "document" else self._query)(logits.astype(np.float64), word_of_piece)
        weights = impacts.astype(np.float32)
        full_match_score = float(impacts @ self.idf) if kind == "query" and self.form.kind != "none" else None
        result, positive = TermWeights(self.terms, weights, full_match_score), weights > 0
        return result if positive.all() else result.part(np.flatnonzero(positive).tolist())

    def fixed_weights(self) -> NDArray[np.float64]:
        """The weights that a document's terms have if every multiplier is 1: ``(m,)``."""
        if self.form.kind == "none":
            return np.ones(len(self.terms))
        if self.form.kind == "idf":
            return self.idf
        if self.form.tf_power == 1:
            return self.anchor
        return self.idf * (self.anchor / self.idf) ** self.form.tf_power

    def _document(self, logits: NDArray[np.float64], word_of_piece: NDArray[np.int64]) -> NDArray[np.float64]:
        values = self.form.of_words(logits, word_of_piece, len(self.term_of_word))
        usable = (self.term_of_word >= 0) & ~np.isnan(values)
        best = np.full(len(self.terms), -np.inf)
        np.maximum.at(best, self.term_of_word[usable], values[usable])
        unseen = np.isneginf(best)
        best[unseen] = self.form.unseen(best[~unseen])
        impacts: NDArray[np.float64] = self.fixed_weights() * best
        return impacts

    def of_occurrences(self, logits: NDArray[np.float64], word_of_piece: NDArray[np.int64]) -> NDArray[np.float64]:
        """The weight of each occurrence of a query's terms, in reading order: ``(occurrences,)``."""
        is_term = self.term_of_word >= 0
        if self.form.query != "learned":
            return self.idf[self.term_of_word[is_term]] if self.form.query == "idf" else np.ones(int(is_term.sum()))
        values = self.form.of_words(logits, word_of_piece, len(self.term_of_word))
        unseen = np.isnan(values)
        values[unseen] = self.form.unseen(values[is_term & ~unseen])
        return values[is_term]

    def _query(self, logits: NDArray[np.float64], word_of_piece: NDArray[np.int64]) -> NDArray[np.float64]:
        if self.form.query != "learned":
            return self.anchor * (self.idf if self.form.query == "idf" else 1.0)
        occurrences = self.term_of_word[self.term_of_word >= 0]
        weights = self.of_occurrences(logits, word_of_piece)
        return np.bincount(occurrences, weights=weights, minlength=len(self.terms)).astype(np.float64)


def anchored(words: Words, statistics: CorpusStatistics, bm25: BM25, kind: Kind, form: Form = _DEFAULT) -> Anchored:
    """Make the terms and anchors of one text. BM25 uses the length of the whole text, even if the model reads only its beginning."""
    index: dict[str, int] = {}
    places = [index.setdefault(term, len(index)) if term else -1 for term in words.terms]
    term_of_word = np.array(places, dtype=np.int64)
    terms = tuple(index)
    occurrences = term_of_word[term_of_word >= 0]
    counts = np.bincount(occurrences, minlength=len(terms)).astype(np.float64)
    idf = bm25.idf(terms, statistics)
    anchor = bm25.impacts(idf, counts, len(occurrences), statistics) if kind == "document" else counts
    return Anchored(terms, anchor, idf, term_of_word, form)
