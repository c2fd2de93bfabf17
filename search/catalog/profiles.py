"""Profiles: tuned fusion and reranking, kept in the index's ``_meta`` beside its lineage, so that every host searches alike."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from termweave.errors import EngineError, UsageError
from termweave.search.modes import Mode
from termweave.search.ranking import Reranking

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from termweave.search.lineage import Lineage


@dataclass(frozen=True)
class Profile:
    """How an index is searched when nobody says otherwise.

    Attributes:
        name: As `--mode` takes it.
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


def find(lineage: Lineage, mode: str | None) -> Profile | None:
    """The profile that a mode names; None where it names something else.

    Args:
        lineage: Of the generation.
        mode: As `--mode` says it; None: what was adopted, if anything was.

    Raises:
        EngineError: It is not as this version writes profiles.
    """
    name = lineage.profile if mode is None else mode
    if name not in lineage.profiles:
        return None
    try:
        found = Profile(name, **lineage.profiles[name])
        if found.weights.keys() <= lineage.signals.keys() and (found.reranking is None or found.rerank):
            return found
    except (AttributeError, TypeError):
        pass
    raise EngineError(
        f"The profile {name!r} of {lineage.name!r} is damaged, or was written by a version that knows more.",
        f"'termweave profiles {lineage.name} --drop {name}' removes it; 'termweave tune' makes another.",
    )


def check_name(name: str, signals: Collection[str]) -> None:
    """Refuse a name that means something else where a mode is asked for, or cannot name a row of a table or a file of runs.

    Raises:
        UsageError: It does.
    """
    if (
        name.lower() in {"", "hybrid", "run", "bm25", *signals}
        or name.startswith(".")
        or set(name) & set("@:,+ /\\")
        or not name.isprintable()
    ):
        raise UsageError(
            f"A profile cannot be called {name!r}.",
            "Choose a name that is no mode, no signal and not BM25, without blanks and @ : , + / \\, and no dot in front.",
        )


def adopted(lineage: Lineage, profile: Profile) -> Lineage:
    """The lineage with a profile that searches use from now on."""
    check_name(profile.name, lineage.signals)
    return replace(lineage, profiles={**lineage.profiles, profile.name: profile.as_meta()}, profile=profile.name)


def using(lineage: Lineage, name: str | None) -> Lineage:
    """The lineage with another profile in force, of those it has; None: none, searches are as they were before any tuning.

    Raises:
        UsageError: It has no such profile.
    """
    return replace(lineage, profile="" if name is None else _known(lineage, name))


def without(lineage: Lineage, name: str) -> Lineage:
    """The lineage without a profile; where that was in force, none is.

    Raises:
        UsageError: It has no such profile.
    """
    gone = _known(lineage, name)
    left = {each: profile for each, profile in lineage.profiles.items() if each != gone}
    return replace(lineage, profiles=left, profile="" if lineage.profile == gone else lineage.profile)


def _known(lineage: Lineage, name: str) -> str:
    if name in lineage.profiles:
        return name
    there = f"It has: {', '.join(sorted(lineage.profiles))}." if lineage.profiles else "It has none: 'termweave tune' makes them."
    raise UsageError(f"The index {lineage.name!r} has no profile {name!r}.", there)
