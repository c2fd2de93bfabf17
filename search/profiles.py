"""Find the profile that a mode names, and make a search's mode and rewriting of it, or put a new profile together."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from termweave.catalog.profiles import Profile
from termweave.errors import EngineError, UsageError
from termweave.rerank import rerankers
from termweave.rerank.rnn import ReciprocalNeighbours
from termweave.rerank.stored_rerankers import reranking_of, stages_of
from termweave.search.rewriting.configuration import Rewriting
from termweave.signals.modes import Mode

if TYPE_CHECKING:
    from termweave.catalog.lineage import Lineage
    from termweave.rerank.rerankers import Reranking


def mode_of(profile: Profile) -> Mode:
    """The mode that a profile stores: its signals, weights and fusion method."""
    return Mode(profile.name, profile.weights, profile.fusion)


def rewriting_of(profile: Profile | None) -> Rewriting | None:
    """The rewriting of queries that a profile stores; None: the profile stores none, or there is no profile.

    Raises:
        UsageError: The stored synonyms or pins cannot be read.
    """
    return None if profile is None or profile.rewrite is None else Rewriting.stored(profile.rewrite)


def inherited(profile: Profile) -> str:
    """Name the rules and the rewriting of a profile, which are kept when tuning chooses fusion and rerankers anew; "" if it has neither."""
    rules = f"rules ({', '.join(profile.rules)})" if profile.rules else ""
    return " and ".join(filter(None, (rules, f"rewriting ({rewriting_of(profile)})" if profile.rewrite else "")))


def composed(lineage: Lineage, name: str, mode: Mode, reranking: Reranking | None, rewriting: Rewriting | None) -> Profile:
    """Put together a profile: an extension of an existing profile, if the mode names one, or a new one of signals.

    Args:
        lineage: The lineage of the generation, which stores the existing profiles.
        name: Name of the new profile.
        mode: The signals, weights and fusion; the mode of an existing profile has the name of that profile.
        reranking: The rerankers: those of the existing profile or rNN, then rules. None: no rerankers.
        rewriting: How queries are rewritten; None: as in the existing profile.

    Raises:
        UsageError: A reranker is neither one of the existing profile, nor rNN, nor a rule.
    """
    former = find(lineage, mode.name)
    stages = list(reranking.stages if reranking else ())
    before = list(stages_of(former))
    extends = former is not None and before and stages[: len(before)] == before
    added = stages[len(before) :] if extends else stages
    anew = Profile(name, mode.weights, mode.fusion, None, rewrite=former.rewrite if former else None)
    base = former if former and extends else anew
    if added and not extends and isinstance(first := added[0], ReciprocalNeighbours):
        base, added = replace(base, reranking=asdict(first)), added[1:]
    rules = [stage.name for stage in added]
    for rule in rules:
        rerankers.rule(rule)
    if rewriting is not None and (stored := rewriting_of(base)) is not None:
        rewriting = rewriting.with_pins(stored.pins)
    rewrite = base.rewrite if rewriting is None else {key: value for key, value in asdict(rewriting).items() if value} or None
    return replace(base, name=name, fitted={}, rules=[*(base.rules or ()), *rules] or None, rewrite=rewrite)


def find(lineage: Lineage, mode: str | None) -> Profile | None:
    """The profile that a mode names; None: the mode names signals, or is None and no profile is adopted.

    Args:
        lineage: The lineage of the generation.
        mode: The value of `--mode`; None: the adopted profile, if there is one.

    Raises:
        EngineError: The stored profile cannot be read by this version.
    """
    name = lineage.profile if mode is None else mode
    if name not in lineage.profiles:
        return None
    try:
        profile = Profile(name, **lineage.profiles[name])
        if profile.weights.keys() <= lineage.signals.keys():
            reranking_of(profile)  # this and its synonyms and pins can be read
            rewriting_of(profile)
            return profile
    except (AttributeError, KeyError, TypeError, UsageError):
        pass
    hint = f"Remove it with 'termweave profiles {lineage.name} --drop {name}', and make a new one with 'termweave tune'."
    raise EngineError(f"The profile {name!r} of {lineage.name!r} is damaged, or was written by a newer version.", hint)


def rewriting(lineage: Lineage, mode: str | None) -> Rewriting | None:
    """The rewriting of the profile that a mode names; None: the mode names no profile, or the profile stores no rewriting. Arguments as `find`."""
    return rewriting_of(find(lineage, mode))


def with_rewriting(lineage: Lineage, rewriting: Rewriting) -> str:
    """Name of a profile that rewrites queries in exactly this way; "" if no profile does."""
    for name in lineage.profiles:
        with suppress(EngineError):
            if (profile := find(lineage, name)) and rewriting_of(profile) == rewriting:
                return name
    return ""
