"""Make the rerankers that a profile stores, and check them against an index."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from termweave.catalog.profiles import Profile
from termweave.errors import TermweaveError, UsageError
from termweave.rerank import feature_ranker, rerankers
from termweave.rerank.ranker import CrossEncoderReranker
from termweave.rerank.rerankers import METADATA, WORDS, Reranker, Reranking
from termweave.rerank.rnn import ReciprocalNeighbours
from termweave.support.messages import counted, is_hash

if TYPE_CHECKING:
    from termweave.catalog.layout import DocumentLayout
    from termweave.catalog.lineage import Lineage

_NUMBERS = frozenset({"long", "double"})


def reranking_of(profile: Profile | None) -> Reranking | None:
    """Make the chain of rerankers that a profile stores; None: the profile stores none, or there is no profile. Errors as in `stages_of`."""
    stages = stages_of(profile)
    return Reranking(stages) if stages else None


def stages_of(profile: Profile | None) -> tuple[Reranker, ...]:
    """Make the rerankers that a profile stores, in their order: rNN, a ranker, then its rules; () without a profile.

    Raises:
        TypeError: The profile stores a parameter that this version does not know, or a ranker that `termweave tune` does not store.
    """
    if profile is None:
        return ()
    stages: list[Reranker] = [] if profile.reranking is None else [ReciprocalNeighbours(**profile.reranking)]
    if profile.ranker is not None:
        stages.append(_ranker(**profile.ranker))
    return (*stages, *rules_of(profile))


def _ranker(model: str, hash: str, kind: str = "", **parameters: Any) -> Reranker:  # noqa: A002 - the stored name
    """Make the ranker that a profile stores. It opens only a model on this host, and only with the stored hash.

    Anyone who can write to the index can change the stored name. Without the hash it would be opened as if the user had given it: as a
    path, or from the hub.
    """
    makers: dict[str, Callable[..., Reranker]] = {"": CrossEncoderReranker, feature_ranker.KIND: feature_ranker.FeatureReranker}
    is_ours = kind in makers and isinstance(model, str) and is_hash(hash)
    if not is_ours or not parameters.keys() <= {"candidates", "weight", "budget"}:
        raise TypeError
    return makers[kind](model, hash=hash, **parameters)


def rules_of(profile: Profile | None) -> tuple[Reranker, ...]:
    """Make the rules (`boost`, `decay`, `match`, `diverse`) that a profile stores; () without a profile."""
    return tuple(rerankers.rule(name) for name in (profile.rules if profile else None) or ())


def leave_room(profile: Profile, others: int, who: str) -> None:
    """Check that the rules of a profile fit into a chain behind `others` further rerankers. `who` names who chooses these, for the message.

    Raises:
        UsageError: The chain would be too long.
    """
    count = len(profile.rules or ())
    if count and count + others > (most := rerankers.MOST_STAGES):
        problem = f"The profile {profile.name!r} has {counted(count, 'rule')}, and {who} adds up to {counted(others, 'reranker')}"
        hint = f"Use a profile with fewer rules ('termweave profiles NAME --save'){', or tune without --rerank' * (others > 1)}."
        raise UsageError(f"{problem}: a chain has at most {most} rerankers.", hint)


def fitting(tuned: Lineage, layout: DocumentLayout) -> tuple[dict[str, Any], list[str]]:
    """The stored profiles that another generation can still use, as fields of its lineage, and a warning for each part that it cannot use.

    Args:
        tuned: The lineage of the generation that stores the profiles.
        layout: The layout of the other generation, which has the same models and signals.
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
                profiles[name] = {key: value for key, value in {**stored, "rules": rules}.items() if key != "rules" or rules}
                warnings.append(f"The profile {name!r} goes on without {', '.join(lost)}: {why}.")
            else:
                del profiles[name]
                warnings.append(f"Profile left behind ({name}): {why}. Train its ranker again.")
    return {"profiles": profiles, "profile": tuned.profile if tuned.profile in profiles else ""}, warnings


def _reads(stage: Reranker, before: DocumentLayout, now: DocumentLayout) -> bool:
    """Whether a reranker finds in the layout `now` the fields that it found in the layout `before`, with the same types."""
    for need in stage.needs:
        if need.startswith(WORDS) and not now.paths(need.removeprefix(WORDS)):
            return False
        if need.startswith(METADATA):
            old, new = (layout.column(need.removeprefix(METADATA)) for layout in (before, now))
            if old and (new is None or not (old.kind == new.kind or {old.kind, new.kind} <= _NUMBERS)):
                return False
    return True
