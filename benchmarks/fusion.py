"""Fusion without judgements, reranking by either similarity, and tuning, on full collections, through a real OpenSearch.

    python benchmarks/retrieval.py ../shared/data/nfcorpus ../shared/data/cranfield > docs/figures.md
    python benchmarks/fusion.py ../shared/data/nfcorpus ../shared/data/cranfield > docs/fusion.md
    python benchmarks/rnn_share.py ../shared/data/nfcorpus ../shared/data/cranfield >> docs/fusion.md

Uses the indices that retrieval.py leaves. Candidates are asked for once; every row is ranked from them (`evaluation.trials`).
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

import numpy as np
from entry_point import enter

from termweave import corpora, engine, settings
from termweave.evaluation import randomisation_test, tune
from termweave.evaluation.candidate_fetcher import CandidateFetcher
from termweave.evaluation.gates import interval
from termweave.evaluation.tuning.trial_ranker import TrialRanker
from termweave.search import Index
from termweave.search.index import DEPTH
from termweave.search.ranking import fusion, modes
from termweave.search.ranking.modes import Mode
from termweave.search.ranking.rnn import ReciprocalNeighbours

SEEDS = (0, 1)
#: Weights of the dense signal. The best weight of a set is an upper bound for every fixed weight.
SHARES = np.linspace(0.05, 0.95, 19)
PAIRS = {"lexical": "BM25", "weights": "weights"}
#: Most queries of a set; of larger sets a sample is drawn, because more queries take long and change nothing.
MOST, TUNED_ON = 2_000, 600

HEAD = """# Fusion, reranking and tuning

nDCG@10 on full collections, test splits, shipped model, OpenSearch {version}; made by `python benchmarks/fusion.py {sets}`.

Every fusion method joins learned weights and dense vectors with equal weights and without tuning. `adaptive`, the default, trusts a signal more the
further the scores of its candidates lie apart, measured in the signal's own unit. It trusts learned weights less if even the best document holds less than
half of the query's words (half of the score of an average document that holds each word once). It needs no judgements.

squad stands for 2,000 of its 10,570 questions, drawn once (all of them: [figures.md](figures.md)).
▲ ▼: above or below the better of BM25 and dense on that set (paired randomisation test, p < .05). These marks are not corrected for the number of
comparisons in the table; a few of them may be chance. *gain*: mean difference to that better one.

**Which sets had a say.** The unit of the vectors (3.5 deviations) and the square were chosen by the mean gain on these sets, without medquad. So the row
`adaptive` is somewhat too good on the other seven. The other methods have no constants that were chosen here. Pools of all eight sets chose the
settings with which the shipped model was trained.
"""

BOUNDS = """
## What is left for fusion

*best share*: min-max with that one of 19 weights that is best for the set's own queries. Nobody knows it beforehand; it is the most that a fixed weight
can give.
"""

GAIN_OF_RNN = """
Mean gain over the same fusion without rNN, over the sets. If an interval holds 0, no gain was shown; `--rerank rnn` is an option for that reason,
and `termweave tune` finds out whether it helps on your queries:
"""

TUNING = """
## Tuning

`termweave tune` with its deterministic search, fitted on one half of the queries. The figures are those of the other half, which
had no say; they are means over the splits of seeds {seeds}, with at most {most} queries a set, drawn once.
*default* is what `search` does without a profile: hybrid without reranking. *+rNN* is the same with rNN, untuned. *single* is the better of BM25 and
dense on those queries. {rate:,.0f} trials a minute ({trials:,} in all, one process).

| | single | default | +rNN | tuned | gain over single | gain over default |
|---|---:|---:|---:|---:|---:|---:|
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="DATASET", help="BEIR folder, or FOLDER:SPLIT")
    parser.add_argument("--name", default="bench", help="indices are called NAME-DATASET  [default: bench]")
    given = parser.parse_args()
    folders = given.folders
    server = engine.connect(settings.load())
    names = [Path(folder.partition(":")[0]).name for folder in folders]
    opened = [
        (corpora.open_dataset(folder), Index.open(server, f"{given.name}-{name}"))
        for folder, name in zip(folders, names, strict=True)
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
    """Return system -> the measure of every query."""
    judged = dataset.qrels()
    queries = sampled([each for each in dataset.queries() if any(grade > 0 for grade in judged.get(each.id, {}).values())], MOST)
    asked = CandidateFetcher(index, index.signals, depth=DEPTH, needs=("vectors",))
    candidates = list(asked.candidates([each.text for each in queries], lambda *_: None))
    bench = TrialRanker(candidates, [judged[each.id] for each in queries], dataset.relevant_from, "nDCG@10")
    found = {"BM25": bench.values(Mode("l", {"lexical": 1.0}), None)}
    found |= {name: bench.values(Mode(name, {name: 1.0}), None) for name in ("weights", "dense")}
    for method in fusion.METHODS:
        mode = modes.parse(f"hybrid@{method}", index.signals)
        found[method] = bench.values(mode, None)
        found[f"{method}+rNN"] = bench.values(mode, ReciprocalNeighbours())
    default = modes.parse("hybrid", index.signals)
    found["adaptive+rNN .75"] = bench.values(default, ReciprocalNeighbours(weight=0.75))
    found["s dense"] = bench.values(default, ReciprocalNeighbours(similarity="dense"))
    for words, label in PAIRS.items():
        for method in ("min-max", "adaptive"):
            found[f"{label} + dense, {method}"] = bench.values(modes.parse(f"{words},dense@{method}", index.signals), None)
        tried = [Mode(words, {words: 1 - share, "dense": share}, "min-max") for share in SHARES]
        found[f"{label} + dense, best share"] = max((bench.values(mode, None) for mode in tried), key=np.mean)
    return found


def sampled(queries: list, most: int) -> list:
    """Draw a sample, the same one each time."""
    return queries if len(queries) <= most else random.Random(0).sample(queries, most)


def better(values: dict[str, np.ndarray]) -> np.ndarray:
    """Return BM25 or dense, whichever has the higher mean."""
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
    """Write the upper bound for a fusion of the same two lists with one weight for each set."""
    systems = [f"{label} + dense, {how}" for label in PAIRS.values() for how in ("min-max", "adaptive", "best share")]
    lines = [BOUNDS, f"| | {' | '.join(found)} | mean |", f"|---|{'---:|' * (len(found) + 1)}"]
    for system in systems:
        means = [float(values[system].mean()) for values in found.values()]
        lines.append(f"| {system} | {' | '.join(f'{mean:.4f}' for mean in means)} | {np.mean(means):.4f} |")
    return "\n".join(lines)


def table_of_neighbours(found: dict[str, dict[str, np.ndarray]]) -> str:
    """Write what rNN adds to the same fusion, for several lambdas and both similarities."""
    systems = {
        "adaptive": "adaptive",
        "+rNN, s = fused score": "adaptive+rNN",
        "rNN, lambda .75": "adaptive+rNN .75",
        "+rNN, s = inner product": "s dense",
    }
    lines = ["\n## What rNN adds\n", f"| | {' | '.join(systems)} |", f"|---|{'---:|' * len(systems)}"]
    for name, values in found.items():
        lines.append(f"| {name} | {' | '.join(f'{values[system].mean():.4f}' for system in systems.values())} |")
    lines.append(GAIN_OF_RNN)
    for label, system in (("lambda .9, the default of `--rerank rnn`", "adaptive+rNN"), ("lambda .75", "adaptive+rNN .75")):
        gains = np.array([float((values[system] - values["adaptive"]).mean()) for values in found.values()])
        low, high = interval(gains) if len(gains) > 1 else (np.nan, np.nan)
        lines.append(f"* {label}: {gains.mean():+.4f}, 95 % between {low:+.4f} and {high:+.4f}")
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
        """Return a random sample; adjacent queries in the file often ask for the same documents."""
        return sampled(self._dataset.queries(), TUNED_ON)


if __name__ == "__main__":
    enter(main)
