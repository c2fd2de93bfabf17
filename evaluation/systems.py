"""What a table compares: modes with and without reranking, and the one among them that the others are held against."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from termweave.evaluation import runs
from termweave.search import modes, profiles
from termweave.search.ranking import Reranking

if TYPE_CHECKING:
    from collections.abc import Sequence

    from termweave.records import Run
    from termweave.search import Index

#: The lexical signal as tables name it.
BM25 = "BM25"


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
        return "rnn" if self.reranking else "none"


def default_systems(index: Index) -> list[System]:
    """BM25, each other signal, hybrid, hybrid reranked, the profile adopted: as far as the index has them."""
    signals = index.signals
    systems = [_system(name, None) for name in sorted(signals, key=lambda name: name != "lexical")]
    if len(modes.hybrid(signals)) > 1:
        systems.append(_system("hybrid", None))
    if "dense" in signals:
        systems.append(_system("hybrid", Reranking()))
    if profile := profiles.find(index.lineage, None):
        systems.append(System(profile.name, profile.name, profile.rerank))
    return systems


def grid(chosen: Sequence[str], rerankers: Sequence[str], index: Index) -> list[System]:
    """Every mode with every reranker; without modes the default table, without rerankers none.

    Args:
        chosen: Modes as `--mode` takes them.
        rerankers: "none", "rnn".
        index: It.

    Raises:
        UsageError: A mode names what the index does not have.
    """
    if not chosen and not rerankers:
        return default_systems(index)
    modes_of_table = chosen or list(dict.fromkeys(system.mode for system in default_systems(index)))
    pairs = [(mode, reranker) for mode in modes_of_table for reranker in rerankers or (None,)]
    return [_system(mode, index.choose(mode, reranker)[1]) for mode, reranker in dict.fromkeys(pairs)]


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
    added = _system(mode, index.choose(mode, reranker.lower() or None)[1])
    return [added, *systems], added.name


def _system(mode: str, reranking: Reranking | None) -> System:
    name = BM25 if mode == "lexical" else mode
    return System(f"{name}+rNN" if reranking else name, mode, reranking)
