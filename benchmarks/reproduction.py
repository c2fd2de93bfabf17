"""The papers' dense methods on real data: nDCG@10 on the test split before and after training, by exact search.

    python benchmarks/reproduction.py coder --data DIR --sets stackfaq --rows hard,uniform,evidence
    python benchmarks/reproduction.py sir   --data DIR --sets stackfaq --quick
    python benchmarks/reproduction.py dtr   --data DIR --sets stackfaq --rows in-batch,labelled,algorithm,expanded,top

Each row is `termweave train METHOD` with the settings below; every figure is that of the model which the development questions chose. The
test questions are searched in the whole corpus. p is a two-sided paired randomisation test against the backbone as it came.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

#: Method -> row -> its settings.
ROWS: dict[str, dict[str, dict[str, object]]] = {
    "coder": {
        "hard": {"labels": "hard"},
        "uniform": {"labels": "uniform"},
        "geometric": {"labels": "evidence", "evidence_weight": 1.0},
        "reciprocal": {"labels": "evidence", "evidence_weight": 0.0},
        "evidence": {"labels": "evidence"},
    },
    "dtr": {
        "in-batch": {"sampling": "in-batch-query", "beta": 0, "gamma": 0},
        "random": {"sampling": "random", "beta": 0, "gamma": 0},
        "labelled": {"sampling": "labelled", "beta": 0, "gamma": 0},
        "algorithm": {"beta": 0, "gamma": 0},
        "expanded": {},
        "top": {"top": 4},
    },
    "le-bs": {
        "none": {"labels": "none"},
        "distill": {"labels": "distill"},
        "tfidf": {"labels": "tfidf"},
        "scorer": {"labels": "scorer"},
    },
}


def figures(folder: Path, documents: list[str], questions: list[str], gains: list[dict[int, int]]) -> np.ndarray:
    """nDCG@10 of each question by a model folder, or by a backbone as it came."""
    from termweave.encoders import load
    from termweave.training.dense.evaluation import rankings
    from termweave.training.dev_measure import ranking_measure

    encoder = load("", str(folder), precision="fp32")
    vectors = {
        kind: np.stack([encoding.vector for encoding in encoder.encode(texts, kind=kind)])
        for kind, texts in (("document", documents), ("query", questions))
    }
    return ranking_measure(list(rankings(vectors["query"], vectors["document"], 10)), gains)


def main() -> None:
    """Train every row on every set, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method", choices=ROWS)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets, in BEIR's layout")
    parser.add_argument("--sets", default="stackfaq")
    parser.add_argument("--rows", default="")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--questions", type=int, default=1000, help="test questions at most, the first ones")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="further settings of every row")
    arguments = parser.parse_args()

    from termweave.evaluation import randomisation_test
    from termweave.training import run
    from termweave.training.backbone import lookup
    from termweave.training.data.pairs import Collection
    from termweave.training.methods import base

    method = base.get(arguments.method)
    further = dict(each.split("=", 1) for each in arguments.set)
    backbone = lookup.find(further.get("backbone", ""), [], Path(), {})
    print("| set | row | seeds | nDCG@10 | over base | p | minutes |\n|---|---|---|---|---|---|---|", flush=True)
    for name in arguments.sets.split(","):
        collection = Collection(arguments.data / name)
        queries, qrels = collection.judged("test")
        queries = [query for query in queries if any(grade > 0 for grade in qrels[query.id].values())][: arguments.questions]
        gains = [
            {collection.index[each]: grade for each, grade in qrels[query.id].items() if each in collection.index}
            for query in queries
        ]
        test = (collection.texts, [query.text for query in queries], gains)
        before = figures(backbone, *test)
        print(f"| {name} | base | | {before.mean():.4f} | | | |", flush=True)
        for row in arguments.rows.split(",") if arguments.rows else ROWS[arguments.method]:
            after, begun = [], time.monotonic()
            for seed in range(arguments.seeds):
                with tempfile.TemporaryDirectory() as work:
                    settings = method.settings({**ROWS[arguments.method][row], **further, "seed": seed})
                    run.train(method, str(arguments.data / name), settings, Path(work) / "model")
                    after.append(figures(Path(work) / "model", *test))
            minutes = (time.monotonic() - begun) / 60 / arguments.seeds
            means = [values.mean() for values in after]
            mean, half = float(np.mean(means)), (max(means) - min(means)) / 2
            p = randomisation_test(np.mean(after, axis=0), before)
            spread = f" ± {half:.4f}" if arguments.seeds > 1 else ""
            print(
                f"| {name} | {row} | {arguments.seeds} | {mean:.4f}{spread} | {mean - before.mean():+.4f} | {p:.2g} | {minutes:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["sir"]:  # rankers are measured by reranking
        import ranker_variants

        del sys.argv[1]
        ranker_variants.main()
    else:
        main()
