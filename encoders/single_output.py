"""Models with one output: ``TermWeighter.load(path).encode([...])``, and ``DenseEncoder`` likewise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from termweave.encoders.text_encoder import TextEncoder, load

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from termweave.encoders.term_weighting.anchored_terms import Kind
    from termweave.records import TermWeights
    from termweave.statistics import CorpusStatistics


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
