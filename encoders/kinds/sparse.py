"""The kind "sparse": a masked-language-model head gives every entry of the vocabulary a weight (SPLADE).

    w_t = max over the tokens i of log(1 + relu(logit of t at i))        (Formal et al. 2021, eq. 1; or the sum over the tokens)

The terms are entries of the vocabulary, also such that the text does not hold (expansion). Queries and documents are weighted by
the same encoder. The pooling is part of the graph: the logits of a text are some hundred times the size of its weights.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from termweave.encoders.analysis.model_tokenizer import ModelTokenizer
from termweave.encoders.analysis.registry import analysis_of
from termweave.encoders.kinds import graph_cache
from termweave.encoders.kinds.base import GraphInput, KindSettings, ModelKind, OpenModel
from termweave.encoders.manifest import TOKENIZER, Manifest
from termweave.encoders.onnx.parity import rank_correlation, sample_texts
from termweave.errors import ModelError
from termweave.records import TermWeights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from termweave.encoders.manifest import ModelFolder
    from termweave.encoders.onnx.runtime import Outputs, Precision
    from termweave.encoders.term_weighting.anchored_terms import Kind
    from termweave.statistics import CorpusStatistics

WEIGHTS = "weights"
#: How the weights of the tokens become those of the text.
POOLINGS = ("max", "sum")


@dataclass(frozen=True)
class SparseSettings(KindSettings):
    """How a sparse model reads texts: `Manifest.settings` of the kind.

    Attributes:
        prompts: "query" and "document" -> the text that is put before every text of that sort.
        twice: Whether the logarithm is applied twice (`log1p_relu`).
    """

    prompts: dict[str, str] = field(default_factory=dict)
    twice: bool = False

    def problem(self, manifest: Manifest) -> str:
        """What is wrong with the pooling; "" if nothing is."""
        return "" if manifest.pooling in POOLINGS else f"pooling is one of {', '.join(POOLINGS)}"


class SparseModel(OpenModel):
    """One folder of the kind "sparse"."""

    needs_statistics: ClassVar[bool] = False

    def __init__(self, folder: ModelFolder, threads: int | None, precision: Precision | None) -> None:
        super().__init__(folder, threads, precision)
        self.settings = SparseSettings.of(self.manifest)
        self.tokenizer = ModelTokenizer(folder.path / self.settings.transformer / TOKENIZER, lower=self.settings.lower)
        inner = self.tokenizer.tokenizer
        if type(inner.model).__name__ != "WordPiece":
            raise ModelError(
                f"The model {self.manifest.name!r} has a tokeniser of the sort {type(inner.model).__name__}.",
                "Name a sparse model with word-pieces, such as one that was made of BERT or DistilBERT.",
            )
        self.analysis = analysis_of(self.manifest.analysis, inner, model=self.manifest.name)
        vocabulary = inner.get_vocab(with_added_tokens=True)
        self._terms = np.full(max(vocabulary.values()) + 1, "", dtype=object)
        self._terms[list(vocabulary.values())] = list(vocabulary)
        special = [number for number, token in inner.get_added_tokens_decoder().items() if token.special]
        self._is_term = self._terms != ""
        self._is_term[special] = False

    @property
    def vocabulary(self) -> Any:
        """The `tokenizers.Tokenizer` behind the model."""
        return self.tokenizer.tokenizer

    def runnable_folder(self) -> ModelFolder:
        """The folder with a graph: its own, or one that torch exported into the cache."""
        return graph_cache.with_graph(self.folder, SparseKind())

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, special tokens included, however many of them the model reads."""
        return self.tokenizer.lengths(texts)

    def weigh(
        self, texts: Sequence[str], kind: Kind, statistics: CorpusStatistics, *, vectors: bool
    ) -> tuple[list[TermWeights], list[NDArray[np.float32]]]:
        """Term weights of each text. The statistics are not needed: the model knows no corpus."""
        del statistics, vectors
        prompt = self.settings.prompts.get(kind, "")
        started = []
        for block in self.blocks(texts):
            ids = self.tokenizer.encode([prompt + text for text in block], self.manifest.max_length)
            started.append(self.graph.start(ids, None, [WEIGHTS]))
        return [self._terms_of(result[0]) for finish in started for result in finish()], []

    def _terms_of(self, weights: NDArray[np.float32]) -> TermWeights:
        """The entries of the vocabulary that weigh something; special tokens are no terms."""
        if not np.isfinite(weights).all():
            raise ModelError(
                "The model gave a term weight that is no number (NaN or infinity).",
                "The model folder is damaged or was exported from a diverged training.",
            )
        size = min(len(weights), len(self._terms))  # some vocabularies are padded for the sake of the hardware
        places = np.flatnonzero((weights[:size] > 0) & self._is_term[:size])
        return TermWeights(tuple(self._terms[places].tolist()), weights[places].astype(np.float32))


class SparseKind(ModelKind):
    """The declaration of the kind "sparse", which the docstring of this file describes."""

    name: ClassVar[str] = "sparse"
    label: ClassVar[str] = "a sparse encoder"
    outputs: ClassVar[tuple[str, ...]] = ("weights",)
    graph_outputs: ClassVar[dict[str, bool]] = {WEIGHTS: False}

    def open(self, folder: ModelFolder, threads: int | None, precision: Precision | None) -> SparseModel:
        """Open a folder for encoding."""
        return SparseModel(folder, threads, precision)

    def load_torch(self, folder: ModelFolder) -> Any:
        """The masked-language model with the pooling."""
        from termweave.encoders.models.transformer import VocabularyWeights  # noqa: PLC0415 - torch

        settings = SparseSettings.of(folder.manifest)
        return VocabularyWeights.load(folder.path / settings.transformer, folder.manifest.pooling, twice=settings.twice)

    def graph_settings(self, manifest: Manifest) -> tuple[Any, ...]:
        """The pooling, which the graph does."""
        return manifest.pooling, SparseSettings.of(manifest).twice

    def parity_sample(self, folder: ModelFolder, module: Any) -> list[GraphInput]:
        """Prose, read without a prompt."""
        del module
        tokenizer = ModelTokenizer(folder.path / SparseSettings.of(folder.manifest).transformer / TOKENIZER)
        return [GraphInput(ids) for ids in tokenizer.encode(sample_texts(), folder.manifest.max_length) if len(ids)]

    def compare(self, folder: ModelFolder, expected: Outputs, given: Outputs) -> dict[str, float]:
        """The rank correlation of the weights of each text."""
        del folder
        pairs = [(one[0].astype(float), other[0].astype(float)) for one, other in zip(expected, given, strict=True)]
        return {"rank_correlation": rank_correlation(pairs)}
