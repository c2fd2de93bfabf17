"""One side of a batch, its questions or its documents: from states of pieces to a matrix of term weights, with gradients.

The torch twin of `encoders.weighting`, and vectorised: only the pieces of terms that some question of the batch holds are
looked at, which is what makes a step on cached states take milliseconds. Where what the model did not see is worth the mean of
what it saw (`Form.beyond`), all pieces of a text that was cut are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from termweave.encoders.form import UNIT, Form, place_tags

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from termweave.encoders.pieces import Pieces
    from termweave.encoders.weighting import Anchored, Kind
    from termweave.training.states import States


@dataclass(frozen=True)
class Prepared:
    """Texts ready for training: anchors and pieces.

    Attributes:
        anchors: One a text.
        pieces: Likewise.
    """

    anchors: list[Anchored]
    pieces: list[Pieces]


@dataclass(frozen=True)
class Seen:
    """What the heads look at.

    Attributes:
        states: ``(P, s)``, of the pieces that a `Side` chose.
        means: ``(T, s)``, the mean state of each text.
    """

    states: Tensor
    means: Tensor


class Side:
    """T texts of a batch; P chosen pieces; V terms of the batch's questions.

    Attributes:
        texts: int64 ``(T,)``, indices into `prepared`.
        row: int64 ``(P,)``, which text of the batch a piece is of.
        place: int64 ``(P,)``, where in the text it stands.
        term: int64 ``(P,)``, index of its term in its text's `Anchored`.
        cell: int64 ``(P,)``, row * V + column of its term, -1 where no question holds the term.
        word: int64 ``(P,)``, which word of the batch it is of: the words of all texts counted on.
        features: float32 ``(P, 3)``, what the head gets beside the states: idf, BM25 and the place tag.
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
            texts: ``(T,)``, which of them.
            vocabulary: Term -> column.
            kind: Documents or questions.
            everything: Choose every piece of an indexed word, not only of terms in the vocabulary (term losses need them).
            device: Where the tensors go.
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
            worth[row, columns[within]] = _worth(anchor, kind)[within]
            term = anchor.term_of_piece(pieces.words)
            column = np.where(term >= 0, columns[term], -1)
            missed = _missed(anchor, term, pieces.words, kind)
            unseen[row, columns[within]] = missed[within]
            averaged.append(self.form.averages and bool(missed[within].any()))
            kept = np.flatnonzero(term >= 0 if everything or averaged[-1] else column >= 0)
            rows.append(np.full(len(kept), row, dtype=np.int64))
            places.append(kept)
            terms.append(term[kept])
            features.append(np.column_stack((anchor.features(pieces.words, kind), place_tags(pieces.words)))[kept])
            cells.append(np.where(column[kept] >= 0, row * self.shape[1] + column[kept], -1))
            words.append(pieces.words[kept] + seen_words)
            seen_words += len(anchor.term_of_word)
        self.row, self.place, self.term = np.concatenate(rows), np.concatenate(places), np.concatenate(terms)
        self.cell, self.word, self._averaged = np.concatenate(cells), np.concatenate(words), np.array(averaged, dtype=bool)
        self.features = torch.from_numpy(np.concatenate(features).astype(np.float32)).to(device)
        self._worth, self._unseen = torch.from_numpy(worth).to(device), torch.from_numpy(unseen).to(device)

    def cached(self, states: States, *, gated: bool) -> Seen:
        """States from the cache; the means, for which every piece must be read, only where a gate wants them."""
        at = states.starts[self.texts[self.row]] + self.place
        means = states.means[self.texts] if gated else np.zeros((len(self.texts), 1), dtype=np.float32)
        return Seen(
            torch.from_numpy(states.values[at].astype(np.float32)).to(self.device), torch.from_numpy(means).to(self.device)
        )

    def padded(self) -> tuple[Tensor, Tensor, Tensor]:
        """What a backbone takes: ids ``(T, n)``, mask ``(T, n)`` and features ``(T, n, 3)``, of which only the tags are set."""
        pieces = [self.prepared.pieces[text] for text in self.texts.tolist()]
        ids = np.zeros((len(pieces), max(len(each.ids) for each in pieces)), dtype=np.int64)
        mask, features = np.zeros_like(ids), np.zeros((*ids.shape, 3), dtype=np.float32)
        for row, each in enumerate(pieces):
            ids[row, : len(each.ids)], mask[row, : len(each.ids)] = each.ids, 1
            features[row, : len(each.ids), 2] = place_tags(each.words)
        return tuple(torch.from_numpy(each).to(self.device) for each in (ids, mask, features))

    def live(self, hidden: Tensor, means: Tensor) -> Seen:
        """States of a pass that was just made: ``(T, n, s)``, ``(T, s)``."""
        return Seen(hidden[self._tensor(self.row), self._tensor(self.place)], means)

    def inner(self, head: Any, seen: Seen) -> Tensor:
        """What the head's last layer sees of each chosen piece: ``(P, width)``."""
        result: Tensor = head.before(seen.states, self.features, seen.means[self._tensor(self.row)])
        return result

    def weights(self, logits: Tensor) -> Tensor:
        """Term weights of the batch: ``(P,) -> (T, V)``."""
        if self.kind == "query" and self.form.query != "learned":
            return self._worth
        held = np.flatnonzero((self.cell >= 0) | self._averaged[self.row])
        _, first, word = np.unique(self.word[held], return_index=True, return_inverse=True)
        joined = _grouped(logits[self._tensor(held)], self._tensor(word), len(first), self.form.pieces)
        values, pieces = activate(joined, self.form.activation), held[first]
        asked = np.flatnonzero(self.cell[pieces] >= 0)
        cells, inside = self._tensor(self.cell[pieces[asked]]), values[self._tensor(asked)]
        none = torch.zeros(self.shape[0] * self.shape[1], device=self.device)
        beyond = self._unseen * self._beyond(values, pieces)[:, None]
        if self.kind == "query":
            return none.index_add(0, cells, inside).reshape(self.shape) + beyond
        best = none.scatter_reduce(0, cells, inside, reduce="amax", include_self=False)
        return self._worth * (best.reshape(self.shape) + beyond)

    def _beyond(self, values: Tensor, pieces: NDArray[np.int64]) -> Tensor:
        """`Form.beyond` of each text, from the values of words and a piece of each; only that of a cut text means something: ``(T,)``."""
        rows, count = self.row[pieces], self.shape[0]
        if not self.form.averages:
            return torch.ones(count, device=self.device)
        if self.kind == "document":  # one value a term: the best of its occurrences
            width = int(self.term[pieces].max(initial=0)) + 1
            terms, term = np.unique(rows * width + self.term[pieces], return_inverse=True)
            values, rows = _grouped(values, self._tensor(term), len(terms), "max"), terms // width
        sums = torch.zeros(count, device=self.device).index_add(0, self._tensor(rows), values)
        return sums / self._tensor(np.maximum(np.bincount(rows, minlength=count), 1))

    def _tensor(self, values: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(values).to(self.device)


def _worth(anchor: Anchored, kind: Kind) -> NDArray[np.float64]:
    """The constant factor of each term; for queries it is used only where their weights are not learned."""
    if kind == "document":
        return anchor.worth()
    return anchor.anchor * (anchor.idf if anchor.form.query == "idf" else 1.0)


def _missed(anchor: Anchored, term: NDArray[np.int64], word_of_piece: NDArray[np.int64], kind: Kind) -> NDArray[np.float64]:
    """What the model did not see: 1 for a term of a document without a piece, the occurrences of a query's term without one; ``(terms,)``."""
    if kind == "document":
        missed = np.ones(len(anchor.terms))
        missed[term[term >= 0]] = 0
        return missed
    words = np.unique(word_of_piece[term >= 0])
    return anchor.anchor - np.bincount(anchor.term_of_word[words], minlength=len(anchor.terms))


def activate(logits: Tensor, activation: str) -> Tensor:
    """`Form.activate` with gradients."""
    if activation == "softplus":
        return nn.functional.softplus(logits + UNIT)
    positive = torch.relu(logits)
    return torch.log1p(positive) if activation == "log" else positive


def _grouped(values: Tensor, groups: Tensor, count: int, how: str) -> Tensor:
    """One number a group: its largest value or its sum."""
    reduce = "amax" if how == "max" else "sum"
    return torch.zeros(count, device=values.device).scatter_reduce(0, groups, values, reduce=reduce, include_self=False)


def vocabulary_of(prepared: Prepared, texts: NDArray[np.int64]) -> dict[str, int]:
    """The terms of a batch's questions, each with its column."""
    held = {term for text in texts.tolist() for term in prepared.anchors[text].terms}
    return {term: column for column, term in enumerate(sorted(held))}
