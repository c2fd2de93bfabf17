"""The ranker in training: a sequence classifier with one logit, and the anchor that adds the first stage's features to it."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from termweave.encoders.kinds import sentence_layout, sentence_modules
from termweave.encoders.kinds.ranker import FEATURES
from termweave.encoders.manifest import digests, write_manifest
from termweave.encoders.models.transformer import PairScores
from termweave.training import backbone_model
from termweave.training.trainer.passes import backbone_precision, in_passes, padded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from termweave.encoders.kinds.ranker import PairReader
    from termweave.training.methods.cross_encoder import RankerParameters
    from termweave.training.model_folder import FolderContents

    #: Token ids and token types of a pair.
    TokenPair = tuple[NDArray[np.int64], NDArray[np.int64]]

#: Factor of the first stage's score as training begins.
_ANCHOR_SCALE = 10.0
#: Pairs of one pass without gradients.
_PASS = 64


class _ExactLinear(nn.Linear):
    """A linear layer that computes in the type of its weights, also where the transformer below it runs in bf16."""

    def forward(self, states: Tensor) -> Tensor:
        """Apply the layer."""
        with torch.autocast(states.device.type, enabled=False):
            return super().forward(states.to(self.weight.dtype))


class AnchoredRanker(nn.Module):
    """``logit = weights . features of the first stage + residual(question, document)``; without an anchor the residual alone.

    Attributes:
        classifier: The transformers model with one label; its logit is the residual.
        weights: Weights of the features, float32 ``(F,)``; None: the model has no anchor.
        precision: Number format in which the transformer computes in training (`passes.backbone_precision`).
    """

    def __init__(self, classifier: Any, weights: Sequence[float] = (), precision: str = "fp32") -> None:
        """Put an anchor on a classifier.

        Args:
            classifier: A transformers model with one label.
            weights: Weights of the features as training begins; (): no anchor. With an anchor the residual starts at zero.
            precision: "auto", "fp32" or "bf16".
        """
        super().__init__()
        self.classifier = classifier
        self.weights = nn.Parameter(torch.tensor(list(weights))) if weights else None
        self.precision = precision
        self._scores = [PairScores(classifier)]  # in a list: the classifier is registered once
        for layer in self.head_layers():
            # Logits near 8 are 1/16 apart in bf16, and Eq. 1 of SIR and its selection tell them apart.
            layer.__class__ = _ExactLinear
        if weights:
            head = self.head_layers()[-1]
            nn.init.zeros_(head.weight)
            nn.init.zeros_(head.bias)

    @property
    def backbone(self) -> Any:
        """Return the transformer without its head."""
        return self.classifier.base_model

    @property
    def device(self) -> torch.device:
        """Return the device on which pairs are scored."""
        return next(self.classifier.parameters()).device

    def head_layers(self) -> list[Any]:
        """Return the linear layers of the head; the last layer gives the logit."""
        inner = {id(module) for module in self.backbone.modules()}
        return [each for each in self.classifier.modules() if isinstance(each, nn.Linear) and id(each) not in inner]

    def heads(self) -> nn.ModuleDict:
        """Return the parts of the classifier beside the backbone, which are trained, too."""
        parts = {name: part for name, part in self.classifier.named_children() if part is not self.backbone}
        return nn.ModuleDict(parts)

    def forward(self, pairs: Sequence[TokenPair], features: NDArray[np.float32] | None = None, chunk: int = 0) -> Tensor:
        """Score pairs with gradients: float32 ``(P,)``.

        Args:
            pairs: Token ids and token types of each question-document pair.
            features: Features by the first stage, float32 ``(P, F)``; needed with an anchor.
            chunk: Number of pairs whose activations are kept at a time (`passes.CachedPasses`); 0: all.
        """
        if not pairs:
            return torch.zeros(0, device=self.device)
        lengths = np.array([len(ids) for ids, _ in pairs])
        residuals = in_passes(
            lengths, chunk or len(pairs), lambda part: self._residuals([pairs[place] for place in part]), self.device, cached=True
        )
        if self.weights is None or features is None:
            return residuals
        return residuals + torch.from_numpy(features).to(residuals) @ self.weights

    def _residuals(self, pairs: Sequence[TokenPair]) -> Tensor:
        """Compute the classifier's logits of a padded batch, ``(P,)``."""
        ids, types = zip(*pairs, strict=True)
        with backbone_precision(self.device, self.precision if self.training else "fp32"):
            logits = self._scores[0](*(padded(each).to(self.device) for each in (ids, [np.ones_like(own) for own in ids], types)))
        flat: Tensor = logits[:, 0]
        return flat if flat.dtype == torch.float64 else flat.float()

    def rank(
        self, reader: PairReader, question: str, documents: Sequence[str], features: NDArray[np.float32] | None
    ) -> NDArray[np.float32]:
        """Score the documents of a question without gradients and without dropout: float32 ``(len(documents),)``."""
        training = self.training
        self.eval()
        with torch.no_grad():
            scores: NDArray[np.float32] = self(read(reader, question, documents), features, _PASS).cpu().numpy()
        self.train(training)
        return scores


def read(reader: PairReader, question: str, documents: Sequence[str]) -> list[TokenPair]:
    """Return token ids and token types of a question with each document."""
    _, inputs = reader.read(question, documents)
    return [(pair.ids, pair.types if pair.types is not None else np.zeros_like(pair.ids)) for pair in inputs]


def build(settings: RankerParameters, backbone: Path) -> AnchoredRanker:
    """Build the classifier with its anchor as training begins with them; layers that are not trained are frozen."""
    classifier = load_classifier(backbone, settings.layers, settings.seed)
    backbone_model.freeze(classifier.base_model, settings.top_layers)
    features = FEATURES if settings.candidates_from == "hybrid" else FEATURES[:1]  # as `first_stage` gives
    start = [_ANCHOR_SCALE, *(0.0 for _ in features[1:])]
    return AnchoredRanker(classifier, start if settings.anchor else (), settings.precision)


def load_classifier(folder: Path, layers: int, seed: int) -> Any:
    """Load a folder as a classifier with one label; a head that the folder does not have gets random weights of this seed.

    Raises:
        ModelError: The folder is damaged.
    """
    import transformers  # noqa: PLC0415 - seconds

    from termweave.encoders.models.transformer import load_backbone  # noqa: PLC0415 - torch

    load_backbone(folder, layers)  # refuses what cannot be read, in our words
    local = {"local_files_only": True, "trust_remote_code": False}
    config = transformers.AutoConfig.from_pretrained(folder, **local)
    config.num_labels = 1
    config.num_hidden_layers = layers or config.num_hidden_layers
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.AutoModelForSequenceClassification.from_pretrained(
            folder, config=config, ignore_mismatched_sizes=True, attn_implementation="sdpa", **local
        )
    return model.float()


_TOKENISER_SETTINGS = "tokenizer_config.json"


def save(model: AnchoredRanker, folder: Path, contents: FolderContents) -> None:
    """Write the classifier and its description; ``tokenizer.json`` is in the folder already."""
    source = contents.setup.backbone
    backbone_model.write_backbone(model.classifier, source, folder)
    config: dict[str, Any] = sentence_modules.read_json(source / _TOKENISER_SETTINGS, missing={})
    length = backbone_model.length(model.backbone, contents.settings.max_length)
    text = json.dumps({**config, "model_max_length": length}, indent=2) + "\n"
    (folder / _TOKENISER_SETTINGS).write_text(text, encoding="utf-8")
    manifest = sentence_layout.read(folder, name=contents.name).manifest
    training = {**contents.training, "backbone_hash": backbone_model.fingerprint(model.backbone)}
    manifest = replace(manifest, training=training, files=digests(folder))
    if model.weights is not None:
        weights = dict(zip(FEATURES, model.weights.detach().cpu().tolist(), strict=False))
        anchored = blake2b(f"{manifest.hash} {weights}".encode(), digest_size=8).hexdigest()
        manifest = replace(manifest, hash=anchored, anchor={"kind": "first-stage", "weights": weights})
    write_manifest(folder, manifest)
