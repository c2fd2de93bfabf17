"""What is trained: a candidate is a method of `termweave train` with settings, for one part of the search. A feature ranker comes last (`choice`)."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - pydantic reads the annotations
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - likewise
from typing import Any, Literal

Part = Literal["weights", "dense", "ranker"]
#: What messages call the parts.
PARTS: Mapping[Part, str] = {"weights": "term weights", "dense": "vectors", "ranker": "ranker"}


@dataclass(frozen=True)
class Candidate:
    """A model to train.

    Attributes:
        method: Name of the training method.
        part: What the model gives.
        share: Share of the training time that its first, short run may take.
        steps: Steps of the first run.
        settings: Settings of the method that differ from its defaults.
        fewest: Fewest steps that show what the method can do; without the time for them it is not tried.
    """

    method: str
    part: Part
    share: float
    steps: int
    settings: Mapping[str, Any]
    fewest: int = 10


@dataclass(frozen=True)
class LiveHeads:
    """The live weights model, from which training goes on.

    Attributes:
        folder: Its folder; None: training cannot go on from it.
        backbone: What its heads stand on; "": all-MiniLM-L6-v2.
        joint: Whether the live vectors are those of the same model, so that they come with its weights.
    """

    folder: str | None
    backbone: str
    joint: bool


def candidates(heads: LiveHeads, backbone: str, *, documents_stay: bool = False, made: bool = False) -> list[Candidate]:
    """The candidates for an index.

    Args:
        heads: The live weights model.
        backbone: Backbone of the live dense model; "": all-MiniLM-L6-v2.
        documents_stay: Whether documents keep what they were encoded to, so that only what reads queries can be trained.
        made: Whether questions are made of the corpus, because too few are judged to train on.
    """
    corpus = {"pairs": "corpus"} if made else {}
    encoder = {**corpus, **({"backbone": backbone} if backbone else {})}
    weights = {**corpus, "outputs": "weights,dense" if heads.joint else "weights"}
    weights |= {"start": heads.folder} if heads.folder else {}
    weights |= {"backbone": heads.backbone} if heads.backbone else {}
    every = [
        Candidate("fectek", "weights", 0.2, 200, weights),
        Candidate("dtr", "dense", 0.12, 60, encoder),
        Candidate("coder", "dense", 0.06, 60, {**encoder, "labels": "auto" if made else "hard"}),
        Candidate("le-bs", "dense", 0.08, 60, {"labels": "tfidf", **encoder}),
    ]
    left_out = {"fectek", "dtr", "le-bs"} if documents_stay else set()
    return [each for each in every if each.method not in left_out | ({"le-bs"} if made else set())]


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
        int8: Change of nDCG@10 by int8, of vectors that lose in training's check through the index; None: not measured.
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
