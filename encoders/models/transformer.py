"""Load models of the library transformers from folders, and wrap them as torch modules with the exported graphs' inputs and outputs."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from termweave.encoders.manifest import MANIFEST, TOKENIZER, WEIGHTS, weight_files
from termweave.errors import ModelError, UsageError
from termweave.support.messages import counted, first_line


def load_backbone(path: Path, layers: int = 0, *, head: str = "") -> Any:
    """Load an encoder from a transformers folder, in eval mode, float32. Code of the model never runs.

    Attention is the eager one: the legacy ONNX exporter makes its fastest int8 graph of it (99.8 texts/s; dynamo: 88.3).

    Args:
        path: The folder.
        layers: Number of layers to keep, counted from the embeddings; 0: all.
        head: The head on the encoder: "" for none, "ForMaskedLM" or "ForSequenceClassification".

    Raises:
        ModelError: A file is missing or damaged, or the weights are those of another architecture.
        UsageError: The model has fewer layers than `layers`.
    """
    import transformers  # noqa: PLC0415 - seconds
    from transformers.utils import logging as transformers_logging  # noqa: PLC0415

    again = "Copy the folder again, or give the one that save_pretrained wrote."
    files = [path / "config.json", *(weight_files(path) or [path / WEIGHTS]), path / TOKENIZER]
    if missing := [file.name for file in files if not file.is_file()]:
        if (path / MANIFEST).is_file() and missing[0] == WEIGHTS:
            hint = "It is exported already: index with it. To export again, give the model that it was made from."
            raise ModelError(f"{path} holds ONNX graphs alone, without the weights for torch.", hint)
        raise ModelError(f"{path} is not a transformers model: {missing[0]} is missing.", again)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()

    local = {"local_files_only": True, "trust_remote_code": False}
    try:
        config = transformers.AutoConfig.from_pretrained(path, **local)
    except (OSError, ValueError) as error:
        raise ModelError(f"{path / 'config.json'} describes no model of transformers: {first_line(error)}.", again) from error
    if layers > config.num_hidden_layers:
        raise UsageError(f"layers={layers}, but the backbone has {config.num_hidden_layers} layers.", "Use fewer, or 0 for all.")
    if layers:
        config.num_hidden_layers = layers
    extra = {"add_pooling_layer": False} if config.model_type == "bert" and not head else {}
    options = {**local, "attn_implementation": "eager", "output_loading_info": True, "ignore_mismatched_sizes": True}
    try:
        model, info = getattr(transformers, f"AutoModel{head}").from_pretrained(path, config=config, **options, **extra)
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise ModelError(f"The weights in {path} are damaged: {first_line(error)}.", again) from error
    # Transformers would start these tensors at random, with no more than a warning.
    missing = [*info["missing_keys"], *(name for name, *_ in info["mismatched_keys"])]
    if missing := [name for name in missing if head or "pooler" not in name]:
        tensors = f"{counted(len(missing), 'tensor')} that config.json describes, or in another shape ({missing[0]})"
        raise ModelError(f"{path / WEIGHTS} lacks {tensors}.", again)
    return model.eval().float()


class StatesOfTokens(nn.Module):
    """A transformer that gives the states of its last layer, ``(B, n, d)``."""

    def __init__(self, backbone: Any) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Run one batch: ``(B, n), (B, n) -> (B, n, d)``."""
        return self.backbone(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


class VocabularyWeights(nn.Module):
    """A masked-language model that gives a weight to every entry of the vocabulary, ``(B, v)`` (SPLADE)."""

    def __init__(self, backbone: Any, pooling: str, *, twice: bool) -> None:
        super().__init__()
        self.backbone, self.pooling, self.twice = backbone, pooling, twice

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Run one batch: ``(B, n), (B, n) -> (B, v)``."""
        logits = self.backbone(input_ids=input_ids, attention_mask=attention_mask).logits
        weights = torch.log1p(torch.relu(logits * attention_mask.unsqueeze(-1).to(logits.dtype)))
        weights = torch.log1p(weights) if self.twice else weights
        return weights.amax(dim=1) if self.pooling == "max" else weights.sum(dim=1)


class PairScores(nn.Module):
    """A sequence classifier that gives the logits of pairs, ``(B, labels)``."""

    def __init__(self, backbone: Any) -> None:
        super().__init__()
        self.backbone = backbone
        typed = "token_type_ids" in inspect.signature(backbone.forward).parameters
        self.typed = typed and getattr(backbone.config, "type_vocab_size", 0) > 1

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        """Run one batch: ``(B, n)`` three times -> ``(B, labels)``."""
        types = {"token_type_ids": token_type_ids} if self.typed else {}
        return self.backbone(input_ids=input_ids, attention_mask=attention_mask, **types).logits
