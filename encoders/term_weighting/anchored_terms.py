"""From the logits of word-pieces to term weights: the part of an anchored model that deals with words, not tensors.

    document:  weight(t, d) = bm25(t, d) * softplus(z_t + ln(e - 1)),   z_t = max over the pieces of all occurrences of t
    query:     weight(t, q) = sum over the occurrences w of t of softplus(z_w + ln(e - 1)),   z_w = max over the pieces of w

Other forms are in `weight_function`. With z = 0, or if the model did not see the word, softplus(ln(e - 1)) = 1: the document weight is
BM25, the query weight is the number of occurrences, and the dot product of both is BM25's score.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from termweave.encoders.term_weighting.weight_function import Form
from termweave.errors import ModelError
from termweave.records import TermWeights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from termweave.encoders.analysis.words import Words
    from termweave.encoders.term_weighting.bm25_anchor import BM25
    from termweave.statistics import CorpusStatistics

Kind = Literal["document", "query"]

#: The divisor of idf and BM25 in the features of a head (`encoders.models.joint_model`).
FEATURE_SCALE = 10.0
_DEFAULT = Form()


def check_finite(values: NDArray[np.float32]) -> None:
    """Refuse outputs of a model that are NaN or infinite.

    Raises:
        ModelError: One of them is.
    """
    if not np.isfinite(values).all():
        raise ModelError(
            "The model gave a term weight that is not a number (NaN or infinity).",
            "The model folder is damaged or was exported from a diverged training.",
        )


@dataclass(frozen=True, slots=True)
class Anchored:
    """One text before the model runs: its distinct terms, their anchors, and their words.

    Attributes:
        terms: m distinct terms, by first occurrence.
        anchor: float64 ``(m,)``: the BM25 impact for a document, the number of occurrences for a query.
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
        """int64 ``(pieces,)``: the index into `terms` of each piece, -1 for [CLS], [SEP] and pieces of dropped words."""
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
        weigh = self._document if kind == "document" else self._query
        impacts = weigh(logits.astype(np.float64), word_of_piece)
        weights = impacts.astype(np.float32)
        full_match_score = float(impacts @ self.idf) if kind == "query" and self.form.kind != "none" else None
        result, positive = TermWeights(self.terms, weights, full_match_score), weights > 0
        return result if positive.all() else result.part(np.flatnonzero(positive).tolist())

    def fixed_weights(self) -> NDArray[np.float64]:
        """The weights of a document's terms if every multiplier is 1: ``(m,)``."""
        if self.form.kind == "none":
            return np.ones(len(self.terms))
        if self.form.kind == "idf":
            return self.idf
        if self.form.tf_power == 1:
            return self.anchor
        worth: NDArray[np.float64] = self.idf * (self.anchor / self.idf) ** self.form.tf_power
        return worth

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
    """Make the anchor of one text. BM25 uses the length of the whole text, also if the model reads only its beginning."""
    index: dict[str, int] = {}
    term_of_word = np.fromiter(
        (index.setdefault(term, len(index)) if term else -1 for term in words.terms), dtype=np.int64, count=len(words.terms)
    )
    terms = tuple(index)
    occurrences = term_of_word[term_of_word >= 0]
    counts = np.bincount(occurrences, minlength=len(terms)).astype(np.float64)
    idf = bm25.idf(terms, statistics)
    anchor = bm25.impacts(idf, counts, len(occurrences), statistics) if kind == "document" else counts
    return Anchored(terms, anchor, idf, term_of_word, form)


def multiplier(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """softplus(z + ln(e - 1)): 1 at z = 0, never negative, grows linearly."""
    return _DEFAULT.activate(logits)
