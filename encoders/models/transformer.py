"""Transformers models as torch modules with the inputs and outputs of the exported graphs."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from termweave.encoders.models.store import load_backbone

if TYPE_CHECKING:
    from pathlib import Path


class StatesOfTokens(nn.Module):
    """A transformer that gives the states of its last layer, ``(B, n, d)``."""

    def __init__(self, backbone: Any) -> None:
        super().__init__()
        self.backbone = backbone

    @classmethod
    def load(cls, path: Path) -> StatesOfTokens:
        """Load the transformer of a folder, in eval mode, float32.

        Raises:
            ModelError: A file is missing or damaged, or transformers does not know the architecture.
        """
        module = cls(load_backbone(path))
        module.eval()
        return module

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Run one batch: ``(B, n), (B, n) -> (B, n, d)``."""
        states: Tensor = self.backbone(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return states


class VocabularyWeights(nn.Module):
    """A masked-language model that gives a weight to every entry of the vocabulary, ``(B, v)`` (SPLADE)."""

    def __init__(self, backbone: Any, pooling: str, *, twice: bool) -> None:
        super().__init__()
        self.backbone, self.pooling, self.twice = backbone, pooling, twice

    @classmethod
    def load(cls, path: Path, pooling: str, *, twice: bool) -> VocabularyWeights:
        """Load the masked-language model of a folder, in eval mode, float32.

        Raises:
            ModelError: A file is missing or damaged, or the model has no head over the vocabulary.
        """
        module = cls(load_backbone(path, head="ForMaskedLM"), pooling, twice=twice)
        module.eval()
        return module

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Run one batch: ``(B, n), (B, n) -> (B, v)``."""
        logits = self.backbone(input_ids=input_ids, attention_mask=attention_mask).logits
        weights = torch.log1p(torch.relu(logits * attention_mask.unsqueeze(-1).to(logits.dtype)))
        weights = torch.log1p(weights) if self.twice else weights
        result: Tensor = weights.amax(dim=1) if self.pooling == "max" else weights.sum(dim=1)
        return result


class PairScores(nn.Module):
    """A sequence classifier that gives the logits of pairs, ``(B, labels)``."""

    def __init__(self, backbone: Any) -> None:
        super().__init__()
        self.backbone = backbone
        typed = "token_type_ids" in inspect.signature(backbone.forward).parameters
        self.typed = typed and getattr(backbone.config, "type_vocab_size", 0) > 1

    @classmethod
    def load(cls, path: Path) -> PairScores:
        """Load the classifier of a folder, in eval mode, float32.

        Raises:
            ModelError: A file is missing or damaged, or the model has no classifier.
        """
        module = cls(load_backbone(path, head="ForSequenceClassification"))
        module.eval()
        return module

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        """Run one batch: ``(B, n)`` three times -> ``(B, labels)``."""
        types = {"token_type_ids": token_type_ids} if self.typed else {}
        logits: Tensor = self.backbone(input_ids=input_ids, attention_mask=attention_mask, **types).logits
        return logits
