"""The kind "sparse": a masked-language-model head gives every entry of the vocabulary a weight (SPLADE).

    w_t = max over the tokens i of log(1 + relu(logit of t at i))        (Formal et al. 2021, eq. 1; or the sum over the tokens)

The terms are entries of the vocabulary, also such that the text does not hold (expansion). Queries are weighted by the same encoder, or
by a table without any inference (`query_table`). The pooling is part of the graph: the logits of a text are some hundred times the size of its weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from termweave.encoders.analysis.model_tokenizer import ModelTokenizer
from termweave.encoders.analysis.registry import analysis_of
from termweave.encoders.kinds.base import OpenModel, PromptSettings
from termweave.encoders.kinds.query_table import QueryTable, Vocabulary
from termweave.encoders.manifest import TOKENIZER, Manifest
from termweave.encoders.onnx.parity import rank_correlation, sample_texts
from termweave.encoders.onnx.runtime import GraphInput
from termweave.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from termweave.encoders.manifest import ModelFolder
    from termweave.encoders.onnx.runtime import Outputs, Precision
    from termweave.encoders.term_weighting.anchored_terms import Kind
    from termweave.records import TermWeights
    from termweave.statistics import CorpusStatistics

OUTPUT = "weights"
#: How the weights of the tokens become those of the text.
POOLINGS = ("max", "sum")


@dataclass(frozen=True)
class SparseSettings(PromptSettings):
    """How a sparse model reads texts: `Manifest.settings` of the kind.

    Attributes:
        twice: Whether the logarithm is applied twice (`log1p_relu`).
        query_table: The file of query weights of an inference-free model (`query_table`); "" where queries are encoded as documents.
        query_tokenizer: Subfolder of the tokeniser of queries; "" for the folder itself.
        query_length: The most tokens of a query that is weighed by the table; 0: no limit.
    """

    twice: bool = False
    query_table: str = ""
    query_tokenizer: str = ""
    query_length: int = 0

    def problem(self, manifest: Manifest) -> str:
        """What is wrong with prompts, pooling or the table; "" if nothing is."""
        if problem := super().problem(manifest):
            return problem
        if not isinstance(self.query_length, int):
            return "query_length is a number"  # type: ignore[unreachable] # a file may hold anything
        return "" if manifest.pooling in POOLINGS else f"pooling is one of {', '.join(POOLINGS)}"

    def names(self) -> list[str]:
        """The files and subfolders that the settings name."""
        return [*super().names(), *(name for name in (self.query_table, self.query_tokenizer) if name)]


class SparseModel(OpenModel):
    """One folder of the kind "sparse"."""

    kind: ClassVar[str] = "sparse"
    label: ClassVar[str] = "a sparse encoder"
    graph_outputs: ClassVar[tuple[str, ...]] = (OUTPUT,)
    needs_statistics: ClassVar[bool] = False

    def __init__(self, folder: ModelFolder, threads: int | None = None, precision: Precision | None = None) -> None:
        super().__init__(folder, threads, precision)
        self.settings = SparseSettings.from_manifest(self.manifest)
        settings, home = self.settings, folder.path
        self.tokenizer = ModelTokenizer(home / settings.transformer / TOKENIZER, lower=settings.lower)
        self.analysis = analysis_of(self.manifest.analysis, self.tokenizer.tokenizer, model=self.manifest.name)
        self._entries = Vocabulary(self.tokenizer.tokenizer)
        self._table: QueryTable | None = None
        if settings.query_table:
            tokenizer = home / settings.query_tokenizer
            self._table = QueryTable(home / settings.query_table, tokenizer, model=self.manifest.name)
            if list(self._table.vocabulary.entries) != list(self._entries.entries):
                raise ModelError(
                    f"Queries and documents of the model {self.manifest.name!r} have different vocabularies.",
                    "Name a model whose query table was made for its document encoder.",
                )

    def weigh(
        self, texts: Sequence[str], kind: Kind, statistics: CorpusStatistics, *, vectors: bool
    ) -> tuple[list[TermWeights], list[NDArray[np.float32]]]:
        """Term weights of each text. The statistics are not needed: the model knows no corpus."""
        del statistics, vectors
        prompt = self.settings.prompt(kind)
        if kind == "query" and self._table is not None:
            return self._table.weigh([prompt + text for text in texts], self.settings.query_length), []
        started = []
        for block in self.blocks(texts):
            ids = self.tokenizer.encode([prompt + text for text in block], self.manifest.max_length)
            started.append(self.graph.start([GraphInput(row) for row in ids], [OUTPUT]))
        return [self._entries.terms_of(result[0]) for finish in started for result in finish()], []

    def load_torch(self) -> Any:
        """The masked-language model with the pooling."""
        from termweave.encoders.models.transformer import VocabularyWeights  # noqa: PLC0415 - torch

        settings = self.settings
        return VocabularyWeights.load(self.folder.path / settings.transformer, self.manifest.pooling, twice=settings.twice)

    @property
    def graph_settings(self) -> tuple[Any, ...]:
        """The pooling, which the graph does."""
        return self.manifest.pooling, self.settings.twice

    def parity_sample(self) -> list[GraphInput]:
        """Sample texts for the comparison of the graphs, without a prompt."""
        return [GraphInput(ids) for ids in self.tokenizer.encode(sample_texts(), self.manifest.max_length) if len(ids)]

    def compare(self, expected: Outputs, given: Outputs) -> dict[str, float]:
        """The rank correlation of the weights of each text."""
        pairs = [(one[0].astype(float), other[0].astype(float)) for one, other in zip(expected, given, strict=True)]
        return {"rank_correlation": rank_correlation(pairs)}
