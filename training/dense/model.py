"""The encoders in training, one tower for queries and documents or two that begin alike, and the token ids that they read."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from termweave.encoders.analysis.word_pieces import ModelTokenizer
from termweave.encoders.kinds import kind_of, read_folder, sentence_layout, sentence_modules
from termweave.encoders.kinds.anchored import AnchoredModel
from termweave.encoders.kinds.dense import DenseModel, DenseSettings
from termweave.encoders.kinds.sentence_modules import read_modules
from termweave.encoders.manifest import TOKENIZER, Manifest, digests, write_manifest
from termweave.encoders.models.joint_model import masked_mean
from termweave.errors import UsageError
from termweave.support.batching import in_parts
from termweave.training import backbone_model
from termweave.training.data.sampler import TrainingInputs
from termweave.training.data.teacher_scores import units
from termweave.training.dev_measure import DevelopmentSet, depth, ranking_measure, rankings
from termweave.training.methods.base import Cost
from termweave.training.trainer import passes
from termweave.training.trainer.passes import by_length, in_passes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from termweave.encoders.term_weighting import Kind
    from termweave.training.methods.base import Say
    from termweave.training.methods.bi_encoder import DenseParameters
    from termweave.training.mixture import DataPart
    from termweave.training.model_folder import FolderContents
    from termweave.training.setup import RunSetup


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

    def tower(self, side: Kind) -> Any:
        """Return the transformer that reads a side: queries or documents."""
        return self.backbone if side == "document" or self.query_backbone is None else self.query_backbone

    def forward(self, side: Kind, ids: Tensor, mask: Tensor) -> Tensor:
        """Encode a padded batch: token ids and mask, int64 ``(T, n)`` each -> vectors, float32 ``(T, d)``."""
        with passes.backbone_precision(ids.device, self.precision if self.training else "fp32"):
            states = self.tower(side)(input_ids=ids, attention_mask=mask).last_hidden_state
        exact = states if states.dtype == torch.float64 else states.float()
        vectors = pool(exact, mask, self.pooling)
        return nn.functional.normalize(vectors, dim=-1) if self.unit else vectors

    def encode(self, side: Kind, texts: TokenIds, rows: Sequence[int] | NDArray[np.int64], chunk: int = 0) -> Tensor:
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

    def _encode_rows(self, side: Kind, texts: TokenIds, rows: NDArray[np.int64]) -> Tensor:
        device = next(self.tower(side).parameters()).device
        lengths = texts.lengths[rows]
        padded = len(rows) * lengths.max(initial=0) > _PADDED * lengths.sum()

        def encode(part: NDArray[np.int64]) -> Tensor:
            vectors: Tensor = self(side, *(each.to(device) for each in texts.padded(rows[part])))
            return vectors

        if device.type == "cpu" and padded:
            return in_passes(lengths, _PIECE, encode, device, cached=False)
        return encode(np.arange(len(rows)))

    def vectors(self, side: Kind, texts: TokenIds) -> NDArray[np.float32]:
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
    if problem := backbone_model.problem_of(manifest.pooling, POOLING, bool(reading.layers), left_out):
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


#: Texts tokenised at a time.
_BLOCK = 1024


@dataclass(frozen=True)
class TokenIds:
    """The token ids of many texts.

    Attributes:
        values: int32 ``(all tokens,)``, text after text.
        starts: int64 ``(texts + 1,)``: text i is ``values[starts[i]:starts[i + 1]]``.
    """

    values: NDArray[np.int32]
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Return the number of tokens of each text, ``(texts,)``."""
        return np.diff(self.starts)

    def padded(self, texts: Sequence[int] | NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return token ids and mask of some texts: int64 ``(T, n)`` each, n the length of the longest text."""
        rows = [self.values[self.starts[text] : self.starts[text + 1]].astype(np.int64) for text in texts]
        return passes.padded(rows), passes.padded([np.ones_like(row) for row in rows])


def reading_of(backbone: Path) -> tuple[Manifest, DenseSettings]:
    """Read from a backbone's folder how texts are tokenised and states are pooled.

    Raises:
        UsageError: The folder is a cross-encoder or a sparse model, whose states are not made into vectors.
    """
    manifest = read_folder(backbone, check=False).manifest
    if manifest.kind not in (DenseModel.kind, AnchoredModel.kind):
        raise UsageError(f"The backbone {manifest.name!r} is {kind_of(manifest).label}.", "Name a model that gives vectors.")
    return manifest, DenseSettings.from_manifest(manifest)


def tokenise(tokenizer: ModelTokenizer, texts: Sequence[str], max_length: int, prompt: str = "") -> TokenIds:
    """Tokenise texts as the trained model will read them.

    Args:
        tokenizer: Tokeniser of the model.
        texts: Any texts.
        max_length: Tokens to keep of each, special tokens included.
        prompt: Text that is put before every text.
    """
    rows = [ids for part in in_parts(texts, _BLOCK) for ids in tokenizer.encode([prompt + text for text in part], max_length)]
    values = np.concatenate(rows).astype(np.int32) if rows else np.zeros(0, np.int32)
    return TokenIds(values, np.cumsum([0, *(len(row) for row in rows)]))


@dataclass(frozen=True)
class DenseInputs(TrainingInputs):
    """One data set that dense batches are drawn from.

    Attributes:
        negatives: For each question its hard negatives, best first; may be empty.
        questions: Token ids of the training questions.
        documents: Token ids of all documents.
        targets: The targets that the method computed before training (`BiEncoderMethod.targets`).
    """

    negatives: list[NDArray[np.int64]]
    questions: TokenIds
    documents: TokenIds
    targets: Any = None


@dataclass(frozen=True)
class TargetContext:
    """The data from which a method computes its targets.

    Attributes:
        part: The data set, by name.
        inputs: Training inputs of the data set, still without the targets.
        model: The model as training begins.
        settings: Settings of the method.
        say: Called with lines about the progress.
    """

    part: DataPart
    inputs: DenseInputs
    model: Towers
    settings: Any
    say: Say

    @property
    def setup(self) -> RunSetup:
        """Return the data set as it was read."""
        return self.part.setup

    @cached_property
    def question_vectors(self) -> NDArray[np.float32]:
        """Return vectors of the training questions, by the model as training begins: ``(Q, d)``."""
        self.say(f"{self.part.name}: encoding {len(self.inputs.questions):,} questions")
        return self.model.vectors("query", self.inputs.questions)

    @cached_property
    def document_vectors(self) -> NDArray[np.float32]:
        """Return vectors of the documents, by the model as training begins: ``(D, d)``."""
        self.say(f"{self.part.name}: encoding {len(self.inputs.documents):,} documents")
        return self.model.vectors("document", self.inputs.documents)


def training_inputs(part: DataPart, model: Towers, targets: Callable[[TargetContext], Any], say: Say) -> DenseInputs:
    """Tokenise the texts, find hard negatives, and compute the method's targets."""
    setup, settings = part.setup, part.settings
    inputs = DenseInputs(
        share=part.share,
        pairs=setup.train,
        negatives=setup.hard_negatives(settings.negatives if settings.drawn else 0),
        questions=tokens(setup, model, setup.train.questions, "query", settings.training_length),
        documents=tokens(setup, model, setup.texts, "document", settings.training_length),
    )
    return replace(inputs, targets=targets(TargetContext(part, inputs, model, settings, say)))


def held_out(part: DataPart, model: Towers, say: Say) -> DenseDevelopment:
    """Tokenise the held-out questions and the documents that they are searched in, as the model reads them in use."""
    del say
    setup, settings = part.setup, part.settings
    documents = tokens(setup, model, setup.texts, "document", settings.max_length)
    return DenseDevelopment(
        setup,
        settings.measure,
        questions=tokens(setup, model, setup.dev.questions, "query", settings.max_length),
        documents=documents,
        fixed=model.vectors("document", documents) if model.fixed_documents else None,
    )


def tokens(setup: RunSetup, model: Towers, texts: Sequence[str], side: Kind, max_length: int) -> TokenIds:
    """Return the token ids of texts, cut at a length that the backbone can read."""
    _, reading = reading_of(setup.backbone)
    tokenizer = ModelTokenizer(setup.backbone / TOKENIZER, lower=reading.lower)
    return tokenise(tokenizer, texts, backbone_model.length(model.backbone, max_length), reading.prompt(side))


@dataclass(frozen=True, kw_only=True)
class DenseDevelopment(DevelopmentSet):
    """Held-out questions and the documents that they are searched in, as the encoders read them.

    Attributes:
        questions: Token ids of the questions.
        documents: Token ids of the documents.
        fixed: Vectors of the documents, where their encoder is not trained; None: documents are encoded for every evaluation.
    """

    questions: TokenIds
    documents: TokenIds
    fixed: NDArray[np.float32] | None

    def figures(self, model: Towers, *, unrounded: bool = False) -> list[NDArray[np.float64]]:
        """Measure the model on each question by exact search, with vectors in half precision as an index keeps them; `unrounded`: a second time in float32."""
        documents = model.vectors("document", self.documents) if self.fixed is None else self.fixed
        questions = model.vectors("query", self.questions)
        if not model.unit:  # the exported model is searched by cosine
            documents, questions = units(documents), units(questions)
        length, gains = depth(self.measure), self.gains()
        stored = documents.astype(np.float16).astype(np.float32)  # as an index stores vectors for reranking
        return [
            ranking_measure(list(rankings(questions, vectors, length, self.pairs.spared)), gains, self.measure)
            for vectors in (stored, *([documents] if unrounded else []))
        ]


def estimate(model: Towers, settings: DenseParameters, setup: RunSetup) -> Cost:
    """Estimate what a run takes, from a few real texts.

    Memory is that of parameters, gradients, the optimiser's moments and the activations of one chunk.
    """
    model.train()

    def one_text(texts: Sequence[str], side: Kind) -> tuple[float, float]:
        sample = tokens(setup, model, passes.sampled(texts), side, settings.training_length)
        return passes.pass_cost(model, lambda: model.encode(side, sample, np.arange(len(sample))), len(sample))

    queries, documents = settings.texts()
    query_seconds, query_bytes = one_text(setup.train.questions, "query")
    document_seconds, document_bytes = one_text(setup.texts, "document")
    chunk = settings.chunk or max(queries, documents)
    again = 4 / 3 if max(queries, documents) > chunk else 1.0  # a cached chunk is computed forwards twice
    searched = 0 if model.fixed_documents else len(setup.texts)
    activations = max(min(chunk, documents) * document_bytes, min(chunk, queries) * query_bytes)
    return Cost(
        step=settings.rounds() * again * (queries * query_seconds + documents * document_seconds),
        look=settings.rounds() * (searched * document_seconds + len(setup.dev) * query_seconds) / 3,  # forwards alone
        memory_bytes=round(passes.parameter_bytes(model) + activations),
    )
