"""The kinds "anchored" (learned multipliers on BM25 for whole words, and a vector, from one graph and one pass) and "bm25" (without a graph).

The graph of an anchored model (`encoders.models.joint_model`) gives a logit per word-piece; `encoders.term_weighting` makes word weights of them.
The pieces of a prompt are read before the text, but belong to no word: they have no weight.

The kind "bm25" weighs texts in a language that no model knows:

    document:  weight(t, d) = bm25(t, d)          query:  weight(t, q) = occurrences of t

What is left of a weights model is its analysis: the stemmer and the stop words of the language. Folders of this kind come with termweave
(`encoders.languages`), and `index` chooses one by the language of the corpus.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from termweave.encoders.analysis.analyses import analysis_of
from termweave.encoders.analysis.model_familiarity import Familiarity
from termweave.encoders.analysis.word_pieces import Pieces, PieceTokenizer
from termweave.encoders.analysis.words import Words, cleaned
from termweave.encoders.kinds.base import OpenModel, PromptSettings
from termweave.encoders.kinds.pooling import unit
from termweave.encoders.manifest import TOKENIZER
from termweave.encoders.onnx.checked_graphs import cosines, rank_correlation, sample_texts
from termweave.encoders.onnx.runtime import GraphInput, Outputs
from termweave.encoders.term_weighting import BM25, Anchored, Form, Kind, anchored, place_tags

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from termweave.records import TermWeights
    from termweave.statistics import CorpusStatistics


class AnchoredModel(OpenModel):
    """One folder of the kind "anchored"."""

    kind: ClassVar[str] = "anchored"
    graph_outputs: ClassVar[tuple[str, ...]] = ("document", "query", "dense")
    exported: ClassVar[bool] = False

    def open(self) -> None:
        """Read the settings, the tokeniser, the analysis and the form of the weights."""
        self.settings = PromptSettings.from_manifest(self.manifest)
        self.tokenizer = PieceTokenizer(self.folder.path / TOKENIZER)
        if "weights" in self.manifest.outputs:
            self.analysis = analysis_of(self.manifest.analysis, self.tokenizer.tokenizer, model=self.manifest.name)
        self.bm25, self.form = BM25.from_anchor(self.manifest.anchor), Form.from_anchor(self.manifest.anchor)
        self.tagged = bool(self.manifest.heads.get("tags"))

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """The number of word-pieces of each whole document, with [CLS], [SEP] and the prompt of documents; the model may read fewer."""
        cleans = [cleaned(text)[0] for text in texts]
        return list(self.tokenizer.lengths(cleans, self.settings.prompt("document")))

    def weigh(
        self, texts: Sequence[str], kind: Kind, statistics: CorpusStatistics, *, vectors: bool
    ) -> tuple[list[TermWeights], list[NDArray[np.float32]]]:
        """The term weights of each text and, if `vectors` is true, the vector of each text from the same pass; else [] as second list."""
        outputs: list[str] = [kind, "dense"] if vectors else [kind]
        passes = list(self._passes(texts, kind, statistics, outputs))
        weights = [anchor.weights(result[0], owners, kind) for (_, anchor, owners), result in passes]
        return weights, [unit(result[1]) for _, result in passes if vectors]

    def weigh_occurrences(self, texts: list[str], statistics: CorpusStatistics) -> list[tuple[list[str], NDArray[np.float64]]]:
        """The terms of each query in reading order, and the weight of each occurrence; `weigh` gives each term the sum over its occurrences."""
        return [
            ([term for term in words.terms if term], anchor.of_occurrences(result[0].astype(np.float64), owners))
            for (words, anchor, owners), result in self._passes(texts, "query", statistics, ["query"])
        ]

    def _passes(
        self, texts: Sequence[str], kind: Kind, statistics: CorpusStatistics, outputs: list[str]
    ) -> Iterator[tuple[tuple[Words, Anchored, NDArray[np.int64]], list[NDArray[np.float32]]]]:
        """Run the graph on all texts. Yield for each text ((its words, its anchor, the index of each piece's word), the graph's outputs)."""
        assert self.analysis is not None
        analysis, prepared = self.analysis, []

        def read(block: Sequence[str]) -> list[GraphInput]:
            words = analysis.words(block)
            cleans, ends = [each.clean for each in words], [each.clean_ends for each in words]
            pieces = self.tokenizer.encode(cleans, self.manifest.max_length, ends=ends, prompt=self.settings.prompt(kind))
            inputs = []
            for text_words, text_pieces in zip(words, pieces, strict=True):
                anchor = anchored(text_words, statistics, self.bm25, kind, self.form)
                owners = text_words.word_of_piece(text_pieces)
                prepared.append((text_words, anchor, owners))
                inputs.append(self._input(text_pieces, anchor.features(owners, kind), owners))
            return inputs

        results = self.run(texts, outputs, read)
        return zip(prepared, results, strict=True)

    def embed(self, texts: Sequence[str], kind: Kind) -> list[NDArray[np.float32]]:
        """The vector of each text."""
        max_length, prompt = self.manifest.max_length, self.settings.prompt(kind)

        def read(block: Sequence[str]) -> list[GraphInput]:
            pieces = self.tokenizer.encode([cleaned(text)[0] for text in block], max_length, prompt=prompt)
            return [GraphInput(each.ids, np.zeros((len(each.ids), 2), np.float32)) for each in pieces]

        return [unit(result[0]) for result in self.run(texts, ["dense"], read)]

    def _input(self, pieces: Pieces, features: NDArray[np.float32], owners: NDArray[np.int64]) -> GraphInput:
        """Make the graph's input for a text from its pieces, their features and the index of each piece's word.

        A model that reads tags of the pieces' places in their words gets them as a third feature.
        """
        return GraphInput(pieces.ids, np.column_stack((features, place_tags(owners))) if self.tagged else features)

    def load_torch(self) -> Any:
        """The `JointModel` that training saved."""
        from termweave.encoders.models.joint_model import load  # noqa: PLC0415 - torch

        return load(self.folder.path)[0]

    def parity_sample(self) -> list[GraphInput]:
        """Inputs made of prose and random features, whose meaning does not matter for a comparison. Every other text is read as a query."""
        generator = np.random.default_rng(0)
        kinds: tuple[Kind, ...] = ("document", "query")
        return [
            self._input(pieces, generator.uniform(0, 1, (len(pieces.ids), 2)).astype(np.float32), pieces.words)
            for number, text in enumerate(sample_texts())
            for pieces in self.tokenizer.encode([text], self.manifest.max_length, prompt=self.settings.prompt(kinds[number % 2]))
        ]

    def compare(self, expected: Outputs, computed: Outputs) -> dict[str, float]:
        """Compare two graphs' outputs: rank correlation and mean difference of the documents' multipliers, smallest and mean cosine of the vectors."""
        activate, pairs = Form().activate, list(zip(expected, computed, strict=True))
        multipliers = [(activate(one[0].astype(float)), activate(other[0].astype(float))) for one, other in pairs]
        difference = np.abs(np.concatenate([one - other for one, other in multipliers])).mean()
        vectors = cosines([(one[2], other[2]) for one, other in pairs])
        return {"rank_correlation": rank_correlation(multipliers), "multiplier_difference": float(difference), **vectors}


class Bm25Model(OpenModel):
    """One folder of the kind "bm25"."""

    kind: ClassVar[str] = "bm25"
    label: ClassVar[str] = "BM25 with the words of a language"

    def open(self) -> None:
        """Make the tokeniser that splits words, and the analysis."""
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers  # noqa: PLC0415 - compiled libraries load when an encoder does

        tokenizer = Tokenizer(models.WordLevel({"": 0}, unk_token=""))
        tokenizer.normalizer = normalizers.BertNormalizer(strip_accents=False, lowercase=True)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        self.tokenizer = tokenizer
        self.analysis = analysis_of(self.manifest.analysis, tokenizer, model=self.manifest.name)
        self._bm25 = BM25.from_anchor(self.manifest.anchor)

    @property
    def vocabulary(self) -> Any:
        """The tokeniser that splits words; it has no vocabulary."""
        return self.tokenizer

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """0 for each text: whole texts are read, however long they are."""
        return [0] * len(texts)

    def familiarity(self, texts: Sequence[str]) -> Familiarity:
        """Every text counts as one in the language of the analysis, because somebody chose it."""
        assert self.analysis is not None
        language = self.analysis.language
        return Familiarity(0, 0.0, None, None, 0.0, 0.0, language, language.lower() if language else None)

    def weigh(
        self, texts: Sequence[str], kind: Kind, statistics: CorpusStatistics, *, vectors: bool
    ) -> tuple[list[TermWeights], list[NDArray[np.float32]]]:
        """The term weights of each text: BM25's impacts for a document, numbers of occurrences for a query; and no vectors."""
        assert self.analysis is not None
        anchors = (anchored(words, statistics, self._bm25, kind) for words in self.analysis.words(texts))
        return [anchor.weights(np.zeros(0, np.float32), np.zeros(0, np.int64), kind) for anchor in anchors], []
