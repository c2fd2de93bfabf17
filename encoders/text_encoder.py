"""`TextEncoder`, which the indexer and search call: it makes `Encoding` records of texts.

Models with one output: ``TermWeighter.load(path).encode([...])``, ``DenseEncoder`` likewise, ``Ranker.load(path).score(q, [...])``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import copy
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from termweave.encoders import calibration
from termweave.encoders.kinds import kind_of, read_folder
from termweave.encoders.kinds.ranker import RankerModel
from termweave.encoders.model_lookup import DEFAULT, NONE, resolve
from termweave.errors import ModelError, UsageError
from termweave.records import Encoding, ModelInfo, TermWeights, WordWeight
from termweave.statistics import CorpusStatistics
from termweave.support import arguments

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from termweave.encoders.analysis.model_familiarity import Familiarity
    from termweave.encoders.analysis.words import Analysis
    from termweave.encoders.kinds.base import OpenModel
    from termweave.encoders.manifest import ModelFolder
    from termweave.encoders.onnx.runtime import Precision
    from termweave.encoders.term_weighting import Kind


class TextEncoder:
    """Computes term weights and vectors of texts; made by `load`.

    On a CPU an encoding depends on the text, its kind, the statistics and the model alone: it has the same bits whatever other texts
    are encoded in the same call (see `encoders.onnx.runtime`).
    """

    def __init__(
        self,
        weights: ModelFolder | None,
        dense: ModelFolder | None,
        *,
        dense_query: ModelFolder | None = None,
        threads: int | None = None,
        precision: Precision | None = None,
    ) -> None:
        for folder, output in ((weights, "weights"), (dense, "dense"), (dense_query, "dense_query")):
            if folder is not None and output.removesuffix("_query") not in folder.manifest.outputs:
                raise kind_of(folder.manifest).lacks(folder.manifest, output)

        def open_model(folder: ModelFolder) -> OpenModel:
            return kind_of(folder.manifest)(folder, threads, precision)

        self._weights = open_model(weights) if weights else None
        shared = weights is not None and dense is not None and weights.path == dense.path
        self._dense = self._weights if shared else open_model(dense) if dense else None
        self._dense_query = self._dense.query_model if self._dense else None
        if dense_query:
            self._dense_query = _query_encoder(self._dense, open_model(dense_query))

    def only(self, outputs: Collection[str | None]) -> TextEncoder:
        """A copy of this encoder that gives only the named outputs ("weights", "dense"); the copy shares the open models."""
        narrowed = copy(self)
        narrowed._weights = self._weights if "weights" in outputs else None  # noqa: SLF001 - of its own class
        narrowed._dense = self._dense if "dense" in outputs else None  # noqa: SLF001
        narrowed._dense_query = self._dense_query if "dense" in outputs else None  # noqa: SLF001
        return narrowed

    @property
    def models(self) -> dict[str, ModelInfo]:
        """Output -> the model behind it: "weights", "dense", and "dense_query" if queries have an encoder of their own."""
        pairs = (("weights", self._weights), ("dense", self._dense), ("dense_query", self._dense_query))
        return {output: model.model_info(output) for output, model in pairs if model is not None}

    @property
    def analysis(self) -> str | None:
        """Id of the analysis that makes the terms; None without a weights model."""
        return self._weights.manifest.analysis if self._weights else None

    @property
    def dimension(self) -> int | None:
        """Length of the vectors; None: there is no dense model."""
        return self._dense.manifest.dimension if self._dense else None

    @property
    def too_long(self) -> int:
        """Number of words dropped so far because their terms were longer than 200 characters."""
        return self._weights.analysis.too_long if self._weights and self._weights.analysis else 0

    @property
    def graph_bytes(self) -> int:
        """Size in bytes of the graphs that encode documents; 0 before the first text."""
        return sum(model.graph_bytes for model in {self._weights, self._dense} if model)

    def analyse(self, texts: Sequence[str]) -> list[list[str]]:
        """All terms of each text, repetitions included, for counting statistics. No model runs.

        Raises:
            UsageError: There is no weights model, so there is no analysis.
        """
        return self._analysis().terms(texts)

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each whole text, special tokens included, though the model may read fewer; 0 without a model."""
        model = self._dense or self._weights
        return model.lengths(texts) if model is not None else [0] * len(texts)

    def locate(self, text: str) -> list[tuple[int, int, str]]:
        """Every word of a text as (offset of its first character, offset behind its last, its term, which is "" for a dropped word).

        No model runs.

        Raises:
            UsageError: There is no weights model, so there is no analysis.
        """
        words = self._analysis().words([text])[0]
        return list(zip(words.starts.tolist(), words.ends.tolist(), words.terms, strict=True))

    def dense_spread(self) -> float:
        """The typical distance between the dense model's similarities (`calibration.spread`); 0 without a dense model."""
        return calibration.spread(self, "dense")

    def weights_spread(self) -> float:
        """The typical distance between the scores of a sparse model that termweave did not make (`calibration.spread`).

        It is 0 without a weights model, and for models whose weights are multiples of BM25's: fusion was fitted to such models.
        """
        anchored = self._weights is None or self._weights.needs_statistics
        return 0.0 if anchored else calibration.spread(self, "weights")

    def familiarity(self, texts: Sequence[str]) -> dict[str, Familiarity]:
        """Output -> whether the model behind it knows the language of a sample of texts. No model runs."""
        by_model = {model: model.familiarity(texts) for model in {self._weights, self._dense} if model}
        return {output: by_model[model] for output, model in (("weights", self._weights), ("dense", self._dense)) if model}

    def encode(self, texts: Sequence[str], *, kind: Kind, statistics: CorpusStatistics | None = None) -> list[Encoding]:
        """Encode texts.

        Args:
            texts: Any strings, also empty ones; 256 to 1,024 at a time keep all cores busy.
            kind: "document" or "query".
            statistics: Statistics of the corpus; None: the default table of the model folder. Not needed without a weights model.

        Returns:
            One encoding per text, in order. An empty text has no term weights, but a vector.

        Raises:
            ModelError: The statistics were counted under another analysis, or the model needs statistics and there are none.
            UsageError: `texts` is a single text, or not a list, or holds something that is no text; or `kind` is neither of the two.
        """
        texts = arguments.listed(texts)  # an array or a column of a table has no truth value
        if kind not in {"document", "query"}:
            raise UsageError(f"A text is a document or a query, not {kind!r}.", 'Write kind="document" or kind="query".')
        if wrong := [text for text in texts if not isinstance(text, str)]:
            raise UsageError(f"encode takes texts, not {type(wrong[0]).__name__}.", "Give an empty text where there is none.")
        if not texts:
            return []
        vectors_of = self._dense_query if kind == "query" and self._dense_query is not None else self._dense
        if any(model is not None and model.on_gpu for model in (self._weights, vectors_of)):
            # Texts of nearly equal length lie in one block, so that a GPU's batches hold little padding.
            order = sorted(range(len(texts)), key=lambda place: -len(texts[place]))
            encodings = self._encode([texts[place] for place in order], kind, statistics, vectors_of)
            return [encodings[place] for place in sorted(range(len(texts)), key=order.__getitem__)]
        return self._encode(texts, kind, statistics, vectors_of)

    def _encode(
        self, texts: Sequence[str], kind: Kind, statistics: CorpusStatistics | None, vectors_of: OpenModel | None
    ) -> list[Encoding]:
        """Encode checked texts: one encoding per text, in order. `vectors_of` is the model for the vectors; None: no vectors."""
        weights: list[TermWeights] | list[None] = [None] * len(texts)
        vectors: list[NDArray[np.float32]] | list[None] = [None] * len(texts)
        if self._weights is not None:
            joint = vectors_of is self._weights
            weights, joint_vectors = self._weights.weigh(texts, kind, self._statistics(statistics), vectors=joint)
            vectors = joint_vectors if joint else vectors
        if vectors_of is not None and vectors_of is not self._weights:
            vectors = vectors_of.embed(texts, kind)
        return [Encoding(text, weight, vector) for text, weight, vector in zip(texts, weights, vectors, strict=True)]

    def shade(self, text: str, *, statistics: CorpusStatistics | None = None, kind: Kind = "document") -> list[WordWeight]:
        """Every word of a text, with its offsets and the weight of its term in this text; punctuation is left out.

        Raises:
            UsageError: There is no weights model.
            ModelError: As in `encode`.
        """
        analysis, words = self._analysis(), self.locate(text)
        assert self._weights is not None
        (weights,), _ = self._weights.weigh([text], kind, self._statistics(statistics), vectors=False)
        by_term = dict(zip(weights.terms, weights.weights.tolist(), strict=True))
        shown = [(start, end, term) for start, end, term in words if term or analysis.is_word(text[start:end])]
        return [WordWeight(start, end, term, by_term.get(term, 0.0)) for start, end, term in shown]

    def spans(self, text: str, terms: Collection[str]) -> list[tuple[int, int]]:
        """The places, (start, end) in characters, of the words of a text whose terms are among `terms`. No model runs.

        Raises:
            UsageError: There is no weights model.
        """
        return [(start, end) for start, end, term in self.locate(text) if term in terms]

    def _analysis(self) -> Analysis:
        if self._weights is None or self._weights.analysis is None:
            raise UsageError("There is no weights model, so there are no terms.", "Name one with --weights.")
        return self._weights.analysis

    def _statistics(self, statistics: CorpusStatistics | None) -> CorpusStatistics:
        """Check that statistics were counted under the model's analysis, and return them; None stands for the model's default table."""
        assert self._weights is not None
        if statistics is None:
            statistics = self._weights.folder.statistics
        if statistics is None and not self._weights.needs_statistics:
            return CorpusStatistics(self.analysis or "", 0, 0.0, {})
        if statistics is None:
            raise ModelError(f"The model {self._weights.manifest.name!r} brings no statistics.", "Pass those of the corpus.")
        if statistics.analysis != self.analysis:
            difference = f"the analysis {statistics.analysis!r}; the model needs {self.analysis!r}"
            raise ModelError(f"The statistics were counted with {difference}.", "Index the corpus again with this model.")
        return statistics


def _query_encoder(documents: OpenModel | None, queries: OpenModel) -> OpenModel | None:
    """Check a query encoder against the document encoder and return it; None: both are the same model.

    Raises:
        UsageError: There is no document encoder.
        ModelError: The vectors of the two encoders have different lengths.
    """
    if documents is None:
        hint = "Leave --dense-query out, or name the encoder of documents with --dense."
        raise UsageError(f"{queries.manifest.name!r} would encode queries, but no model gives vectors of documents.", hint)
    documents.manifest.check_dimension_of(queries.manifest)
    return None if queries.manifest.hash == documents.manifest.hash and queries.query_model is None else queries


def load(
    weights: str | Path | None = None,
    dense: str | Path | None = None,
    *,
    dense_query: str | Path | None = None,
    threads: int | None = None,
    precision: Precision | None = None,
) -> TextEncoder:
    """Open the models for term weights and for vectors.

    Args:
        weights: Name or folder of the weights model; None: the shipped one; "" or "none": no weights.
        dense: Name or folder of the dense model, likewise; also a folder or ``hf:OWNER/NAME`` in the layout of
            sentence-transformers. A folder that is given for both outputs is opened as one model, which encodes in one pass.
        dense_query: A model for the vectors of queries; None, "" or "none": the query encoder of the dense model.
        threads: Texts that run at a time on a CPU; None: one for each core.
        precision: "int8" or "fp32"; None: the fastest one that the folder has and the machine runs.

    Raises:
        UsageError: No model has this name, or a model is given for the vectors of queries and none for those of documents.
        ModelError: A folder is incomplete or altered, or lacks the output; or the vectors of queries and documents differ in length.
    """
    folders: dict[Path, ModelFolder] = {}

    def folder_of(name: str | Path | None) -> ModelFolder | None:
        if name in NONE:
            return None
        path = resolve(name or DEFAULT)
        if path not in folders:
            folders[path] = read_folder(path, name=str(name))
        return folders[path]

    # With both outputs switched off an encoding is the text alone, which is what a purely lexical index needs.
    query = folder_of(dense_query) if dense_query is not None else None
    return TextEncoder(folder_of(weights), folder_of(dense), dense_query=query, threads=threads, precision=precision)


#: Documents that are scored between two looks at the clock on a GPU; on a CPU as many as run at a time.
_GPU_BLOCK = 16
#: Characters of a word-piece, as an upper bound, and those that would take as long as what a pair costs beside its texts.
_CHARACTERS, _BESIDE = 6, 100


class _OneOutput:
    """An encoder that gives one of the outputs of a `TextEncoder`."""

    output: ClassVar[str]

    def __init__(self, encoder: TextEncoder) -> None:
        self._encoder = encoder

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._encoder.models[self.output].name!r}>"

    @classmethod
    def load(cls, model: str | Path | None = None, *, threads: int | None = None) -> Self:
        """Open a model with this output by folder or name; None: the shipped model.

        Raises:
            UsageError: No model has this name.
            ModelError: The model is incomplete or altered, or does not give this output.
        """
        weights, dense = (model if output == cls.output else "" for output in ("weights", "dense"))
        return cls(load(weights, dense, threads=threads))


class TermWeighter(_OneOutput):
    """An encoder that makes term weights of texts."""

    output: ClassVar[str] = "weights"

    def encode(
        self, texts: Sequence[str], *, kind: Kind = "document", statistics: CorpusStatistics | None = None
    ) -> list[TermWeights]:
        """Term weights of each text; see `TextEncoder.encode`."""
        encodings = self._encoder.encode(texts, kind=kind, statistics=statistics)
        return [encoding.weights for encoding in encodings if encoding.weights is not None]


class DenseEncoder(_OneOutput):
    """An encoder that makes vectors of texts."""

    output: ClassVar[str] = "dense"

    def encode(self, texts: Sequence[str], *, kind: Kind = "document") -> NDArray[np.float32]:
        """Vectors of texts: float32 ``(len(texts), dimension)``, each row of length 1.

        Args:
            texts: Any strings.
            kind: "document" or "query": some models put a prompt before each, or have an encoder for each.
        """
        vectors = [encoding.vector for encoding in self._encoder.encode(texts, kind=kind) if encoding.vector is not None]
        return np.stack(vectors) if vectors else np.zeros((0, self._encoder.dimension or 0), dtype=np.float32)


class Ranker(RankerModel):
    """A cross-encoder that scores documents for a query."""

    @classmethod
    def load(cls, model: str | Path, *, threads: int | None = None, precision: Precision | None = None) -> Ranker:
        """Open a cross-encoder by folder or name.

        Args:
            model: A folder, the name of a model, or ``hf:OWNER/NAME``.
            threads: Pairs that run at a time on a CPU; None: one for each core.
            precision: "int8" or "fp32"; None: the fastest one that the folder has and the machine runs.

        Raises:
            UsageError: No model has this name.
            ModelError: The model is incomplete or altered, or not a cross-encoder.
        """
        folder = read_folder(resolve(model), name=str(model))
        if (kind := kind_of(folder.manifest)) is not RankerModel:
            raise ModelError(f"The model {folder.manifest.name!r} is {kind.label} and scores no pairs.", "Name a cross-encoder.")
        return cls(folder, threads, precision)

    def score_within(self, query: str, documents: Sequence[str], seconds: float, *, windows: int = 1) -> NDArray[np.float32]:
        """Score documents in order until the time is over; return the scores of those that were scored. Opening the model does not count.

        A few documents run at a time. The next documents are started only if, by their length and the slowest rate so far, they fit into the
        time that is left. So `seconds` is exceeded only by the very first documents, or by one that takes longer for its length than all before.

        Args:
            query: The query.
            documents: The documents, the most important ones first.
            seconds: The time in seconds; 0: no document is scored.
            windows: The most windows into which a document is split that does not fit beside the query.
        """
        size = _GPU_BLOCK if self.graph.on_gpu else self.graph.threads
        result = np.zeros(0, dtype=np.float32)
        most = windows * self.manifest.max_length * _CHARACTERS
        began, slowest = perf_counter(), 0.0  # seconds a character
        while len(result) < len(documents):
            block = documents[len(result) : len(result) + size]
            length = _BESIDE + len(query) + max(min(len(document), most) for document in block)
            started = perf_counter()
            if started - began + slowest * length >= seconds:
                break
            result = np.concatenate([result, self.score(query, block, windows=windows)])
            slowest = max(slowest, (perf_counter() - started) / length)
        return result
