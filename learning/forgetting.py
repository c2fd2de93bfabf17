"""What a trained model forgot: its figures on questions of another kind, the demo's, beside those of the model before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from termweave.learning.candidates import Part  # noqa: TC001 - pydantic reads the annotations

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Forgetting:
    """The figures of two models on a sample of the demo: at most 50 of its questions in 300 documents.

    Attributes:
        part: "weights" or "dense".
        before: nDCG@10 of the model of the live index, this part alone.
        after: nDCG@10 of the new model.
    """

    part: Part
    before: float
    after: float


def forgetting(part: Part, before: Path, after: Path) -> Forgetting:
    """Compare two models on the demo.

    Args:
        part: What the models give: "weights" or "dense".
        before: Folder of the earlier model.
        after: Folder of the new one.
    """
    from termweave.training.dev_measure import ranking_measure  # noqa: PLC0415 - numpy
    from termweave.training.model_folder import sample_cost  # noqa: PLC0415 - likewise

    sample = sample_cost.draw("demo")
    figures = [
        float(ranking_measure(sample_cost.searched(folder, part, sample)[1], sample.gains).mean()) for folder in (before, after)
    ]
    return Forgetting(part, *figures)
