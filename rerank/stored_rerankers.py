"""The rerankers that a profile stores."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from termweave.catalog.profiles import Profile
from termweave.errors import TermweaveError, UsageError
from termweave.rerank import feature_ranker, rerankers
from termweave.rerank.ranker import CrossEncoderReranker
from termweave.rerank.rerankers import METADATA, WORDS, Reranking
from termweave.rerank.rnn import ReciprocalNeighbours
from termweave.support.messages import counted, is_hash

if TYPE_CHECKING:
    from collections.abc import Callable

    from termweave.catalog.layout import DocumentLayout
    from termweave.catalog.lineage import Lineage
    from termweave.rerank.rerankers import Reranker

_NUMBERS = frozenset({"long", "double"})


def reranking_of(profile: Profile | None) -> Reranking | None:
    """The rerankers of a profile; None without reranking. Errors as in `stages_of`."""
    stages = stages_of(profile)
    return Reranking(stages) if stages else None


def stages_of(profile: Profile | None) -> tuple[Reranker, ...]:
    """The rerankers of a profile: rNN, a ranker, its rules.

    Raises:
        TypeError: What is stored has a parameter that this version does not know, or a ranker that `termweave tune` does not store.
    """
    if profile is None:
        return ()
    stages: list[Reranker] = [] if profile.reranking is None else [ReciprocalNeighbours(**profile.reranking)]
    if profile.ranker is not None:
        stages.append(_ranker(**profile.ranker))
    return (*stages, *rules_of(profile))


def _ranker(model: str, hash: str, kind: str = "", **parameters: Any) -> Reranker:  # noqa: A002 - the stored name
    """A stored ranker, which opens only a model that this host has, and only with this hash.

    Anyone who can write to the index can change what is stored. Without a hash the name would be opened as if the user had given
    it: as a path, or from the hub.
    """
    makers: dict[str, Callable[..., Reranker]] = {"": CrossEncoderReranker, feature_ranker.KIND: feature_ranker.FeatureReranker}
    is_ours = kind in makers and isinstance(model, str) and is_hash(hash)
    if not is_ours or not parameters.keys() <= {"candidates", "weight", "budget"}:
        raise TypeError
    return makers[kind](model, hash=hash, **parameters)


def rules_of(profile: Profile | None) -> tuple[Reranker, ...]:
    """The rules of a profile as rerankers."""
    return tuple(rerankers.rule(name) for name in (profile.rules if profile else None) or ())


def leave_room(profile: Profile, others: int, who: str) -> None:
    """Check that a chain has room for the rules of a profile behind so many rerankers, which `who` may choose.

    Raises:
        UsageError: The chain would be too long.
    """
    count = len(profile.rules or ())
    if count and count + others > (most := rerankers.MOST_STAGES):
        rules = f"has {counted(count, 'rule')}, and {who} puts up to {others} before {'it' if count == 1 else 'them'}"
        hint = f"Use a profile with fewer rules ('termweave profiles NAME --save'){', or tune without --rerank' * (others > 1)}."
        raise UsageError(f"The profile {profile.name!r} {rules}: a chain has at most {most} rerankers.", hint)


def fitting(tuned: Lineage, layout: DocumentLayout) -> tuple[dict[str, Any], list[str]]:
    """The profiles as far as another generation can use them, as the fields of its lineage, and warnings about what it cannot.

    Args:
        tuned: The lineage of the generation that has them.
        layout: The layout of the other one, which has the same models and signals.
    """
    profiles, warnings = dict(tuned.profiles), []
    for name, stored in tuned.profiles.items():
        # Searches say that a profile is damaged, or that its model is not on this host.
        with suppress(TermweaveError, AttributeError, KeyError, TypeError):
            lost = [stage.name for stage in stages_of(Profile(name, **stored)) if not _reads(stage, tuned.layout, layout)]
            if not lost:
                continue
            rules = [rule for rule in stored.get("rules") or () if rule not in lost]
            why = "the metadata that it reads are gone, or have become another type (one text makes texts of a column of numbers)"
            if {*lost} <= {*(stored.get("rules") or ())}:
                profiles[name] = {key: value for key, value in stored.items() if key != "rules"} | (
                    {"rules": rules} if rules else {}
                )
                warnings.append(f"The profile {name!r} goes on without {', '.join(lost)}: {why}.")
            else:
                del profiles[name]
                warnings.append(f"Profile left behind ({name}): {why}. Train its ranker again.")
    return {"profiles": profiles, "profile": tuned.profile if tuned.profile in profiles else ""}, warnings


def _reads(stage: Reranker, before: DocumentLayout, now: DocumentLayout) -> bool:
    """Whether a reranker finds in a layout what it found in the one before."""
    for need in stage.needs:
        if need.startswith(WORDS) and not now.paths(need.removeprefix(WORDS)):
            return False
        if need.startswith(METADATA):
            old, new = (layout.column(need.removeprefix(METADATA)) for layout in (before, now))
            if old and (new is None or not (old.kind == new.kind or {old.kind, new.kind} <= _NUMBERS)):
                return False
    return True
