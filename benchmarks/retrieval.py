"""BM25, learned weights, dense, hybrid and hybrid+rNN on full collections, through a real OpenSearch.

    termweave node start
    python benchmarks/retrieval.py ../shared/data/nfcorpus ../shared/data/cranfield > docs/figures.md

Shipped int8 model, no tuning, test splits; an index that is there and up to date is used as it is.
"""

from __future__ import annotations

import sys
from pathlib import Path

from termweave import corpora, engine, settings
from termweave.evaluation import Experiment, evaluate, report
from termweave.indexer import Options, build, up_to_date
from termweave.search import Index

HEAD = """# Figures

Full collections, test splits, every figure through the index on OpenSearch {version}; shipped model `{model}` (int8), no tuning.
▲ ▼: better or worse than BM25, p < .05 (paired randomisation test, 10,000 draws, seed 0, Holm's correction over the table).
Relevant for MRR and recall from grade {note}. Zero-shot means that no pair of a set was in our training: true of all but squad, medquad and
stackfaq here; MiniLM itself has seen SQuAD, MS MARCO and StackExchange pairs.

Made by `python benchmarks/retrieval.py {sets}`.
"""


def summary(experiments: list[Experiment]) -> str:
    """nDCG@10 of every set and system in one table."""
    systems = [row.system for row in experiments[0].rows]
    lines = [f"| nDCG@10 | {' | '.join(systems)} |", f"|---|{'---:|' * len(systems)}"]
    for each in experiments:
        cells = [report.cell(each, row, "nDCG@10") for row in each.rows]
        lines += [f"| {each.dataset.partition(':')[0]} | {' | '.join(cells)} |"]
    return "\n".join(lines)


def main(folders: list[str]) -> None:
    server = engine.connect(settings.load())
    experiments = []
    model = ""
    for folder in folders:
        dataset = corpora.open_dataset(folder)
        name = f"bench-{Path(folder.partition(':')[0]).name}"
        print(name, file=sys.stderr, flush=True)
        if up_to_date(server, dataset, name, Options()) is None:
            build(server, dataset, name, Options())
        index = Index.open(server, name)
        model = index.lineage.models["weights"].name
        experiments.append(evaluate(index, dataset))
    sets = " ".join(f"../shared/data/{Path(folder).name}" for folder in folders)
    print(HEAD.format(version=server.capabilities.version, model=model, note="1 (trec-dl: 2)", sets=sets))
    print("\n\n".join([summary(experiments), *(report.markdown(each) for each in experiments)]))


if __name__ == "__main__":
    main(sys.argv[1:])
