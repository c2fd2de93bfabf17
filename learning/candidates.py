"""What is tried: a candidate is a method of `termweave train` with settings, for one part of the search (term weights or vectors)."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - pydantic reads the annotations
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - likewise
from typing import Any, Literal

Part = Literal["weights", "dense"]


@dataclass(frozen=True)
class Candidate:
    """A model to train.

    Attributes:
        method: Name of the training method.
        part: What the model gives.
        share: Share of the training time that its first, short run may take.
        steps: Steps of the first run.
        settings: Settings of the method that differ from its defaults.
    """

    method: str
    part: Part
    share: float
    steps: int
    settings: Mapping[str, Any]


def candidates(start: str | None, backbone: str) -> list[Candidate]:
    """The candidates for an index.

    Args:
        start: Folder of the live weights model, if training can go on from it.
        backbone: Backbone of the live dense model; "": all-MiniLM-L6-v2.
    """
    encoder = {"backbone": backbone} if backbone else {}
    weights = {"outputs": "weights,dense" if not backbone else "weights", **({"start": start} if start else {})}
    return [
        Candidate("fectek", "weights", 0.3, 200, weights),
        Candidate("dtr", "dense", 0.2, 60, encoder),
        Candidate("coder", "dense", 0.1, 60, encoder),
    ]


@dataclass(frozen=True)
class TrainedCandidate:
    """A trained model.

    Attributes:
        candidate: What was trained.
        steps: Steps of the run.
        seconds: Its wall-clock time.
        folder: The model folder; None: the run failed or was not begun, see `dropped`.
        before: Figure of its own step 0.
        after: Figure of its best step.
        best: Its best step; 0: training did not help.
        int8: Change of the figure by int8; None: not measured.
        precision: "int8" or "fp32".
        dropped: Why there is no model; "" if there is one.
    """

    candidate: Candidate
    steps: int
    seconds: float
    folder: Path | None = None
    before: float = 0.0
    after: float = 0.0
    best: int = 0
    int8: float | None = None
    precision: str = "int8"
    dropped: str = ""

    @property
    def helped(self) -> bool:
        """Whether training improved the model that it began with."""
        return self.folder is not None and self.best > 0
