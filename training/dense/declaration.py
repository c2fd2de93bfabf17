"""The parameters that all dense methods share, and the data of which such a method computes its targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Le

from termweave.declared_settings import Setting
from termweave.errors import UsageError
from termweave.training.methods.parameters import Count, TrainingParameters


@dataclass(frozen=True)
class DenseParameters(TrainingParameters):
    """The parameters of every method that trains vectors: all layers are trained by default."""

    heading: ClassVar[str] = "Encoder"
    family: ClassVar[str] = "dense"
    towers: Annotated[
        Literal["one", "two", "query"],
        Setting(
            "Encoders: one for queries and documents, two that begin alike, or two of which only the query encoder is trained (query)."
        ),
    ] = "one"
    reinitialise: Annotated[
        int,
        Setting(
            "Top layers that begin with new random weights: a backbone that is a retriever already becomes nearer to plain BERT."
        ),
        Ge(0),
        Le(1000),
    ] = 0
    chunk: Annotated[
        Count,
        Setting(
            "Texts whose activations are kept at a time (gradient caching): memory is that of a chunk, the loss that of the batch; 0: all."
        ),
    ] = 32
    top_layers: int = -1
    batch: int = 32
    schedule: Literal["one-cycle", "linear", "constant"] = "linear"
    warmup: float = 0.1
    # What a method does that lacks the parameter of this name.
    candidates_from = "model"
    vectors = "unit"

    def check(self) -> None:
        """Refuse a frozen backbone."""
        super().check()
        if self.top_layers == 0:
            raise UsageError(
                "A dense method trains layers, and top_layers=0 freezes all of them.", "Set top_layers=-1, or 1 and more."
            )

    def texts(self) -> tuple[int, int]:
        """Return how many queries and documents a step encodes at most, for ``--plan``."""
        raise NotImplementedError

    def rounds(self) -> int:
        """Return the number of fits of a run, for ``--plan``."""
        return 1
