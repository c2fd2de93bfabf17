"""`termweave learn` on data sets with a training split: nDCG@10 of their test questions, through the index, before and after.

    python benchmarks/learning.py --data ../shared/data --sets stackfaq banking77 --minutes 20 --out learning.json

Each set is indexed with the shipped model under `learn-SET`, unless that index is there. Learning sees the training split alone. A figure stands
for each search that the new generation can do, so that the choice can be compared with the best single method.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from entry_point import enter

from termweave import corpora, engine, settings
from termweave.evaluation import evaluate, randomisation_test, systems
from termweave.indexer import BuildOptions, build
from termweave.indexer.generations import generations
from termweave.learning.run import LearningTask, Reports, learn
from termweave.search import Index

if TYPE_CHECKING:
    from termweave.evaluation.experiment import Experiment

SETS = ("stackfaq", "medquad", "squad", "banking77", "clinc150", "wikiqa", "nfcorpus", "scifact", "twitter-airlines")
MEASURE = "nDCG@10"


def table(index: Index, folder: Path) -> Experiment:
    """Every search of an index on the test questions."""
    return evaluate(index, corpora.open_dataset(f"{folder}:test"))


def measured(server: engine.Engine, folder: Path, minutes: float) -> dict[str, Any]:
    """Learn on one set, and measure its test questions before and after.

    Args:
        server: The server.
        folder: The data set.
        minutes: The budget.
    """
    name = f"learn-{folder.name}"
    live = generations.find_live(server, name)
    if live is None:
        build(server, corpora.open_source(folder), name, BuildOptions())
    started = time.monotonic()
    learned = learn(server, LearningTask(name, str(folder), minutes), Reports(say=lambda line: print(f"  {line}", flush=True)))
    seconds = time.monotonic() - started
    before = table(Index.open(server, name), folder)
    old = before.values[before.default or "hybrid"][MEASURE]
    row: dict[str, Any] = {
        "set": folder.name,
        "seconds": round(seconds),
        "questions": dict(learned.parts),
        "tried": [
            f"{each.candidate.method} {each.steps}: {each.before:.4f} -> {each.after:.4f} {each.dropped}".strip()
            for each in learned.tried
        ],
        "test_half": [learned.before, learned.after, learned.p],
        "confirmed": learned.confirmed,
        "before": {system: float(values[MEASURE].mean()) for system, values in before.values.items()},
    }
    if learned.generation is None:
        return row
    index = Index.open(server, learned.generation)
    after = table(index, folder)
    new = after.values[systems.default_of(systems.default_systems(index), index) or "hybrid"][MEASURE]
    return row | {
        "after": {system: float(values[MEASURE].mean()) for system, values in after.values.items()},
        "gain": float((new - old).mean()),
        "p": randomisation_test(new, old),
    }


def main() -> None:
    """Measure the sets, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the data sets")
    parser.add_argument("--sets", nargs="+", default=SETS, help="names of folders in it")
    parser.add_argument("--minutes", type=float, default=20.0, help="budget for each set")
    parser.add_argument("--out", type=Path, help="file for the figures, as JSON")
    arguments = parser.parse_args()
    rows = []
    with engine.connect(settings.load(), pool_maxsize=6) as server:
        for name in arguments.sets:
            print(f"{name} ...", flush=True)
            rows.append(measured(server, arguments.data / name, arguments.minutes))
            print(json.dumps(rows[-1], indent=1), flush=True)
            if arguments.out:
                arguments.out.write_text(json.dumps(rows, indent=1))
    print("\n| set | before | after | gain | p | confirmed |\n|---|---|---|---|---|---|")
    for row in rows:
        old = row["before"].get("hybrid", 0.0)
        print(
            f"| {row['set']} | {old:.4f} | {old + row.get('gain', 0.0):.4f} | {row.get('gain', 0.0):+.4f} | {row.get('p', 1.0):.4f} | {row['confirmed']} |"
        )


if __name__ == "__main__":
    enter(main)
