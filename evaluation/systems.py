"""The systems of a table: modes with and without reranking, the baseline that the others are compared with, and the latency of each.

Latency is measured on complete searches, one at a time, as a user makes them; the systems take turns.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from termweave.corpora import Dataset, path_and_split
from termweave.encoders.manifest import MANIFEST, ModelFolder
from termweave.encoders.recorded_models import ranker_folder
from termweave.errors import TermweaveError, UsageError
from termweave.evaluation import runs
from termweave.evaluation.measures import BM25, label
from termweave.records import Run
from termweave.rerank import rerankers
from termweave.rerank.feature_ranker import FeatureReranker
from termweave.rerank.ranker import CrossEncoderReranker
from termweave.rerank.stored_rerankers import reranking_of
from termweave.search import profiles
from termweave.signals import modes

if TYPE_CHECKING:
    from termweave.rerank.rerankers import Reranker, Reranking
    from termweave.search import Index


@dataclass(frozen=True, slots=True)
class System:
    """A mode with or without reranking.

    Attributes:
        name: Name in tables, such as "BM25", "weights" or "hybrid+rNN".
        mode: Value of `--mode`.
        reranking: The rerankers; None: the mode is not reranked.
    """

    name: str
    mode: str
    reranking: Reranking | None = None

    @property
    def reranker(self) -> str:
        """Value of `--rerank`."""
        return "none" if self.reranking is None else self.reranking.name


def default_systems(index: Index) -> list[System]:
    """Return BM25, each other signal, hybrid, hybrid with reranking, and the adopted profile, as far as the index can do these."""
    return list(dict.fromkeys((*untuned_systems(index.signals), default_system(index))))


def untuned_systems(signals: Sequence[str]) -> list[System]:
    """Return the default systems of an index with these signals and without a profile."""
    systems = [plain_system(name, None) for name in sorted(signals, key=lambda name: name != "lexical")]
    systems.append(default_search(signals))
    if "dense" in signals:
        systems.append(default_search(signals, rerankers.choose("rnn")))
    return list(dict.fromkeys(systems))


def default_system(index: Index) -> System:
    """Return the system that `search` uses without a mode: the adopted profile, else hybrid, or the only signal."""
    profile = profiles.find(index.lineage, None)
    return system_of(profile.name, reranking_of(profile), index) if profile else default_search(index.signals)


def default_search(signals: Sequence[str], reranking: Reranking | None = None) -> System:
    """Return the system that `search` uses without a mode and without a profile: hybrid, or the only signal.

    Args:
        signals: Signals of the index.
        reranking: The rerankers to add; None adds none.
    """
    joined = modes.hybrid(signals)
    return plain_system("hybrid" if len(joined) > 1 else joined[0], reranking)


def default_of(systems: Sequence[System], index: Index) -> str | None:
    """Return the name of the default search: the adopted profile, else hybrid; of a table with a single system, this system.

    Returns:
        None: the table has several systems, and the default search is not among them.
    """
    default, names = default_system(index).name, [system.name for system in systems]
    return default if default in names else names[0] if len(names) == 1 else None


def grid(chosen: Sequence[str], rerankers: Sequence[str], index: Index) -> list[System]:
    """Combine every mode with every reranker.

    Args:
        chosen: Values of `--mode`; if empty, the modes of the default table.
        rerankers: Values of `--rerank`, such as "none", "rnn" or "rnn@dense"; if empty, modes are not reranked.
        index: The index that is evaluated.

    Raises:
        UsageError: A mode names a signal that the index does not have.
    """
    if not chosen and not rerankers:
        return default_systems(index)
    modes_of_table = chosen or list(dict.fromkeys(system.mode for system in default_systems(index)))
    pairs = [(mode, reranker) for mode in modes_of_table for reranker in rerankers or (None,)]
    systems = list(dict.fromkeys(system_of(mode, index.choose(mode, reranker)[1], index) for mode, reranker in pairs))
    names = [system.name for system in systems]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"Two systems are called {repeated[0]!r}.", "Give the folders of the two rankers different names.")
    return systems


def with_baseline(systems: Sequence[System], baseline: str | Run | None, index: Index) -> tuple[list[System], str | Run]:
    """Return the systems of the table, and the baseline: one of these systems or a saved run.

    Args:
        systems: The systems that the user named.
        baseline: Name or mode of a system, which is added to the systems if necessary; a run; or the path of a TREC run. None means
            BM25 if it is in the table, else the first system.
        index: The index that is evaluated.

    Raises:
        UsageError: The baseline is neither a system nor a run.
    """
    if isinstance(baseline, Run):
        return list(systems), baseline
    if baseline is None:
        names = [system.name for system in systems]
        return list(systems), BM25 if BM25 in names else names[0]
    by_name = (system.name for system in systems if baseline.lower() == system.name.lower())
    by_mode = (system.name for system in systems if baseline == system.mode and system.reranking is None)
    if name := next(chain(by_name, by_mode), None):
        return list(systems), name
    if Path(baseline).is_file() or baseline.endswith((".trec", ".run")) or "/" in baseline:
        return list(systems), runs.read(Path(baseline))
    mode, _, reranker = baseline.partition("+")
    mode = "lexical" if mode == BM25 else mode
    reranker = re.sub(r"(^|>)rnn(?=[@>]|$)", r"\1rnn", reranker, flags=re.IGNORECASE)  # tables write rNN
    added = system_of(mode, index.choose(mode, reranker or None)[1], index)
    return list(dict.fromkeys((added, *systems))), added.name


def system_of(mode: str, reranking: Reranking | None, index: Index) -> System:
    """Return the system of a mode and a reranking; a profile with its own reranking keeps its plain name."""
    profile = profiles.find(index.lineage, mode)
    stored = reranking_of(profile)
    if profile is None or stored is None:
        return plain_system(mode, reranking)
    if reranking == stored:
        return System(mode, mode, reranking)
    left_out = "reranking" if profile.ranker or profile.rules else "rNN"
    return plain_system(mode, reranking) if reranking else System(f"{mode} without {left_out}", mode)


def plain_system(mode: str, reranking: Reranking | None) -> System:
    """Make the system of a mode and its rerankers, under the name that tables show."""
    if reranking is None:
        return System(label(mode), mode)
    name = rerankers.CHAIN.join(_short(stage.name) for stage in reranking.stages)
    return System(f"{label(mode)}+{name}", mode, reranking)


def trained_on(rerankers: Iterable[Reranker], dataset: Dataset) -> list[str]:
    """Return a remark for each reranker whose model was trained on these judgements, as far as its folder says."""
    of = (dataset.name, dataset.split)
    names = dict.fromkeys(each.name for each in rerankers if of in _judgements_of(each))
    return [f"{name} was trained on these judgements ({of[0]}:{of[1]}): its gain here proves nothing." for name in names]


def _judgements_of(reranker: Reranker) -> list[tuple[str, str]]:
    """Return name and split of each set of judgements that a reranker's model was trained on, as far as its folder says."""
    if not isinstance(reranker, FeatureReranker | CrossEncoderReranker):
        return []
    training: Mapping[str, Any] = {}
    with suppress(TermweaveError):  # whoever opens the model says what is wrong with it
        folder = ranker_folder(reranker.model, reranker.hash)
        training = ModelFolder.read(folder, check=False).manifest.training if (folder / MANIFEST).is_file() else {}
    sets = (each for each in (training, *training.get("beside", ())) if each.get("origin", "qrels") == "qrels")
    joined = (name for each in sets for name in str(each.get("dataset", "")).split(" and "))  # as `learn` joins them
    return [(base if ":" in base else Path(base).name, split or "train") for base, split in map(path_and_split, joined)]


def _short(reranker: str) -> str:
    """Shorten the name of a reranker for tables and names of run files: of a path, or of a model on the hub, the last part is kept."""
    name, at, option = reranker.partition("@")
    last = re.split(r"[/\\]", option.rstrip("/\\"))[-1]
    return f"{'rNN' if name == 'rnn' else name}{at}{last}"


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds of a search, from the encoding of the query to the fetched hits.

    Attributes:
        median: Half of the searches were faster than this.
        p95: 95 % of the searches were faster than this.
        queries: Number of timed searches.
    """

    median: float
    p95: float
    queries: int


def latency(
    index: Index, systems: Sequence[System], queries: Sequence[str], progress: Callable[[int, int], None] = lambda *_: None
) -> Mapping[str, Latency]:
    """Time every system on every query.

    Every query is searched by all systems before the next query, so that other load on the machine affects all systems alike.
    Each system is the first one equally often, because the first search of a query warms the server's caches for the others.

    Args:
        index: The index that is searched.
        systems: The systems to time.
        queries: Texts of queries; the first one is also searched once before the timing starts. Queries that a search refuses, such as one
            that only excludes words, are left out.
        progress: Called with (queries done, total).

    Returns:
        System -> latency; empty if there are no queries.
    """
    import numpy as np  # noqa: PLC0415

    took: list[dict[str, float]] = []
    for number, query in enumerate(queries):
        first = len(took) % len(systems)
        with suppress(UsageError):
            if not took:
                for system in systems:
                    _milliseconds(index, system, query)
            took.append({system.name: _milliseconds(index, system, query) for system in (*systems[first:], *systems[:first])})
        progress(number + 1, len(queries))
    times = {system.name: [each[system.name] for each in took] for system in systems if took}
    return {name: Latency(float(np.median(each)), float(np.quantile(each, 0.95)), len(each)) for name, each in times.items()}


def _milliseconds(index: Index, system: System, query: str) -> float:
    """Return the time of one search in milliseconds."""
    began = time.perf_counter()
    index.answer(query, mode=system.mode, rerank=system.reranking or "none")
    return (time.perf_counter() - began) * 1000
