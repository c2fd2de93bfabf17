"""A model that is served, and what it gives: alone, or exactly as an index stores and asks it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.errors import ModelError
from termweave.records import Document
from termweave.support.normal_form import normal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from termweave.encoders import TextEncoder
    from termweave.encoders.term_weighting import Kind
    from termweave.engine import Engine
    from termweave.records import Encoding
    from termweave.search.opening import OpenGeneration

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
    def _encoders(self) -> dict[str, TextEncoder]:
        """Output -> the encoder of it alone, which keeps what it has read of its folder."""
        return {output: self.encoder.only({output}) for output in KINDS}

    def run_once(self) -> None:
        """Encode a word in every way: graphs and statistics are read at their first use."""
        kinds: tuple[Kind, ...] = ("query", "document")
        for kind in kinds:
            for output in self.outputs:
                (self.weights if output == "weights" else self.vectors)(["open"], kind)

    def vectors(self, texts: Sequence[str], kind: Kind) -> list[Any]:
        """The vector ``(d,)`` of each text; with an index the numbers that its field stores, or that its query is sent with."""
        encoded, signal = self._encoded("dense", texts, kind), self._signal("dense")
        if signal is None:
            return [each.vector for each in encoded]
        if kind == "document":
            return [signal.stored_vector(each.vector) for each in encoded]
        return [signal.query_vector(each.vector)[0] for each in encoded]

    def weights(self, texts: Sequence[str], kind: Kind) -> list[dict[str, float]]:
        """Term -> weight of each text; with an index the features that its field stores, or that its query is sent with."""
        encoded, signal = self._encoded("weights", texts, kind), self._signal("weights")
        if signal is None:
            return [{} if each.weights is None else each.weights.as_dict() for each in encoded]
        if kind == "document":
            return [signal.fields(Document("", each.text), each).get("weights", {}) for each in encoded]
        assert self.engine is not None
        return [signal.query_features(each, self.engine.capabilities) for each in encoded]

    def _encoded(self, output: str, texts: Sequence[str], kind: Kind) -> list[Encoding]:
        """The texts, encoded for one output.

        Raises:
            ModelError: A number is not finite.
        """
        statistics = self.generation.statistics if self.generation and output == "weights" else None
        encoded = self._encoders[output].encode([*map(normal, texts)], kind=kind, statistics=statistics)
        for each in encoded:
            numbers = each.vector if output == "dense" or each.weights is None else each.weights.weights
            if numbers is not None and not np.isfinite(numbers).all():
                raise ModelError(
                    f"The model {self.names[0]!r} gave a number that is not finite.",
                    "The model folder is damaged or was exported from a diverged training.",
                )
        return encoded

    def counted_vectors(self, texts: Sequence[str], kind: Kind) -> list[tuple[Any, int]]:
        """The vector of each text, and how many of its tokens the model has read."""
        dense = self._encoders["dense"]
        most = dense.models["dense"].max_length
        lengths = dense.lengths([text[: most * _CHARACTERS] for text in texts])  # to count all of a long text takes a second
        return [(vector, min(length, most)) for vector, length in zip(self.vectors(texts, kind), lengths, strict=True)]

    def _signal(self, name: str) -> Any:
        """The signal of the index that stores this output; None without an index."""
        return next(iter(self.generation.signals({name})), None) if self.generation else None
