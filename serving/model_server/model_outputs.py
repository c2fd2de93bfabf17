"""A model that is served, and what it gives: alone, or exactly as an index stores and asks it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.errors import ModelError
from termweave.records import Document

if TYPE_CHECKING:
    from collections.abc import Sequence

    from termweave.encoders import TextEncoder
    from termweave.encoders.term_weighting import Kind
    from termweave.engine import Engine
    from termweave.records import Encoding
    from termweave.search.opening import OpenGeneration
    from termweave.signals.dense import Dense
    from termweave.signals.weights import Weights

#: Output of an encoder -> the endpoint that gives it.
KINDS = {"dense": "embeddings", "weights": "sparse"}


#: Characters of a token, at the most: of longer ones a few are not counted.
_CHARACTERS = 32


@dataclass(frozen=True)
class ModelListing:
    """A model that requests can name.

    Attributes:
        hash: Its hash.
        names: What it is called.
        outputs: "dense", "weights" or both.
        dimension: Length of its vectors; None without vectors.
        index: The index whose statistics and stored numbers count; "": none.
    """

    hash: str
    names: tuple[str, ...]
    outputs: tuple[str, ...]
    dimension: int | None
    index: str = ""

    @property
    def id(self) -> str:
        """The name that tells it from all others: ``HASH``, or ``HASH@INDEX``."""
        return f"{self.hash}@{self.index}" if self.index else self.hash


@dataclass(frozen=True, eq=False, kw_only=True)
class ServedModel(ModelListing):
    """A model, opened.

    Attributes:
        encoder: The model.
        generation: The open generation of its index.
        engine: The server of that index.
    """

    encoder: TextEncoder
    generation: OpenGeneration | None = None
    engine: Engine | None = None

    @cached_property
    def _dense(self) -> TextEncoder:
        return self.encoder.only({"dense"})

    @cached_property
    def _weights(self) -> TextEncoder:
        return self.encoder.only({"weights"})

    def run_once(self) -> None:
        """Encode a word in every way: graphs and statistics are read at their first use."""
        kinds: tuple[Kind, ...] = ("query", "document")
        for kind in kinds:
            for output in self.outputs:
                (self.weights if output == "weights" else self.vectors)(["open"], kind)

    def vectors(self, texts: Sequence[str], kind: Kind) -> list[Any]:
        """The vector ``(d,)`` of each text; with an index the numbers that its field stores, or that its query is sent with."""
        encoded = self._dense.encode(texts, kind=kind)
        if not all(_finite(each.vector) for each in encoded):
            raise _not_finite(self.names[0])
        signal = self._signal("dense")
        if signal is None:
            return [each.vector for each in encoded]
        return [self._vector(signal, each, kind) for each in encoded]

    def weights(self, texts: Sequence[str], kind: Kind) -> list[dict[str, float]]:
        """Term -> weight of each text; with an index the features that its field stores, or that its query is sent with."""
        statistics = self.generation.statistics if self.generation else None
        encoded = self._weights.encode(texts, kind=kind, statistics=statistics)
        if not all(each.weights is None or _finite(each.weights.weights) for each in encoded):
            raise _not_finite(self.names[0])
        signal = self._signal("weights")
        if signal is None:
            return [{} if each.weights is None else each.weights.as_dict() for each in encoded]
        return [self._features(signal, each, kind) for each in encoded]

    def counted_vectors(self, texts: Sequence[str], kind: Kind) -> list[tuple[Any, int]]:
        """The vector of each text, and how many of its tokens the model has read."""
        most = self._dense.models["dense"].max_length
        lengths = self._dense.lengths(
            [text[: most * _CHARACTERS] for text in texts]
        )  # to count all of a long text takes a second
        return [(vector, min(length, most)) for vector, length in zip(self.vectors(texts, kind), lengths, strict=True)]

    def _signal(self, name: str) -> Any:
        """The signal of the index that stores this output; None without an index."""
        return next(iter(self.generation.signals({name})), None) if self.generation else None

    @staticmethod
    def _vector(signal: Dense, encoded: Encoding, kind: Kind) -> Any:
        assert encoded.vector is not None
        return signal.stored_vector(encoded.vector) if kind == "document" else signal.query_vector(encoded.vector)[0]

    def _features(self, signal: Weights, encoded: Encoding, kind: Kind) -> dict[str, float]:
        if kind == "document":
            features: dict[str, float] = signal.fields(Document("", encoded.text), encoded).get("weights", {})
            return features
        assert self.engine is not None
        return signal.query_features(encoded, self.engine.capabilities)


def _finite(numbers: Any) -> bool:
    return bool(np.isfinite(numbers).all())


def _not_finite(name: str) -> ModelError:
    return ModelError(
        f"The model {name!r} gave a number that is not finite.",
        "The model folder is damaged or was exported from a diverged training.",
    )
