"""The encoders in training: one tower for queries and documents, or two that begin alike."""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from termweave.encoders.kinds.sentence_modules import read_modules
from termweave.errors import UsageError
from termweave.training.backbone import loading
from termweave.training.backbone.reading import problem_of
from termweave.training.dense.inputs import by_length, reading_of
from termweave.training.trainer.gradient_cache import CachedPasses
from termweave.training.trainer.mixed_precision import backbone_precision

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from termweave.training.dense.inputs import TokenIds
    from termweave.training.methods.bi_encoder import DenseParameters

Side = Literal["query", "document"]
#: Ways of pooling that are trained, as sentence-transformers names them.
POOLING = ("mean", "cls", "max", "lasttoken")
#: Texts of one pass without gradients.
_PASS = 64
#: A processor computes padding like text. Where texts of a pass would be padded to more than `_PADDED` times their length, they are
#: computed in pieces of about one length.
_PIECE, _PADDED = 8, 1.1


class Towers(nn.Module):
    """Texts to vectors: ``normalise(pool(backbone(tokens)))``, or without `unit` ``pool(backbone(tokens))``.

    Attributes:
        backbone: The transformer that reads documents, and queries too unless they have a tower of their own.
        query_backbone: The transformer that reads queries; None: `backbone`.
        pooling: One of `POOLING`.
        unit: Whether vectors get length 1.
        fixed_documents: Whether the documents' tower is not trained, so that documents are encoded once.
        precision: What the transformers compute with in training (`mixed_precision.backbone_precision`).
    """

    def __init__(
        self, backbone: Any, *, pooling: str = "mean", towers: str = "one", unit: bool = True, precision: str = "fp32"
    ) -> None:
        """Put towers on a backbone.

        Args:
            backbone: A transformer.
            pooling: One of `POOLING`.
            towers: "one" for both sides; "two" independent copies; "query": two, and the documents' tower is not trained.
            unit: Whether vectors get length 1.
            precision: "auto", "fp32" or "bf16".
        """
        super().__init__()
        self.backbone = backbone
        self.query_backbone = copy.deepcopy(backbone) if towers != "one" else None
        self.pooling, self.unit, self.precision = pooling, unit, precision
        self.fixed_documents = towers == "query"
        if self.fixed_documents:
            self.backbone.requires_grad_(requires_grad=False)

    @property
    def width(self) -> int:
        """d, the length of a vector."""
        return int(self.backbone.config.hidden_size)

    @property
    def device(self) -> torch.device:
        """Where queries are encoded."""
        return next(self.tower("query").parameters()).device

    def tower(self, side: Side) -> Any:
        """The transformer of a side."""
        return self.backbone if side == "document" or self.query_backbone is None else self.query_backbone

    def forward(self, side: Side, ids: Tensor, mask: Tensor) -> Tensor:
        """Encode a padded batch: int64 ``(T, n)`` twice -> float32 ``(T, d)``."""
        with backbone_precision(ids.device, self.precision if self.training else "fp32"):
            states = self.tower(side)(input_ids=ids, attention_mask=mask).last_hidden_state
        vectors = pool(_exact(states), mask, self.pooling)
        return nn.functional.normalize(vectors, dim=-1) if self.unit else vectors

    def encode(self, side: Side, texts: TokenIds, rows: Sequence[int] | NDArray[np.int64], chunk: int = 0) -> Tensor:
        """Encode texts with gradients; with `chunk`, keep the activations of at most that many texts at a time.

        Gradient caching (Gao et al. 2021, "Scaling deep contrastive learning batch size under memory limited setup"): every chunk is
        computed without its activations being kept, the loss is computed on all vectors, and the backward pass computes each chunk
        again. The memory is that of one chunk, the loss and its gradients are those of the whole batch.

        Args:
            side: Which tower reads the texts.
            texts: Token ids.
            rows: Which texts, ``(T,)``.
            chunk: Texts in a chunk; 0: all in one pass.

        Returns:
            float32 ``(T, d)``.
        """
        chosen = np.asarray(rows, dtype=np.int64)
        if not len(chosen):
            return torch.zeros((0, self.width), device=self.device)
        parts = by_length(texts.lengths[chosen], chunk or len(chosen))
        passes = [partial(self._encode_rows, side, texts, chosen[part]) for part in parts]
        trained = any(parameter.requires_grad for parameter in self.tower(side).parameters())
        if len(parts) > 1 and trained and torch.is_grad_enabled():
            vectors: Tensor = CachedPasses.apply(torch.zeros((), requires_grad=True), self.device, passes)
        else:
            vectors = torch.cat([encode() for encode in passes])
        return vectors[torch.from_numpy(np.argsort(np.concatenate(parts))).to(self.device)]

    def _encode_rows(self, side: Side, texts: TokenIds, rows: NDArray[np.int64]) -> Tensor:
        device = next(self.tower(side).parameters()).device
        lengths = texts.lengths[rows]
        padded = len(rows) * lengths.max(initial=0) > _PADDED * lengths.sum()
        parts = by_length(lengths, _PIECE) if device.type == "cpu" and padded else [np.arange(len(rows))]
        vectors = torch.cat(
            [self(side, *(torch.from_numpy(each).to(device) for each in texts.padded(rows[part]))) for part in parts]
        )
        return vectors if len(parts) == 1 else vectors[torch.from_numpy(np.argsort(np.concatenate(parts))).to(device)]

    def vectors(self, side: Side, texts: TokenIds) -> NDArray[np.float32]:
        """Encode all texts without gradients and without dropout: float32 ``(texts, d)``."""
        training = self.training
        self.eval()
        result = np.zeros((len(texts), self.width), dtype=np.float32)
        with torch.no_grad():
            for part in by_length(texts.lengths, _PASS):
                result[part] = self._encode_rows(side, texts, part).cpu().numpy()
        self.train(training)
        return result


def _exact(states: Tensor) -> Tensor:
    """Half precision becomes float32."""
    return states if states.dtype == torch.float64 else states.float()


def pool(states: Tensor, mask: Tensor, mode: str) -> Tensor:
    """Pool the states of each text: ``(T, n, d), (T, n) -> (T, d)``; padding takes no part."""
    weights = mask.unsqueeze(-1).to(states.dtype)
    if mode == "cls":
        return states[:, 0]
    if mode == "max":
        return states.masked_fill(weights == 0, -torch.inf).amax(dim=1)
    if mode == "lasttoken":
        last = mask.sum(dim=1) - 1
        return states[torch.arange(len(states), device=states.device), last]
    return (states * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1.0)


def build(settings: DenseParameters, backbone: Path) -> Towers:
    """Build the towers as training begins with them.

    Raises:
        UsageError: The backbone's folder has modules that are not trained.
    """
    manifest, reading = reading_of(backbone)
    left_out = bool(reading.prompts) and not reading.include_prompt
    if problem := problem_of(manifest.pooling, POOLING, bool(reading.layers), left_out):
        raise UsageError(
            f"The backbone {backbone.name} was trained with {problem}, which termweave does not train.",
            f"Name a backbone without dense layers, pooled by one of {', '.join(POOLING)}.",
        )
    transformer = loading.load(backbone, settings)
    loading.attend_by_sdpa(transformer)
    reinitialise(transformer, settings.reinitialise, settings.seed)
    unit = settings.vectors != "given" or read_modules(backbone).normalised
    pooling = "mean" if settings.vectors == "mean" else manifest.pooling
    return Towers(transformer, pooling=pooling, towers=settings.towers, unit=unit, precision=settings.precision)


def reinitialise(backbone: Any, layers: int, seed: int) -> None:
    """Give the top layers new random weights, as the architecture initialises them.

    A backbone that is a retriever already becomes nearer to the plain BERT that the papers start from.

    Raises:
        UsageError: The backbone has fewer layers.
    """
    blocks = next(each for each in backbone.modules() if isinstance(each, nn.ModuleList))
    if layers > len(blocks):
        raise UsageError(f"reinitialise={layers}, but the backbone has {len(blocks)} layers.", f"Set at most {len(blocks)}.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for block in list(blocks)[len(blocks) - layers :] if layers else ():
            for weight in block.parameters():
                weight._is_hf_initialized = False  # noqa: SLF001 - transformers 5 keeps what it loaded
            for module in block.modules():
                backbone._init_weights(module)  # noqa: SLF001 - transformers has no public name for it
