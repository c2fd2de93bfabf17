"""The result of `termweave learn`, as Python gets it and as JSON has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence  # noqa: TC003 - pydantic reads the annotations
from dataclasses import asdict, dataclass, field
from pathlib import Path  # noqa: TC003 - likewise
from typing import Any

import orjson

from termweave.learning.candidates import TrainedCandidate  # noqa: TC001 - likewise
from termweave.learning.choice import SystemFigure  # noqa: TC001 - likewise
from termweave.learning.report import Forgetting, Moved, SearchCost  # noqa: TC001 - likewise


@dataclass(frozen=True)
class Learned:
    """The result.

    Attributes:
        name: The index.
        questions: Name of the questions.
        folder: Folder of the run, with the report.
        state: Hash of the live generation, its documents and its profile when learning began; promoting is refused once they have changed.
        parts: Part -> number of questions in it.
        tried: Every model that was trained.
        notes: What a user should know.
        before: nDCG@10 of the live search on the test questions.
        after: nDCG@10 of the new search; equal to `before` where no model helped.
        p: p-value of the difference.
        used: Part of the search -> folder of the new model.
        generation: The trial generation; None: none was built.
        encoded: Number of documents that were encoded for it; 0: only what reads queries changed, and documents keep their vectors.
        confirmed: Whether the new search is better, p < .05.
        published: Whether the trial generation is live.
        profile: How the trial generation is searched.
        needed: About how many test questions a gain of this size needs to be confirmed; 0 where there is no gain.
        systems: The searches that the trial generation can do: what is lost where one part is left out.
        moved: The questions that gained and lost most, with both lists.
        cost: "before" and "after" -> time of a search and size of the index.
        forgotten: The new models on questions of another kind, the demo's.
        gained: The terms that gained most weight, where term weights were trained.
        lost: The terms that lost most.
    """

    name: str
    questions: str
    folder: Path
    state: str
    parts: Mapping[str, int]
    tried: tuple[TrainedCandidate, ...]
    notes: tuple[str, ...]
    before: float
    after: float
    p: float = 1.0
    used: Mapping[str, str] = field(default_factory=dict)
    generation: str | None = None
    encoded: int = 0
    confirmed: bool = False
    published: bool = False
    profile: Mapping[str, Any] | None = None
    needed: int = 0
    systems: tuple[SystemFigure, ...] = ()
    moved: tuple[Moved, ...] = ()
    cost: Mapping[str, SearchCost] = field(default_factory=dict)
    forgotten: tuple[Forgetting, ...] = ()
    gained: Sequence[Mapping[str, Any]] = ()
    lost: Sequence[Mapping[str, Any]] = ()

    def as_json(self) -> dict[str, Any]:
        """The fields as JSON values: folders are texts."""
        values: dict[str, Any] = orjson.loads(orjson.dumps(asdict(self), default=str))
        return values
