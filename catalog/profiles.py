"""Profiles: tuned fusion and reranking. The index stores them in its lineage, so that searches from every host use them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import orjson

from termweave.errors import UsageError

if TYPE_CHECKING:
    from termweave.catalog.lineage import Lineage

#: What profiles have had since a later version.
_NEW = frozenset({"ranker", "rules", "rewrite"})
#: Profiles of one name that are kept besides the newest.
EARLIER = 5


@dataclass(frozen=True)
class Profile:
    """A tuned way to search an index.

    Attributes:
        name: The name that `--mode` takes.
        weights: Signal name -> weight; they sum to 1.
        fusion: Name of the fusion method.
        reranking: Parameters of `ReciprocalNeighbours`; None: rNN does not rerank.
        rules: Rules that run last, as `--rerank` takes them: "boost@votes:0.2".
        rewrite: Parameters of `Rewriting`, by which queries are rewritten; None: queries are not rewritten.
        ranker: Parameters of the ranker that runs after rNN: of `CrossEncoderReranker` (model, hash, candidates, weight, budget), or with
            "kind": "ltr" of `FeatureReranker` (model, hash, candidates); None: no ranker.
        fitted: How it was tuned: data set, measure, number of queries, and results on held-out queries.
    """

    name: str
    weights: Mapping[str, float]
    fusion: str
    reranking: Mapping[str, Any] | None
    fitted: Mapping[str, Any] = field(default_factory=dict)
    ranker: Mapping[str, Any] | None = None
    rules: Sequence[str] | None = None
    rewrite: Mapping[str, Any] | None = None

    def as_meta(self) -> dict[str, Any]:
        """Return the JSON that ``_meta.termweave.profiles`` stores under the profile's name."""
        # What a profile does not have is left out, so that older versions read it.
        stored = {name: value for name, value in asdict(self).items() if value is not None or name not in _NEW}
        del stored["name"]
        meta: dict[str, Any] = orjson.loads(orjson.dumps(stored))  # as it is read back, with lists in place of tuples
        return meta


def check_name(name: str, signals: Collection[str]) -> None:
    """Check that a profile name is not already a mode, and can be used in tables and file names.

    Raises:
        UsageError: The name cannot be used.
    """
    reserved = name.lower() in {"", "hybrid", "run", "bm25", *signals}
    if reserved or name.startswith(".") or set(name) & set("@:,+ /\\") or not name.isprintable():
        raise UsageError(
            f"A profile cannot be called {name!r}.",
            "Choose a name that is not a mode, a signal or BM25, has no blanks and none of @ : , + / \\, and does not begin with a dot.",
        )


def adopted(lineage: Lineage, profile: Profile, *, use: bool = True) -> Lineage:
    """Return the lineage with a profile added.

    A different profile of the same name is kept as NAME-1, NAME-2 and so on, the newest `EARLIER` of them. Searches that use the former
    profile go on to use it unless the new profile is adopted.

    Args:
        lineage: The lineage.
        profile: The profile.
        use: Whether the profile is adopted, which means that searches use it by default.
    """
    check_name(profile.name, lineage.signals)
    profiles, in_force = dict(lineage.profiles), lineage.profile
    former = profiles.get(profile.name)
    if former is not None and former != profile.as_meta():
        numbers = sorted(
            int(each[1]) for name in profiles if (each := re.fullmatch(rf"{re.escape(profile.name)}-(\d{{1,9}})", name))
        )
        moved = f"{profile.name}-{numbers[-1] + 1 if numbers else 1}"
        profiles[moved] = former
        in_force = moved if in_force == profile.name else in_force
        for number in numbers[: max(0, len(numbers) + 1 - EARLIER)]:
            if (old := f"{profile.name}-{number}") != in_force:
                del profiles[old]
    return replace(lineage, profiles={**profiles, profile.name: profile.as_meta()}, profile=profile.name if use else in_force)


def using(lineage: Lineage, name: str | None) -> Lineage:
    """Return the lineage with the profile `name` adopted, so that searches use it by default; None: searches use no profile, as before tuning.

    Raises:
        UsageError: The lineage has no such profile.
    """
    if name is not None and name not in lineage.profiles:
        names = ", ".join(sorted(lineage.profiles))
        hint = f"Its profiles are: {names}." if names else "It has no profiles; 'termweave tune' makes them."
        raise UsageError(f"The index {lineage.name!r} has no profile {name!r}.", hint)
    return replace(lineage, profile=name or "")


def without(lineage: Lineage, name: str) -> Lineage:
    """Return the lineage without a profile. If the profile was adopted, no profile is adopted afterwards.

    Raises:
        UsageError: The lineage has no such profile.
    """
    using(lineage, name)  # raises if there is none
    profiles = {other: profile for other, profile in lineage.profiles.items() if other != name}
    return replace(lineage, profiles=profiles, profile="" if lineage.profile == name else lineage.profile)
