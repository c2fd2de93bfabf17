"""`TextEncoder`: what the indexer and search call. Texts in, `Encoding` records out."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from termweave import doors, plugins
from termweave.encoders.analyses import analysis_of
from termweave.encoders.analysis import cleaned
from termweave.encoders.anchor import BM25
from termweave.encoders.folder import DEFAULT, NONE, TOKENIZER, ModelFolder, resolve
from termweave.encoders.form import Form, place_tags
from termweave.encoders.language import Familiarity, familiarity
from termweave.encoders.pieces import PieceTokenizer
from termweave.encoders.weighting import Kind, anchored, of_words
from termweave.errors import ModelError, UsageError
from termweave.records import Encoding, TermWeights, WordWeight

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from termweave.encoders.analysis import Analysis
    from termweave.encoders.runtime import OnnxModel, Precision
    from termweave.statistics import CorpusStatistics

#: Texts that are analysed at a time, from the first block to the later ones: the model waits for the first alone.
_FIRST_BLOCK, _BLOCK = 4, 64


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Which model gives an output: what an index keeps in its `_meta`.

    Attributes:
        name: As its folder calls it.
        hash: 16 hexadecimal digits; the same for the fp32 and the int8 graph of a model.
        folder: Where it was found.
        dimension: Length of the vector; None for weights.
        analysis: Id of the analysis; None for a dense output.
        max_length: Word-pieces it sees.
    """

    name: str
    hash: str
    folder: Path
    dimension: int | None
    analysis: str | None
    max_length: int


class _Model:
    """One opened folder: tokeniser, analysis, graph."""

    def __init__(self, folder: ModelFolder, threads: int | None, precision: Precision | None) -> None:
        self.folder = folder
        self.manifest = folder.manifest
        self.tokenizer = PieceTokenizer(folder.path / TOKENIZER)
        self.analysis: Analysis | None = None
        if "weights" in self.manifest.outputs:
            self.analysis = analysis_of(self.manifest.analysis, self.tokenizer.tokenizer, model=self.manifest.name)
        anchor = self.manifest.anchor
        self.bm25 = BM25(float(anchor.get("k1", 1.2)), float(anchor.get("b", 0.75)))
        self.form = Form.of(anchor)
        self.tagged = bool(self.manifest.heads.get("tags"))
        self._threads, self._precision = threads, precision
        self._graph: OnnxModel | None = None

    @property
    def graph(self) -> OnnxModel:
        """Opened when first run: counting terms needs no model."""
        if self._graph is None:
            runtime = plugins.load("encoders", self.manifest.runtime)
            self._graph = runtime(self.folder, threads=self._threads, precision=self._precision)
        return self._graph

    def blocks(self, texts: Sequence[str]) -> Iterator[Sequence[str]]:
        """Texts to prepare while those before run; a GPU, which sorts them by length, is given all at once."""
        size, first = len(texts) if self.graph.on_gpu else _FIRST_BLOCK, 0
        while first < len(texts):
            yield texts[first : first + size]
            first += size
            size = min(2 * size, _BLOCK)

    def info(self, output: str) -> ModelInfo:
        manifest = self.manifest
        return ModelInfo(
            name=manifest.name,
            hash=manifest.hash,
            folder=self.folder.path,
            dimension=manifest.dimension if output == "dense" else None,
            analysis=manifest.analysis if output == "weights" else None,
            max_length=manifest.max_length,
        )


class TextEncoder:
    """Term weights and vectors of texts; made by `load`.

    On a CPU an encoding is a function of the text, its kind, the statistics and the model: the same bits whatever else is
    encoded beside it (see `runtime`).
    """

    def __init__(
        self,
        weights: ModelFolder | None,
        dense: ModelFolder | None,
        *,
        threads: int | None = None,
        precision: Precision | None = None,
    ) -> None:
        for folder, output in ((weights, "weights"), (dense, "dense")):
            if folder is not None and output not in folder.manifest.outputs:
                has = " and ".join(folder.manifest.outputs)
                raise ModelError(
                    f"The model {folder.manifest.name!r} gives {has}, not {output}.", f"Name another model for --{output}."
                )
        self._weights = _Model(weights, threads, precision) if weights else None
        shared = weights is not None and dense is not None and weights.path == dense.path
        self._dense = self._weights if shared else _Model(dense, threads, precision) if dense else None
        self._default: CorpusStatistics | None = None

    def only(self, outputs: Collection[str | None]) -> TextEncoder:
        """This encoder with no more than these outputs of "weights" and "dense"; models stay open and shared."""
        narrowed = copy(self)
        narrowed._weights = self._weights if "weights" in outputs else None  # noqa: SLF001 - of its own kind
        narrowed._dense = self._dense if "dense" in outputs else None  # noqa: SLF001
        return narrowed

    @property
    def models(self) -> dict[str, ModelInfo]:
        """Output -> the model that gives it."""
        pairs = (("weights", self._weights), ("dense", self._dense))
        return {output: model.info(output) for output, model in pairs if model is not None}

    @property
    def analysis(self) -> str | None:
        """Id of the analysis that makes the terms; None without a weights model."""
        return self._weights.manifest.analysis if self._weights else None

    @property
    def dimension(self) -> int | None:
        """Length of the vectors; None without a dense model."""
        return self._dense.manifest.dimension if self._dense else None

    @property
    def too_long(self) -> int:
        """Words dropped so far because their terms were longer than 200 characters."""
        return self._weights.analysis.too_long if self._weights and self._weights.analysis else 0

    def analyse(self, texts: Sequence[str]) -> list[list[str]]:
        """All terms of each text, repetitions included, for counting statistics. No model runs.

        Raises:
            UsageError: There is no weights model, so there is no analysis.
        """
        return self._analysis().terms(texts)

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Word-pieces of each text, [CLS] and [SEP] included, however many the model sees; 0 without a model."""
        model = self._dense or self._weights
        if model is None:
            return [0] * len(texts)
        cleans = [cleaned(text)[0] for text in texts]
        return [len(pieces.ids) for pieces in model.tokenizer.encode(cleans, max(map(len, cleans), default=0) + 2)]

    def locate(self, text: str) -> list[tuple[int, int, str]]:
        """Every word of a text: offsets of its first character and behind its last, and its term ("" where dropped).

        No model runs.

        Raises:
            UsageError: There is no weights model, so there is no analysis.
        """
        words = self._analysis().words([text])[0]
        return list(zip(words.starts.tolist(), words.ends.tolist(), words.terms, strict=True))

    def familiarity(self, texts: Sequence[str]) -> dict[str, Familiarity]:
        """Output -> whether its model knows the language of a sample. No model runs."""
        found: dict[str, Familiarity] = {}
        for output, model in (("weights", self._weights), ("dense", self._dense)):
            if model is not None and model is self._weights and found:
                found[output] = found["weights"]
            elif model is not None:
                language = model.analysis.language if model.analysis else None
                found[output] = familiarity(texts, model.tokenizer.tokenizer, language)
        return found

    def encode(self, texts: Sequence[str], *, kind: Kind, statistics: CorpusStatistics | None = None) -> list[Encoding]:
        """Encode texts.

        Args:
            texts: Any strings, empty ones too; some 256 to 1,024 at a time keep all cores busy.
            kind: "document" or "query".
            statistics: Of the corpus; None: the default table of the model folder. Not needed without a weights model.

        Returns:
            One encoding a text, in order. An empty text has no term weights, and a vector all the same.

        Raises:
            ModelError: The statistics were counted under another analysis, or there are none.
            UsageError: One text or something else in place of a list, something in it that is no text, or another kind.
        """
        texts = doors.listed(texts)  # an array or a column of a table has no truth value
        if kind not in {"document", "query"}:
            raise UsageError(f"A text is a document or a query, not {kind!r}.", 'Write kind="document" or kind="query".')
        if wrong := [each for each in texts if not isinstance(each, str)]:
            raise UsageError(
                f"What is encoded are texts, not {type(wrong[0]).__name__}.", "Give an empty text where there is none."
            )
        if not texts:
            return []
        weights: list[TermWeights] | list[None] = [None] * len(texts)
        vectors: list[NDArray[np.float32]] | list[None] = [None] * len(texts)
        if self._weights is not None:
            joint = self._dense is self._weights
            weights, vectors_found = self._weigh(self._weights, texts, kind, self._statistics(statistics), joint=joint)
            vectors = vectors_found if joint else vectors
        if self._dense is not None and self._dense is not self._weights:
            vectors = self._embed(self._dense, texts)
        return [Encoding(text, weight, vector) for text, weight, vector in zip(texts, weights, vectors, strict=True)]

    def shade(self, text: str, *, statistics: CorpusStatistics | None = None, kind: Kind = "document") -> list[WordWeight]:
        """Every word where it stands, with the weight of its term in this text; punctuation is left out.

        Raises:
            UsageError: There is no weights model.
            ModelError: As `encode`.
        """
        analysis = self._analysis()
        assert self._weights is not None
        words = analysis.words([text])[0]
        (weights,), _ = self._weigh(self._weights, [text], kind, self._statistics(statistics), joint=False)
        spans = zip(words.starts.tolist(), words.ends.tolist(), words.terms, of_words(words, weights), strict=True)
        return [
            WordWeight(start, end, term, weight)
            for start, end, term, weight in spans
            if term or analysis.is_word(text[start:end])
        ]

    def spans(self, text: str, terms: Collection[str]) -> list[tuple[int, int]]:
        """Where words stand in a text whose terms are among those given: (start, end) in characters. No model runs.

        Raises:
            UsageError: There is no weights model.
        """
        return [(start, end) for start, end, term in self.locate(text) if term in terms]

    def _weigh(
        self,
        model: _Model,
        texts: Sequence[str],
        kind: Kind,
        statistics: CorpusStatistics,
        *,
        joint: bool,
    ) -> tuple[list[TermWeights], list[NDArray[np.float32]]]:
        """One pass of a weights model; vectors too where it is joint."""
        assert model.analysis is not None
        outputs = [kind, "dense"] if joint else [kind]
        begun = []
        for block in model.blocks(texts):
            words = model.analysis.words(block)
            anchors = [anchored(each, statistics, model.bm25, kind, model.form) for each in words]
            pieces = model.tokenizer.encode(
                [each.clean for each in words], model.manifest.max_length, ends=[each.clean_ends for each in words]
            )
            held = [each.of(piece) for each, piece in zip(words, pieces, strict=True)]
            features = [anchor.features(word_of_piece, kind) for anchor, word_of_piece in zip(anchors, held, strict=True)]
            if model.tagged:  # a third column
                features = [np.column_stack((each, place_tags(words_))) for each, words_ in zip(features, held, strict=True)]
            begun.append((anchors, held, model.graph.start([piece.ids for piece in pieces], features, outputs)))
        weights, vectors = [], []
        for anchors, held, finish in begun:
            ran = finish()
            weights += [anchor.weights(result[0], each, kind) for anchor, each, result in zip(anchors, held, ran, strict=True)]
            vectors += [unit(result[1]) for result in ran] if joint else []
        return weights, vectors

    def _embed(self, model: _Model, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        """One pass of a dense model."""
        begun = []
        for block in model.blocks(texts):
            pieces = model.tokenizer.encode([cleaned(text)[0] for text in block], model.manifest.max_length)
            nothing = [np.zeros((len(piece.ids), 2), dtype=np.float32) for piece in pieces]
            begun.append(model.graph.start([piece.ids for piece in pieces], nothing, ["dense"]))
        return [unit(result[0]) for finish in begun for result in finish()]

    def _analysis(self) -> Analysis:
        if self._weights is None or self._weights.analysis is None:
            raise UsageError("There is no weights model, so there are no terms.", "Name one with --weights.")
        return self._weights.analysis

    def _statistics(self, given: CorpusStatistics | None) -> CorpusStatistics:
        assert self._weights is not None
        found = self._default if given is None else given
        if found is None:
            found = self._default = self._weights.folder.statistics()
        if found is None:
            raise ModelError(
                f"The model {self._weights.manifest.name!r} brings no default statistics.",
                "Count those of the corpus and pass them.",
            )
        if found.analysis != self.analysis:
            raise ModelError(
                f"The statistics were counted with the analysis {found.analysis!r}; the model needs {self.analysis!r}.",
                "Index the corpus again with this model.",
            )
        return found


def load(
    weights: str | Path | None = None,
    dense: str | Path | None = None,
    *,
    threads: int | None = None,
    precision: Precision | None = None,
) -> TextEncoder:
    """Open the models behind both outputs.

    Args:
        weights: Name or folder of the weights model; None: the shipped one; "" or "none": no weights.
        dense: Likewise for vectors. The same folder twice is one model and one pass.
        threads: Texts at a time on a CPU; None: one for each core.
        precision: "int8" or "fp32"; None: what suits the machine.

    Raises:
        UsageError: A name that means nothing.
        ModelError: A folder that is incomplete or altered, or lacks the output.
    """
    folders: dict[Path, ModelFolder] = {}

    def opened(name: str | Path | None) -> ModelFolder | None:
        if name in NONE:
            return None
        path = resolve(name or DEFAULT)
        if path not in folders:
            folders[path] = ModelFolder.read(path)
        return folders[path]

    # With both outputs switched off an encoding is the text alone, which is what a purely lexical index needs.
    return TextEncoder(opened(weights), opened(dense), threads=threads, precision=precision)


def unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scaled to length 1 in float64; a vector of zeros becomes the first axis, so that it is valid and the same every time."""
    wide = vector.astype(np.float64)
    length = float(np.sqrt(wide @ wide))
    if not np.isfinite(length):
        raise ModelError(
            "The model gives vectors that are no numbers (NaN or infinity).", "It diverged in training, or the file is damaged."
        )
    if length == 0.0:
        wide = np.zeros_like(wide)
        wide[0] = length = 1.0
    result: NDArray[np.float32] = (wide / length).astype(np.float32)
    return result
