"""The questions or the documents of a batch: compute a matrix of term weights from the hidden states of word-pieces, with gradients.

This is the computation of `encoders.term_weighting`, in torch and for a whole batch. It reads only the pieces of terms that are in a
question of the batch, so that a step on cached states takes milliseconds. The exception is a text that was cut, if words beyond the cut
get the mean weight of the others (`Form.averages`): all its pieces are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from termweave.encoders.term_weighting import UNIT, Anchored, Form, Kind, place_tags
from termweave.training.trainer import passes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from termweave.encoders.analysis.word_pieces import Pieces
    from termweave.training.term_weights.hidden_states import States


@dataclass(frozen=True)
class Prepared:
    """Analysed texts, ready for training.

    Attributes:
        anchors: The terms of each text with their anchors.
        pieces: The word-pieces of each text.
        states: Hidden states of the texts; None: the backbone is trained, so that its states change.
    """

    anchors: list[Anchored]
    pieces: list[Pieces]
    states: States | None = None


@dataclass(frozen=True)
class HeadInputs:
    """The states that the heads read.

    Attributes:
        states: ``(P, s)``, the states of the pieces that a `BatchSide` chose.
        means: ``(T, s)``, the mean state of each text.
    """

    states: Tensor
    means: Tensor


class BatchSide:
    """The questions or the documents of a batch: T texts, P chosen pieces, V terms of the batch's questions.

    Attributes:
        texts: int64 ``(T,)``, indices into `prepared`.
        row: int64 ``(P,)``, the text of the batch that a piece belongs to.
        place: int64 ``(P,)``, the piece's position in its text.
        term: int64 ``(P,)``, index of the piece's term in its text's `Anchored`.
        cell: int64 ``(P,)``, row * V + column of the piece's term; -1 if no question contains the term.
        word: int64 ``(P,)``, number of the piece's word, counted through all texts of the batch.
        features: float32 ``(P, 3)``, the head's inputs beside the states: idf, BM25 and the place tag.
    """

    def __init__(
        self,
        prepared: Prepared,
        texts: NDArray[np.int64],
        vocabulary: Mapping[str, int],
        kind: Kind,
        *,
        everything: bool = False,
        device: Any = "cpu",
    ) -> None:
        """Choose pieces.

        Args:
            prepared: All texts of a collection.
            texts: int64 ``(T,)``, indices of the texts in the batch.
            vocabulary: Term -> column.
            kind: "document" or "query".
            everything: Choose every piece of an indexed word, not only pieces of terms in the vocabulary (term losses need them).
            device: The device of the tensors.
        """
        self.prepared, self.texts, self.kind, self.device = prepared, texts, kind, device
        self.shape = (len(texts), len(vocabulary))
        self.form: Form = prepared.anchors[0].form if prepared.anchors else Form()
        worth, unseen = np.zeros(self.shape, dtype=np.float32), np.zeros(self.shape, dtype=np.float32)
        rows, places, terms, features, cells, words, averaged = [], [], [], [], [], [], []
        seen_words = 0
        for row, text in enumerate(texts.tolist()):
            anchor, pieces = prepared.anchors[text], prepared.pieces[text]
            columns = np.array([vocabulary.get(term, -1) for term in anchor.terms] or [-1], dtype=np.int64)
            within = np.flatnonzero(columns[: len(anchor.terms)] >= 0)
            worth[row, columns[within]] = _fixed_weights(anchor, kind)[within]
            term = anchor.term_of_piece(pieces.words)
            column = np.where(term >= 0, columns[term], -1)
            missed = _missed(anchor, term, pieces.words, kind)
            unseen[row, columns[within]] = missed[within]
            averaged.append(self.form.averages and bool(missed[within].any()))
            chosen = np.flatnonzero(term >= 0 if everything or averaged[-1] else column >= 0)
            rows.append(np.full(len(chosen), row, dtype=np.int64))
            places.append(chosen)
            terms.append(term[chosen])
            features.append(np.column_stack((anchor.features(pieces.words, kind), place_tags(pieces.words)))[chosen])
            cells.append(np.where(column[chosen] >= 0, row * self.shape[1] + column[chosen], -1))
            words.append(pieces.words[chosen] + seen_words)
            seen_words += len(anchor.term_of_word)
        self.row, self.place, self.term = np.concatenate(rows), np.concatenate(places), np.concatenate(terms)
        self.cell, self.word, self._averaged = np.concatenate(cells), np.concatenate(words), np.array(averaged, dtype=bool)
        self.features = torch.from_numpy(np.concatenate(features).astype(np.float32)).to(device)
        self._fixed_weights, self._unseen = torch.from_numpy(worth).to(device), torch.from_numpy(unseen).to(device)

    @property
    def states(self) -> States:
        """Return the cached states of all texts."""
        assert self.prepared.states is not None
        return self.prepared.states

    def cached(self, *, gated: bool) -> HeadInputs:
        """Return the chosen pieces' states from the cache. Means need every piece of a text, so they are computed only if the head has a gate (`gated`)."""
        states = self.states
        at = states.starts[self.texts[self.row]] + self.place
        means = states.means[self.texts] if gated else np.zeros((len(self.texts), 1), dtype=np.float32)
        return HeadInputs(*(torch.from_numpy(each).to(self.device) for each in (states.values[at].astype(np.float32), means)))

    def padded(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the inputs of the backbone: ids ``(T, n)``, mask ``(T, n)`` and features ``(T, n, 3)``, in which only the tags are set."""
        pieces = [self.prepared.pieces[text] for text in self.texts.tolist()]
        tags = [np.pad(place_tags(text.words)[:, None], ((0, 0), (2, 0))) for text in pieces]
        ids, mask, features = (each.to(self.device) for each in padded(pieces, tags))
        return ids, mask, features

    def live(self, hidden: Tensor, means: Tensor) -> HeadInputs:
        """Select the chosen pieces from the states of a forward pass, ``(T, n, s)`` with means ``(T, s)``."""
        return HeadInputs(hidden[self._tensor(self.row), self._tensor(self.place)], means)

    def inner(self, head: Any, states: HeadInputs, *, gate: bool = True) -> Tensor:
        """Compute the inputs of the head's last layer for each chosen piece, ``(P, width)``; `gate`: whether the feature gate, if any, is applied."""
        result: Tensor = head.before(states.states, self.features, states.means[self._tensor(self.row)], gate=gate)
        return result

    def terms_of(self, text: int) -> set[str]:
        """Return the terms of a text that may have a weight: all, or, where words beyond the cut have none (`Form.beyond`), the terms before the cut."""
        anchor = self.prepared.anchors[text]
        if self.form.activation == "softplus" or self.form.averages:
            return set(anchor.terms)
        seen = anchor.term_of_piece(self.prepared.pieces[text].words)
        return {anchor.terms[term] for term in seen[seen >= 0].tolist()}

    def weights(self, logits: Tensor) -> Tensor:
        """Compute term weights from the logits of the pieces: ``(P,) -> (T, V)``."""
        if self.kind == "query" and self.form.query != "learned":
            return self._fixed_weights
        needed = np.flatnonzero((self.cell >= 0) | self._averaged[self.row])
        _, first, word = np.unique(self.word[needed], return_index=True, return_inverse=True)
        joined = _grouped(logits[self._tensor(needed)], self._tensor(word), len(first), self.form.pieces)
        values, pieces = activate(joined, self.form.activation), needed[first]
        in_questions = np.flatnonzero(self.cell[pieces] >= 0)
        cells, inside = self._tensor(self.cell[pieces[in_questions]]), values[self._tensor(in_questions)]
        none = torch.zeros(self.shape[0] * self.shape[1], device=self.device)
        beyond = self._unseen * self._beyond_cut(values, pieces)[:, None]
        if self.kind == "query":
            return none.index_add(0, cells, inside).reshape(self.shape) + beyond
        best = none.scatter_reduce(0, cells, inside, reduce="amax", include_self=False)
        return self._fixed_weights * (best.reshape(self.shape) + beyond)

    def _beyond_cut(self, values: Tensor, pieces: NDArray[np.int64]) -> Tensor:
        """Compute for each text the value that its words beyond the cut get (`Form.beyond`), ``(T,)``.

        Args:
            values: Values of the words.
            pieces: One piece of each word.
        """
        rows, count = self.row[pieces], self.shape[0]
        if not self.form.averages:
            return torch.full((count,), self.form.unseen(np.zeros(0)), device=self.device)
        if self.kind == "document":  # one value a term: the best of its occurrences
            width = int(self.term[pieces].max(initial=0)) + 1
            terms, term = np.unique(rows * width + self.term[pieces], return_inverse=True)
            values, rows = _grouped(values, self._tensor(term), len(terms), "max"), terms // width
        sums = torch.zeros(count, device=self.device).index_add(0, self._tensor(rows), values)
        return sums / self._tensor(np.maximum(np.bincount(rows, minlength=count), 1))

    def _tensor(self, values: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(values).to(self.device)


def _fixed_weights(anchor: Anchored, kind: Kind) -> NDArray[np.float64]:
    """Return the constant factor of each term's weight. For a query this factor is used only if query weights are not learned."""
    if kind == "document":
        return anchor.fixed_weights()
    return anchor.anchor * (anchor.idf if anchor.form.query == "idf" else 1.0)


def _missed(anchor: Anchored, term: NDArray[np.int64], word_of_piece: NDArray[np.int64], kind: Kind) -> NDArray[np.float64]:
    """Count what each term lost by the cut, ``(terms,)``: in a document 1 if no piece of the term is left, in a query the lost occurrences."""
    if kind == "document":
        missed = np.ones(len(anchor.terms))
        missed[term[term >= 0]] = 0
        return missed
    words = np.unique(word_of_piece[term >= 0])
    return anchor.anchor - np.bincount(anchor.term_of_word[words], minlength=len(anchor.terms))


def padded(pieces: Sequence[Pieces], features: Sequence[NDArray[np.floating]]) -> tuple[Tensor, Tensor, Tensor]:
    """Pad texts to the length of the longest: ids ``(T, n)``, mask ``(T, n)`` and features ``(T, n, 3)``, of each piece."""
    ids = [each.ids for each in pieces]
    return (
        passes.padded(ids),
        passes.padded([np.ones_like(each) for each in ids]),
        passes.padded([each.astype(np.float32) for each in features]),
    )


def activate(logits: Tensor, activation: str) -> Tensor:
    """Apply the activation of a head in torch, as `Form.activate` does in numpy."""
    if activation == "softplus":
        return nn.functional.softplus(logits + UNIT)
    positive = torch.relu(logits)
    return torch.log1p(positive) if activation == "log" else positive


def _grouped(values: Tensor, groups: Tensor, count: int, how: str) -> Tensor:
    """Reduce each group of values to its largest value or its sum."""
    reduce = "amax" if how == "max" else "sum"
    return torch.zeros(count, device=values.device).scatter_reduce(0, groups, values, reduce=reduce, include_self=False)


def vocabulary_of(prepared: Prepared, texts: NDArray[np.int64]) -> dict[str, int]:
    """Give each term of a batch's questions a column: term -> column."""
    terms = {term for text in texts.tolist() for term in prepared.anchors[text].terms}
    return {term: column for column, term in enumerate(sorted(terms))}
