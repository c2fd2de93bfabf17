"""Feature rankers (`train ltr`) by cross-validation, with and without metadata, against hybrid search and hybrid+rNN: nDCG@10.

    python benchmarks/feature_ranker.py ../shared/data/movies:dev ../shared/data/nfcorpus ../shared/data/stackfaq --seeds 3
    python benchmarks/feature_ranker.py ../shared/data/movies:dev --parts

Each set is indexed with the shipped model as `ltr-SET`, unless that index is there. Of each at most 1,000 questions are asked, in five folds: every
question is ranked by a model that the other folds trained. p is that of a paired randomisation test against hybrid+rNN, on the means over the seeds,
not corrected. With `--parts` a row shows what is lost where one part is left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from entry_point import enter

from learning import QuestionSample
from termweave import corpora, engine, settings
from termweave.catalog import generations
from termweave.evaluation import per_query, randomisation_test
from termweave.indexer import BuildOptions, build
from termweave.rerank import candidate_features
from termweave.rerank.rerankers import METADATA
from termweave.search import Index
from termweave.training import feature_ranker, judged_candidates
from termweave.training.methods.ltr import Ltr

MEASURE, ASKED = "nDCG@10", 1000


def main() -> None:
    """Measure each set, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", help="folders of data sets, with :SPLIT where it is not test")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--parts", action="store_true")
    given = parser.parse_args()
    print(
        "| nDCG@10 | questions | hybrid | hybrid+rNN | ltr, no metadata | p | ltr | p |\n|---|---:|---:|---:|---:|---:|---:|---:|",
        flush=True,
    )
    with engine.connect(settings.load(), pool_maxsize=6) as server:
        for spec in given.sets:
            for line in rows(server, spec, given.seeds, parts=given.parts):
                print(line, flush=True)


def rows(server: engine.Engine, spec: str, seeds: int, *, parts: bool) -> list[str]:
    """The lines of one set."""
    base, split = corpora.path_and_split(spec)
    dataset = QuestionSample(corpora.open_dataset(f"{base}:{split or 'test'}"), ASKED)
    name = f"ltr-{Path(base).name}"
    if generations.find_live(server, name) is None:
        build(server, corpora.open_source(base), name, BuildOptions())
    index = Index.pinned(server, name)
    queries = {query.id: query.text for query in dataset.queries()}
    mode, _ = index.choose("hybrid", "none")
    columns = []
    judged = None
    for metadata in ("none", ""):
        if metadata == "" and not index.layout.types:
            continue
        each = Ltr().settings({"candidates_from": f"index:{name}", "metadata": metadata})
        judged = judged_candidates.gather(index, dataset, mode, each, lambda *_: None)
        by_seed = [
            feature_ranker.cross_validate(
                judged, Ltr().settings({"candidates_from": f"index:{name}", "metadata": metadata, "seed": seed})
            ).values
            for seed in range(seeds)
        ]
        columns.append((np.mean(by_seed, axis=0), [float(values.mean()) for values in by_seed]))
    assert judged is not None
    ids = list(judged.questions)
    near = per_query(index.run({each: queries[each] for each in ids}, k=10, mode="hybrid", rerank="rnn"), dataset.qrels(), ids)[
        MEASURE
    ]
    cells = [Path(base).name, f"{len(ids):,}", f"{judged.figures().mean():.4f}", f"{near.mean():.4f}"]
    for values, means in columns:
        cells += [f"{values.mean():.4f} ± {(max(means) - min(means)) / 2:.4f}", f"{randomisation_test(values, near):.2g}"]
    lines = [f"| {' | '.join(cells + [''] * (8 - len(cells)))} |"]
    if parts:
        whole = columns[-1][0].mean()
        part_of = {feature: part_named(feature, judged.types) for feature in judged.features}
        for part in filter(None, dict.fromkeys(part_of.values())):
            left = [at for at, feature in enumerate(judged.features) if part_of[feature] != part]
            features, matrices = tuple(judged.features[at] for at in left), tuple(each[:, left] for each in judged.rows)
            without = [
                feature_ranker.cross_validate(
                    replace(judged, features=features, rows=matrices),
                    Ltr().settings({"candidates_from": f"index:{name}", "seed": seed}),
                ).values.mean()
                for seed in range(seeds)
            ]
            lines.append(f"| without {part} | | | | | | {np.mean(without):.4f} ({np.mean(without) - whole:+.4f}) | |")
    return lines


def part_named(feature: str, types: Mapping[str, str]) -> str:
    """The signal, the metadata entry, "vectors" or "behaviour" that a feature is of; "" where it is of the query or the score so far."""
    if feature in ("score", "rank", "terms"):
        return ""
    if feature in candidate_features.OF_BEHAVIOUR:
        return "behaviour"
    needed = next(iter(candidate_features.needs([feature], types)))
    return needed if needed == "vectors" or needed.startswith(METADATA) else needed.partition(".")[2]


if __name__ == "__main__":
    enter(main)
