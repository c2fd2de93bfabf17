"""The kind "sparse": a masked-language-model head gives every entry of the vocabulary a weight (SPLADE).

    w_t = max over the tokens i of log(1 + relu(logit of t at i))        (Formal et al. 2021, eq. 1; or the sum over the tokens)

The terms are entries of the vocabulary, including entries that do not occur in the text (expansion). The pooling is part of the graph: the logits of
a text are some hundred times the size of its weights. Queries are weighted by the same encoder, or by a table without any inference:

    w_t = table[t] if the query holds the token t, else 0

The table lies in the folder as ``model.safetensors`` (`SparseStaticEmbedding` of sentence-transformers: one number for each entry of
the vocabulary) or as ``idf.json`` (OpenSearch's models: entry -> weight). Entries that weigh 0 or less are no terms of a query:
OpenSearch takes positive weights only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from termweave.encoders.analysis.analyses import analysis_of
from termweave.encoders.analysis.word_pieces import ModelTokenizer
from termweave.encoders.kinds.base import OpenModel, PromptSettings
from termweave.encoders.kinds.pooling import read_safetensors
from termweave.encoders.manifest import TOKENIZER, Manifest
from termweave.encoders.onnx.checked_graphs import rank_correlation
from termweave.encoders.term_weighting import Kind, check_finite
from termweave.errors import ModelError
from termweave.records import TermWeights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from termweave.encoders.onnx.runtime import Outputs
    from termweave.statistics import CorpusStatistics

OUTPUT = "weights"


@dataclass(frozen=True)
class SparseSettings(PromptSettings):
    """The settings of a sparse model (`Manifest.settings`): the way from a text to its weights.

    Attributes:
        twice: Whether the logarithm is applied twice (`log1p_relu`).
        query_table: The file of query weights of an inference-free model (`QueryTable`); "" where queries are encoded as documents.
        query_tokenizer: Subfolder of the tokeniser of queries; "" for the folder itself.
        query_length: The most tokens of a query that is weighed by the table; 0: no limit.
    """

    twice: bool = False
    query_table: str = ""
    query_tokenizer: str = ""
    query_length: int = 0

    def problem(self, manifest: Manifest) -> str:
        """The fault in prompts, pooling or the table, as a clause for a message; "" if all are right."""
        if problem := super().problem(manifest):
            return problem
        if not isinstance(self.query_length, int):
            return "query_length is a number"  # type: ignore[unreachable] # a file may hold anything
        return "" if manifest.pooling in {"max", "sum"} else "pooling is one of max, sum"

    def names(self) -> list[str]:
        """All files and subfolders that the settings name."""
        return [*super().names(), *(name for name in (self.query_table, self.query_tokenizer) if name)]


class SparseModel(OpenModel):
    """One folder of the kind "sparse"."""

    kind: ClassVar[str] = "sparse"
    label: ClassVar[str] = "a sparse encoder"
    graph_outputs: ClassVar[tuple[str, ...]] = (OUTPUT,)
    needs_statistics: ClassVar[bool] = False

    def open(self) -> None:
        """Read the settings, the tokeniser, and the table of query weights."""
        self.settings = SparseSettings.from_manifest(self.manifest)
        settings, home = self.settings, self.folder.path
        self.tokenizer = ModelTokenizer(home / settings.transformer / TOKENIZER, lower=settings.lower)
        self.analysis = analysis_of(self.manifest.analysis, self.tokenizer.tokenizer, model=self.manifest.name)
        self._entries = Vocabulary(self.tokenizer.tokenizer)
        self._table: QueryTable | None = None
        if settings.query_table:
            self._table = QueryTable(home / settings.query_table, home / settings.query_tokenizer)
            if list(self._table.vocabulary.entries) != list(self._entries.entries):
                raise ModelError(f"The query table of {self.manifest.name!r} has another vocabulary.", "Copy the folder again.")

    def weigh(
        self, texts: Sequence[str], kind: Kind, statistics: CorpusStatistics, *, vectors: bool
    ) -> tuple[list[TermWeights], list[NDArray[np.float32]]]:
        """The term weights of each text, and no vectors. The statistics are not needed: the model's weights depend on no corpus."""
        prompt = self.settings.prompt(kind)
        prompted = [prompt + text for text in texts]
        if kind == "query" and self._table is not None:
            return self._table.weigh(prompted, self.settings.query_length), []
        return [self._entries.terms_of(result[0]) for result in self.run(prompted, [OUTPUT], self.token_inputs)], []

    def load_torch(self) -> Any:
        """The torch module of the masked-language model with its pooling."""
        from termweave.encoders.models.transformer import VocabularyWeights, load_backbone  # noqa: PLC0415 - torch

        backbone = load_backbone(self.folder.path / self.settings.transformer, head="ForMaskedLM")
        return VocabularyWeights(backbone, self.manifest.pooling, twice=self.settings.twice).eval()

    @property
    def graph_settings(self) -> tuple[Any, ...]:
        """The mode of pooling and whether the logarithm is applied twice: both are part of the graph."""
        return self.manifest.pooling, self.settings.twice

    def compare(self, expected: Outputs, computed: Outputs) -> dict[str, float]:
        """Compare two graphs' outputs: the rank correlation of each text's weights, averaged over the texts."""
        pairs = [(one[0].astype(float), other[0].astype(float)) for one, other in zip(expected, computed, strict=True)]
        return {"rank_correlation": rank_correlation(pairs)}


class Vocabulary:
    """The entries of a tokeniser's vocabulary, by token id. Special tokens and ids without an entry are no terms."""

    def __init__(self, tokenizer: Any) -> None:
        entries = tokenizer.get_vocab(with_added_tokens=True)
        self.entries: NDArray[Any] = np.full(max(entries.values()) + 1, "", dtype=object)
        self.entries[list(entries.values())] = list(entries)
        self._is_term = self.entries != ""
        special = [number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special]
        self._is_term[special] = False

    def terms_of(self, weights: NDArray[np.float32]) -> TermWeights:
        """Make term weights of the entries that weigh more than 0.

        Args:
            weights: ``(v,)``, one weight for each token id; v may exceed the vocabulary (padding for the hardware).
        """
        check_finite(weights)
        size = min(len(weights), len(self.entries))
        places = np.flatnonzero((weights[:size] > 0) & self._is_term[:size])
        return TermWeights(tuple(self.entries[places].tolist()), weights[places].astype(np.float32))


class QueryTable:
    """A table of query weights and the tokeniser of queries."""

    def __init__(self, file: Path, tokenizer: Path) -> None:
        """Read the table.

        Args:
            file: ``model.safetensors`` or a JSON file.
            tokenizer: Folder of the tokeniser.

        Raises:
            ModelError: A file is missing or damaged, or the table belongs to another vocabulary.
        """
        self._tokenizer = ModelTokenizer(tokenizer / TOKENIZER)
        self.vocabulary = Vocabulary(self._tokenizer.tokenizer)
        size = len(self.vocabulary.entries)
        try:
            if file.suffix == ".json":
                weights = np.zeros(size, dtype=np.float32)
                for token, weight in json.loads(file.read_bytes()).items():
                    if (number := self._tokenizer.tokenizer.token_to_id(token)) is not None:
                        weights[number] = weight
            else:
                weights = read_safetensors(file)["weight"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ModelError(f"{file} is not a table of query weights: {error}.", "Copy the model folder again.") from error
        if weights.ndim != 1 or len(weights) < size:
            raise ModelError(f"{file} has {len(weights)} weights for a vocabulary of {size} entries.", "Copy the folder again.")
        self._weights = weights

    def weigh(self, texts: Sequence[str], max_length: int) -> list[TermWeights]:
        """Look up the weights of each query's tokens; a token counts once, however often it stands in the query.

        Args:
            texts: The queries.
            max_length: The most tokens of a query; 0: no limit.
        """
        length = max_length or max(self._tokenizer.lengths(texts), default=0)
        return [self._terms(ids) for ids in self._tokenizer.encode(texts, length, special=False)]

    def _terms(self, ids: NDArray[np.int64]) -> TermWeights:
        weights = np.zeros(len(self._weights), dtype=np.float32)
        weights[ids] = self._weights[ids]
        return self.vocabulary.terms_of(weights)
