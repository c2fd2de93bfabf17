"""The tables of the papers' dense methods on real data (docs/reproduction.md).

    python benchmarks/reproduction.py le-bs --data ../shared/data --seeds 3
    python benchmarks/reproduction.py coder --data ../shared/data --seeds 3
    python benchmarks/reproduction.py dtr   --data ../shared/data --seeds 3
    python benchmarks/reproduction.py sir   --data ../shared/data --seeds 3        (rankers: ranker_variants.py has its own options)

Each row is `termweave train METHOD` with the settings of `reproduction_tables.py`; the development questions choose the step that is
kept, and test questions, which nothing else looks at, are searched exactly. A row that is in --work already is read from there, so that
a table that was stopped goes on. With several seeds a figure is the mean and half the range. p is a two-sided paired randomisation test
of the first measure against the row that the head names, on the means over the seeds.

`--quick` takes fewer steps, texts and questions: some minutes a table on two processors, for a glance.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from entry_point import enter
from reproduction_tables import STARTS, TABLES, PrintedTable

from termweave.evaluation import randomisation_test

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reproduction_runs import TestSet

#: Test questions and documents of a quick table.
_QUICK_QUESTIONS, _QUICK_POOL = 300, 1500
#: Training questions of a quick table, and documents of the part of a large set that they are trained on and held-out ones are searched in.
_QUICK_TRAINED, _QUICK_DOCUMENTS = 1000, 2000


@dataclass(frozen=True)
class ReproducedRow:
    """The figures of one row of one set.

    Attributes:
        name: Of the row.
        seeds: Test set -> measure -> one array of figures for each seed.
        minutes: Of a seed.
    """

    name: str
    seeds: dict[str, dict[str, list[np.ndarray]]]
    minutes: float


def main() -> None:
    """Make the rows of a table that are not there yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=tuple(TABLES))
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets, in BEIR's layout")
    parser.add_argument("--work", type=Path, default=Path("build/reproduction"), help="folder of finished rows")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--sets", default="", help="some of the table's sets, with commas")
    parser.add_argument("--rows", default="", help="some of its rows, with commas between them replaced by '/'")
    parser.add_argument("--starts", default="", help=f"some of: {', '.join(STARTS)}")
    parser.add_argument("--folds", default="", help="some of the table's splits by question, with commas")
    parser.add_argument("--beside", default=None, help="other sets to test on, with commas; the default is the table's")
    parser.add_argument("--questions", type=int, default=0, help="test questions at most")
    parser.add_argument("--pool", type=int, default=-1, help="documents that they are searched in; 0: all")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="further settings of every row")
    given = parser.parse_args()
    table = TABLES[given.table]
    measures = " | ".join(table.measures)
    print(f"| set | split | start | row | tested on | seeds | {measures} | p against {table.against} | minutes |")
    print("|---" * (8 + len(table.measures)) + "|", flush=True)
    for name in given.sets.split(",") if given.sets else table.sets:
        for split, shares in (
            {key: table.folds[key] for key in _some(given.folds, table.folds)}.items() if table.folds else [("", None)]
        ):
            for line in _rows(given, table, name, split, shares):
                print(line, flush=True)


def _some(chosen: str, every: Any) -> list[str]:
    return [each for each in every if not chosen or each in chosen.split(",")]


def _rows(
    given: argparse.Namespace, table: PrintedTable, name: str, split: str, shares: tuple[float, float, float] | None
) -> Iterator[str]:
    """The lines of one set and one split."""
    from reproduction_runs import TestSet, fold, key, measured, reduced, untrained

    work = given.work / ("quick" if given.quick else "full") / given.table
    folder = given.data / name if shares is None else fold(given.data / name, shares, work)
    beside = table.beside if given.beside is None else tuple(filter(None, given.beside.split(",")))
    questions = given.questions or (_QUICK_QUESTIONS if given.quick else 10**9)
    pool = given.pool if given.pool >= 0 else (_QUICK_POOL if given.quick else 0)
    tests = [TestSet.read(each, questions, pool) for each in (folder, *(given.data / other for other in beside))]
    if given.quick:
        folder = reduced(folder, _QUICK_DOCUMENTS, _QUICK_TRAINED, work)
    common = {**table.common, **(table.quick if given.quick else {}), **table.of_set.get(name, {}), **_assigned(given.set)}
    place, size = work / name / (split or "own"), (questions, pool, beside, len(tests[0].documents))
    if table.bm25:
        record = measured(
            place / f"bm25-{key(size)}.json", lambda: ({test.name: test.bm25(table.measures) for test in tests}, {})
        )
        yield from _lines(table, (name, split, ""), _row("BM25", [record]), None)
    for start in _some(given.starts, table.starts):
        compared = None
        if common.get("backbone") == "scratch" and start != table.starts[0]:
            continue  # all of its layers are new
        if start == "as it came" and common.get("backbone") != "scratch":
            settings = {**common, "towers": "query"}
            record = measured(
                place / f"base-{key(size, settings)}.json",
                lambda settings=settings: untrained(settings, tests, table.measures, reranked=table.reranked),
            )
            row = _row("base", [record])
            compared = row if table.against == "base" else None
            yield from _lines(table, (name, split, start), row, None)
        chosen = given.rows.split("/") if given.rows else list(table.rows)
        for label in chosen:
            records = [_trained(table, common, label, start, seed, folder, tests, place, size) for seed in range(given.seeds)]
            row = _row(label, records)
            yield from _lines(table, (name, split, start), row, compared)
            compared = row if table.against == label else compared


def _trained(
    table: PrintedTable,
    common: dict[str, object],
    label: str,
    start: str,
    seed: int,
    folder: Path,
    tests: list[TestSet],
    place: Path,
    size: object,
) -> dict[str, Any]:
    from reproduction_runs import key, measured, train_and_test

    settings = {**STARTS[start], **common, **table.rows[label], "seed": seed}
    file = place / f"{label.replace(' ', '_')}-{start.replace(' ', '_')}-{seed}-{key(size, settings)}.json"

    def say(line: str) -> None:
        print(f"{folder.name} {label} {start} {seed}: {line}", file=sys.stderr, flush=True)

    return measured(
        file,
        lambda: train_and_test(table.method, folder, settings, tests, table.measures, reranked=table.reranked, say=say),
    )


def _assigned(assignments: list[str]) -> dict[str, object]:
    return dict(each.split("=", 1) for each in assignments)


def _row(name: str, records: list[dict[str, Any]]) -> ReproducedRow:
    seeds: dict[str, dict[str, list[np.ndarray]]] = {}
    for record in records:
        for test, own in record["figures"].items():
            for measure, values in own.items():
                seeds.setdefault(test, {}).setdefault(measure, []).append(np.array(values))
    return ReproducedRow(name, seeds, float(np.mean([record["minutes"] for record in records])))


def _lines(table: PrintedTable, head: tuple[str, str, str], row: ReproducedRow, compared: ReproducedRow | None) -> Iterator[str]:
    """The lines of a row: one for each test set."""
    for test, own in row.seeds.items():
        cells = []
        for measure in table.measures:
            means = [values.mean() for values in own[measure]]
            spread = f" ± {(max(means) - min(means)) / 2:.4f}" if len(means) > 1 else ""
            cells.append(f"{np.mean(means):.4f}{spread}")
        p = ""
        if compared is not None:
            first = table.measures[0]
            p = f"{randomisation_test(np.mean(own[first], axis=0), np.mean(compared.seeds[test][first], axis=0)):.2g}"
        yield f"| {' | '.join((*head, row.name, test, str(len(own[table.measures[0]])), *cells, p, f'{row.minutes:.1f}'))} |"


if __name__ == "__main__":
    if sys.argv[1:2] == ["sir"]:
        import ranker_variants

        del sys.argv[1]
        enter(ranker_variants.main)
    else:
        enter(main)
