"""What `--two-phase` loses on judged sets: the weights signal alone, in one phase and in two.

    termweave node start
    python benchmarks/two_phase.py ../shared/data/nfcorpus ../shared/data/cranfield

An index that is there and up to date is used as it is (those of `retrieval.py`).
"""

from __future__ import annotations

import argparse
from pathlib import Path

from door import enter

from termweave import corpora, engine, settings
from termweave.evaluation import per_query, randomisation_test
from termweave.indexer import Options, build, up_to_date
from termweave.records import Run
from termweave.search import Index
from termweave.search.execution import Execution

MEASURES = ("nDCG@10", "recall@100")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="DATASET", help="BEIR folder, or FOLDER:SPLIT")
    folders = parser.parse_args().folders
    server = engine.connect(settings.load())
    print(f"| weights, one phase -> two | queries | {' | '.join(f'{name} | p' for name in MEASURES)} |")
    print(f"|---|---:|{'---:|' * 2 * len(MEASURES)}")
    for folder in folders:
        dataset = corpora.open_dataset(folder)
        name = f"bench-{Path(folder.partition(':')[0]).name}"
        if up_to_date(server, dataset, name, Options()) is None:
            build(server, dataset, name, Options())
        index = Index.open(server, name)
        queries, qrels = dataset.queries(), dataset.qrels()
        texts, ids = [query.text for query in queries], [query.id for query in queries]
        values = []
        for halved in (False, True):
            found = index.candidates(texts, ["weights"], execution=Execution(two_phase=halved))
            run = Run("", {query: each.lists["weights"].scores for query, each in zip(ids, found, strict=True)})
            values.append(per_query(run, qrels, ids, relevant_from=dataset.relevant_from, measures=MEASURES))
        cells = [
            f"{values[0][name].mean():.4f} -> {values[1][name].mean():.4f} | {randomisation_test(values[0][name], values[1][name]):.3f}"
            for name in MEASURES
        ]
        print(f"| {dataset.name} | {len(ids)} | {' | '.join(cells)} |")


if __name__ == "__main__":
    enter(main)
