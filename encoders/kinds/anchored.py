"""The kind "anchored": learned multipliers on BM25 for whole words, and a mean-pooled vector, from one graph and one pass.

The graph (`encoders.models.joint_model`) gives a logit per word-piece; `encoders.term_weighting` makes word weights of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from termweave.encoders.analysis.registry import analysis_of
from termweave.encoders.analysis.word_pieces import PieceTokenizer
from termweave.encoders.analysis.words import cleaned
from termweave.encoders.kinds.base import GraphInput, ModelKind, OpenModel
from termweave.encoders.kinds.pooling import unit
from termweave.encoders.manifest import TOKENIZER
from termweave.encoders.onnx.parity import cosines, rank_correlation, sample_texts
from termweave.encoders.term_weighting.anchored_terms import anchored, multiplier
from termweave.encoders.term_weighting.bm25_anchor import BM25
from termweave.encoders.term_weighting.weight_function import Form, place_tags

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from termweave.encoders.analysis.words import Words
    from termweave.encoders.manifest import ModelFolder
    from termweave.encoders.onnx.runtime import Outputs, Precision
    from termweave.encoders.term_weighting.anchored_terms import Anchored, Kind
    from termweave.records import TermWeights
    from termweave.statistics import CorpusStatistics


class AnchoredModel(OpenModel):
    """One folder of the kind "anchored"."""

    def __init__(self, folder: ModelFolder, threads: int | None, precision: Precision | None) -> None:
        super().__init__(folder, threads, precision)
        self.tokenizer = PieceTokenizer(folder.path / TOKENIZER)
        if "weights" in self.manifest.outputs:
            self.analysis = analysis_of(self.manifest.analysis, self.tokenizer.tokenizer, model=self.manifest.name)
        anchor = self.manifest.anchor
        self.bm25 = BM25(float(anchor.get("k1", 1.2)), float(anchor.get("b", 0.75)))
        self.form = Form.from_anchor(anchor)
        self.tagged = bool(self.manifest.heads.get("tags"))

    @property
    def vocabulary(self) -> Any:
        """The `tokenizers.Tokenizer` behind the model."""
        return self.tokenizer.tokenizer

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Word-pieces of each text, [CLS] and [SEP] included, however many of them the model reads."""
        cleans = [cleaned(text)[0] for text in texts]
        return [len(pieces.ids) for pieces in self.tokenizer.encode(cleans, max(map(len, cleans), default=0) + 2)]

    def weigh(
        self, texts: Sequence[str], kind: Kind, statistics: CorpusStatistics, *, vectors: bool
    ) -> tuple[list[TermWeights], list[NDArray[np.float32]]]:
        """Term weights of each text; with `vectors` also its vector, from the same pass (else an empty list)."""
        outputs: list[str] = [kind, "dense"] if vectors else [kind]
        weights: list[TermWeights] = []
        rows: list[NDArray[np.float32]] = []
        for _, anchor, owners, result in self._passes(texts, kind, statistics, outputs):
            weights.append(anchor.weights(result[0], owners, kind))
            if vectors:
                rows.append(unit(result[1]))
        return weights, rows

    def weigh_occurrences(
        self, texts: Sequence[str], statistics: CorpusStatistics
    ) -> list[tuple[list[str], NDArray[np.float64]]]:
        """The terms of each query in reading order, and the weight of each occurrence; `weigh` gives their sums."""
        passes = self._passes(texts, "query", statistics, ["query"])
        occurrences = (
            (words, anchor.of_occurrences(result[0].astype(np.float64), owners)) for words, anchor, owners, result in passes
        )
        return [([term for term in words.terms if term], weights) for words, weights in occurrences]

    def _passes(
        self, texts: Sequence[str], kind: Kind, statistics: CorpusStatistics, outputs: list[str]
    ) -> Iterator[tuple[Words, Anchored, NDArray[np.int64], Sequence[NDArray[np.float32]]]]:
        """Run the graph on all texts; yield the words of each, its anchors, the word of each piece, and the outputs."""
        assert self.analysis is not None
        started = []
        for block in self.blocks(texts):
            words = self.analysis.words(block)
            anchors = [anchored(text_words, statistics, self.bm25, kind, self.form) for text_words in words]
            pieces = self.tokenizer.encode(
                [text_words.clean for text_words in words],
                self.manifest.max_length,
                ends=[text_words.clean_ends for text_words in words],
            )
            word_of_piece = [text_words.word_of_piece(text_pieces) for text_words, text_pieces in zip(words, pieces, strict=True)]
            features = [anchor.features(owners, kind) for anchor, owners in zip(anchors, word_of_piece, strict=True)]
            if self.tagged:  # a third column
                features = [
                    np.column_stack((columns, place_tags(owners)))
                    for columns, owners in zip(features, word_of_piece, strict=True)
                ]
            finish = self.graph.start([text_pieces.ids for text_pieces in pieces], features, outputs)
            started.append((words, anchors, word_of_piece, finish))
        for words, anchors, word_of_piece, finish in started:
            yield from zip(words, anchors, word_of_piece, finish(), strict=True)

    def embed(self, texts: Sequence[str], kind: Kind) -> list[NDArray[np.float32]]:
        """The vector of each text; queries and documents are read alike."""
        del kind
        started = []
        for block in self.blocks(texts):
            pieces = self.tokenizer.encode([cleaned(text)[0] for text in block], self.manifest.max_length)
            zeros = [np.zeros((len(text_pieces.ids), 2), dtype=np.float32) for text_pieces in pieces]
            started.append(self.graph.start([text_pieces.ids for text_pieces in pieces], zeros, ["dense"]))
        return [unit(result[0]) for finish in started for result in finish()]


class AnchoredKind(ModelKind):
    """The declaration of the kind "anchored", which the docstring of this file describes."""

    name: ClassVar[str] = "anchored"
    outputs: ClassVar[tuple[str, ...]] = ("weights", "dense")
    graph_outputs: ClassVar[dict[str, bool]] = {"document": True, "query": True, "dense": False}

    def open(self, folder: ModelFolder, threads: int | None, precision: Precision | None) -> AnchoredModel:
        """Open a folder for encoding."""
        return AnchoredModel(folder, threads, precision)

    def load_torch(self, folder: ModelFolder) -> Any:
        """The `JointModel` that training saved."""
        from termweave.encoders.models.store import load  # noqa: PLC0415 - torch

        return load(folder.path)[0]

    def parity_sample(self, folder: ModelFolder, module: Any) -> list[GraphInput]:
        """Prose with random features: what the features mean does not matter for the comparison."""
        pieces = PieceTokenizer(folder.path / TOKENIZER).encode(sample_texts(), folder.manifest.max_length)
        generator = np.random.default_rng(0)
        features = [generator.uniform(0, 1, (len(text_pieces.ids), 2)).astype(np.float32) for text_pieces in pieces]
        if module.shape.tags:
            features = [
                np.column_stack((columns, place_tags(text_pieces.words)))
                for columns, text_pieces in zip(features, pieces, strict=True)
            ]
        return [GraphInput(text_pieces.ids, columns) for text_pieces, columns in zip(pieces, features, strict=True)]

    def compare(self, folder: ModelFolder, expected: Outputs, given: Outputs) -> dict[str, float]:
        """Of the documents' multipliers the rank correlation and the mean difference, of the vectors the cosines."""
        del folder
        multipliers = [
            (multiplier(one[0].astype(float)), multiplier(other[0].astype(float)))
            for one, other in zip(expected, given, strict=True)
        ]
        differences = np.concatenate([one - other for one, other in multipliers])
        return {
            "rank_correlation": rank_correlation(multipliers),
            "multiplier_difference": float(np.mean(np.abs(differences))),
            **cosines([(one[2], other[2]) for one, other in zip(expected, given, strict=True)]),
        }
