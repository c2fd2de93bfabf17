"""Term weights trained on a corpus alone, no question, no pair: against BM25 on the collection's own test queries.

    python benchmarks/corpus_alone.py --data ../shared/data --runs build/alone cranfield stackfaq nfcorpus vaswani

`termweave train fectek CORPUS` with default settings for each set, from its corpus file, so that no judgement can be seen; then
exact search of the whole collection with the int8 graph. The interval of the mean gain is a bootstrap over queries within sets.
A run that is there already is measured, not trained again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from termweave import encoders
from termweave.evaluation import randomisation_test
from termweave.training import methods, run
from termweave.training.measure import TESTS, figures
from termweave.training.pairs import Collection

RESAMPLED = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of BEIR data sets")
    parser.add_argument("--runs", type=Path, required=True, help="folder for the models")
    parser.add_argument("sets", nargs="+", choices=[pool.name for pool in TESTS if pool.whole])
    given = parser.parse_args()
    pools = {pool.name: pool for pool in TESTS}
    print("| set | documents | queries | BM25 | weights | difference | p |\n|---|---|---|---|---|---|---|")
    gains = []
    for name in given.sets:
        documents, values = figures(trained(given, name), Collection(given.data / name), pools[name])
        gains.append(values["weights"] - values["bm25"])
        bm25, weights, p = values["bm25"].mean(), values["weights"].mean(), randomisation_test(values["weights"], values["bm25"])
        line = f"| {name} | {documents:,} | {len(gains[-1]):,} | {bm25:.4f} | {weights:.4f} | {weights - bm25:+.4f} | {p:.2g} |"
        print(line, flush=True)
    low, high = interval(gains)
    print(f"\nMean gain over the sets {np.mean([gain.mean() for gain in gains]):+.4f}, 95 % between {low:+.4f} and {high:+.4f}.")


def trained(given: argparse.Namespace, name: str) -> encoders.TextEncoder:
    method, out = methods.get("fectek"), given.runs / name
    corpus = next((given.data / name).glob("corpus.jsonl*"))
    run.train(method, str(corpus), method.settings({}), out, resume=out.is_dir(), say=lambda line: print(line, file=sys.stderr))
    return encoders.load(str(out), str(out), precision="int8")


def interval(gains: list[np.ndarray]) -> tuple[float, float]:
    """Of the mean over sets of the mean gain, queries drawn again within each set."""
    random = np.random.default_rng(0)
    drawn = np.mean([gain[random.integers(len(gain), size=(RESAMPLED, len(gain)))].mean(axis=1) for gain in gains], axis=0)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return float(low), float(high)


if __name__ == "__main__":
    main()
