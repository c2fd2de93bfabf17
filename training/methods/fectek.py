"""FecTek (paper 001), and the anchored head that grew out of it: impacts learned by telling the right document from others.

A batch has Q questions, a relevant document of each, and hard negatives: D documents. Term weights ``wq`` and ``wd`` are made of the logits
of a head that reads the states H of a BERT-like backbone (`encoders.term_weighting`):

    W_i     = log(1 + ReLU(w_1 f_i + b_1))                                                    Eq. 1 (anchor=none)
    F       = H * sigmoid(W'' relu(W' mean(H)))                                               Eq. 2, FCM (fcm=true)
    P_i     = sigmoid(w_2 h_i + b_2)                                                          Eq. 3, TKGM (tkgm=true)
    S[q, d] = sum over terms t of wq(t) * wd(t)
    L_text  = mean over q of -log softmax(a * S[q, :])[relevant document of q]                Eq. 4, a = 1
    L_term  = mean over the questions of 1/Q sum_i BCE(P_i, y_i) + the same of their documents          Eq. 5-7
    L       = L_text + L_term [+ KL(teacher || S)] [+ dense losses, where layers are trained]         Eq. 8, 4.1.3

Q is the number of pieces of a question, P that of a document. y = 1 for a term that question and relevant document share. Punctuation is not
a term: BERT reads it and the mean in FCM's gate counts it, but it has no weight and no label, and Q and P leave it out. With terms=piece and no
anchor a text ends where it is cut: what lies beyond has no weight and is not shared. FCM is
`encoders.models.joint_model.ContextGate`; the paper prints two layers of d/16 and d, without activations. P_i reads H before the gate. With a
linear head H are the states of the last layer, as in the paper; a deep head has P_i read its hidden layer (computed without the gate), which is
then taught by both losses also while the backbone is frozen. With a frozen backbone and a linear head TKGM cannot change a weight.

``--set preset=paper`` trains the model that the paper prints: one linear head, one projector for P, FCM and TKGM, no anchor, a = 1 fixed, 15
hard negatives for each question and no others. What it leaves out: the paper also takes hard negatives of 12 dense retrievers, cuts questions
at 64 word-pieces, appends queries of doc2query-T5 to passages (put them into the metadata entry `expansion`), and rounds a query's weights.
The default is the anchored head: weight = BM25 impact * softplus(z + ln(e - 1)).

Worked example: one question with one term of weight 1; the relevant document gives it 3, the negative 1; a = .3:
L_text = -log(e^.9 / (e^.9 + e^.3)) = .437.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Ge, Le

from termweave.declared_settings import Setting
from termweave.errors import UsageError
from termweave.training.data.arrays import np, torch
from termweave.training.methods.base import Preset
from termweave.training.methods.parameters import PRESET, TO_THE_END, Factor, MixtureParameters, NegativesParameters, Weight
from termweave.training.methods.term_weights import TermWeightMethod, TermWeightParameters

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from termweave.encoders.models.joint_model import JointModel
    from termweave.encoders.term_weighting import Form
    from termweave.training.data.sampler import AnsweredQuestions, Batch
    from termweave.training.methods.base import Parts
    from termweave.training.term_weights.batch import BatchSide
    from termweave.training.trainer.trainer import Fit

#: Temperature of the vectors' contrastive loss, and the weight of staying near the original vector.
_DENSE_TEMPERATURE, _STAY = 0.05, 5.0


def left_out(known: Sequence[frozenset[int]], batch: AnsweredQuestions, *, in_batch: bool) -> NDArray[np.bool_]:
    """Mark the documents that are left out of a question's softmax: bool ``(Q, D)``.

    Left out are the question's other right answers, and without `in_batch` all documents that were drawn for other questions.
    """
    mask = np.array([np.isin(batch.documents, list(known[question])) for question in batch.questions.tolist()])
    if not in_batch:
        mask |= batch.foreign()
    np.fill_diagonal(mask, val=False)
    return mask


def text_loss(scores: Tensor, masked: NDArray[np.bool_]) -> Tensor:
    """Compute Eq. 4: cross-entropy of ``(Q, D)`` scores, document q relevant to question q; masked documents are left out."""
    compared = scores.masked_fill(torch.from_numpy(masked).to(scores.device), -torch.inf)
    return torch.nn.functional.cross_entropy(compared, torch.arange(len(scores), device=scores.device))


def shared_terms(one: BatchSide, other: BatchSide) -> NDArray[np.float32]:
    """Return the labels y of Eq. 5 for the pieces of `one`, ``(P,)``: 1 if the text of the same row in `other` holds the piece's term, else 0."""
    sets = [other.terms_of(text) for text in other.texts[: len(one.texts)].tolist()]
    terms = [one.prepared.anchors[text].terms for text in one.texts.tolist()]
    pairs = zip(one.row.tolist(), one.term.tolist(), strict=True)
    return np.array([row < len(sets) and terms[row][term] in sets[row] for row, term in pairs], dtype=np.float32)


def of_relevant(logits: Tensor, texts: BatchSide, questions: BatchSide) -> tuple[Tensor, NDArray[np.float32], NDArray[np.int64]]:
    """Select the pieces of relevant documents: their logits, labels and text numbers; hard negatives are left out (the paper leaves this open)."""
    places = np.flatnonzero(texts.row < len(questions.texts))
    return logits[torch.from_numpy(places).to(logits.device)], shared_terms(texts, questions)[places], texts.row[places]


def term_loss(logits: Tensor, labels: NDArray[np.float32], texts: NDArray[np.int64]) -> Tensor:
    """Compute Eq. 5 and 6, with the minus sign that was lost in print: the mean over the pieces of each text, then over the texts.

    Args:
        logits: Logits of P_i, ``(P,)``.
        labels: y of each piece, ``(P,)``.
        texts: The text that each piece belongs to, ``(P,)``; a text without a piece has no mean and is not counted.
    """
    if not len(labels):
        return logits.sum() * 0.0
    _, text, lengths = np.unique(texts, return_inverse=True, return_counts=True)
    shares = torch.from_numpy(1.0 / (lengths[text] * len(lengths))).to(logits)
    targets = torch.from_numpy(labels).to(logits.device)
    return torch.nn.functional.binary_cross_entropy_with_logits(logits, targets, weight=shares, reduction="sum")


def distillation(scores: Tensor, taught: Tensor) -> Tensor:
    """Compute KL(teacher || student) over the documents that the teacher scored (4.1.3).

    Args:
        scores: Scores by the student, ``(Q, D)``.
        taught: Scores by the teacher; -inf: there is no score. A question with fewer than two scores counts 0.
    """
    scored = torch.isfinite(taught)
    enough = scored.sum(dim=1) >= 2
    if not bool(enough.any()):
        return scores.sum() * 0.0
    scored, taught, scores = scored[enough], taught[enough], scores[enough]
    teacher = torch.softmax(taught, dim=1)
    student = torch.log_softmax(scores.masked_fill(~scored, -torch.inf), dim=1).masked_fill(~scored, 0.0)
    entropy = (teacher * torch.log(teacher.clamp(min=1e-12))).sum(dim=1)
    return (entropy - (teacher * student).sum(dim=1)).mean()


def _distance_to_start(fit: Fit, side: BatchSide, vectors: Tensor) -> Tensor:
    """Compute the mean cosine distance between vectors and the vectors of the backbone before training."""
    original = torch.from_numpy(side.states.pooled(fit.model.pooling)[side.texts, -vectors.shape[1] :]).to(vectors)
    return (1.0 - (vectors * torch.nn.functional.normalize(original, dim=-1)).sum(dim=-1)).mean()


#: The divisor of each teacher's scores: they lie between 0 and 1, 0 and 2, are z-scores, or are a cross-encoder's logits.
_TEMPERATURES = {"dense": 0.05, "minmax": 0.1, "zscore": 0.5}


@dataclass(frozen=True)
class FectekParameters(NegativesParameters, MixtureParameters, TermWeightParameters):
    """The parameters of the method `fectek` (FecTek), which trains term weights."""

    heading: ClassVar[str] = "Of fectek"
    preset: Annotated[Literal["default", "paper", "paper-frozen"], PRESET] = "default"
    anchor: Annotated[Literal["bm25", "idf", "none"], Setting("What a document's weight is a multiple of.")] = "bm25"
    tf_power: Annotated[float, Setting("Power of BM25's frequency part; below 1 repetitions count less."), Ge(0), Le(10)] = 1.0
    query: Annotated[
        Literal["learned", "idf", "one"],
        Setting("Weights of a query's terms: a head of its own, idf, or one for each occurrence."),
    ] = "learned"
    fcm: Annotated[bool, Setting("Feature context module: a text's mean state gates its states; sets training_length.")] = False
    tkgm: Annotated[bool, Setting("Term-level knowledge: learn also which terms question and document share.")] = False
    scale: Annotated[Factor, Setting("Factor of the scores in the softmax; scores are large with an anchor.")] = 0.3
    learn_scale: Annotated[bool, Setting("Learn the factor, beginning with scale; the paper has none (scale 1).")] = True
    joint: Annotated[Weight, Setting("Weight of the vectors' contrastive loss, where layers are trained (0.5 was tried).")] = 0.0
    teacher: Annotated[
        str,
        Setting(
            "Scores of pairs to distil: a TREC run or lines of query, document, score; 'ranker:FOLDER': a cross-encoder, on the right "
            "documents and the hard negatives; 'dense': the backbone's own vectors; 'minmax' or 'zscore': BM25 and vectors, each scaled so, "
            "added; none; auto: minmax where questions are made of the corpus and the backbone is frozen, else none."
        ),
    ] = "auto"
    teacher_weight: Annotated[Weight, Setting("Weight of the distillation; 0: 9 for questions made of the corpus, else 1.")] = 0.0
    temperature: Annotated[
        Weight, Setting("Divides the teacher's scores; 0: .05 for dense, .1 for minmax, .5 for zscore, else 1.")
    ] = 0.0

    @classmethod
    def derived(cls, changed: Mapping[str, object]) -> dict[str, object]:
        """Return derived defaults: with FCM the maximum length is the same in training and in use, because the gate reads the whole text's mean."""
        lengths: dict[str, object] = {}
        if str(changed.get("fcm", "false")).strip().lower() in ("true", "yes", "on", "1"):
            if "training_length" in changed and "max_length" not in changed:
                lengths = {"max_length": changed["training_length"]}
            else:
                lengths = {"training_length": changed.get("max_length", 256)}
        return super().derived(changed) | lengths

    def check(self) -> None:
        """Raise `UsageError` where idf counts twice, a frozen vector is trained, or FCM reads another length than in use."""
        super().check()
        if self.query == "idf" and self.anchor != "none":
            raise UsageError(f"query=idf with anchor={self.anchor} counts idf twice.", "Set query=learned or query=one.")
        if self.joint > 0 and self.top_layers == 0:
            raise UsageError("joint trains the vector, but the backbone is frozen.", "Set top_layers, too, or leave joint out.")
        if self.beside and self.from_scratch:
            raise UsageError("A backbone from scratch is made for DATASET alone.", "Leave beside out, or name a backbone.")
        if self.fcm and self.training_length != self.max_length:
            raise UsageError("fcm needs training_length and max_length to be equal.", "Set one of them; the other follows.")

    def fitted(self, *, made: bool) -> FectekParameters:
        """If questions are made of the corpus, give the teacher most of the weight: people ask other questions (docs/term-weights.md)."""
        teacher = self.teacher
        if teacher == "auto":
            whole = self.top_layers == 0 and self.layers == 0 and not self.from_scratch
            teacher = "minmax" if made and whole else "none"
        return replace(
            self,
            teacher=teacher,
            teacher_weight=self.teacher_weight or (9.0 if made else 1.0),
            temperature=self.temperature or _TEMPERATURES.get(teacher, 1.0),
        )

    def form(self) -> Form:
        """Return the form of weights: without an anchor the paper's logarithm, else a multiplier of the anchor that begins as 1."""
        from termweave.encoders.term_weighting import Form  # noqa: PLC0415 - numpy

        if self.anchor != "none":
            return Form(self.anchor, "softplus", "max", self.query, self.tf_power)
        return Form("none", "log", "max", self.query, self.tf_power, "none" if self.terms == "piece" else "mean")

    def texts(self) -> tuple[int, int]:
        """Return how many questions and documents a step reads: for each question its right document and hard negatives."""
        return self.batch, self.batch * (1 + self.drawn)


#: Model, targets and negatives of the paper (sections 3.1-3.4 and 4.1.2).
_PRINTED = {
    "anchor": "none",
    "hidden": 0,
    "shared": True,
    "fcm": True,
    "tkgm": True,
    "query": "learned",
    "negatives": 50,
    "drawn": 15,
    "in_batch": False,
    "scale": 1.0,
    "learn_scale": False,
    "teacher": "none",
    "outputs": "weights",
}


class Fectek(TermWeightMethod):
    """Impacts by contrast: a multiplier on BM25 or idf (the anchored head), or FecTek as in the paper.

        Eq. 1  W_i = log(1 + ReLU(w_1 f_i + b_1))          (anchor=none; anchored: anchor * softplus(z_i + ln(e-1)))
        Eq. 2  F = H * sigmoid(W'' relu(W' mean(H)))        (fcm)
        Eq. 3  P_i = sigmoid(w_2 h_i + b_2)                 (tkgm; training only)
        Eq. 4  L_text = -log softmax(s(q, .))[d+]
        Eq. 8  L = L_text + L_term

    The default is the anchored head: a term is worth its BM25 impact times a learned multiplier, so that an untrained model is BM25 and
    training keeps nothing that is worse on the development questions. anchor=idf leaves the term frequency out, anchor=none is the paper's
    own formula. On a frozen backbone it trains in a minute and the vector of the same pass stays as it was. preset=paper trains what the
    paper prints, with all layers of the backbone, which takes hours without a GPU.
    """

    name = "fectek"
    source = "FecTek: Enhancing Term Weight in Lexicon-Based Retrieval with Feature Context and Term-level Knowledge (paper 001)"
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": Preset(
            "the model, the losses and the optimiser that the paper prints, all layers trained, 5 epochs over all questions; texts are cut at 192 "
            "word-pieces, questions too (64 in the paper); punctuation is read but gets no weight; no expansion, BM25's negatives alone, "
            "query weights as they are",
            {
                **_PRINTED,
                **TO_THE_END,
                "terms": "piece",
                "top_layers": -1,
                "max_length": 192,
                "training_length": 192,
                "batch": 8,
                "rate": 2e-5,
                "layers_rate": 2e-5,
                "schedule": "linear",
                "warmup": 0.1,
                "epochs": 5.0,
                "every": 500,
            },
        ),
        "paper-frozen": Preset("the paper's model and losses on words, on a frozen backbone: minutes", _PRINTED),
    }
    parameters = FectekParameters

    def extras(self, model: JointModel, settings: FectekParameters) -> Parts:
        """Return the learned scale a, and TKGM's projector (w_2, b_2 of Eq. 3).

        The paper has one projector for queries and passages. Separate deep heads have hidden layers of their own, and so a projector each.
        """
        modules: dict[str, nn.Module | nn.Parameter] = {}
        if settings.learn_scale:
            modules["log_scale"] = torch.nn.Parameter(torch.tensor(math.log(settings.scale)))
        if settings.tkgm:
            kinds = ("document",) if settings.shared else ("query", "document")
            modules["knowledge"] = torch.nn.ModuleDict({kind: torch.nn.Linear(model.heads.document.width, 1) for kind in kinds})
        return modules

    def loss(self, fit: Fit, batch: Batch) -> dict[str, Tensor]:
        """Compute the parts of Eq. 8: "text" (Eq. 4), and, where they are switched on, "term" (Eq. 7), "teacher" (4.1.3), "dense" and "stay"."""
        inputs, settings, drawn = batch.inputs, fit.settings, batch.drawn
        questions, documents = self.both_sides(fit, batch, everything=settings.tkgm)
        question_states, question_vectors = self.encode(fit, questions)
        document_states, document_vectors = self.encode(fit, documents)
        question_features = self.features(fit, questions, question_states)
        document_features = self.features(fit, documents, document_states)
        products = self.weights(fit, questions, question_features) @ self.weights(fit, documents, document_features).T
        scores = fit.log_scale.exp() * products if settings.learn_scale else settings.scale * products
        masked = left_out(inputs.pairs.known, drawn, in_batch=settings.in_batch)
        parts = {"text": text_loss(scores, masked)}
        if settings.tkgm:
            of_documents = fit.knowledge["document"]
            of_questions = of_documents if settings.shared else fit.knowledge["query"]
            question_logits = of_questions(self.ungated_features(fit, questions, question_states, question_features)).squeeze(-1)
            document_logits = of_documents(self.ungated_features(fit, documents, document_states, document_features)).squeeze(-1)
            parts["term"] = term_loss(question_logits, shared_terms(questions, documents), questions.row)
            parts["term"] = parts["term"] + term_loss(*of_relevant(document_logits, documents, questions))
        if inputs.distilled is not None:
            taught = inputs.distilled.teacher.scores(drawn.questions, drawn.documents)
            if not settings.in_batch:
                taught[drawn.foreign()] = -np.inf
            softened = torch.from_numpy(taught).to(scores) / inputs.distilled.temperature
            parts["teacher"] = inputs.distilled.weight * distillation(scores, softened)
        if settings.joint > 0 and question_vectors is not None and document_vectors is not None:
            parts["dense"] = settings.joint * text_loss(question_vectors @ document_vectors.T / _DENSE_TEMPERATURE, masked)
            moved = _distance_to_start(fit, questions, question_vectors) + _distance_to_start(fit, documents, document_vectors)
            parts["stay"] = _STAY * moved
        return parts
