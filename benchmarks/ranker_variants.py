"""SIR on real data: MRR@10 and nDCG@10 of the first stage and of each variant after the same number of scored pairs.

    python benchmarks/reproduction.py sir --data DIR --sets stackfaq,wikiqa --seeds 3
    python benchmarks/reproduction.py sir --data DIR --sets stackfaq --quick

Every row begins with the same backbone and a new head, without an anchor, and stops after `--pairs` scored pairs: those of the blocks, of each
level again for V3 and V4 (Algorithm 1), and those that V1 and V2 score to select (top). A step costs processor seconds: those of a row,
its selections and evaluations included, divided by the steps of all its fits. The candidates of training and test questions are
BM25's best. The best `--depth` documents of the test questions are reranked.

Rows: random, static hard negatives, lcl (localized contrastive loss), and v1 to v4 with their selector.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from entry_point import enter

ROWS: dict[str, dict[str, object]] = {
    "random": {"variant": "random"},
    "static": {"variant": "static"},
    "lcl": {"variant": "lcl"},
    "v1-random": {"variant": "v1", "selector": "random"},
    "v1-top": {"variant": "v1", "selector": "top"},
    "v2-random": {"variant": "v2", "selector": "random"},
    "v2-top": {"variant": "v2", "selector": "top"},
    "v3-top": {"variant": "v3", "selector": "top"},
    "v3-random": {"variant": "v3", "selector": "random"},
    "v4-top": {"variant": "v4", "selector": "top"},
    "v4-random": {"variant": "v4", "selector": "random"},
    "v4-top-log": {"variant": "v4", "selector": "top", "chain": "log"},
}
#: What `--quick` runs: half the layers, short texts, few questions, smaller blocks.
QUICK: dict[str, object] = {
    "layers": 3,
    "training_length": 48,
    "max_length": 48,
    "blocks": "24,12,6",
    "questions": 60,
    "candidates": 24,
    "batch": 2,
}
FULL: dict[str, object] = {"blocks": "88,48,16", "training_length": 128, "max_length": 128, "questions": 1000, "batch": 4}
COMMON: dict[str, object] = {
    "anchor": False,
    "candidates_from": "bm25",
    "reuse": False,
    "dev": 20,
    "reranked": 10,
    "patience": 100,
}


def steps_of(settings: dict[str, Any], pairs: int, questions: int) -> int:
    """Steps of each fit in which a run scores so many pairs, at least two."""
    from termweave.training.methods import sir

    sizes, selected = sir.chain_of(settings), 0
    if settings["variant"] in ("v1", "v2") and settings["selector"] == "top":
        selected = questions * (int(settings["candidates"]) + sum(sizes[1:-1]) - len(sizes[1:-1]))
    return max(2, (pairs - selected) // (int(settings["batch"]) * sum(sir.trained_blocks(settings))))


def main() -> None:
    """Train every row on every set, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets, in BEIR's layout")
    parser.add_argument("--sets", default="stackfaq,wikiqa")
    parser.add_argument("--rows", default="")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=0, help="scored pairs of a row; 0: 400,000, with --quick 4,000")
    parser.add_argument("--questions", type=int, default=100, help="test questions at most, the first ones")
    parser.add_argument("--depth", type=int, default=20, help="documents of a test question that are reranked")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="further settings of every row")
    arguments = parser.parse_args()

    from termweave.training.methods import base, sir
    from termweave.training.mixture import learn, parts

    method = base.get("sir")
    given = {**COMMON, **(QUICK if arguments.quick else FULL), **dict(each.split("=", 1) for each in arguments.set)}
    pairs = arguments.pairs or (4_000 if arguments.quick else 400_000)
    print("| set | row | seeds | MRR@10 | nDCG@10 | steps | s a step |\n|---|---|---|---|---|---|---|", flush=True)
    for name in arguments.sets.split(","):
        for row in (None, *(arguments.rows.split(",") if arguments.rows else ROWS)):
            figures, seconds, steps = [], 0.0, 0
            for seed in range(arguments.seeds if row else 1):
                settings = method.settings({**given, **(ROWS[row] if row else {}), "seed": seed})
                with tempfile.TemporaryDirectory() as work:
                    data = parts(method, str(arguments.data / name), settings, Path(work) / "data", lambda _: None)
                    tested = _test(arguments, name, data[0], method, settings)
                    if row is None:
                        figures.append(_measures(tested, None))
                        continue
                    steps = steps_of(settings, pairs, len(data[0].setup.train))
                    fitted = {**settings, "steps": steps, "every": max(1, steps // 2)}
                    data = [replace(part, settings=fitted) for part in data]
                    begun = time.process_time()
                    trained = learn(method, fitted, data, Path(work) / "run")
                    fits = len(sir.trained_blocks(settings)) if settings["variant"] in ("v1", "v2") else 1
                    seconds += (time.process_time() - begun) / steps / fits / arguments.seeds
                    figures.append(_measures(tested, trained.model))
            cells = [f"{values.mean():.4f}{_spread(values)}" for values in np.array(figures).T]
            print(
                f"| {name} | {row or 'BM25'} | {len(figures)} | {' | '.join(cells)} | {steps or ''} | {seconds:.1f} |", flush=True
            )


def _spread(values: np.ndarray) -> str:
    return f" ± {(values.max() - values.min()) / 2:.4f}" if len(values) > 1 else ""


def _test(arguments: argparse.Namespace, name: str, part: Any, method: Any, settings: dict[str, Any]) -> Any:
    """The test questions with BM25's best documents of the whole collection, as a development set."""
    from termweave.training import families
    from termweave.training.data.pairs import Collection, Pairs

    collection = Collection(arguments.data / name)
    queries, qrels = collection.judged("test")
    setup = part.setup
    place = {identifier: index for index, identifier in enumerate(setup.examples.ids)}
    asked = [
        (query.text, frozenset(place[each] for each, grade in qrels[query.id].items() if grade > 0 and each in place))
        for query in queries
    ]
    asked = [each for each in asked if each[1]][: arguments.questions]
    whole = replace(
        setup, places=list(range(len(setup.examples.texts))), dev=Pairs(*(list(each) for each in zip(*asked, strict=True)))
    )
    train = Pairs(whole.dev.questions[:1], whole.dev.relevant[:1])  # nothing is trained on
    tested = replace(part, setup=replace(whole, train=train), settings={**settings, "reranked": arguments.depth})
    family = families.get("ranker")
    model = family.build_model(method, settings, setup.backbone)
    return family.prepare(method, tested, model, lambda _: None).development


def _measures(tested: Any, model: Any) -> list[float]:
    """MRR@10 and nDCG@10; without a model those of the first stage."""
    each = [replace(tested, measure=measure) for measure in ("MRR@10", "nDCG@10")]
    return [float((one.first_stage() if model is None else one.figures(model)).mean()) for one in each]


if __name__ == "__main__":
    enter(main)
