"""BERT-Scorer (paper 000, LE-BS, sections 3.1 and 3.2.1; and DeepCT's target): term weights by regression.

    t_w^{x,y} = (n_{w,y} / |y|) * log(|Y| / (df_w + 1))          Eq. 1: tf-idf of the question's word w in the document y
    H         = BERT(w_1 .. w_n)                                 Eq. 2
    t^_i      = W h_i + b                                        Eq. 3: one number per piece
    J         = mean over pieces of (t_i - t^_i)^2               Eq. 4 (the paper prints the sum)

Target `tfidf`: the pieces of a question x are compared with Eq. 1 for a relevant document y; with `sides=both` also the pieces of y with Eq. 1
for y itself. Target `recall` (DeepCT): the pieces of a document are compared with the share of its own questions that hold the word; a query's
words then weigh one each, and the weights suit the signal `learned`.

The weight of a word is shared out among its pieces (LE-BS does so with the characters of a Chinese word) and is their sum again in use; a
negative weight is dropped. `bmes` adds to the input an embedding of each piece's place in its word (begin, middle, end, single), which needs
a backbone that is trained.

``--set preset=paper`` trains Eq. 1-4: a linear head on the last layer, all layers trained, questions alone. Its terms are word-pieces, without
stop list and stemmer: "the" has a weight (Fig. 4) and counts in |y|. Punctuation alone is not a term. ``preset=paper-chinese`` is section
3.2.1: the terms are words, a word's target is shared by its characters, and BMES tags are added. The default is not Eq. 2-3: its head is deep,
reads two layers of a frozen backbone, idf and BM25, and documents are trained on, too.

Worked example: |y| = 20, n = 2, |Y| = 1000, df = 9: t = .1 * log(1000 / 10) = .460517.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from termweave.declared_settings import Setting
from termweave.errors import UsageError
from termweave.training.data.arrays import np, torch
from termweave.training.methods.base import Preset
from termweave.training.methods.parameters import EVERYTHING, PRESET
from termweave.training.methods.term_weights import TermWeightMethod, TermWeightParameters

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from termweave.encoders.term_weighting import Anchored, Form, Kind
    from termweave.statistics import CorpusStatistics
    from termweave.training.data.sampler import Batch
    from termweave.training.term_weights.batch import BatchSide
    from termweave.training.trainer.trainer import Fit


def tfidf(text: Anchored, document: Anchored, statistics: CorpusStatistics) -> NDArray[np.float64]:
    """Compute Eq. 1, ``(n_wy / |y|) * log(|Y| / (df_w + 1))``, of each term of `text` in `document`; 0 for a term that `document` lacks.

    Args:
        text: The text x whose terms are weighed.
        document: The text y.
        statistics: Statistics of all documents Y.

    Returns:
        float64 ``(terms of text,)``; may be negative for a term that nearly every document holds.
    """
    occurrences = np.bincount(document.term_of_word[document.term_of_word >= 0], minlength=len(document.terms))
    counts = dict(zip(document.terms, occurrences.tolist(), strict=True))
    length = sum(counts.values())
    return np.array([counts.get(term, 0) / length * _idf(term, statistics) if length else 0.0 for term in text.terms])


def recall(document: Anchored, questions: Sequence[Anchored]) -> NDArray[np.float64]:
    """Compute DeepCT's query-term recall: for each term of a document, the share of the document's own questions that hold it; ``(terms,)``."""
    term_sets = [set(question.terms) for question in questions]
    return np.array([sum(term in terms for terms in term_sets) / max(1, len(term_sets)) for term in document.terms])


def _idf(term: str, statistics: CorpusStatistics) -> float:
    return math.log(statistics.documents / (statistics.document_frequency.get(term, 0) + 1))


def piece_targets(side: BatchSide, targets: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return the target of each chosen piece, ``(P,)``: the target of its word, divided among the word's pieces."""
    _, inverse, counts = np.unique(side.word, return_inverse=True, return_counts=True)
    of_term = np.array([targets[row][term] for row, term in zip(side.row.tolist(), side.term.tolist(), strict=True)])
    return of_term / counts[inverse]


@dataclass(frozen=True)
class BertScorerParameters(TermWeightParameters):
    """The parameters of bert-scorer."""

    heading: ClassVar[str] = "Of bert-scorer"
    preset: Annotated[Literal["default", "paper", "paper-chinese", "paper-frozen"], PRESET] = "default"
    target: Annotated[Literal["tfidf", "recall"], Setting("What is predicted.")] = "tfidf"
    anchor: Annotated[Literal["none", "idf", "bm25"], Setting("What the predicted number is multiplied with.")] = "none"
    sides: Annotated[
        Literal["query", "both"], Setting("Whose words target=tfidf trains: the questions', or the documents', too.")
    ] = "both"
    bmes: Annotated[bool, Setting("Add an embedding of each piece's place in its word to the input (Chinese).")] = False
    shared: bool = True

    def check(self) -> None:
        """Raise `UsageError` for bmes on a backbone that is not trained, or whose vector would change with it."""
        super().check()
        if self.bmes and self.top_layers != -1:
            raise UsageError("bmes changes the input of the backbone, which is not trained.", "Add --set top_layers=-1.")
        if self.bmes and self.outputs != "weights":
            raise UsageError("A model with bmes gives weights alone.", "Add --set outputs=weights.")

    def form(self) -> Form:
        """Return the form of weights: linear, and the weight of a word is the sum over its pieces."""
        from termweave.encoders.term_weighting import Form  # noqa: PLC0415 - numpy

        query: Literal["one", "learned"] = "one" if self.target == "recall" else "learned"
        return Form(self.anchor, "linear", "sum", query, beyond="none" if self.terms == "piece" or self.bmes else "mean")

    def texts(self) -> tuple[int, int]:
        """Return how many questions and documents a step reads: of each pair one side or both, as `target` and `sides` say."""
        both = self.target == "recall" or self.sides == "both"
        return self.batch if self.target == "tfidf" else 0, self.batch if both else 0


#: Targets and head of the paper.
_PRINTED = {"target": "tfidf", "sides": "query", "shared": True, "hidden": 0, "anchor": "none", "outputs": "weights"}


class BertScorer(TermWeightMethod):
    """Weights by regression on tf-idf or query-term recall.

        Eq. 1  t_w = (n_wy / |y|) * log(|Y| / (df_w + 1))   (target=tfidf)
               t_w = share of the document's questions that hold w   (target=recall)
        Eq. 3  t^_i = W h_i + b                             (hidden=0; the default's head is deep)
        Eq. 4  J = mean (t - t^)^2

    It needs no negatives and learns what is probable, not what tells documents apart: on English sets it stays below the contrastive method
    (docs/term-weights.md). With anchor=bm25 or idf the predicted number multiplies the anchor. preset=paper trains Eq. 1-4 as printed, with
    all layers of the backbone, preset=paper-chinese section 3.2.1. Chinese without a backbone: --set backbone=scratch --set bmes=true.
    """

    name = "bert-scorer"
    source = "LE-BS: Label Enhancement for embedding retrieval (paper 000), Eq. 1-4; target=recall: DeepCT (Dai and Callan 2019)"
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": Preset(
            "Eq. 1-4: a linear head on the last layer, all layers trained, questions alone; terms are word-pieces, stop words too, "
            "without punctuation",
            {**_PRINTED, **EVERYTHING, "terms": "piece", "top_layers": -1},
        ),
        "paper-chinese": Preset(
            "the same with section 3.2.1: terms are Chinese words, whose weight their characters share, and BMES tags",
            {**_PRINTED, **EVERYTHING, "bmes": True, "top_layers": -1},
        ),
        "paper-frozen": Preset("the paper's target and linear head for words, on a frozen backbone: minutes", _PRINTED),
    }
    parameters = BertScorerParameters

    def loss(self, fit: Fit, batch: Batch) -> dict[str, Tensor]:
        """Compute Eq. 4: the mean squared error of the batch's pieces."""
        inputs, settings, drawn = batch.inputs, fit.settings, batch.drawn
        documents = drawn.documents[: len(drawn.questions)]
        question_anchors, document_anchors = inputs.questions.anchors, inputs.documents.anchors
        errors: list[Tensor] = []
        if settings.target == "recall":
            targets = [recall(document_anchors[y], [question_anchors[x] for x in inputs.answered[y]]) for y in documents.tolist()]
            errors.append(self._errors(fit, batch, documents, "document", targets))
        else:
            pairs = zip(drawn.questions.tolist(), documents.tolist(), strict=True)
            targets = [tfidf(question_anchors[x], document_anchors[y], inputs.statistics) for x, y in pairs]
            errors.append(self._errors(fit, batch, drawn.questions, "query", targets))
            if settings.sides == "both":
                targets = [tfidf(document_anchors[y], document_anchors[y], inputs.statistics) for y in documents.tolist()]
                errors.append(self._errors(fit, batch, documents, "document", targets))
        every = torch.cat(errors)
        return {"regression": every.mean() if len(every) else every.sum()}  # 0 where no text of the batch has a term

    def _errors(self, fit: Fit, batch: Batch, texts: NDArray[np.int64], kind: Kind, targets: list[NDArray[np.float64]]) -> Tensor:
        """Compute the squared error of each piece of some texts: ``(P,)``."""
        side = self.side(fit, batch, texts, {}, kind, everything=True)
        features = self.features(fit, side, self.encode(fit, side)[0])
        expected = torch.from_numpy(piece_targets(side, targets)).to(features)
        return (self.logits(fit, side, features) - expected) ** 2
