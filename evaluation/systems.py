"""What a table compares: modes with and without reranking, and the one among them that the others are held against."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from termweave.evaluation import runs
from termweave.evaluation.wording import BM25, label
from termweave.search import modes, profiles
from termweave.search.ranking import Reranking

if TYPE_CHECKING:
    from collections.abc import Sequence

    from termweave.records import Run
    from termweave.search import Index


@dataclass(frozen=True, slots=True)
class System:
    """A mode with or without reranking.

    Attributes:
        name: As tables name it: "BM25", "weights", "hybrid+rNN".
        mode: As `--mode` takes it.
        reranking: Parameters of the reranker; None: none.
    """

    name: str
    mode: str
    reranking: Reranking | None = None

    @property
    def reranker(self) -> str:
        """As `--rerank` takes it."""
        if self.reranking is None:
            return "none"
        return f"{self.reranking.method}{_similarity(self.reranking)}"


def default_systems(index: Index) -> list[System]:
    """BM25, each other signal, hybrid, hybrid reranked, the profile adopted: as far as the index has them."""
    signals = index.signals
    systems = [system_of(name, None, index) for name in sorted(signals, key=lambda name: name != "lexical")]
    systems.append(default_search(signals))
    if "dense" in signals:
        systems.append(default_search(signals, Reranking()))
    if profile := profiles.find(index.lineage, None):
        systems.append(system_of(profile.name, profile.rerank, index))
    return list(dict.fromkeys(systems))


def default_search(signals: Sequence[str], reranking: Reranking | None = None) -> System:
    """What `search` does without a mode and without a profile: hybrid, which of one signal is that signal itself.

    Args:
        signals: Of the index.
        reranking: With these neighbours; None: as it is.
    """
    joined = modes.hybrid(signals)
    return _named("hybrid" if len(joined) > 1 else joined[0], reranking)


def searched(systems: Sequence[System], index: Index) -> str | None:
    """Name of the system that is the default search: the adopted profile, else hybrid; the only system, whatever it is.

    None where the table has several, and that one is not among them.
    """
    profile = profiles.find(index.lineage, None)
    wanted = profile.name if profile else default_search(index.signals).name
    names = [system.name for system in systems]
    return wanted if wanted in names else names[0] if len(names) == 1 else None


def grid(chosen: Sequence[str], rerankers: Sequence[str], index: Index) -> list[System]:
    """Every mode with every reranker; without modes the default table, without rerankers none.

    Args:
        chosen: Modes as `--mode` takes them.
        rerankers: "none", "rnn", "rnn@dense".
        index: It.

    Raises:
        UsageError: A mode names what the index does not have.
    """
    if not chosen and not rerankers:
        return default_systems(index)
    modes_of_table = chosen or list(dict.fromkeys(system.mode for system in default_systems(index)))
    pairs = [(mode, reranker) for mode in modes_of_table for reranker in rerankers or (None,)]
    return list(dict.fromkeys(system_of(mode, index.choose(mode, reranker)[1], index) for mode, reranker in pairs))


def with_baseline(systems: Sequence[System], asked: str | None, index: Index) -> tuple[list[System], str | Run]:
    """The systems of the table, and which of them, or which saved run, the others are compared with.

    Args:
        systems: What was asked for.
        asked: Name or mode of a system (added where it is missing) or the path of a TREC run; None: BM25, else the first.
        index: It.

    Raises:
        UsageError: It is none of these.
    """
    if asked is None:
        names = [system.name for system in systems]
        return list(systems), BM25 if BM25 in names else names[0]
    for system in systems:
        if asked.lower() == system.name.lower():
            return list(systems), system.name
    for system in systems:
        if asked == system.mode and system.reranking is None:
            return list(systems), system.name
    if Path(asked).is_file() or asked.endswith((".trec", ".run")) or "/" in asked:
        return list(systems), runs.read(Path(asked))
    mode, _, reranker = asked.partition("+")
    mode = "lexical" if mode == BM25 else mode
    added = system_of(mode, index.choose(mode, reranker.lower() or None)[1], index)
    return list(dict.fromkeys((added, *systems))), added.name


def system_of(mode: str, reranking: Reranking | None, index: Index) -> System:
    """A system of a table; a profile that reranks as it says keeps its bare name."""
    profile = profiles.find(index.lineage, mode)
    if profile is None or profile.rerank is None:
        return _named(mode, reranking)
    if reranking == profile.rerank:
        return System(mode, mode, reranking)
    return _named(mode, reranking) if reranking else System(f"{mode} without rNN", mode)


def _named(mode: str, reranking: Reranking | None) -> System:
    if reranking is None:
        return System(label(mode), mode)
    method = "rNN" if reranking.method == "rnn" else reranking.method
    return System(f"{label(mode)}+{method}{_similarity(reranking)}", mode, reranking)


def _similarity(reranking: Reranking) -> str:
    return "" if reranking.similarity == "fused" else f"@{reranking.similarity}"
