"""Models with one output: ``TermWeighter.load(path).encode([...])``, ``DenseEncoder`` likewise, ``Ranker.load(path).score(q, [...])``."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from termweave.encoders.kinds import kind_of
from termweave.encoders.kinds.ranker import RankerModel
from termweave.encoders.layouts import read_folder
from termweave.encoders.model_lookup import resolve
from termweave.encoders.text_encoder import TextEncoder, load
from termweave.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from termweave.encoders.onnx.runtime import Precision
    from termweave.encoders.term_weighting.anchored_terms import Kind
    from termweave.records import TermWeights
    from termweave.statistics import CorpusStatistics

#: Documents that are scored between two looks at the clock on a GPU; on a CPU as many as run at a time.
_GPU_BLOCK = 16
#: Characters of a word-piece, as an upper bound, and those that would take as long as what a pair costs beside its texts.
_CHARACTERS, _BESIDE = 6, 100


class TermWeighter:
    """Texts -> term weights."""

    def __init__(self, encoder: TextEncoder) -> None:
        self._encoder = encoder

    def __repr__(self) -> str:
        return f"<TermWeighter {self._encoder.models['weights'].name!r}>"

    @classmethod
    def load(cls, model: str | Path | None = None, *, threads: int | None = None) -> TermWeighter:
        """Open a weights model by folder or name; None: the shipped one.

        Raises:
            UsageError: No model has this name.
            ModelError: The model is incomplete or altered, or gives no weights.
        """
        return cls(load(weights=model, dense="", threads=threads))

    def encode(
        self,
        texts: Sequence[str],
        *,
        kind: Kind = "document",
        statistics: CorpusStatistics | None = None,
    ) -> list[TermWeights]:
        """Term weights of each text; see `TextEncoder.encode`."""
        encodings = self._encoder.encode(texts, kind=kind, statistics=statistics)
        return [encoding.weights for encoding in encodings if encoding.weights is not None]


class DenseEncoder:
    """Texts -> vectors."""

    def __init__(self, encoder: TextEncoder) -> None:
        self._encoder = encoder

    def __repr__(self) -> str:
        return f"<DenseEncoder {self._encoder.models['dense'].name!r}>"

    @classmethod
    def load(cls, model: str | Path | None = None, *, threads: int | None = None) -> DenseEncoder:
        """Open a dense model by folder or name; None: the shipped one.

        Raises:
            UsageError: No model has this name.
            ModelError: The model is incomplete or altered, or gives no vectors.
        """
        return cls(load(weights="", dense=model, threads=threads))

    def encode(self, texts: Sequence[str], *, kind: Kind = "document") -> NDArray[np.float32]:
        """Vectors of texts: float32 ``(len(texts), dimension)``, each row of length 1.

        Args:
            texts: Any strings.
            kind: "document" or "query": some models put a prompt before each, or have an encoder for each.
        """
        vectors = [encoding.vector for encoding in self._encoder.encode(texts, kind=kind) if encoding.vector is not None]
        return np.stack(vectors) if vectors else np.zeros((0, self._encoder.dimension or 0), dtype=np.float32)


class Ranker(RankerModel):
    """A query and documents -> a score for each document."""

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
            raise ModelError(
                f"The model {folder.manifest.name!r} is {kind.label} and gives no scores of pairs.", "Name a cross-encoder."
            )
        return cls(folder, threads, precision)

    def score_within(self, query: str, documents: Sequence[str], seconds: float, *, windows: int = 1) -> NDArray[np.float32]:
        """The scores of the first documents, as many as the time permits. Opening the model does not count.

        A few documents run at a time. The next ones are started only if they fit into the time that is left, as long as they are and at
        the slowest rate so far. So only the very first ones, or one that takes longer for its length than those before it, can take
        longer than `seconds`.

        Args:
            query: The query.
            documents: The documents, the most important ones first.
            seconds: The time; 0 scores none.
            windows: Most windows of a document that does not fit beside the query.
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
