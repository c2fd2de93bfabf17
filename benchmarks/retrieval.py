"""BM25, learned weights, dense, hybrid and hybrid+rNN on full collections, through a real OpenSearch.

    termweave node start
    python benchmarks/retrieval.py ../shared/data/nfcorpus ../shared/data/cranfield

Shipped int8 model, or another one (`--model`), no tuning, test splits; an index that is there and up to date is used as it is.
`--against bench` compares another model with the indices `bench-DATASET`; those that are missing are built with the shipped model. `--bm25s` adds
bm25s, and the fusion of BM25 and vectors by reciprocal ranks (``lexical,dense@rrf``), as engines have it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from entry_point import enter

from termweave import corpora, engine, settings
from termweave.catalog import generations
from termweave.evaluation import Experiment, evaluate, per_query, randomisation_test
from termweave.evaluation import table as report
from termweave.evaluation.systems import default_systems, grid
from termweave.indexer import BuildOptions, build, up_to_date
from termweave.records import Run
from termweave.search import Index

if TYPE_CHECKING:
    from termweave.corpora import Dataset

HEAD = """Full collections, test splits, through the index on OpenSearch {version}; {model} (int8), searches not tuned.
"""

PAIRS = "What the learned weights add to the vectors, by the default fusion and by plain min-max; p uncorrected:"


AGAINST = "The indices `{name}-DATASET` -> these; ▲ ▼: p < .05, uncorrected:"


def summary(experiments: list[Experiment], measure: str) -> str:
    """Make one table with a measure of every set and system."""
    systems = [row.system for row in experiments[0].rows]
    lines = [f"| {measure} | {' | '.join(systems)} |", f"|---|{'---:|' * len(systems)}"]
    for each in experiments:
        cells = [report.cell(each, row, measure) for row in each.rows]
        lines += [f"| {each.dataset.partition(':')[0]} | {' | '.join(cells)} |"]
    return "\n".join(lines)


#: What engines offer for BM25 and vectors.
RRF = "lexical,dense@rrf"
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
    means = " ".join(f"| | | {sum(gains) / len(gains):+.4f}" for gains in differences.values())
    return "\n".join([*lines, f"| mean {means} |"])


def compared(experiments: list[Experiment], others: list[Experiment], names: tuple[str, str]) -> str:
    """Compare the same systems over two indices of a set by nDCG@10.

    Returns:
        A table of all sets and systems (▲ ▼: p < .05), and one of hybrid on the sets where it differs significantly.
    """
    systems = [row.system for row in experiments[0].rows if row.system != "BM25"]
    lines = [f"| nDCG@10 | queries | {' | '.join(systems)} |", "|---|" + "---:|" * (len(systems) + 1)]
    short = [f"| nDCG@10 of hybrid | {' | '.join(names)} | difference |", "|---|---:|---:|---:|"]
    means: dict[str, list[tuple[float, float]]] = {system: [] for system in systems}
    for here, there in zip(experiments, others, strict=True):
        cells, dataset = [], here.dataset.removesuffix(":test")
        for system in systems:
            old, new = (each.values[system]["nDCG@10"] for each in (there, here))
            before, after = float(old.mean()), float(new.mean())
            means[system].append((before, after))
            mark = ("▲" if after > before else "▼") if randomisation_test(new, old) < 0.05 else ""
            cells.append(f"{before:.3f} -> {after:.3f}{mark}")
            if system == "hybrid" and mark:
                short.append(f"| {dataset} | {before:.3f} | {after:.3f}{mark} | {after - before:+.3f} |")
        lines.append(f"| {dataset} | {len(new):,} | {' | '.join(cells)} |")
    gains = {system: sum(after - before for before, after in pairs) / len(pairs) for system, pairs in means.items()}
    lines.append(f"| mean | | {' | '.join(f'{gain:+.4f}' for gain in gains.values())} |")
    first, second = (sum(side) / len(side) for side in zip(*means["hybrid"], strict=True))
    short.append(f"| mean of {len(experiments)} sets | {first:.3f} | {second:.3f} | {gains['hybrid']:+.3f} |")
    return "\n\n".join("\n".join(table) for table in (lines, short))


def bm25s(dataset: Dataset) -> float:
    """nDCG@10 of bm25s (its defaults: Lucene's BM25, k1 1.5, b .75; English stop words, Snowball stems), in memory."""
    import bm25s as library  # of the group bench
    import Stemmer

    documents, qrels = list(dataset.documents()), dataset.qrels()
    read = {"stopwords": "en", "stemmer": Stemmer.Stemmer("english"), "show_progress": False}
    retriever = library.BM25()
    retriever.index(library.tokenize([each.content for each in documents], **read), show_progress=False)
    queries = [query for query in dataset.queries() if any(grade > 0 for grade in qrels.get(query.id, {}).values())]
    places, scores = retriever.retrieve(library.tokenize([query.text for query in queries], **read), k=10, show_progress=False)
    run = Run(
        "bm25s",
        {
            query.id: {documents[place].id: float(score) for place, score in zip(best, own, strict=True)}
            for query, best, own in zip(queries, places, scores, strict=True)
        },
    )
    return float(per_query(run, qrels, list(run.scores), measures=("nDCG@10",))["nDCG@10"].mean())


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
    parser.add_argument("--bm25s", action="store_true", help="add bm25s and the engines' own fusion")
    given = parser.parse_args()
    options = BuildOptions(weights=given.model, dense=given.model)
    server = engine.connect(settings.load())
    experiments: list[Experiment] = []
    pairs, others, plain = [], [], ["| nDCG@10 | bm25s | BM25 + dense, RRF |", "|---|---:|---:|"]
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
            before = f"{given.against}-{name.removeprefix(f'{given.name}-')}"
            if generations.live(server, before) is None:
                build(server, dataset, before, BuildOptions())
            other = Index.open(server, before)
            others.append(evaluate(other, dataset, default_systems(other)))
        if given.bm25s:
            fused_by_rank = evaluate(index, dataset, grid([RRF], ["none"], index))
            mean = fused_by_rank.values[system_of(fused_by_rank, RRF)]["nDCG@10"].mean()
            plain.append(f"| {dataset.name} | {bm25s(dataset):.4f} | {mean:.4f} |")
        modes = [mode for pair in FUSED.values() for mode in pair]
        pairs.append(evaluate(index, dataset, grid(modes, ["none"], index), baseline=modes[0]))
    print(HEAD.format(version=server.capabilities.version, model=model))
    names = (given.against, given.model or given.name)
    against = [AGAINST.format(name=given.against), compared(experiments, others, names)] if others else []
    summaries = [summary(experiments, measure) for measure in ("nDCG@10", "MRR@10", "recall@100")]
    print(
        "\n\n".join(
            [*against, *(["\n".join(plain)] if given.bm25s else []), *summaries, PAIRS, fused(pairs), *map(details, experiments)]
        )
    )


if __name__ == "__main__":
    enter(main)
