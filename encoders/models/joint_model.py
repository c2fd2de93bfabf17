"""The joint model: one pass of a BERT-like backbone gives a multiplier per word-piece and a vector per text.

What it computes:

    s_i   = [h_i^(l) ; h_i^(L)]                        states of piece i after layer l and after the last layer L
    z_i   = w2 . gelu(W1 [s_i ; idf_i/10 ; bm25_i/10] + b1) + b2     one such head for documents, one for queries
            (hidden = 0, lower = 0, features = 0: z_i = w . h_i + b, FecTek's Eq. 1 and LE-BS's Eq. 3; gate: s_i * g first)
    v     = normalise(mean over the mask of h_i^(L)), or h_1^(L)     the dense vector, pooled as the backbone was trained

The weight of a word is made of its pieces' ``z`` outside the graph (`termweave.encoders.term_weighting`), because words,
occurrences and corpus statistics are not tensors:

    document:  bm25(t, d) * softplus(max z_i + ln(e - 1))
    query:     sum over the occurrences of t of softplus(max z_i + ln(e - 1))

Shapes: B texts, n pieces, d hidden size. A freshly made head ends in zeros, so z = 0, the multiplier is 1 and the model
*is* BM25 until it has been trained.

Example: with W2 = 0 and b2 = 0 every z is 0; softplus(ln(e - 1)) = ln(1 + e - 1) = 1.

On disk the backbone is ``model.safetensors`` and ``config.json``, as transformers saves it, so that transformers and
sentence-transformers read the folder. ``heads.safetensors`` holds what termweave adds, and `encoders.manifest.Manifest` describes how
the two belong together.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from termweave.encoders.manifest import HEADS, TOKENIZER, WEIGHTS, Manifest, ModelFolder, digest, write_manifest
from termweave.encoders.models.transformer import load_backbone
from termweave.errors import ModelError
from termweave.support.messages import first_line

#: How the last states become a vector: their mean, or the state of the first token, [CLS].
POOLING = ("mean", "cls")


@dataclass(frozen=True)
class HeadShape:
    """The shape of the heads; stored in ``termweave.json`` so that a folder can be loaded again.

    Attributes:
        layer: The lower of the two layers whose states the head reads (0 = the embeddings).
        hidden: Width of the head's hidden layer; 0: none, the head is linear as in the papers.
        features: Number of scalars per piece that the head reads beside the states: 2 (idf and BM25) or 0.
        gate: 1: states go through FecTek's feature context module first.
        shared: 1: one head for documents and queries.
        tags: 1: an embedding of each piece's place in its word is added to the input (LE-BS, 3.2.1).
        lower: 1: the head reads the states of both layers; 0: those of the last layer alone.
    """

    layer: int = 3
    hidden: int = 128
    features: int = 2
    gate: int = 0
    shared: int = 0
    tags: int = 0
    lower: int = 1


class ContextGate(nn.Module):
    """FecTek's feature context module (FCM, Eq. 2): each feature is weighted by what the whole text is about.

    ``g = sigmoid(W2 relu(W1 mean(h) + b1) + b2)``, ``f_i = h_i * g``; the mean is over the real pieces, so that padding
    changes nothing. Example: with W2 = 0 and b2 = 0 the gate halves every state.
    """

    def __init__(self, states: int) -> None:
        super().__init__()
        self.narrow = nn.Linear(states, max(1, states // 16))
        self.wide = nn.Linear(max(1, states // 16), states)

    def forward(self, mean: Tensor) -> Tensor:
        """The gate of each text: ``(..., s) -> (..., s)``."""
        return torch.sigmoid(self.wide(torch.relu(self.narrow(mean))))


class WeightHead(nn.Module):
    """Maps the states and scalar features of each piece to its logit: ``[states ; scalars] -> z``, one number per piece."""

    def __init__(self, states: int, shape: HeadShape) -> None:
        super().__init__()
        self.features, self.gated = shape.features, bool(shape.gate)
        if shape.gate:
            self.gate = ContextGate(states)
        if shape.hidden:
            self.inner = nn.Linear(states + shape.features, shape.hidden)
        self.width = shape.hidden or states + shape.features
        self.outer = nn.Linear(self.width, 1)
        nn.init.zeros_(self.outer.weight)  # z = 0 everywhere: an untrained model is exactly its anchor
        nn.init.zeros_(self.outer.bias)

    def before(self, states: Tensor, features: Tensor, mean: Tensor, *, gate: bool = True) -> Tensor:
        """Compute the inputs of the head's last layer, ``(..., width)``. If `gate` is false, the gate is left out. Other arguments as in `forward`."""
        if self.gated and gate:
            states = states * self.gate(mean)
        seen = torch.cat((states, features[..., :2]), dim=-1) if self.features else states
        return nn.functional.gelu(self.inner(seen)) if hasattr(self, "inner") else seen

    def forward(self, states: Tensor, features: Tensor, mean: Tensor) -> Tensor:
        """Compute the logit of each piece.

        Args:
            states: ``(..., s)``, the layers side by side.
            features: ``(..., 2 or 3)``: idf/10 and BM25/10 of the word to which the piece belongs, 0 for a piece without a word; as a
                third feature the tag of the piece's place in the word.
            mean: ``(..., s)``, the mean state of the piece's text; broadcast over the pieces.

        Returns:
            ``(...)``.
        """
        return self.outer(self.before(states, features, mean)).squeeze(-1)


class Heads(nn.Module):
    """The document head and the query head; nothing else is trained while the backbone is frozen."""

    def __init__(self, hidden_size: int, shape: HeadShape) -> None:
        super().__init__()
        states = hidden_size * (2 if shape.lower else 1)
        self.document = WeightHead(states, shape)
        if not shape.shared:
            self.query = WeightHead(states, shape)
        if shape.tags:
            self.tags = nn.Embedding(5, hidden_size)
            nn.init.zeros_(self.tags.weight)

    def head(self, kind: str) -> WeightHead:
        """The head for the given kind of text, "document" or "query"."""
        return self.query if kind == "query" and hasattr(self, "query") else self.document


class JointModel(nn.Module):
    """Backbone, both heads and the pooled vector, which are exported as one graph."""

    def __init__(self, backbone: Any, shape: HeadShape | None = None, pooling: str = "mean") -> None:
        """Put heads on a backbone.

        Args:
            backbone: A BERT-like encoder in transformers' layout.
            shape: Shape of the heads; None: `HeadShape` with its defaults.
            pooling: One of `POOLING`.
        """
        super().__init__()
        self.shape = shape or HeadShape()
        self.pooling = pooling
        self.backbone = backbone
        self.heads = Heads(int(backbone.config.hidden_size), self.shape)

    def states(self, input_ids: Tensor, attention_mask: Tensor, features: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Run the backbone; return the states after the lower layer and after the last, ``(B, n, d)`` each."""
        inputs: dict[str, Tensor] = {"input_ids": input_ids}
        if self.shape.tags and features is not None:
            tags = features[..., 2]
            place = self.heads.tags(tags.long()) * (tags > 0).unsqueeze(-1).to(features.dtype)  # [CLS], [SEP], padding: none
            inputs = {"inputs_embeds": self.backbone.get_input_embeddings()(input_ids) + place}
        outputs = self.backbone(**inputs, attention_mask=attention_mask, output_hidden_states=True)
        return outputs.hidden_states[self.shape.layer], outputs.last_hidden_state

    def forward(self, input_ids: Tensor, attention_mask: Tensor, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute all outputs in one pass.

        Args:
            input_ids: int64 ``(B, n)``.
            attention_mask: int64 ``(B, n)``, 0 on padding.
            features: float32 ``(B, n, 2)``, see `WeightHead`; ``(B, n, 3)`` with place tags (`term_weighting.place_tags`).

        Returns:
            document logits ``(B, n)``, query logits ``(B, n)``, unit vectors ``(B, d)``. Logits on padding mean nothing.
        """
        lower, last = self.states(input_ids, attention_mask, features)
        both = torch.cat((lower, last), dim=-1) if self.shape.lower else last
        mean = masked_mean(both, attention_mask).unsqueeze(1)
        document, query = (self.heads.head(kind)(both, features, mean) for kind in ("document", "query"))
        return document, query, pooled(last, attention_mask, self.pooling)


class StatesOnly(nn.Module):
    """The frozen part of a `JointModel`: training computes its states once and caches them."""

    def __init__(self, model: JointModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Compute the states after the lower and after the last layer, side by side: ``(B, n, 2d)``."""
        return torch.cat(self.model.states(input_ids, attention_mask), dim=-1)


def masked_mean(states: Tensor, attention_mask: Tensor) -> Tensor:
    """The mean of each text's states over its unmasked pieces: ``(B, n, s), (B, n) -> (B, s)``."""
    mask = attention_mask.unsqueeze(-1).to(states.dtype)
    return (states * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1.0)


def pooled(last: Tensor, attention_mask: Tensor, pooling: str) -> Tensor:
    """Pool the last layer's states (`pooling` is one of `POOLING`) and scale to length 1: ``(B, n, d), (B, n) -> (B, d)``."""
    one = last[:, 0] if pooling == "cls" else masked_mean(last, attention_mask)
    return nn.functional.normalize(one, dim=-1)


def save(model: JointModel, path: Path, manifest: Manifest) -> Manifest:
    """Write backbone, heads and the manifest with its hash; ``tokenizer.json`` must be in the folder already.

    Returns:
        The manifest that was written.
    """
    model.backbone.save_pretrained(path)
    save_file({name: tensor.contiguous() for name, tensor in model.heads.state_dict().items()}, path / HEADS)
    for name in (WEIGHTS, HEADS):
        (path / name).chmod(0o644)  # safetensors writes for the owner alone
    dimension = int(model.backbone.config.hidden_size)
    written = replace(manifest, hash=_hash(model, path, manifest), heads=asdict(model.shape), dimension=dimension)
    write_manifest(path, written)
    return written


def _hash(model: JointModel, path: Path, manifest: Manifest) -> str:
    """The hash that names a model: over its parameters, its tokeniser and the settings that it computes with, not over dates or versions."""
    state = blake2b(digest_size=8)
    for name, tensor in sorted(model.state_dict().items()):
        state.update(name.encode())
        state.update(tensor.detach().cpu().float().numpy().tobytes())
    state.update(digest(path / TOKENIZER).encode())
    table = manifest.settings.get("prompts")
    prompts = [sorted(table.items())] if table else []  # models without prompts keep their hashes
    state.update(repr((manifest.analysis, manifest.anchor, manifest.max_length, manifest.pooling, *prompts)).encode())
    return state.hexdigest()


def load(path: Path) -> tuple[JointModel, ModelFolder]:
    """Load a model that `save` wrote, in eval mode; return it with its folder.

    Raises:
        ModelError: A file is missing or damaged, or was changed since `save` wrote it.
    """
    folder = ModelFolder.read(path, check=False)
    try:
        model = JointModel(load_backbone(path), HeadShape(**folder.manifest.heads), folder.manifest.pooling)
        model.heads.load_state_dict(load_file(path / HEADS))
    except (SafetensorError, OSError, RuntimeError) as error:  # cut short, or tensors of other shapes than the manifest says
        raise ModelError(f"The weights in {path} are damaged: {first_line(error)}.", "Copy the folder again.") from error
    if _hash(model, path, folder.manifest) != folder.manifest.hash:
        raise ModelError(f"The model in {path} was altered after its training.", "Copy the folder again, or train it anew.")
    return model.eval(), folder
