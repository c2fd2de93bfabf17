"""The kind "ranker": a cross-encoder reads a query and a document as one sequence and gives the pair a score.

    score = logit                        a model with one label
    score = logit[1] - logit[0]          a model with two labels: 0 for "not relevant", 1 for "relevant"

Both order documents as the model's probabilities do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from termweave.encoders.analysis.word_pieces import ModelTokenizer
from termweave.encoders.kinds.base import KindSettings, OpenModel
from termweave.encoders.manifest import TOKENIZER, Manifest, ModelFolder
from termweave.encoders.onnx.checked_graphs import rank_correlation, sample_texts
from termweave.encoders.onnx.runtime import GraphInput, Outputs
from termweave.errors import ModelError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from termweave.records import ModelInfo

LOGITS = "logits"


@dataclass(frozen=True)
class RankerSettings(KindSettings):
    """The settings of a ranker (`Manifest.settings`): the way from a query and a document to a score.

    Attributes:
        types: Whether the model reads token types (``token_type_ids``), which tell the document's tokens from the query's.
        prompt: The text that is put before every query.
        labels: 1 for one logit, 2 for "not relevant" and "relevant".
    """

    types: bool = True
    prompt: str = ""
    labels: int = 1

    def problem(self, manifest: Manifest) -> str:
        """The fault in the prompt or the number of labels, as a clause for a message; "" if both are right."""
        return "" if isinstance(self.prompt, str) and self.labels in {1, 2} else "the prompt is a text, and labels is 1 or 2"


class RankerModel(OpenModel):
    """One folder of the kind "ranker", a cross-encoder: a query and documents -> a score for each document."""

    kind: ClassVar[str] = "ranker"
    label: ClassVar[str] = "a cross-encoder"
    graph_outputs: ClassVar[tuple[str, ...]] = (LOGITS,)

    def open(self) -> None:
        """Read the settings, the tokeniser and the anchor (weights of the first stage's features)."""
        self.settings = RankerSettings.from_manifest(self.manifest)
        self.reader = PairReader(self.folder, self.settings)
        self.tokenizer = self.reader.tokenizer
        #: Feature of the first stage -> the weight with which it is added to the logit; empty for a ranker without an anchor.
        self.anchor = anchor_of(self.manifest)

    @property
    def info(self) -> ModelInfo:
        """Name, hash and folder of the model."""
        return self.model_info("scores")

    def score(self, query: str, documents: Sequence[str], *, windows: int = 1) -> NDArray[np.float32]:
        """The score of each document for a query, before any activation: ``(len(documents),)``.

        Args:
            query: The query.
            documents: The documents.
            windows: The most windows into which a document is split that does not fit beside the query; the best window's score is
                the document's. 1 cuts the document off, as `CrossEncoder.predict` of sentence-transformers does.

        Raises:
            ModelError: The model gives another number of logits than its description says, or one that is not a number.
        """
        counts: list[int] = []

        def read(block: Sequence[str]) -> list[GraphInput]:
            numbers, inputs = self.reader.read(query, block, windows)
            counts.extend(numbers)
            return inputs

        scores = (self._score(result[0]) for result in self.run(documents, [LOGITS], read))
        return np.array([max(islice(scores, count)) for count in counts], dtype=np.float32)

    def best_window(self, query: str, document: str, windows: int) -> str:
        """The window (part of a document) with the highest score; the whole document if it fits beside the query."""
        spans = self.tokenizer.window_spans((self.settings.prompt + query, document), self.manifest.max_length, windows)
        if len(spans) < 2:
            return document
        _, inputs = self.reader.read(query, [document], windows)
        scores = [self._score(result[0]) for result in self.graph.start(inputs, [LOGITS])()]
        start, end = spans[int(np.argmax(scores))]
        return document[start:end]

    def _score(self, logits: NDArray[np.float32]) -> float:
        name, labels = self.manifest.name, self.settings.labels
        if logits.shape != (labels,):
            hint = "Name a cross-encoder with one label or two."
            raise ModelError(f"The model {name!r} gives {logits.size} numbers for a pair; its description says {labels}.", hint)
        if not math.isfinite(score := single_score(logits)):
            raise ModelError(
                f"The model {name!r} gives a score that is not a number.", "The model folder is damaged: name another model."
            )
        return score

    def load_torch(self) -> Any:
        """The classifier as a torch module that gives the logits of pairs of query and document."""
        from termweave.encoders.models.transformer import PairScores, load_backbone  # noqa: PLC0415 - torch

        return PairScores(load_backbone(self.folder.path / self.settings.transformer, head="ForSequenceClassification")).eval()

    def parity_sample(self) -> list[GraphInput]:
        """The inputs on which an export compares graphs: each sample text paired with the next sample text."""
        return [self.reader.read(query, [document])[1][0] for query, document in pairwise(sample_texts())]

    def compare(self, expected: Outputs, computed: Outputs) -> dict[str, float]:
        """Compare the scores of all pairs: their rank correlation, and their mean difference in standard deviations of torch's scores."""
        scores, others = (np.array([single_score(result[0]) for result in results]) for results in (expected, computed))
        difference = float(np.abs(scores - others).mean() / (scores.std() or 1.0))
        return {"rank_correlation": rank_correlation([(scores, others)]), "score_difference": difference}


#: What search knows of a candidate before the ranker reads it: its score so far, its cosine with the query, and rNN's J.
FEATURES = ("score", "cosine", "jaccard")


def anchor_of(manifest: Manifest) -> dict[str, float]:
    """The anchor of a ranker: feature of the first stage -> the weight with which it is added to the logit; {}: there is no anchor.

    Raises:
        ModelError: The description is malformed, or names a feature that search does not have.
    """
    weights = manifest.anchor.get("weights", {}) if manifest.anchor.get("kind") == "first-stage" else {}
    if not isinstance(weights, dict) or not all(
        name in FEATURES and isinstance(weight, int | float) and math.isfinite(weight) for name, weight in weights.items()
    ):
        raise ModelError(f"The anchor of the model {manifest.name!r} is malformed.", "Train it again.")
    return {name: float(weights[name]) for name in FEATURES if name in weights}


def single_score(logits: NDArray[np.float32]) -> float:
    """Compute the score of a pair from its logits: one logit, or two of which the second means "relevant".

    Example:
        >>> single_score(np.array([1.5])), single_score(np.array([-1.0, 2.0]))
        (1.5, 3.0)
    """
    return float(logits[0]) if len(logits) == 1 else float(logits[1]) - float(logits[0])


class PairReader:
    """Makes a ranker's graph inputs of a query and documents."""

    def __init__(self, folder: ModelFolder, settings: RankerSettings) -> None:
        self.manifest, self.settings = folder.manifest, settings
        self.tokenizer = ModelTokenizer(folder.path / settings.transformer / TOKENIZER, lower=settings.lower)
        if not self.tokenizer.joins_pairs:
            hint = "Name a cross-encoder whose tokenizer.json has a post_processor with a pair, such as [CLS] $A [SEP] $B [SEP]."
            raise ModelError(f"The tokeniser of {self.manifest.name!r} puts nothing between query and document.", hint)

    def read(self, query: str, documents: Sequence[str], windows: int = 1) -> tuple[list[int], list[GraphInput]]:
        """Make one graph input of the query with each window (part) of each document; token types are all 0 if the model reads none.

        Both texts share `max_length` tokens as in training: the longer text of a pair, which is mostly the document, is cut.

        Returns:
            The number of windows of each document, and the graph's input for each window, document by document.
        """
        pairs = [(self.settings.prompt + query, document) for document in documents]
        by_document = self.tokenizer.encode_pair_windows(pairs, self.manifest.max_length, windows)
        typed = self.settings.types
        inputs = [GraphInput(ids, types=types if typed else np.zeros_like(ids)) for entry in by_document for ids, types in entry]
        return list(map(len, by_document)), inputs
