"""From a data set to what dense training reads: token ids, hard negatives, the held-out questions; and what a run takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.encoders.analysis.word_pieces import ModelTokenizer
from termweave.encoders.kinds import kind_of, read_folder
from termweave.encoders.kinds.anchored import AnchoredModel
from termweave.encoders.kinds.dense import DenseModel, DenseSettings
from termweave.encoders.manifest import TOKENIZER
from termweave.errors import UsageError
from termweave.support.batching import in_parts
from termweave.training import backbone_model
from termweave.training.data.sampler import TrainingInputs
from termweave.training.data.teacher_scores import units
from termweave.training.dev_measure import DevelopmentSet, depth, ranking_measure, rankings
from termweave.training.methods.base import Cost
from termweave.training.trainer.passes import padded, parameter_bytes, pass_cost, sampled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from termweave.encoders.manifest import Manifest
    from termweave.encoders.term_weighting import Kind
    from termweave.training.dense.model import Towers
    from termweave.training.methods.base import Say
    from termweave.training.methods.bi_encoder import DenseParameters
    from termweave.training.mixture import DataPart
    from termweave.training.setup import RunSetup


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
        return padded(rows), padded([np.ones_like(row) for row in rows])


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
        sample = tokens(setup, model, sampled(texts), side, settings.training_length)
        return pass_cost(model, lambda: model.encode(side, sample, np.arange(len(sample))), len(sample))

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
        memory_bytes=round(parameter_bytes(model) + activations),
    )
