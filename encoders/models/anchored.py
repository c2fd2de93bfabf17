"""The joint model: one pass of a BERT-like backbone gives a multiplier per word-piece and a vector per text.

What it computes (term_weights.md, section 3, variant A2/M2):

    s_i   = [h_i^(l) ; h_i^(L)]                        states of piece i after layer l and after the last layer L
    z_i   = w2 . gelu(W1 [s_i ; idf_i/10 ; bm25_i/10] + b1) + b2     one such head for documents, one for queries
    v     = normalise(mean over the mask of h_i^(L))                 the dense vector, as sentence-transformers pools it

The weight of a word is made of its pieces' ``z`` outside the graph (`termweave.encoders.weighting`), because words,
occurrences and corpus statistics are not tensors:

    document:  bm25(t, d) * softplus(max z_i + ln(e - 1))
    query:     sum over the occurrences of t of softplus(max z_i + ln(e - 1))

Shapes: B texts, n pieces, d hidden size. A freshly made head ends in zeros, so z = 0, the multiplier is 1 and the model
*is* BM25 until it has been trained.

Example: with W2 = 0 and b2 = 0 every z is 0; softplus(ln(e - 1)) = ln(1 + e - 1) = 1.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class HeadShape:
    """What a head looks like; stored in ``termweave.json`` so that a folder can be loaded again.

    Attributes:
        layer: The lower of the two layers whose states the head sees (0 = the embeddings).
        hidden: Width of the head's hidden layer.
        features: Scalars per piece beside the states (idf and BM25).
    """

    layer: int = 3
    hidden: int = 128
    features: int = 2

    def as_dict(self) -> dict[str, int]:
        """For ``termweave.json``."""
        return asdict(self)


class WeightHead(nn.Module):
    """``[states ; scalars] -> z``, one number per piece."""

    def __init__(self, states: int, shape: HeadShape) -> None:
        super().__init__()
        self.inner = nn.Linear(states + shape.features, shape.hidden)
        self.outer = nn.Linear(shape.hidden, 1)
        nn.init.zeros_(self.outer.weight)  # z = 0 everywhere: an untrained model is exactly its anchor
        nn.init.zeros_(self.outer.bias)

    def forward(self, states: Tensor, features: Tensor) -> Tensor:
        """Multiplier logits.

        Args:
            states: ``(..., 2d)``, the two layers side by side.
            features: ``(..., 2)``: idf/10 and BM25/10 of the word the piece belongs to; 0 where there is none.

        Returns:
            ``(...)``.
        """
        hidden = nn.functional.gelu(self.inner(torch.cat((states, features), dim=-1)))
        z: Tensor = self.outer(hidden).squeeze(-1)
        return z


class Heads(nn.Module):
    """The document head and the query head; all that is trained while the backbone is frozen."""

    def __init__(self, hidden_size: int, shape: HeadShape) -> None:
        super().__init__()
        self.document = WeightHead(2 * hidden_size, shape)
        self.query = WeightHead(2 * hidden_size, shape)


class JointModel(nn.Module):
    """Backbone, both heads and the pooled vector: what is exported as one graph."""

    def __init__(self, backbone: Any, shape: HeadShape | None = None) -> None:
        """Put heads on a backbone.

        Args:
            backbone: A BERT-like encoder in transformers' layout.
            shape: Of the heads.
        """
        super().__init__()
        self.shape = shape or HeadShape()
        self.backbone = backbone
        self.heads = Heads(int(backbone.config.hidden_size), self.shape)

    def states(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        """What the heads and the pooling see: ``(B, n, d)`` after the lower layer, ``(B, n, d)`` after the last."""
        outputs = self.backbone(input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=True)
        return outputs.hidden_states[self.shape.layer], outputs.last_hidden_state

    def forward(self, input_ids: Tensor, attention_mask: Tensor, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One pass.

        Args:
            input_ids: int64 ``(B, n)``.
            attention_mask: int64 ``(B, n)``, 0 on padding.
            features: float32 ``(B, n, 2)``, see `WeightHead`.

        Returns:
            document logits ``(B, n)``, query logits ``(B, n)``, unit vectors ``(B, d)``. Logits on padding mean nothing.
        """
        lower, last = self.states(input_ids, attention_mask)
        both = torch.cat((lower, last), dim=-1)
        return self.heads.document(both, features), self.heads.query(both, features), pooled(last, attention_mask)


class StatesOnly(nn.Module):
    """The part of a `JointModel` that stays frozen: what training computes once and keeps."""

    def __init__(self, model: JointModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The two layers' states side by side: ``(B, n, 2d)``."""
        return torch.cat(self.model.states(input_ids, attention_mask), dim=-1)


def pooled(last: Tensor, attention_mask: Tensor) -> Tensor:
    """The mean of the last states over the mask, scaled to length 1: ``(B, n, d), (B, n) -> (B, d)``."""
    mask = attention_mask.unsqueeze(-1).to(last.dtype)
    mean = (last * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1.0)
    return nn.functional.normalize(mean, dim=-1)
