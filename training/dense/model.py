"""The encoders in training: one tower for queries and documents, or two that begin alike."""

from __future__ import annotations

import copy
import json
import shutil
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from termweave.encoders.kinds import sentence_layout, sentence_modules
from termweave.encoders.kinds.sentence_modules import read_modules
from termweave.encoders.manifest import TOKENIZER, Manifest, digests, write_manifest
from termweave.encoders.models.joint_model import masked_mean
from termweave.errors import UsageError
from termweave.training import backbone_model
from termweave.training.backbone_model import problem_of
from termweave.training.dense.preparation import reading_of
from termweave.training.trainer.passes import backbone_precision, by_length, in_passes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from termweave.training.dense.preparation import TokenIds
    from termweave.training.methods.bi_encoder import DenseParameters
    from termweave.training.model_folder import FolderContents

Side = Literal["query", "document"]
#: Ways of pooling that are trained, as sentence-transformers names them.
POOLING = ("mean", "cls", "max", "lasttoken")
#: Texts of one pass without gradients.
_PASS = 64
#: A processor computes padding like text. Where texts of a pass would be padded to more than `_PADDED` times their length, they are
#: computed in pieces of about one length.
_PIECE, _PADDED = 8, 1.1


class Towers(nn.Module):
    """The encoders that turn texts into vectors: ``normalise(pool(backbone(tokens)))``, or without `unit` ``pool(backbone(tokens))``.

    Attributes:
        backbone: The transformer that reads documents, and queries too unless they have a tower of their own.
        query_backbone: The transformer that reads queries; None: `backbone` reads them, too.
        pooling: One of `POOLING`.
        unit: Whether vectors get length 1.
        fixed_documents: Whether the documents' tower is not trained, so that documents are encoded once.
        precision: Number format in which the transformers compute in training (`passes.backbone_precision`).
    """

    def __init__(
        self, backbone: Any, *, pooling: str = "mean", towers: str = "one", unit: bool = True, precision: str = "fp32"
    ) -> None:
        """Make the towers of a backbone.

        Args:
            backbone: A transformer.
            pooling: One of `POOLING`.
            towers: "one": one tower for both sides; "two": independent copies; "query": two, and the documents' tower is not trained.
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
        """Return d, the length of a vector."""
        return int(self.backbone.config.hidden_size)

    @property
    def device(self) -> torch.device:
        """Return the device on which queries are encoded."""
        return next(self.tower("query").parameters()).device

    def tower(self, side: Side) -> Any:
        """Return the transformer that reads a side: queries or documents."""
        return self.backbone if side == "document" or self.query_backbone is None else self.query_backbone

    def forward(self, side: Side, ids: Tensor, mask: Tensor) -> Tensor:
        """Encode a padded batch: token ids and mask, int64 ``(T, n)`` each -> vectors, float32 ``(T, d)``."""
        with backbone_precision(ids.device, self.precision if self.training else "fp32"):
            states = self.tower(side)(input_ids=ids, attention_mask=mask).last_hidden_state
        exact = states if states.dtype == torch.float64 else states.float()
        vectors = pool(exact, mask, self.pooling)
        return nn.functional.normalize(vectors, dim=-1) if self.unit else vectors

    def encode(self, side: Side, texts: TokenIds, rows: Sequence[int] | NDArray[np.int64], chunk: int = 0) -> Tensor:
        """Encode texts with gradients; with `chunk`, keep the activations of at most that many texts at a time.

        Gradient caching (`passes.CachedPasses`; Gao et al. 2021, "Scaling deep contrastive learning batch size under memory limited setup"): every chunk is
        computed without its activations being kept, the loss is computed on all vectors, and the backward pass computes each chunk
        again. The memory is that of one chunk, the loss and its gradients are those of the whole batch.

        Args:
            side: Whether the texts are queries or documents, which chooses the tower.
            texts: Token ids of many texts.
            rows: Indices of the texts to encode, ``(T,)``.
            chunk: Texts in a chunk; 0: all in one pass.

        Returns:
            float32 ``(T, d)``.
        """
        chosen = np.asarray(rows, dtype=np.int64)
        if not len(chosen):
            return torch.zeros((0, self.width), device=self.device)
        trained = any(parameter.requires_grad for parameter in self.tower(side).parameters())
        lengths, size = texts.lengths[chosen], chunk or len(chosen)
        return in_passes(lengths, size, lambda part: self._encode_rows(side, texts, chosen[part]), self.device, cached=trained)

    def _encode_rows(self, side: Side, texts: TokenIds, rows: NDArray[np.int64]) -> Tensor:
        device = next(self.tower(side).parameters()).device
        lengths = texts.lengths[rows]
        padded = len(rows) * lengths.max(initial=0) > _PADDED * lengths.sum()

        def encode(part: NDArray[np.int64]) -> Tensor:
            vectors: Tensor = self(side, *(each.to(device) for each in texts.padded(rows[part])))
            return vectors

        if device.type == "cpu" and padded:
            return in_passes(lengths, _PIECE, encode, device, cached=False)
        return encode(np.arange(len(rows)))

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


def pool(states: Tensor, mask: Tensor, mode: str) -> Tensor:
    """Pool the states of each text: ``(T, n, d), (T, n) -> (T, d)``; padding takes no part."""
    if mode == "cls":
        return states[:, 0]
    if mode == "max":
        return states.masked_fill(mask.unsqueeze(-1) == 0, -torch.inf).amax(dim=1)
    if mode == "lasttoken":
        last = mask.sum(dim=1) - 1
        return states[torch.arange(len(states), device=states.device), last]
    return masked_mean(states, mask)


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
    transformer = backbone_model.load(backbone, settings)
    backbone_model.attend_by_sdpa(transformer)
    reinitialise(transformer, settings.reinitialise, settings.seed)
    unit = settings.vectors != "given" or read_modules(backbone).normalised
    pooling = "mean" if settings.vectors == "mean" else manifest.pooling
    return Towers(transformer, pooling=pooling, towers=settings.towers, unit=unit, precision=settings.precision)


def reinitialise(backbone: Any, layers: int, seed: int) -> None:
    """Give the top layers new random weights, as the architecture initialises them.

    A backbone that is a retriever already becomes nearer to the plain BERT that the papers start from. Where it has fewer layers, all of
    them begin anew.
    """
    blocks = next(each for each in backbone.modules() if isinstance(each, nn.ModuleList))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for block in list(blocks)[-layers:] if layers else ():
            for weight in block.parameters():
                weight._is_hf_initialized = False  # noqa: SLF001 - transformers 5 keeps what it loaded
            for module in block.modules():
                backbone._init_weights(module)  # noqa: SLF001 - transformers has no public name for it


QUERY = "query"


def save(model: Towers, folder: Path, contents: FolderContents) -> None:
    """Write the towers and their description; ``tokenizer.json`` is in the folder already."""
    training = {**contents.training, "backbone_hash": backbone_model.fingerprint(model.backbone)}
    if model.query_backbone is None:
        _write_tower(model, model.backbone, folder, contents)
        write_manifest(folder, _manifest(folder, contents.name, training))
        return
    home = folder / QUERY
    home.mkdir(exist_ok=True)
    shutil.copyfile(folder / TOKENIZER, home / TOKENIZER)
    for backbone, place in ((model.backbone, folder), (model.query_backbone, home)):
        _write_tower(model, backbone, place, contents)
    query = _manifest(home, f"{contents.name}-query", training)
    write_manifest(home, query)
    document = _manifest(folder, contents.name, training)
    both = blake2b(f"{document.hash} {query.hash}".encode(), digest_size=8).hexdigest()
    write_manifest(folder, replace(document, hash=both, settings={**document.settings, "query_folder": QUERY}))


def _write_tower(model: Towers, backbone: Any, folder: Path, contents: FolderContents) -> None:
    """Write one encoder as sentence-transformers writes it."""
    source = contents.setup.backbone
    _, reading = reading_of(source)
    backbone_model.write_backbone(backbone, source, folder)
    (folder / "2_Normalize").mkdir(exist_ok=True)
    length = backbone_model.length(backbone, contents.settings.max_length)
    how = {"lower": reading.lower, "include_prompt": reading.include_prompt}
    for name, content in sentence_modules.written(model.width, model.pooling, length, reading.prompts, **how).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _manifest(folder: Path, name: str, training: Mapping[str, Any]) -> Manifest:
    """Return the manifest of a folder that was just written, as it will be read when the folder is opened."""
    manifest = sentence_layout.read(folder, name=name).manifest
    return replace(manifest, training=dict(training), files=digests(folder))
