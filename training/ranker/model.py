"""The ranker in training: a sequence classifier with one logit, the anchor that adds the first stage's features to it, and its data."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from termweave.encoders import Ranker
from termweave.encoders.kinds import sentence_layout, sentence_modules
from termweave.encoders.kinds.ranker import FEATURES, PairReader, RankerSettings
from termweave.encoders.kinds.sentence_layout import has_types
from termweave.encoders.manifest import Manifest, ModelFolder, digests, write_manifest
from termweave.encoders.models.transformer import PairScores
from termweave.evaluation.measures import LEADING
from termweave.training import backbone_model
from termweave.training.data.sampler import TrainingInputs
from termweave.training.dev_measure import QUESTIONS, DevelopmentSet, ranking_measure
from termweave.training.methods.base import Cost
from termweave.training.ranker.first_stage import NOTHING, CandidateLists, FirstStage, check, first_stage, lists_of
from termweave.training.trainer.passes import backbone_precision, in_passes, padded, parameter_bytes, pass_cost, sampled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from termweave.encoders.onnx.runtime import Precision
    from termweave.training.methods.cross_encoder import RankerParameters
    from termweave.training.mixture import DataPart
    from termweave.training.model_folder import FolderContents
    from termweave.training.setup import RunSetup

    #: Token ids and token types of a pair.
    TokenPair = tuple[NDArray[np.int64], NDArray[np.int64]]

    #: (question, texts of documents, features of the first stage) -> scores.
    Scorer = Callable[[str, Sequence[str], NDArray[np.float32]], NDArray[np.floating]]


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
            logits = self._scores[0](*(padded(each).to(self.device) for each in (ids, [np.ones_like(row) for row in ids], types)))
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


@dataclass(frozen=True)
class RankerInputs(TrainingInputs):
    """One data set that blocks are drawn from.

    Attributes:
        negatives: For each question the columns of `lists` that hold wrong documents, best first.
        lists: Candidates of each question; relevant documents that the first stage did not find stand in columns behind it.
        documents: Texts of the documents.
        reader: Turns pairs of texts into token ids.
    """

    negatives: list[NDArray[np.int64]]
    lists: CandidateLists
    documents: Sequence[str]
    reader: PairReader


@dataclass(frozen=True)
class Blocks:
    """The blocks of one step: questions, each with one right document and wrong ones.

    Attributes:
        questions: int64 ``(B,)``.
        documents: int64 ``(B, n)``: the right document first; `NOTHING` where there are too few wrong ones.
        features: float32 ``(B, n, F)``, of the first stage.
        keys: float32 ``(B, n)``, uniform random numbers for methods that select at random.
    """

    questions: NDArray[np.int64]
    documents: NDArray[np.int64]
    features: NDArray[np.float32]
    keys: NDArray[np.float32]


def reader_of(setup: RunSetup, model: AnchoredRanker, settings: RankerParameters, length: str = "training_length") -> PairReader:
    """Return the reader that turns pairs into token ids, as the written folder will (`sentence_layout`).

    Raises:
        ModelError: The tokeniser has no template for pairs.
    """
    tokens = backbone_model.length(model.backbone, getattr(settings, length))
    reading = RankerSettings(types=has_types(setup.backbone))
    manifest = Manifest(setup.backbone.name, "ranker", ("scores",), "", tokens, settings=asdict(reading))
    return PairReader(ModelFolder(setup.backbone, manifest, {}), reading)


def training_inputs(part: DataPart, model: AnchoredRanker, say: Callable[[str], None]) -> RankerInputs:
    """Rank the documents of the training questions by the first stage."""
    setup, settings = part.setup, part.settings
    lists = lists_of(_stage(part, say), setup.train, settings.candidates, with_relevant=True)
    return RankerInputs(
        share=part.share,
        pairs=setup.train,
        negatives=[
            np.flatnonzero((row != NOTHING) & ~np.isin(row, list(known)))
            for row, known in zip(lists.documents, setup.train.known, strict=True)
        ],
        lists=lists,
        documents=setup.texts,
        reader=reader_of(setup, model, settings),
    )


def held_out(part: DataPart, model: AnchoredRanker, say: Callable[[str], None]) -> RankerDevelopment:
    """Rank the documents of the held-out questions by the first stage."""
    setup, settings = part.setup, part.settings
    development = RankerDevelopment(
        setup,
        settings.measure,
        lists=lists_of(_stage(part, say), setup.dev, settings.reranked),
        reader=reader_of(setup, model, settings, "max_length"),
    )
    say(f"{part.name}: the first stage has {settings.measure} {development.first_stage().mean():.4f} on the held-out questions")
    return development


def _stage(part: DataPart, say: Callable[[str], None]) -> FirstStage:
    """Return the first stage, made once for training and held-out questions, so that the documents are encoded once."""
    name = part.settings.candidates_from
    check(name)
    return part.once("first stage", lambda: first_stage(name, part.setup, lambda line: say(f"{part.name}: {line}")))


@dataclass(frozen=True, kw_only=True)
class RankerDevelopment(DevelopmentSet):
    """Held-out questions with the documents that the first stage found.

    Attributes:
        lists: Candidates of each question.
        reader: Turns pairs of texts into token ids.
    """

    lists: CandidateLists
    reader: PairReader

    def figures(self, model: AnchoredRanker, *, unrounded: bool = False) -> list[NDArray[np.float64]]:
        """Measure a model in training on each question; `unrounded`: the same figures twice, because an index rounds nothing of a ranker."""
        figures = self.reranked(lambda question, texts, features: model.rank(self.reader, question, texts, features))
        return [figures, figures] if unrounded else [figures]

    def first_stage(self) -> NDArray[np.float64]:
        """Compute the measure of each question in the order of the first stage."""
        return self.reranked(lambda question, texts, features: -np.arange(len(texts), dtype=np.float64))  # noqa: ARG005

    def reranked(self, score: Scorer, questions: int | None = None) -> NDArray[np.float64]:
        """Compute the measure of the first `questions` questions (None: of all), reranked by a scorer; ties keep the first stage's order."""
        rankings = []
        for row, question in enumerate(self.pairs.questions[:questions]):
            candidates = self.lists.documents[row]
            columns = np.flatnonzero(candidates >= 0)
            texts = [self.setup.texts[document] for document in candidates[columns].tolist()]
            scores = score(question, texts, self.lists.features[row, columns]) if texts else np.zeros(0)
            order = np.argsort(-scores, kind="stable")
            rankings.append((candidates[columns][order], -np.arange(len(order), dtype=np.float64)))
        return ranking_measure(rankings, self.gains()[:questions], self.measure)

    def int8_cost(self, folder: Path, outputs: Sequence[str]) -> dict[str, Any]:
        """Measure nDCG@10 of the fp32 and the int8 graph of an exported ranker on the first held-out questions.

        Returns:
            ``{"questions", "documents", "scores": {"fp32", "int8", "change"}}``; the documents are the candidates that are reranked.
        """
        del outputs
        count = min(QUESTIONS, len(self.pairs))
        figures: dict[str, float] = {}
        precisions: tuple[Precision, ...] = ("fp32", "int8")
        for precision in precisions:
            ranker = Ranker.load(folder, precision=precision)
            scores = partial(_anchored, ranker, list(ranker.anchor.values()))
            figures[precision] = float(replace(self, measure=LEADING).reranked(scores, count).mean())
        reranked = len({document for row in self.lists.documents[:count].tolist() for document in row if document >= 0})
        change = {**figures, "change": figures["int8"] - figures["fp32"]}
        return {"questions": count, "documents": reranked, "scores": change}


def _anchored(
    ranker: Ranker, weights: Sequence[float], question: str, texts: Sequence[str], features: NDArray[np.float32]
) -> NDArray[np.floating]:
    """Compute a ranker's logits of a question with each text, the anchor's share included."""
    logits = ranker.score(question, texts)
    return logits + features @ np.array(weights, dtype=np.float32) if weights else logits


def estimate(model: AnchoredRanker, settings: RankerParameters, setup: RunSetup) -> Cost:
    """Estimate what a run takes without its first stage, from a few real pairs.

    Memory is that of parameters, gradients, the optimiser's moments and the activations of one chunk.
    """
    pairs = read(reader_of(setup, model, settings), setup.train.questions[0], sampled(setup.texts))
    seconds, activations = pass_cost(model, lambda: model(pairs), len(pairs))
    scored, chunk = settings.scored(), settings.chunk
    again = 4 / 3 if chunk and scored > chunk else 1.0  # a cached chunk is computed forwards twice
    return Cost(
        step=again * scored * seconds,
        look=len(setup.dev) * settings.reranked * seconds / 3,  # forwards alone
        memory_bytes=round(parameter_bytes(model) + min(chunk or scored, scored) * activations),
    )
