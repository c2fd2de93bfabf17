"""BM25, learned weights, dense, hybrid and hybrid+rNN on full collections, through a real OpenSearch.

    termweave node start
    python benchmarks/retrieval.py ../shared/data/nfcorpus ../shared/data/cranfield

Shipped int8 model, or another one (`--model`), no tuning, test splits; an index that is there and up to date is used as it is.
`--against bench` compares another model with the indices of an earlier run.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from entry_point import enter

from termweave import corpora, engine, settings
from termweave.evaluation import Experiment, evaluate, randomisation_test
from termweave.evaluation.report import table as report
from termweave.evaluation.systems import default_systems, grid
from termweave.indexer import BuildOptions, build, up_to_date
from termweave.search import Index

HEAD = """Full collections, test splits, through the index on OpenSearch {version}; {model} (int8), searches not tuned.
"""

PAIRS = "What the learned weights add to the vectors, by the default fusion and by plain min-max; p uncorrected:"


AGAINST = "The indices `{name}-DATASET` -> these; p uncorrected:"


def summary(experiments: list[Experiment], measure: str) -> str:
    """Make one table with a measure of every set and system."""
    systems = [row.system for row in experiments[0].rows]
    lines = [f"| {measure} | {' | '.join(systems)} |", f"|---|{'---:|' * len(systems)}"]
    for each in experiments:
        cells = [report.cell(each, row, measure) for row in each.rows]
        lines += [f"| {each.dataset.partition(':')[0]} | {' | '.join(cells)} |"]
    return "\n".join(lines)


#: What learned weights add to vectors: the same fusion with BM25 and with the weights.
FUSED = {"adaptive": ("lexical,dense", "weights,dense"), "min-max": ("lexical,dense@min-max", "weights,dense@min-max")}


def fused(experiments: list[Experiment]) -> str:
    """Compare weights + dense with BM25 + dense: nDCG@10 of both, the difference, p."""
    lines = ["| nDCG@10 | " + " | ".join(f"BM25 + dense, {name} | weights + dense | difference (p)" for name in FUSED) + " |"]
    lines.append("|---|" + "---:|" * 3 * len(FUSED))
    differences: dict[str, list[float]] = {name: [] for name in FUSED}
    for each in experiments:
        cells = []
        for name, modes in FUSED.items():
            plain, learned = (each.values[system_of(each, mode)]["nDCG@10"] for mode in modes)
            difference = float((learned - plain).mean())
            differences[name].append(difference)
            cells += [
                f"{plain.mean():.4f}",
                f"{learned.mean():.4f}",
                f"{difference:+.4f} ({randomisation_test(learned, plain):.2g})",
            ]
        lines.append(f"| {each.dataset.partition(':')[0]} | {' | '.join(cells)} |")
    means = " | ".join(f"| | {sum(found) / len(found):+.4f}" for found in differences.values())
    return "\n".join([*lines, f"| mean {means} |"])


def compared(experiments: list[Experiment], others: list[Experiment]) -> str:
    """Compare the same systems over two indices of a set: nDCG@10 and recall@100 of both, and p of the difference."""
    columns = [(row.system, measure) for measure in ("nDCG@10", "recall@100") for row in experiments[0].rows]
    columns = [
        column
        for column in columns
        if column[0] in {"weights", "hybrid", "hybrid+rNN"} and column != ("hybrid+rNN", "recall@100")
    ]
    lines = ["| set | " + " | ".join(f"{system}, {measure}" for system, measure in columns) + " |"]
    lines.append("|---|" + "---:|" * len(columns))
    differences: list[list[float]] = []
    for here, there in zip(experiments, others, strict=True):
        pairs = [(there.values[system][measure], here.values[system][measure]) for system, measure in columns]
        differences.append([float((new - old).mean()) for old, new in pairs])
        cells = [f"{old.mean():.4f} -> {new.mean():.4f} ({randomisation_test(new, old):.2g})" for old, new in pairs]
        lines.append(f"| {here.dataset.partition(':')[0]} | {' | '.join(cells)} |")
    means = [sum(column) / len(column) for column in zip(*differences, strict=True)]
    return "\n".join([*lines, f"| mean | {' | '.join(f'{mean:+.4f}' for mean in means)} |"])


def system_of(experiment: Experiment, mode: str) -> str:
    """Return the name of a mode in a table."""
    return next(row.system for row in experiment.rows if row.mode == mode)


def details(experiment: Experiment) -> str:
    """Return the table of one set without the legend, which the head of the page has for all tables."""
    return report.markdown(experiment).partition("\n\n")[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="DATASET", help="BEIR folder, or FOLDER:SPLIT")
    parser.add_argument("--model", help="weights and dense model  [default: the shipped one]")
    parser.add_argument("--name", default="bench", help="indices are called NAME-DATASET  [default: bench]")
    parser.add_argument("--against", metavar="NAME", help="compare with the indices NAME-DATASET")
    given = parser.parse_args()
    options = BuildOptions(weights=given.model, dense=given.model)
    server = engine.connect(settings.load())
    experiments: list[Experiment] = []
    pairs, others = [], []
    model = ""
    for folder in given.folders:
        dataset = corpora.open_dataset(folder)
        name = f"{given.name}-{Path(folder.partition(':')[0]).name}"
        print(name, file=sys.stderr, flush=True)
        if up_to_date(server, dataset, name, options) is None:
            build(server, dataset, name, options)
        index = Index.open(server, name, weights=given.model, dense=given.model)
        model = f"{'model' if given.model else 'shipped model'} `{index.lineage.models['weights'].name}`"
        experiments.append(evaluate(index, dataset, default_systems(index)))
        if given.against:
            other = Index.open(server, f"{given.against}-{name.removeprefix(f'{given.name}-')}")
            others.append(evaluate(other, dataset, default_systems(other)))
        modes = [mode for pair in FUSED.values() for mode in pair]
        pairs.append(evaluate(index, dataset, grid(modes, ["none"], index), baseline=modes[0]))
    print(HEAD.format(version=server.capabilities.version, model=model))
    against = [AGAINST.format(name=given.against), compared(experiments, others)] if others else []
    summaries = [summary(experiments, measure) for measure in ("nDCG@10", "MRR@10", "recall@100")]
    print("\n\n".join([*summaries, *against, PAIRS, fused(pairs), *map(details, experiments)]))


if __name__ == "__main__":
    enter(main)
