"""Profiles: tuned fusion and reranking, kept in the index's ``_meta`` beside its lineage, so that every host searches alike."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from termweave.errors import UsageError
from termweave.search.modes import Mode
from termweave.search.ranking import Reranking

if TYPE_CHECKING:
    from collections.abc import Mapping

    from termweave.search.lineage import Lineage

#: What `--profile` says for the defaults.
NONE = "none"


@dataclass(frozen=True)
class Profile:
    """How an index is searched when nobody says otherwise.

    Attributes:
        name: As `--profile` takes it.
        weights: Signal name -> weight; they sum to 1.
        fusion: Name of the method.
        reranking: Parameters of `Reranking`; None: no reranking.
        fitted: Data set, measure, number of queries and held-out figures.
    """

    name: str
    weights: Mapping[str, float]
    fusion: str
    reranking: Mapping[str, Any] | None
    fitted: Mapping[str, Any] = field(default_factory=dict)

    @property
    def mode(self) -> Mode:
        """Its signals, weights and fusion."""
        return Mode(self.name, self.weights, self.fusion)

    @property
    def rerank(self) -> Reranking | None:
        """Its reranking."""
        return None if self.reranking is None else Reranking(**self.reranking)

    def as_meta(self) -> dict[str, Any]:
        """As ``_meta.termweave.profiles`` keeps it, under its name."""
        return {name: value for name, value in asdict(self).items() if name != "name"}


def find(lineage: Lineage, name: str | None) -> Profile | None:
    """The profile of a name.

    Args:
        lineage: Of the generation.
        name: None: the one that was adopted, if any; "none": no profile.

    Raises:
        UsageError: The index has no such profile.
    """
    if name == NONE:
        return None
    wanted = name or lineage.profile
    if not wanted:
        return None
    if wanted not in lineage.profiles:
        known = ", ".join(lineage.profiles) or "none"
        raise UsageError(f"The index has no profile {wanted!r}.", f"It has: {known}. 'termweave tune NAME DATASET' makes one.")
    return Profile(wanted, **lineage.profiles[wanted])
