"""What one step of training looks at, and the loss it makes of it: one `Lesson` a method.

A batch is a function of the seed and the step alone, so that a run that was stopped goes on with the very batches it would
have seen. All its texts come from one collection: telling medicine from history is no lesson.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from termweave.encoders.models.anchored import masked_mean, pooled
from termweave.training.sides import Seen, Side, vocabulary_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from termweave.encoders.models.anchored import JointModel
    from termweave.encoders.weighting import Kind
    from termweave.training.materials import Material
    from termweave.training.teachers import Distilled

#: Temperature of the vectors' contrastive loss, and the weight of staying near the original vector.
_DENSE_TEMPERATURE, _STAY = 0.05, 5.0


@dataclass(frozen=True)
class Batch:
    """Which texts a step looks at.

    Attributes:
        questions: int64 ``(Q,)``.
        documents: int64 ``(D,)``: document q is relevant to question q, the others are hard negatives.
        owner: int64 ``(D,)``: the question a document was drawn for.
        material: Which collection they are of.
    """

    questions: NDArray[np.int64]
    documents: NDArray[np.int64]
    owner: NDArray[np.int64]
    material: int = 0


class Lesson(nn.Module):
    """What is trained: heads, layers where the backbone is not frozen, and what only training needs."""

    def __init__(self, model: JointModel, materials: Sequence[Material], settings: Mapping[str, Any]) -> None:
        """Make what is trained.

        Args:
            model: Whose heads, and layers, these are.
            materials: One or more collections.
            settings: Of the method.
        """
        super().__init__()
        self.settings, self.materials = settings, list(materials)
        shares = np.array([material.share for material in self.materials])
        self._shares = shares / shares.sum()
        self.heads = model.heads
        # Out of torch's sight: a frozen backbone belongs in no checkpoint. A trained one does.
        object.__setattr__(self, "model", model)
        self.live = settings["top_layers"] != 0
        if self.live:
            self.backbone = model.backbone

    def draw(self, step: int) -> Batch:
        """The batch of a step."""
        generator = np.random.default_rng((int(self.settings["seed"]), step))
        chosen = int(generator.choice(len(self.materials), p=self._shares))
        pairs, negatives = self.materials[chosen].pairs, self.materials[chosen].negatives
        size = min(int(self.settings["batch"]), len(pairs) if pairs.shares is None else int((pairs.shares > 0).sum()))
        questions = generator.choice(len(pairs), size=size, replace=False, p=pairs.shares)
        relevant = [sorted(pairs.relevant[question]) for question in questions.tolist()]
        documents = [each[int(generator.integers(len(each)))] for each in relevant]
        owner = list(range(size))
        for row, question in enumerate(questions.tolist()):
            pool = negatives[question] if negatives else ()
            for place in generator.permutation(len(pool))[: int(self.settings.get("drawn", 0))]:
                documents.append(int(pool[place]))
                owner.append(row)
        return Batch(questions, np.array(documents, dtype=np.int64), np.array(owner, dtype=np.int64), chosen)

    def seen(self, batch: Batch, side: Side) -> tuple[Tensor, Tensor | None]:
        """What the head's last layer sees of the side's pieces, ``(P, width)``, and the vectors where a pass was made."""
        seen, vectors = self._pass(side) if self.live else (self._cached(batch, side), None)
        inner = side.inner(self.heads.of(side.kind), seen)
        return nn.functional.dropout(inner, float(self.settings["dropout"]), self.training), vectors

    def _cached(self, batch: Batch, side: Side) -> Seen:
        states = self.materials[batch.material].states(side.kind)
        assert states is not None
        return side.cached(states, gated=self.heads.document.gated)

    def _pass(self, side: Side) -> tuple[Seen, Tensor]:
        model: JointModel = self.model
        ids, mask, features = side.padded()
        lower, last = model.states(ids, mask, features)
        both = torch.cat((lower, last), dim=-1) if model.shape.lower else last
        return side.live(both, masked_mean(both, mask)), pooled(last, mask)

    def side(
        self, batch: Batch, texts: NDArray[np.int64], vocabulary: Mapping[str, int], kind: Kind, *, everything: bool
    ) -> Side:
        """Questions or documents of a batch, where the parameters are."""
        prepared = self.materials[batch.material].prepared(kind)
        return Side(prepared, texts, vocabulary, kind, everything=everything, device=next(self.heads.parameters()).device)


class Contrast(Lesson):
    """`fectek`: see there."""

    def __init__(self, model: JointModel, materials: Sequence[Material], settings: Mapping[str, Any]) -> None:
        super().__init__(model, materials, settings)
        self.log_scale = nn.Parameter(torch.tensor(math.log(settings["scale"])))
        if settings["tkgm"]:
            # One projector for both sides, as in the paper; separate heads have hidden layers of their own.
            self.knowledge = nn.ModuleDict({kind: nn.Linear(model.heads.document.width, 1) for kind in ("query", "document")})

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """The loss of a batch, and its parts."""
        material, settings, tkgm = self.materials[batch.material], self.settings, bool(self.settings["tkgm"])
        vocabulary = vocabulary_of(material.questions, batch.questions)
        asked = self.side(batch, batch.questions, vocabulary, "query", everything=tkgm)
        given = self.side(batch, batch.documents, vocabulary, "document", everything=tkgm)
        (inner_asked, asked_vectors), (inner_given, given_vectors) = self.seen(batch, asked), self.seen(batch, given)
        scores = self.log_scale.exp() * self.products(asked, inner_asked, given, inner_given)
        masked = mask(material.pairs.known, batch, in_batch=bool(settings["in_batch"]))
        parts = {"text": cross_entropy(scores, masked)}
        if tkgm:
            parts["term"] = term_loss(self.knowledge["query"](inner_asked).squeeze(-1), labels(asked, given)) + term_loss(
                *of_relevant(self.knowledge["document"](inner_given).squeeze(-1), given, asked)
            )
        if material.distilled is not None:
            parts["teacher"] = self._distil(scores, batch, material.distilled)
        if settings["joint"] > 0 and asked_vectors is not None and given_vectors is not None:
            parts["dense"] = settings["joint"] * cross_entropy(asked_vectors @ given_vectors.T / _DENSE_TEMPERATURE, masked)
            parts["stay"] = _STAY * (self._strayed(batch, asked_vectors, asked) + self._strayed(batch, given_vectors, given))
        return {"loss": torch.stack(list(parts.values())).sum(), **{name: part.detach() for name, part in parts.items()}}

    def products(self, asked: Side, inner_asked: Tensor, given: Side, inner_given: Tensor) -> Tensor:
        """Exact sparse dot products of a batch, with gradients: ``(Q, D)``."""
        factors = asked.weights(self.heads.of("query").outer(inner_asked).squeeze(-1))
        impacts = given.weights(self.heads.of("document").outer(inner_given).squeeze(-1))
        return factors @ impacts.T

    def _distil(self, scores: Tensor, batch: Batch, distilled: Distilled) -> Tensor:
        wanted = distilled.teacher.scores(batch.questions, batch.documents)
        if not self.settings["in_batch"]:
            wanted[batch.owner[None, :] != np.arange(len(batch.questions))[:, None]] = -np.inf
        return distilled.weight * distillation(scores, torch.from_numpy(wanted).to(scores) / distilled.temperature)

    def _strayed(self, batch: Batch, vectors: Tensor, side: Side) -> Tensor:
        states = self.materials[batch.material].states(side.kind)
        assert states is not None
        width = vectors.shape[1]
        original = nn.functional.normalize(torch.from_numpy(states.means[side.texts, -width:]).to(vectors), dim=-1)
        return (1.0 - (vectors * original).sum(dim=-1)).mean()


def mask(known: Sequence[frozenset[int]], batch: Batch, *, in_batch: bool) -> NDArray[np.bool_]:
    """Which documents are left out of a question's softmax: others that are no wrong answers, or all but its own."""
    found = np.array(
        [[document in known[question] for document in batch.documents.tolist()] for question in batch.questions.tolist()]
    )
    if not in_batch:
        found |= batch.owner[None, :] != np.arange(len(batch.questions))[:, None]
    np.fill_diagonal(found, val=False)
    return found


def cross_entropy(scores: Tensor, masked: NDArray[np.bool_]) -> Tensor:
    """Eq. 4 of FecTek: ``(Q, D)`` scores, document q relevant to question q."""
    left = scores.masked_fill(torch.from_numpy(masked).to(scores.device), -torch.inf)
    return nn.functional.cross_entropy(left, torch.arange(len(scores), device=scores.device))


def distillation(scores: Tensor, wanted: Tensor) -> Tensor:
    """KL(teacher || student) over the documents that the teacher scored; -inf is no score; questions with one or none count 0."""
    known = torch.isfinite(wanted)
    enough = known.sum(dim=1) >= 2
    if not bool(enough.any()):
        return scores.sum() * 0.0
    known, wanted, scores = known[enough], wanted[enough], scores[enough]
    teacher = torch.softmax(wanted, dim=1)
    student = torch.log_softmax(scores.masked_fill(~known, -torch.inf), dim=1).masked_fill(~known, 0.0)
    entropy = (teacher * torch.log(teacher.clamp(min=1e-12))).sum(dim=1)
    return (entropy - (teacher * student).sum(dim=1)).mean()


def labels(one: Side, other: Side) -> NDArray[np.float32]:
    """1 for a piece whose term stands in the text of the same place on the other side, else 0: ``(P,)``."""
    sets = [set(other.prepared.anchors[text].terms) for text in other.texts[: len(one.texts)].tolist()]
    own = [one.prepared.anchors[text].terms for text in one.texts.tolist()]
    pairs = zip(one.row.tolist(), one.term.tolist(), strict=True)
    return np.array([row < len(sets) and own[row][term] in sets[row] for row, term in pairs], dtype=np.float32)


def of_relevant(logits: Tensor, given: Side, asked: Side) -> tuple[Tensor, NDArray[np.float32]]:
    """Logits and labels of the relevant documents' pieces; hard negatives have no say (the paper leaves it open)."""
    own = np.flatnonzero(given.row < len(asked.texts))
    return logits[torch.from_numpy(own).to(logits.device)], labels(given, asked)[own]


def term_loss(logits: Tensor, wanted: NDArray[np.float32]) -> Tensor:
    """Eq. 5 and 6 of FecTek, with the minus sign that was lost in print, from logits."""
    if not len(wanted):
        return logits.sum() * 0.0
    return nn.functional.binary_cross_entropy_with_logits(logits, torch.from_numpy(wanted).to(logits.device))
