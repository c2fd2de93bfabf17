"""Profiles: tuned fusion and reranking. The index stores them in its lineage, so that searches from every host use them."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import orjson

from termweave.errors import EngineError, TermweaveError, UsageError
from termweave.rerank import feature_ranker, rerankers
from termweave.rerank.ranker import CrossEncoderReranker
from termweave.rerank.rerankers import METADATA, WORDS, Reranking
from termweave.rerank.rnn import ReciprocalNeighbours
from termweave.search.rewriting.configuration import Rewriting
from termweave.signals.modes import Mode
from termweave.support.messages import counted, is_hash

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from termweave.catalog.layout import DocumentLayout
    from termweave.catalog.lineage import Lineage
    from termweave.rerank.rerankers import Reranker

#: What profiles have had since a later version.
_NEW = frozenset({"ranker", "rules", "rewrite"})
_NUMBERS = frozenset({"long", "double"})
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
        rewrite: Parameters of `Rewriting`, by which queries are rewritten; None: they are not.
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

    @property
    def rewriting(self) -> Rewriting | None:
        """How queries are rewritten.

        Raises:
            UsageError: The stored synonyms or pins cannot be read.
        """
        return None if self.rewrite is None else Rewriting.stored(self.rewrite)

    @property
    def mode(self) -> Mode:
        """The signals, weights and fusion method."""
        return Mode(self.name, self.weights, self.fusion)

    @property
    def rerank(self) -> Reranking | None:
        """The rerankers; None without reranking."""
        stages = tuple(stage for stage in (self.neighbours, self._ranker, *self.rule_stages) if stage is not None)
        return Reranking(stages) if stages else None

    @property
    def rule_stages(self) -> tuple[Reranker, ...]:
        """The rules as rerankers."""
        return tuple(rerankers.rule(name) for name in self.rules or ())

    @property
    def _ranker(self) -> Reranker | None:
        if self.ranker is None:
            return None
        if self.ranker.get("kind") != feature_ranker.KIND:
            return CrossEncoderReranker(**self.ranker)
        return feature_ranker.FeatureReranker(**{name: value for name, value in self.ranker.items() if name != "kind"})

    @property
    def neighbours(self) -> ReciprocalNeighbours | None:
        """The rNN reranker; None without reranking."""
        return None if self.reranking is None else ReciprocalNeighbours(**self.reranking)

    @property
    def inherited(self) -> str:
        """What stays when fusion and rerankers are chosen anew, in words: its rules and its rewriting; "" for nothing."""
        rules = f"rules ({', '.join(self.rules)})" if self.rules else ""
        return " and ".join(filter(None, (rules, f"rewriting ({self.rewriting})" if self.rewrite else "")))

    def leave_room(self, others: int, who: str) -> None:
        """Refuse rules that leave no place for so many rerankers before them, which `who` may choose.

        Raises:
            UsageError: There are too many.
        """
        count = len(self.rules or ())
        if count and count + others > rerankers.MOST_STAGES:
            raise UsageError(
                f"The profile {self.name!r} has {counted(count, 'rule')}, and {who} puts up to {others} before {'it' if count == 1 else 'them'}: "
                f"a chain has at most {rerankers.MOST_STAGES} rerankers.",
                f"Use a profile with fewer rules ('termweave profiles NAME --save'){', or tune without --rerank' * (others > 1)}.",
            )

    def as_meta(self) -> dict[str, Any]:
        """The JSON that ``_meta.termweave.profiles`` stores under the profile's name."""
        # What a profile does not have is left out, so that older versions read it.
        stored = {
            name: value for name, value in asdict(self).items() if name != "name" and (value is not None or name not in _NEW)
        }
        meta: dict[str, Any] = orjson.loads(orjson.dumps(stored))  # as it is read back, with lists in place of tuples
        return meta


def composed(lineage: Lineage, name: str, mode: Mode, reranking: Reranking | None, rewriting: Rewriting | None) -> Profile:
    """A profile that somebody puts together: of the profile in use, if the mode is one, or of signals.

    Args:
        lineage: The lineage.
        name: Name of the new profile.
        mode: The signals, weights and fusion; that of a profile has its name.
        reranking: The rerankers: those of that profile or rNN, then rules.
        rewriting: How queries are rewritten; None: as in that profile.

    Raises:
        UsageError: A reranker is neither of that profile, nor rNN, nor a rule.
    """
    former = find(lineage, mode.name)
    stages = list(reranking.stages if reranking else ())
    own = list(former.rerank.stages) if former and former.rerank else []
    kept = own if former and stages[: len(own)] == own else []
    added = stages[len(kept) :]
    base = (
        former if former and kept else Profile(name, mode.weights, mode.fusion, None, rewrite=former.rewrite if former else None)
    )
    if added and not kept and isinstance(first := added[0], ReciprocalNeighbours):
        base, added = replace(base, reranking=asdict(first)), added[1:]
    rules = [stage.name for stage in added]
    for rule in rules:
        rerankers.rule(rule)
    if rewriting is not None and base.rewriting is not None:
        rewriting = rewriting.with_pins(base.rewriting.pins)
    stored = base.rewrite if rewriting is None else {key: value for key, value in asdict(rewriting).items() if value} or None
    return replace(base, name=name, fitted={}, rules=[*(base.rules or ()), *rules] or None, rewrite=stored)


def find(lineage: Lineage, mode: str | None) -> Profile | None:
    """The profile that a mode names; None if the mode is not a profile.

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
        if profile.ranker is not None and not _names_a_known_model(profile.ranker):
            raise TypeError  # noqa: TRY301 - caught below, with the others
        if profile.weights.keys() <= lineage.signals.keys() and (
            profile.rerank or not (profile.reranking or profile.ranker or profile.rules)
        ):
            assert profile.rewriting or not profile.rewrite  # its synonyms and pins can be read
            return profile
    except (AttributeError, KeyError, TypeError, UsageError):
        pass
    raise EngineError(
        f"The profile {name!r} of {lineage.name!r} is damaged, or was written by a newer version.",
        f"Remove it with 'termweave profiles {lineage.name} --drop {name}', and make a new one with 'termweave tune'.",
    )


def rewriting(lineage: Lineage, mode: str | None, asked: Rewriting | None = None) -> Rewriting | None:
    """How queries are rewritten in a mode; None if they are not. The other arguments as `find`.

    What a search asks for replaces what the profile says, but for pins (`Rewriting.with_pins`).
    """
    profile = find(lineage, mode)
    stored = profile.rewriting if profile is not None else None
    return stored if asked is None else asked.with_pins(stored.pins) if stored else asked


def with_rewriting(lineage: Lineage, rewriting: Rewriting) -> str:
    """The name of a profile that rewrites queries so; "" if there is none."""
    for name in lineage.profiles:
        with suppress(EngineError):
            if (profile := find(lineage, name)) and profile.rewriting == rewriting:
                return name
    return ""


def _names_a_known_model(ranker: Mapping[str, Any]) -> bool:
    """Whether a stored ranker is one that `termweave tune` stores: it opens only a model that this host has, and only with this hash.

    Anyone who can write to the index can change it. Without a hash the name would be opened as if the user had given it: as a path, or
    from the hub.
    """
    own = {"kind"} if ranker.get("kind") == feature_ranker.KIND else {"weight", "budget"}
    known = ranker.keys() <= {"model", "hash", "candidates", *own}
    return known and isinstance(ranker["model"], str) and is_hash(ranker.get("hash"))


def check_name(name: str, signals: Collection[str]) -> None:
    """Refuse a profile name that is already a mode, or that cannot be used in tables and file names.

    Raises:
        UsageError: The name cannot be used.
    """
    if (
        name.lower() in {"", "hybrid", "run", "bm25", *signals}
        or name.startswith(".")
        or set(name) & set("@:,+ /\\")
        or not name.isprintable()
    ):
        raise UsageError(
            f"A profile cannot be called {name!r}.",
            "Choose a name that is not a mode, a signal or BM25, has no blanks and none of @ : , + / \\, and begins with no dot.",
        )


def adopted(lineage: Lineage, profile: Profile, *, use: bool = True) -> Lineage:
    """The lineage with a profile added.

    A profile of the same name that says something else stays as NAME-1, NAME-2 and so on, the newest `EARLIER` of them. If searches use
    that one, they go on to use it unless the new profile is adopted.

    Args:
        lineage: The lineage.
        profile: The profile.
        use: Whether it is adopted: searches use it by default.
    """
    check_name(profile.name, lineage.signals)
    kept, in_force = dict(lineage.profiles), lineage.profile
    former = kept.get(profile.name)
    if former is not None and former != profile.as_meta():
        numbers = sorted(int(each[1]) for name in kept if (each := re.fullmatch(rf"{re.escape(profile.name)}-(\d{{1,9}})", name)))
        moved = f"{profile.name}-{numbers[-1] + 1 if numbers else 1}"
        kept[moved] = former
        in_force = moved if in_force == profile.name else in_force
        for number in numbers[: max(0, len(numbers) + 1 - EARLIER)]:
            if (old := f"{profile.name}-{number}") != in_force:
                del kept[old]
    return replace(lineage, profiles={**kept, profile.name: profile.as_meta()}, profile=profile.name if use else in_force)


def using(lineage: Lineage, name: str | None) -> Lineage:
    """The lineage with another of its profiles adopted; None: no profile, as before tuning.

    Raises:
        UsageError: The lineage has no such profile.
    """
    return replace(lineage, profile="" if name is None else _checked_name(lineage, name))


def without(lineage: Lineage, name: str) -> Lineage:
    """The lineage without a profile. If the profile was adopted, no profile is adopted afterwards.

    Raises:
        UsageError: The lineage has no such profile.
    """
    removed = _checked_name(lineage, name)
    profiles = {other: profile for other, profile in lineage.profiles.items() if other != removed}
    return replace(lineage, profiles=profiles, profile="" if lineage.profile == removed else lineage.profile)


def fitting(tuned: Lineage, layout: DocumentLayout) -> tuple[dict[str, Any], list[str]]:
    """The profiles as far as another generation can use them, as the fields of its lineage, and warnings about what it cannot.

    Args:
        tuned: The lineage of the generation that has them.
        layout: The layout of the other one, which has the same models and signals.
    """
    kept, warnings = dict(tuned.profiles), []
    for name, stored in tuned.profiles.items():
        with suppress(TermweaveError):  # it is damaged, or its model is not on this host: searches say so
            profile = find(tuned, name)
            stages = profile.rerank.stages if profile and profile.rerank else ()
            lost = [stage.name for stage in stages if not _reads(stage, tuned.layout, layout)]
            if not lost:
                continue
            rules = [rule for rule in stored.get("rules") or () if rule not in lost]
            why = "the metadata that it reads are gone, or have become another type (one text makes texts of a column of numbers)"
            if {*lost} <= {*(stored.get("rules") or ())}:
                kept[name] = {key: value for key, value in stored.items() if key != "rules"} | ({"rules": rules} if rules else {})
                warnings.append(f"The profile {name!r} goes on without {', '.join(lost)}: {why}.")
            else:
                del kept[name]
                warnings.append(f"Profile left behind ({name}): {why}. Train its ranker again.")
    return {"profiles": kept, "profile": tuned.profile if tuned.profile in kept else ""}, warnings


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


def _checked_name(lineage: Lineage, name: str) -> str:
    """The name, if the lineage has a profile of that name."""
    if name in lineage.profiles:
        return name
    names = ", ".join(sorted(lineage.profiles))
    hint = f"Its profiles are: {names}." if names else "It has no profiles; 'termweave tune' makes them."
    raise UsageError(f"The index {lineage.name!r} has no profile {name!r}.", hint)
