"""From word-pieces to term weights and back: the part of a weights model that is about words, not tensors.

    document:  weight(t, d) = bm25(t, d) * softplus(z_t + ln(e - 1)),   z_t = max over the pieces of all occurrences of t
    query:     weight(t, q) = sum over the occurrences w of t of softplus(z_w + ln(e - 1)),   z_w = max over the pieces of w

Other forms stand in `encoders.form`. With z = 0, or where the model saw nothing of the word, softplus(ln(e - 1)) = 1: the document
weight is BM25 and the query weight counts occurrences, which together is BM25's score.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from termweave.encoders.form import Form
from termweave.errors import ModelError
from termweave.records import TermWeights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from termweave.encoders.analysis import Words
    from termweave.encoders.anchor import BM25
    from termweave.statistics import CorpusStatistics

Kind = Literal["document", "query"]

#: Idf and BM25 are divided by this before a head sees them (`encoders.models.anchored`).
FEATURE_SCALE = 10.0
_DEFAULT = Form()


@dataclass(frozen=True, slots=True)
class Anchored:
    """One text before the model has run: its distinct terms, what they are worth by themselves, where they stand.

    Attributes:
        terms: m distinct terms, by first occurrence.
        anchor: float64 ``(m,)``: BM25 for a document, number of occurrences for a query.
        idf: float64 ``(m,)``.
        term_of_word: int64 ``(words,)``, index into `terms`, -1 for a dropped word.
        form: How logits become weights.
    """

    terms: tuple[str, ...]
    anchor: NDArray[np.float64]
    idf: NDArray[np.float64]
    term_of_word: NDArray[np.int64]
    form: Form = _DEFAULT

    def features(self, word_of_piece: NDArray[np.int64], kind: Kind) -> NDArray[np.float32]:
        """What the heads get beside the states: float32 ``(pieces, 2)``, idf/10 and (documents only) BM25/10 of the piece's word."""
        term = self.term_of_piece(word_of_piece)
        held = term >= 0
        features = np.zeros((len(term), 2), dtype=np.float32)
        features[held, 0] = self.idf[term[held]] / FEATURE_SCALE
        if kind == "document":
            features[held, 1] = self.anchor[term[held]] / FEATURE_SCALE
        return features

    def term_of_piece(self, word_of_piece: NDArray[np.int64]) -> NDArray[np.int64]:
        """int64 ``(pieces,)``: index into `terms`, -1 for [CLS], [SEP] and pieces of dropped words."""
        if not len(self.term_of_word):
            return np.full(len(word_of_piece), -1, dtype=np.int64)
        return np.where(word_of_piece >= 0, self.term_of_word[word_of_piece], -1)

    def weights(self, logits: NDArray[np.float32], word_of_piece: NDArray[np.int64], kind: Kind) -> TermWeights:
        """Term weights.

        Args:
            logits: z of every piece the model saw, ``(pieces,)``.
            word_of_piece: int64 ``(pieces,)``, -1 for [CLS] and [SEP].
            kind: Which of the two formulas.

        Raises:
            ModelError: A logit is no number: it would pass for a word that the model did not see.
        """
        if not np.isfinite(logits).all():
            raise ModelError(
                "The model gave a term weight that is no number (NaN or infinity).",
                "The model folder is damaged or was exported from a diverged training.",
            )
        weigh = self._document if kind == "document" else self._query
        impacts = weigh(logits.astype(np.float64), word_of_piece)
        weights = impacts.astype(np.float32)
        par = float(impacts @ self.idf) if kind == "query" and self.form.kind != "none" else None
        found, held = TermWeights(self.terms, weights, par), weights > 0
        return found if held.all() else found.part(np.flatnonzero(held).tolist())

    def worth(self) -> NDArray[np.float64]:
        """What a document's terms are worth before the model has spoken: ``(m,)``."""
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
        held = (self.term_of_word >= 0) & ~np.isnan(values)
        best = np.full(len(self.terms), -np.inf)
        np.maximum.at(best, self.term_of_word[held], values[held])
        unseen = np.isneginf(best)
        best[unseen] = self.form.beyond(best[~unseen])
        impacts: NDArray[np.float64] = self.worth() * best
        return impacts

    def _query(self, logits: NDArray[np.float64], word_of_piece: NDArray[np.int64]) -> NDArray[np.float64]:
        if self.form.query != "learned":
            return self.anchor * (self.idf if self.form.query == "idf" else 1.0)
        values = self.form.of_words(logits, word_of_piece, len(self.term_of_word))
        held, unseen = self.term_of_word >= 0, np.isnan(values)
        values[unseen] = self.form.beyond(values[held & ~unseen])
        return np.bincount(self.term_of_word[held], weights=values[held], minlength=len(self.terms)).astype(np.float64)


def anchored(words: Words, statistics: CorpusStatistics, bm25: BM25, kind: Kind, form: Form = _DEFAULT) -> Anchored:
    """The anchor of one text; the length that BM25 sees is that of the whole text, seen by the model or not."""
    index: dict[str, int] = {}
    term_of_word = np.fromiter(
        (index.setdefault(term, len(index)) if term else -1 for term in words.terms), dtype=np.int64, count=len(words.terms)
    )
    terms = tuple(index)
    held = term_of_word[term_of_word >= 0]
    counts = np.bincount(held, minlength=len(terms)).astype(np.float64)
    idf = bm25.idf(terms, statistics)
    anchor = bm25.impacts(idf, counts, len(held), statistics) if kind == "document" else counts
    return Anchored(terms, anchor, idf, term_of_word, form)


def multiplier(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """softplus(z + ln(e - 1)): 1 at z = 0, never negative, grows linearly."""
    return _DEFAULT.activate(logits)


def dot(query: TermWeights, document: TermWeights) -> float:
    """The score of a document: the exact sparse dot product."""
    weights = dict(zip(document.terms, document.weights.tolist(), strict=True))
    return math.fsum(weight * weights.get(term, 0.0) for term, weight in zip(query.terms, query.weights.tolist(), strict=True))


def of_words(words: Words, weights: TermWeights) -> Sequence[float]:
    """The weight of each word of a text, 0 for a dropped one."""
    by_term = dict(zip(weights.terms, weights.weights.tolist(), strict=True))
    return [by_term.get(term, 0.0) for term in words.terms]
