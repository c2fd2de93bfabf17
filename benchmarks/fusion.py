"""Fusion without judgements, reranking by either similarity, and tuning, on full collections, through a real OpenSearch.

    python benchmarks/retrieval.py ../shared/data/nfcorpus ../shared/data/cranfield > docs/figures.md
    python benchmarks/fusion.py ../shared/data/nfcorpus ../shared/data/cranfield > docs/fusion.md

Uses the indices that retrieval.py leaves. Candidates are asked for once; every row is ranked from them (`evaluation.trials`).
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

import numpy as np
from door import enter

from termweave import corpora, engine, settings
from termweave.evaluation import randomisation_test, tune
from termweave.evaluation.asking import Asked
from termweave.evaluation.gates import interval
from termweave.evaluation.trials import Bench
from termweave.search import Index, fusion, modes
from termweave.search.index import DEPTH
from termweave.search.modes import Mode
from termweave.search.ranking import Reranking

SEEDS = (0, 1)
#: Shares of the vectors beside the words' signal: the best of them for a set bounds what any fixed weight could give.
SHARES = np.linspace(0.05, 0.95, 19)
PAIRS = {"lexical": "BM25", "weights": "weights"}
#: More queries than these would take long and change nothing; a sample is drawn.
MOST, TUNED_ON = 2_000, 600

HEAD = """# Fusion, reranking and tuning

nDCG@10 on full collections, test splits, shipped model, OpenSearch {version}; made by `python benchmarks/fusion.py {sets}`.

Every fusion method joins learned weights and dense vectors with equal weights, no tuning. `adaptive`, the default, counts each signal by how
far its candidates lie apart in the signal's own unit, and learned weights less where even the best document has not half of the query's words: no
judgement is needed, and where one signal is far ahead it is trusted.
Of squad 2,000 of the 10,570 questions, drawn once (all of them: docs/figures.md).
▲ ▼: significantly above or below the better of BM25 and dense on that set (paired randomisation test, p < .05).
*gain*: mean difference to that better one.

The unit of vectors (3.5 deviations) and the square were chosen on these sets, medquad excepted, by the mean gain; so was
nothing else. Half of the query's words: half of what a document of average length scores that has each of them once.
"""

BOUNDS = """
## What is left for fusion

*best share*: min-max with the one weight, of 19, that is best for the set's own queries. Nobody knows it beforehand: it bounds what a fixed weight
can give.
"""

TUNING = """
## Tuning

`termweave tune`, deterministic search, fitted on one half of the queries; the figures are of the other half, mean over the splits of seeds {seeds}; at
most {most} queries a set, drawn once.
*default* is what `search` does without a profile: hybrid, not reranked; *+rNN* the same with neighbours, untuned; *single* the better of BM25 and
dense on those queries. {rate:,.0f} trials a minute ({trials:,} in all, one process).

| | single | default | +rNN | tuned | gain over single | gain over default |
|---|---:|---:|---:|---:|---:|---:|
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="DATASET", help="BEIR folder, or FOLDER:SPLIT")
    folders = parser.parse_args().folders
    server = engine.connect(settings.load())
    names = [Path(folder.partition(":")[0]).name for folder in folders]
    opened = [
        (corpora.open_dataset(folder), Index.open(server, f"bench-{name}")) for folder, name in zip(folders, names, strict=True)
    ]
    found: dict[str, dict[str, np.ndarray]] = {}
    for name, (dataset, index) in zip(names, opened, strict=True):
        print(name, file=sys.stderr, flush=True)
        found[name] = rows(dataset, index)
    print(HEAD.format(version=server.capabilities.version, sets=" ".join(f"../shared/data/{name}" for name in names)))
    print(table(found))
    print(bounds(found))
    print(table_of_neighbours(found))
    tuning(names, opened)


def rows(dataset: corpora.Dataset, index: Index) -> dict[str, np.ndarray]:
    """System -> the measure of every query."""
    judged = dataset.qrels()
    queries = sampled([each for each in dataset.queries() if any(grade > 0 for grade in judged.get(each.id, {}).values())], MOST)
    asked = Asked(index, index.signals, depth=DEPTH, with_vectors=True)
    candidates = list(asked.candidates([each.text for each in queries], lambda *_: None))
    bench = Bench(candidates, [judged[each.id] for each in queries], dataset.relevant_from, "nDCG@10")
    found = {"BM25": bench.values(Mode("l", {"lexical": 1.0}), None)}
    found |= {name: bench.values(Mode(name, {name: 1.0}), None) for name in ("weights", "dense")}
    for method in fusion.METHODS:
        mode = modes.parse(f"hybrid@{method}", index.signals)
        found[method] = bench.values(mode, None)
        found[f"{method}+rNN"] = bench.values(mode, Reranking())
    default = modes.parse("hybrid", index.signals)
    found["adaptive+rNN .9"] = bench.values(default, Reranking(weight=0.9))
    found["s dense"] = bench.values(default, Reranking(similarity="dense"))
    for words, label in PAIRS.items():
        for method in ("min-max", "adaptive"):
            found[f"{label} + dense, {method}"] = bench.values(modes.parse(f"{words},dense@{method}", index.signals), None)
        tried = [Mode(words, {words: 1 - share, "dense": share}, "min-max") for share in SHARES]
        found[f"{label} + dense, best share"] = max((bench.values(mode, None) for mode in tried), key=np.mean)
    return found


def sampled(queries: list, most: int) -> list:
    """So many of them, the same each time."""
    return queries if len(queries) <= most else random.Random(0).sample(queries, most)


def better(values: dict[str, np.ndarray]) -> np.ndarray:
    """Of BM25 and dense the one with the higher mean."""
    return max((values["BM25"], values["dense"]), key=lambda each: float(each.mean()))


def cell(values: dict[str, np.ndarray], system: str) -> str:
    base = better(values)
    mark = ""
    if system not in {"BM25", "dense"} and randomisation_test(values[system], base) < 0.05:
        mark = " ▲" if values[system].mean() > base.mean() else " ▼"
    return f"{values[system].mean():.4f}{mark}"


def table(found: dict[str, dict[str, np.ndarray]]) -> str:
    systems = ["BM25", "weights", "dense", *(f"{method}{tail}" for tail in ("", "+rNN") for method in fusion.METHODS)]
    lines = [f"| | {' | '.join(found)} | gain | lowest |", f"|---|{'---:|' * (len(found) + 2)}"]
    for system in systems:
        gains = [float((values[system] - better(values)).mean()) for values in found.values()]
        cells = " | ".join(cell(values, system) for values in found.values())
        lines.append(f"| {system} | {cells} | {np.mean(gains):+.4f} | {min(gains):+.4f} |")
    return "\n".join(lines)


def bounds(found: dict[str, dict[str, np.ndarray]]) -> str:
    """What a fusion of the same two lists could give at most with one weight a set."""
    systems = [f"{label} + dense, {how}" for label in PAIRS.values() for how in ("min-max", "adaptive", "best share")]
    lines = [BOUNDS, f"| | {' | '.join(found)} | mean |", f"|---|{'---:|' * (len(found) + 1)}"]
    for system in systems:
        means = [float(values[system].mean()) for values in found.values()]
        lines.append(f"| {system} | {' | '.join(f'{mean:.4f}' for mean in means)} | {np.mean(means):.4f} |")
    return "\n".join(lines)


def table_of_neighbours(found: dict[str, dict[str, np.ndarray]]) -> str:
    """What rNN adds to the same fusion, with which lambda, and which similarity it should take."""
    systems = {
        "adaptive": "adaptive",
        "+rNN, s = fused score": "adaptive+rNN",
        "rNN, lambda .9": "adaptive+rNN .9",
        "+rNN, s = inner product": "s dense",
    }
    lines = ["\n## What rNN adds\n", f"| | {' | '.join(systems)} |", f"|---|{'---:|' * len(systems)}"]
    for name, values in found.items():
        lines.append(f"| {name} | {' | '.join(f'{values[system].mean():.4f}' for system in systems.values())} |")
    lines.append("\nMean gain over the same fusion, without rNN, over the sets:\n")
    for told, system in (("lambda .75, the default", "adaptive+rNN"), ("lambda .9", "adaptive+rNN .9")):
        gains = np.array([float((values[system] - values["adaptive"]).mean()) for values in found.values()])
        low, high = interval(gains)
        lines.append(f"* {told}: {gains.mean():+.4f}, 95 % between {low:+.4f} and {high:+.4f}")
    return "\n".join(lines)


def tuning(names: list[str], opened: list[tuple[corpora.Dataset, Index]]) -> None:
    lines, gains, trials, seconds = [], [], 0, 0.0
    for name, (dataset, index) in zip(names, opened, strict=True):
        print(f"tuning {name}", file=sys.stderr, flush=True)
        reports = []
        for seed in SEEDS:
            begun = [0.0]

            def progress(stage: str, done: int, total: int | None, begun: list[float] = begun) -> None:
                del done, total
                if stage == "trying" and not begun[0]:
                    begun[0] = time.monotonic()

            reports.append(tune(index, Capped(dataset), seed=seed, progress=progress))
            seconds += time.monotonic() - begun[0]
            trials += reports[-1].trials
        single = np.mean([max(each.figures["lexical"], each.figures["dense"]) for each in reports])
        means = [np.mean([each.figures[system] for each in reports]) for system in ("default", "hybrid+rNN", "tuned")]
        default, _, tuned = means
        gains.append((tuned - single, tuned - default))
        cells = [*(f"{mean:.4f}" for mean in (single, *means)), *(f"{gain:+.4f}" for gain in gains[-1])]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    over, beyond = np.mean(gains, axis=0)
    print(TUNING.format(seeds=" and ".join(map(str, SEEDS)), most=TUNED_ON, rate=60 * trials / seconds, trials=trials), end="")
    print("\n".join([*lines, f"| mean | | | | | {over:+.4f} | {beyond:+.4f} |"]))


class Capped:
    """A data set with a sample of its queries."""

    def __init__(self, dataset: corpora.Dataset) -> None:
        self._dataset = dataset

    def __getattr__(self, name: str) -> object:
        return getattr(self._dataset, name)

    def queries(self) -> list:
        """Drawn by chance: neighbours in the file ask for the same documents."""
        return sampled(self._dataset.queries(), TUNED_ON)


if __name__ == "__main__":
    enter(main)
