"""Term weights trained on a corpus alone, no question, no pair: against BM25 on the collection's own test queries.

    termweave node start
    python benchmarks/corpus_alone.py --data ../shared/data --runs build/alone cranfield stackfaq nfcorpus vaswani

`termweave train fectek CORPUS` with default settings for each set, from its corpus file, so that no judgement can be seen; then
the whole collection through the index, int8. The interval of a mean gain is a bootstrap over queries within sets. A run that is
there already is measured, not trained again. `--set` gives other settings: with pairs of another collection beside, for one,
`--set beside=../shared/data/squad`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from entry_point import enter

from termweave import corpora, engine, settings
from termweave.evaluation import Experiment, evaluate, randomisation_test
from termweave.evaluation.systems import grid
from termweave.indexer import BuildOptions, build, up_to_date
from termweave.search import Index
from termweave.training import run
from termweave.training.methods import base as methods

RESAMPLED = 10_000
#: The comparisons: a mode against a simpler one.
MODES = ("lexical", "weights", "lexical,dense", "weights,dense")
HEAD = """| set | documents | queries | BM25 | weights | difference | p | BM25 + dense | weights + dense | difference | p |
|---|---|---|---|---|---|---|---|---|---|---|"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of BEIR data sets")
    parser.add_argument("--runs", type=Path, required=True, help="folder for the models")
    parser.add_argument("--corpus", metavar="SET", help="train on this one's corpus alone, and measure that model on every set")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the method; repeatable")
    parser.add_argument("sets", nargs="+", help="folders in it")
    given = parser.parse_args()
    server = engine.connect(settings.load())
    print(HEAD)
    gains: dict[str, list[np.ndarray]] = {"weights": [], "weights + dense": []}
    for name in given.sets:
        model = trained(given, given.corpus or name)
        documents, experiment = measured(server, given.data / name, model, f"bench-{given.runs.name}-{name}")
        values = {row.mode: experiment.values[row.system]["nDCG@10"] for row in experiment.rows}
        cells = [name, f"{documents:,}", f"{len(experiment.queries):,}"]
        for label, (base, learned) in zip(gains, (MODES[:2], MODES[2:]), strict=True):
            gains[label].append(values[learned] - values[base])
            p = randomisation_test(values[learned], values[base])
            cells += [f"{values[each].mean():.4f}" for each in (base, learned)] + [f"{gains[label][-1].mean():+.4f}", f"{p:.2g}"]
        print(f"| {' | '.join(cells)} |", flush=True)
    for label, found in gains.items():
        low, high = interval(found)
        mean = np.mean([gain.mean() for gain in found])
        print(f"\nMean gain of {label} over the sets {mean:+.4f}, 95 % between {low:+.4f} and {high:+.4f}.")


def trained(given: argparse.Namespace, name: str) -> str:
    """Train the model if necessary, and return its folder."""
    method, out = methods.get("fectek"), given.runs / name
    corpus = next((given.data / name).glob("corpus.jsonl*"))
    settings = method.settings(methods.given(given.set, None))
    run.train(method, str(corpus), settings, out, resume=out.is_dir(), say=lambda line: print(line, file=sys.stderr))
    return str(out)


def measured(server: engine.Engine, folder: Path, model: str, name: str) -> tuple[int, Experiment]:
    """Index a data set; return its number of documents, and the evaluation of every mode on the test split."""
    dataset, options = corpora.open_dataset(str(folder)), BuildOptions(weights=model, dense=model)
    if up_to_date(server, dataset, name, options) is None:
        build(server, dataset, name, options)
    index = Index.open(server, name, weights=model, dense=model)
    return index.lineage.documents, evaluate(index, dataset, grid(MODES, ["none"], index), baseline="lexical")


def interval(gains: list[np.ndarray]) -> tuple[float, float]:
    """Bootstrap interval of the mean gain over the sets; queries are resampled within each set."""
    random = np.random.default_rng(0)
    drawn = np.mean([gain[random.integers(len(gain), size=(RESAMPLED, len(gain)))].mean(axis=1) for gain in gains], axis=0)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return float(low), float(high)


if __name__ == "__main__":
    enter(main)
