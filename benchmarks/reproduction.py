"""The papers' tables on real data (docs/reproduction.md).

    python benchmarks/reproduction.py coder dtr --data ../shared/data --work build/reproduction     run what is missing, then print
    python benchmarks/reproduction.py coder --data ../shared/data --work build/reproduction --finished     print what is there

Tables: rnn (no training), coder, dtr, fectek, le-bs, sir; `reproduction_tables.py` declares sets, rows, settings and what was reduced. Each row is
`termweave train METHOD` without the export; the development questions choose the step that is kept, and test questions, which nothing else
looks at, are searched exactly. All tables take two processors about a day:

* **Stop and go on.** A finished row is a file in --work, with the figure of each question, and a row that was stopped goes on from its checkpoint.
  Files that were moved to benchmarks/reproduced are finished rows, too: they are committed, so that another machine goes on.
  Several processes may run the same command (one a processor, OMP_NUM_THREADS=1): each takes the next row that nobody computes.
* **To the page.** `python benchmarks/figures.py --work FOLDER --finished coder dtr` writes docs/results/*.json from the rows in
  FOLDER/reproduction, without --finished it runs the missing ones first; `make docs` copies the tables into the page.

In a cell: the mean over questions and seeds (± half the range over the seeds), in parentheses p against the row's own start (step 0), and a mark
where it lies significantly (p < .05) above or below the row that the head names. p is that of a two-sided paired randomisation test, on means
over the seeds, not corrected.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from entry_point import enter
from reproduction_tables import COMMON, TABLES, WITH_RNN, PrintedTable

from termweave.evaluation import randomisation_test

if TYPE_CHECKING:
    #: Seed -> test set -> measure -> the figure of each question.
    Values = dict[int, dict[str, dict[str, Any]]]

#: A difference whose p-value is not below it gets no mark.
_CHANCE = 0.05
_MINILM = "all-MiniLM-L6-v2"
_GROUP = ("backbone", "trained on", "split", "start")
_COMMITTED = Path(__file__).with_name("reproduced")


@dataclass(frozen=True)
class TrainedRow:
    """One model of a table.

    Attributes:
        group: Backbone, set, split and variant.
        name: Of the row.
        method: That trains it.
        seed: Of the model.
        settings: Of the method.
        file: Where its record is kept.
        bm25: Where BM25's record is kept.
        tests: Folders of the sets that it is tested on, its own first.
        folder: The set that it is trained on.
    """

    group: tuple[str, str, str, str]
    name: str
    method: str
    seed: int
    settings: dict[str, Any]
    file: Path
    bm25: Path
    tests: tuple[Path, ...]
    folder: Path


def main() -> None:
    """Compute the rows of the tables that are not there yet, and print the tables; end with status 1 if rows are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", choices=("rnn", *TABLES), metavar="TABLE", help=f"some of: rnn, {', '.join(TABLES)}")
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets, in BEIR's layout")
    parser.add_argument("--work", type=Path, default=Path("build/reproduction"), help="folder of finished rows")
    parser.add_argument("--finished", action="store_true", help="compute nothing")
    parser.add_argument("--backbones", nargs="+", help="some of the backbones")
    parser.add_argument("--sets", nargs="+", help="some of the sets that are trained on")
    parser.add_argument("--rows", nargs="+", help="some of the rows")
    parser.add_argument("--beside", nargs="*", help="other sets to test on  [default: the table's]")
    parser.add_argument("--seeds", type=int, help="[default: the table's]")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="further settings of every row")
    given = parser.parse_args()
    whole = True
    for name in given.tables:
        if name == "rnn":
            from reproduction_rnn import show

            show(given)
        else:
            whole &= _table(given, name, TABLES[name])
    if not whole and not given.finished:
        raise SystemExit("Rows are missing: another process computes them, or they failed (see above). Run the command again.")


def _table(given: argparse.Namespace, name: str, table: PrintedTable) -> bool:
    """Compute and print one table; return whether all rows are there."""
    from reproduction_runs import TestSet, finished, measured, train_and_test

    read: dict[tuple[Path, ...], list[TestSet]] = {}

    def tests(row: TrainedRow) -> list[TestSet]:
        if row.tests not in read:
            read[row.tests] = [TestSet.read(folder, table.questions, table.pool) for folder in row.tests]
        return read[row.tests]

    def train(row: TrainedRow, home: Path) -> dict[str, Any]:
        def say(line: str) -> None:
            print(
                f"{name}, {', '.join(filter(None, row.group))}, {row.name}, seed {row.seed}: {line}", file=sys.stderr, flush=True
            )

        settings = (row.method, row.folder, row.settings, tests(row), table.measures, home)
        return train_and_test(*settings, given.work / "vectors", reranked=table.reranked, say=say)

    def search(row: TrainedRow, home: Path) -> dict[str, Any]:
        del home
        return {"figures": {test.name: test.bm25(table.measures) for test in tests(row)}}

    def record(file: Path, compute: Any, row: TrainedRow) -> dict[str, Any] | None:
        try:
            return finished(file) or (None if given.finished else measured(file, partial(compute, row)))
        except Exception:  # noqa: BLE001 - hours of other rows do not wait for a person
            print(f"{name}, {', '.join(row.group)}, {row.name}: failed\n{traceback.format_exc()}", file=sys.stderr, flush=True)
            return None

    rows = list(_rows(given, name, table))
    lexical = {row.group[1:3]: found for row in rows if (found := record(row.bm25, search, row)) is not None}
    done = [(row, found) for row in rows if (found := record(row.file, train, row)) is not None]
    if not done:
        return False
    for lines in _printed(table, done, lexical):
        print("\n".join(lines), end="\n\n", flush=True)
    facts = {
        "note": table.note,
        "rows": f"{len(done)} of {len(rows)}",
        "commits": sorted({found["commit"] for _, found in done}),
        "backbones": {row.group[0]: found["backbone"] for row, found in reversed(done)},  # with the new head of the first seed
        "development": {
            ", ".join([*filter(None, row.group), row.name, f"seed {row.seed}"]): [round(each, 4) for each in found["development"]]
            for row, found in done
        },
        "minutes": round(sum(found["minutes"] for _, found in done)),
    }
    print(json.dumps(facts), flush=True)
    return len(done) == len(rows)


def _rows(given: argparse.Namespace, name: str, table: PrintedTable) -> Iterator[TrainedRow]:
    """The rows of a table in the order in which they are computed: whole groups of the first seed first."""
    from reproduction_runs import fold, key, reduced, skewed

    work = given.work / name
    beside = tuple(table.beside if given.beside is None else given.beside)
    assigned = dict(each.split("=", 1) for each in given.set)
    for seed in range(given.seeds or table.seeds):
        for variant, changed in table.variants.items():
            for backbone, trained in table.trained:
                if (given.sets and trained not in given.sets) or (
                    given.backbones and (backbone or _MINILM) not in given.backbones
                ):
                    continue
                whole = given.data / trained.removesuffix("-skewed")
                source = skewed(whole, work) if trained.endswith("-skewed") else whole
                for split, shares in table.splits.items() or [("", None)]:
                    folder = source if shares is None else fold(source, shares, work)
                    part = reduced(folder, *table.part, work) if name != "sir" else folder
                    group = (backbone or _MINILM, trained, split, variant)
                    for label, own in table.rows.items():
                        chosen = label in (given.rows or table.rows) and all(
                            label in table.only.get(each, table.rows) for each in group
                        )
                        if not chosen or (seed and {label, variant} & set(table.one_seed)):
                            continue
                        settings = {
                            **COMMON,
                            **table.common,
                            "backbone": backbone,
                            **table.of_backbone.get(backbone, {}),
                            **table.of_set.get(trained, {}),
                            **changed,
                            **own,
                            "seed": seed,
                            **assigned,
                        }
                        method = str(settings.pop("method", table.method))
                        size = key(table.questions, table.pool, beside, table.part, table.measures)
                        file = _kept(work, *filter(None, group), f"{label}-{seed}-{key(method, settings)}-{size}.json")
                        bm25 = _kept(work, "bm25", f"{trained}{split}-{size}.json")
                        tested = (folder, *(given.data / each for each in beside))
                        yield TrainedRow(group, label, method, seed, settings, file, bm25, tested, part)


def _kept(work: Path, *parts: str) -> Path:
    """Where a row is kept: among the committed ones, or in the working folder."""
    committed = _COMMITTED.joinpath(work.name, *parts)
    return committed if committed.is_file() else work.joinpath(*parts)


def _printed(
    table: PrintedTable, done: Sequence[tuple[TrainedRow, dict[str, Any]]], lexical: dict[tuple[str, ...], dict[str, Any]]
) -> Iterator[list[str]]:
    """The table of the models, that of each with rNN, and every figure by itself."""
    first, one_start = table.measures[0], table.method != "fectek"
    groups: dict[tuple[str, ...], dict[str, list[tuple[TrainedRow, dict[str, Any]]]]] = {}
    for row, record in done:
        groups.setdefault(row.group, {}).setdefault(row.name, []).append((row, record))
    shown = [place for place in range(4) if len({group[place] for group in groups}) > 1]
    head, plain, reranked, columns = [_GROUP[place] for place in shown], [], [], [""]
    for group, rows in groups.items():
        own = [group[place] for place in shown]
        starts, ends = ({name: _values(each, which) for name, each in rows.items()} for which in ("start", "figures"))
        base = next(iter(starts.values()))
        tested = [test for test in base[min(base)] if not test.endswith(WITH_RNN)]
        columns = ["own test", *tested[1:]]
        if bm25 := lexical.pop(group[1:3], None):
            blank = [group[place] if place in (1, 2) else "" for place in shown]
            cells = [_short(np.mean(bm25["figures"][test][first])) for test in tested]
            plain.append([*blank, "BM25", *([] if one_start else [""]), *cells])
        if one_start:
            plain.append([*own, "base", *(_mean_and_spread(base, test, first) for test in tested)])
        for name, values in ends.items():
            cells = [
                f"{_mean_and_spread(values, test, first)} ({_short_p(_p(values, starts[name], test, first))})"
                + _mark(values, ends.get(table.against), test, first)
                for test in tested
            ]
            plain.append([*own, name, *([] if one_start else [_mean_and_spread(starts[name], tested[0], first)]), *cells])
        for name, values in {"base": base, **ends}.items() if table.reranked else ():
            cells = [
                f"{_mean_and_spread(values, test + WITH_RNN, first)} ({_short_p(_p(values, values, test + WITH_RNN, first, test))})"
                for test in tested
            ]
            reranked.append([*own, name, *cells])
    yield _markdown([[*head, f"{first}; ▲▼ {table.against}", *([] if one_start else ["step 0"]), *columns], *plain])
    if reranked:
        yield _markdown([[*head, f"{first} after rNN; p against before", *columns], *reranked])
    yield _markdown([[*_GROUP, "row", "tested on", "measure", "seeds", "steps kept", "mean", "digest"], *_every(groups)])


def _every(groups: dict[tuple[str, ...], dict[str, list[tuple[TrainedRow, dict[str, Any]]]]]) -> Iterator[list[str]]:
    """Every figure by itself."""
    from reproduction_runs import digest_of

    for group, rows in groups.items():
        for name, each in rows.items():
            for which, kept in (("start", "0"), ("figures", ", ".join(str(record["steps"]) for _, record in each))):
                values = _values(each, which)
                for test, measures in values[min(values)].items():
                    for measure in measures:
                        figures = [values[seed][test][measure] for seed in sorted(values)]
                        mean = f"{np.mean(figures):.4f}"
                        yield [*group, name, test, measure, str(len(values)), kept, mean, digest_of(figures)]


def _values(rows: Sequence[tuple[TrainedRow, dict[str, Any]]], which: str) -> Values:
    return {row.seed: record[which] for row, record in rows}


def _mean(values: Values, test: str, measure: str) -> float:
    return float(np.mean([np.mean(own[test][measure]) for own in values.values()]))


def _mean_and_spread(values: Values, test: str, measure: str) -> str:
    means = [float(np.mean(own[test][measure])) for own in values.values()]
    return _short(np.mean(means)) + (f" ±{_short((max(means) - min(means)) / 2)}" if max(means) > min(means) else "")


def _p(values: Values, others: Values, test: str, measure: str, other_test: str = "") -> float:
    """The p-value of the mean over the seeds that both have."""
    seeds = [seed for seed in values if seed in others]
    one, other = (
        np.mean([each[seed][name][measure] for seed in seeds], axis=0)
        for each, name in ((values, test), (others, other_test or test))
    )
    return randomisation_test(one, other)


def _mark(values: Values, others: Values | None, test: str, measure: str) -> str:
    if not others or others is values or _p(values, others, test, measure) >= _CHANCE:
        return ""
    return " ▲" if _mean(values, test, measure) > _mean(others, test, measure) else " ▼"


def _short(value: Any) -> str:
    return f"{value:.3f}".removeprefix("0")


def _short_p(p: float) -> str:
    if p < 0.0001:
        return "<.0001"
    return f"{p:.{2 if 0.045 <= p < 0.055 else 1}g}".removeprefix("0")  # near the limit of chance one digit does not say the side


def _markdown(rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return [lines[0], "|---" * len(rows[0]) + "|", *lines[1:]]


if __name__ == "__main__":
    enter(main)
