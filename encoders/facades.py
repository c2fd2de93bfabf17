"""One output at a time, for those who want only that: ``TermWeighter.load(path).encode([...])``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from termweave.encoders.text import TextEncoder, load

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from termweave.encoders.weighting import Kind
    from termweave.records import TermWeights
    from termweave.statistics import CorpusStatistics


class TermWeighter:
    """Texts -> term weights."""

    def __init__(self, encoder: TextEncoder) -> None:
        self._encoder = encoder

    @classmethod
    def load(cls, model: str | Path | None = None, *, threads: int | None = None) -> TermWeighter:
        """Open a weights model by folder or name; None: the shipped one.

        Raises:
            UsageError: No such model.
            ModelError: Incomplete, altered, or without weights.
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

    @classmethod
    def load(cls, model: str | Path | None = None, *, threads: int | None = None) -> DenseEncoder:
        """Open a dense model by folder or name; None: the shipped one.

        Raises:
            UsageError: No such model.
            ModelError: Incomplete, altered, or without vectors.
        """
        return cls(load(weights="", dense=model, threads=threads))

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """float32 ``(len(texts), dimension)``, each row of length 1."""
        vectors = [encoding.vector for encoding in self._encoder.encode(texts, kind="document") if encoding.vector is not None]
        return np.stack(vectors) if vectors else np.zeros((0, self._encoder.dimension or 0), dtype=np.float32)
