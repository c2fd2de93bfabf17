"""Term weights of many texts by a model in training, and what real retrieval with them is worth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from termweave.encoders.form import place_tags
from termweave.evaluation.measures import LEADING, per_query
from termweave.records import Run, TermWeights
from termweave.signals.terms import scale
from termweave.signals.weights import Weights
from termweave.training.sparse import SparseIndex

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from termweave.encoders.models.anchored import JointModel
    from termweave.encoders.weighting import Kind
    from termweave.training.pairs import Pairs
    from termweave.training.sides import Prepared
    from termweave.training.states import States

_BLOCK, _LIVE_BLOCK = 256, 16


@torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
def weigh(model: JointModel, prepared: Prepared, states: States | None, kind: Kind) -> list[TermWeights]:
    """Term weights as the exported model gives them: heads over cached states, or whole passes where there are none."""
    found: list[TermWeights] = []
    size = _BLOCK if states is not None else _LIVE_BLOCK
    for first in range(0, len(prepared.pieces), size):
        texts = range(first, min(first + size, len(prepared.pieces)))
        logits = _cached(model, prepared, states, kind, texts) if states is not None else _live(model, prepared, kind, texts)
        for text, z in zip(texts, logits, strict=True):
            found.append(prepared.anchors[text].weights(z, prepared.pieces[text].words, kind))
    return found


def _features(prepared: Prepared, text: int, kind: Kind) -> NDArray[np.float32]:
    words = prepared.pieces[text].words
    return np.column_stack((prepared.anchors[text].features(words, kind), place_tags(words))).astype(np.float32)


def _cached(model: JointModel, prepared: Prepared, states: States, kind: Kind, texts: range) -> list[NDArray[np.float32]]:
    head = model.heads.of(kind)
    device = next(head.parameters()).device
    starts = states.starts[texts.start : texts.stop + 1]
    seen = torch.from_numpy(states.values[starts[0] : starts[-1]].astype(np.float32)).to(device)
    features = torch.from_numpy(np.concatenate([_features(prepared, text, kind) for text in texts])).to(device)
    lengths = np.diff(starts)
    means = states.means[texts.start : texts.stop] if head.gated else np.zeros((len(texts), 1), dtype=np.float32)
    z = head(seen, features, torch.from_numpy(np.repeat(means, lengths, axis=0)).to(device))
    return np.split(z.cpu().numpy(), np.cumsum(lengths)[:-1])


def _live(model: JointModel, prepared: Prepared, kind: Kind, texts: range) -> list[NDArray[np.float32]]:
    device = next(model.heads.parameters()).device
    lengths = [len(prepared.pieces[text].ids) for text in texts]
    ids, mask = np.zeros((len(texts), max(lengths)), dtype=np.int64), np.zeros((len(texts), max(lengths)), dtype=np.int64)
    features = np.zeros((*ids.shape, 3), dtype=np.float32)
    for row, (text, length) in enumerate(zip(texts, lengths, strict=True)):
        ids[row, :length], mask[row, :length] = prepared.pieces[text].ids, 1
        features[row, :length] = _features(prepared, text, kind)
    outputs = model(*(torch.from_numpy(each).to(device) for each in (ids, mask, features)))
    chosen = outputs[0 if kind == "document" else 1].cpu().numpy()
    return [row[:length] for row, length in zip(chosen, lengths, strict=True)]


def stored(documents: Sequence[TermWeights], bits: int) -> list[TermWeights]:
    """Documents as an index holds them: impacts as integers from 1 on; 0 bits: as they are."""
    if bits == 0:
        return list(documents)
    signal = Weights(w_max=scale([each.weights for each in documents]), levels=2**bits - 1)
    return [signal.rounded(each) for each in documents]


def ndcg(
    documents: Sequence[TermWeights],
    questions: Sequence[TermWeights],
    gains: Sequence[Mapping[int, int]],
    spared: Sequence[Collection[int]] = (),
) -> NDArray[np.float64]:
    """nDCG@10 of each question, by exact sparse dot products over all the documents but those `spared`; `gains` are the grades of each."""
    index = SparseIndex(documents)
    passed = spared or [()] * len(questions)
    return graded([index.search(question, 10, each) for question, each in zip(questions, passed, strict=True)], gains)


def graded(
    found: Sequence[tuple[NDArray[np.int64], NDArray[np.floating]]], gains: Sequence[Mapping[int, int]]
) -> NDArray[np.float64]:
    """nDCG@10 of each question, from the documents found for it, best first, with their scores."""
    run: dict[str, dict[str, float]] = {}
    for number, (best, scores) in enumerate(found):
        run[str(number)] = {str(place): score for place, score in zip(best.tolist(), scores.tolist(), strict=True)}
    qrels = {str(number): {str(place): grade for place, grade in known.items()} for number, known in enumerate(gains)}
    result: NDArray[np.float64] = per_query(Run("dev", run), qrels, list(run), measures=(LEADING,))[LEADING]
    return result


@dataclass(frozen=True)
class Development:
    """Held-out questions and the part of the corpus in which they are searched.

    Attributes:
        pairs: Questions; indices point into `documents`.
        documents: Prepared.
        questions: Prepared.
        document_states: Or None where layers are trained.
        question_states: Likewise.
        plain: BM25's impacts of `documents`.
        asked: Occurrences of the questions' terms.
        bits: In which impacts are stored.
    """

    pairs: Pairs
    documents: Prepared
    questions: Prepared
    document_states: States | None
    question_states: States | None
    plain: list[TermWeights]
    asked: list[TermWeights]
    bits: int

    def bm25(self) -> NDArray[np.float64]:
        """nDCG@10 of BM25 for each question."""
        return ndcg(self.plain, self.asked, self._gains(), self.pairs.spared)

    def figures(self, model: JointModel, bits: int | None = None) -> NDArray[np.float64]:
        """nDCG@10 of the model for each question."""
        documents = weigh(model, self.documents, self.document_states, "document")
        questions = weigh(model, self.questions, self.question_states, "query")
        return ndcg(stored(documents, self.bits if bits is None else bits), questions, self._gains(), self.pairs.spared)

    def _gains(self) -> list[dict[int, int]]:
        return [dict.fromkeys(known, 1) for known in self.pairs.relevant]


def last_layer(states: States, width: int) -> States:
    """The same without the lower layer, for heads that do not look at it."""
    return replace(states, values=states.values[:, width:])
