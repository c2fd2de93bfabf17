"""The parameters that all ranker methods share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Le

from termweave.declared_settings import Setting
from termweave.errors import UsageError
from termweave.training.methods.parameters import Count, ParameterRecord, TrainingParameters


@dataclass(frozen=True)
class CandidateParameters(ParameterRecord):
    """The first stage, whose documents are reranked."""

    heading: ClassVar[str] = "Candidates"
    candidates_from: Annotated[
        str,
        Setting(
            "First stage: hybrid (what hybrid search with the shipped model finds), bm25, a live index (index:NAME), or a run file, as "
            "`evaluate --save` writes it."
        ),
    ] = "hybrid"
    candidates: Annotated[int, Setting("Best documents of the first stage that negatives are drawn from."), Ge(2), Le(10_000)] = (
        100
    )
    reranked: Annotated[
        int, Setting("Documents of a development question that are reranked to decide when to stop."), Ge(2), Le(1000)
    ] = 30
    anchor: Annotated[
        bool,
        Setting(
            "Add the score of the first stage to the logit, with a factor that is learned, and start with a logit that adds nothing: "
            "the ranker begins as the first stage."
        ),
    ] = True


@dataclass(frozen=True)
class RankerParameters(CandidateParameters, TrainingParameters):
    """The parameters of every method that trains a ranker: all layers are trained by default."""

    heading: ClassVar[str] = "Cross-encoder"
    family: ClassVar[str] = "ranker"
    chunk: Annotated[
        Count,
        Setting(
            "Pairs whose activations are kept at a time (gradient caching): memory is that of a chunk, the loss that of the batch; 0: all."
        ),
    ] = 32
    top_layers: int = -1

    def check(self) -> None:
        """Refuse a frozen backbone, and a measure that no order of the reranked documents changes."""
        super().check()
        if self.measure == "recall@100" and self.reranked <= 100:
            raise UsageError(
                f"recall@100 is the same however {self.reranked} documents are reranked.",
                "Set another measure, or reranked above 100.",
            )
        if self.top_layers == 0:
            raise UsageError("A ranker trains layers, and top_layers=0 freezes all of them.", "Set top_layers=-1, or 1 and more.")

    def block(self) -> int:
        """Return how many documents of a question the sampler draws for a step, the right one included."""
        raise NotImplementedError

    def scored(self) -> int:
        """Return how many pairs a step scores, for ``--plan``."""
        raise NotImplementedError
