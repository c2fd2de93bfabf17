"""The table "own data" of `benchmarks/reproduction.py`: the shipped model against models trained on the user's pairs, or on the corpus alone.

Every model is trained by `termweave train`, exported, and searched through OpenSearch (OPENSEARCH_URL, or the node of `termweave node start`).
The weights are the shipped model's in every row: the dense encoder alone differs.
"""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING, Any

import orjson
from reproduction_runs import key, measured, reduced

from termweave import corpora, engine, settings
from termweave.evaluation import evaluate, randomisation_test
from termweave.evaluation.systems import grid
from termweave.indexer import BuildOptions, build, up_to_date
from termweave.search import Index
from termweave.training import run
from termweave.training.methods import base as methods

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SETS = ("stackfaq", "medquad", "squad", "nfcorpus", "cranfield")
#: Row -> method, its settings, and whether it learns from the corpus alone.
ROWS: dict[str, tuple[str, dict[str, object], bool]] = {
    "own pairs, coder": ("coder", {"labels": "hard"}, False),
    "own pairs, in-batch": ("dtr", {"sampling": "in-batch-query", "beta": 0, "gamma": 0}, False),
    "corpus alone": ("coder", {}, True),
}
#: Sets without training pairs.
_UNPAIRED = {"nfcorpus", "cranfield"}
_FULL: dict[str, object] = {"steps": 400, "every": 100, "layers_rate": 5e-5}
_QUICK: dict[str, object] = {
    "steps": 80,
    "every": 40,
    "dev": 60,
    "precision": "bf16",
    "layers_rate": 3e-5,
    "training_length": 96,
    "candidates": 100,
}
#: Documents and questions of the part of a large set that a quick row is trained on.
_PART = (2000, 2000)
_SYSTEMS = ("weights", "dense", "weights,dense", "weights,dense + rNN")
_MEASURE = "nDCG@10"


def table(given: argparse.Namespace) -> None:
    """Make the rows that are not there yet, and print the table; p is against the shipped model."""
    print(f"| set | row | seeds | {' | '.join(f'{each} | p' for each in _SYSTEMS)} | minutes |")
    print("|---" * (4 + 2 * len(_SYSTEMS)) + "|", flush=True)
    server = engine.connect(settings.load())
    for name in given.sets.split(",") if given.sets else SETS:
        for line in _rows(given, server, name):
            print(line, flush=True)


def _rows(given: argparse.Namespace, server: engine.Engine, name: str) -> Iterator[str]:
    import numpy as np

    work = (given.work / ("quick" if given.quick else "full") / "own-data").absolute()
    questions, pool = (
        given.questions or (200 if given.quick else 10**9),
        given.pool if given.pool >= 0 else (1000 if given.quick else 0),
    )
    searched = _pool(given.data / name, work / "pools" / f"{name}-{questions}-{pool}", questions, pool)
    common = {**(_QUICK if given.quick else _FULL), **dict(each.split("=", 1) for each in given.set)}
    shipped: dict[str, list[float]] = {}
    for label in ("shipped", *(given.rows.split("/") if given.rows else ROWS)):
        if label != "shipped" and name in _UNPAIRED and not ROWS[label][2]:
            continue
        records = []
        for seed in range(1 if label == "shipped" else given.seeds):
            own = {} if label == "shipped" else {**_known(ROWS[label][0], common), **ROWS[label][1], "seed": seed}
            stem = f"{label.replace(' ', '_').replace(',', '')}-{seed}-{key(questions, pool, own)}"

            def compute(label: str = label, own: dict[str, object] = own, stem: str = stem) -> Any:
                pairs = reduced(given.data / name, *_PART, work) if given.quick else given.data / name
                corpus = searched if given.quick else given.data / name
                source = corpus if ROWS.get(label, ("", {}, False))[2] else pairs
                model = "shipped" if label == "shipped" else _trained(source, label, own, work / "models" / f"{name}-{stem}")
                return _searched(server, searched, model, f"reproduction-{name}-{stem}".lower()), {}

            records.append(measured(work / name / f"{stem}.json", compute))
        cells = []
        for system in _SYSTEMS:
            seeds = [record["figures"][system][_MEASURE] for record in records]
            means = [float(np.mean(values)) for values in seeds]
            spread = f" ± {(max(means) - min(means)) / 2:.4f}" if len(means) > 1 else ""
            p = f"{randomisation_test(np.mean(seeds, axis=0), np.array(shipped[system])):.2g}" if shipped else ""
            cells += [f"{np.mean(means):.4f}{spread}", p]
        if label == "shipped":
            shipped = {system: records[0]["figures"][system][_MEASURE] for system in _SYSTEMS}
        minutes = np.mean([record["minutes"] for record in records])
        yield f"| {name} | {label} | {len(records)} | {' | '.join(cells)} | {minutes:.1f} |"


def _known(method: str, common: Mapping[str, object]) -> dict[str, object]:
    names = {parameter.name for parameter in methods.get(method).every}
    return {name: value for name, value in common.items() if name in names}


def _pool(folder: Path, out: Path, questions: int, pool: int) -> Path:
    """A BEIR folder of some test questions, their judged documents and others; 0 documents: all of them."""
    if (out / "qrels" / "test.tsv").is_file():
        return out
    (out / "qrels").mkdir(parents=True, exist_ok=True)
    dataset = corpora.open_dataset(f"{folder}:test")
    qrels, documents = dataset.qrels(), list(dataset.documents())
    held = [query for query in dataset.queries() if any(grade > 0 for grade in qrels[query.id].values())]
    drawn = random.Random(0).sample(held, min(questions, len(held)))
    judged = {each for query in drawn for each in qrels[query.id]}
    others = [each.id for each in documents if each.id not in judged]
    random.Random(1).shuffle(others)
    kept = {*judged, *(others[: max(0, pool - len(judged))] if pool else others)}
    rows = [{"_id": each.id, "title": each.title, "text": each.text} for each in documents if each.id in kept]
    (out / "corpus.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    (out / "queries.jsonl").write_bytes(b"".join(orjson.dumps({"_id": each.id, "text": each.text}) + b"\n" for each in drawn))
    lines = [f"{query.id}\t{each}\t{grade}\n" for query in drawn for each, grade in qrels[query.id].items()]
    (out / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines), encoding="utf-8")
    return out


def _trained(folder: Path, label: str, given: Mapping[str, object], out: Path) -> str:
    name, _, alone = ROWS[label]
    method = methods.get(name)
    spec = str(next(folder.glob("corpus.jsonl*")) if alone else folder)
    run.train(
        method, spec, method.settings(given), out, resume=out.is_dir(), say=lambda line: print(line, file=sys.stderr, flush=True)
    )
    return str(out)


def _searched(server: engine.Engine, folder: Path, dense: str, name: str) -> dict[str, dict[str, Any]]:
    """Index the documents with a dense model, search the test questions in four ways, and delete the index."""
    dataset, options = corpora.open_dataset(str(folder)), BuildOptions(weights="shipped", dense=dense)
    if up_to_date(server, dataset, name, options) is None:
        build(server, dataset, name, options)
    index = Index.open(server, name, weights="shipped", dense=dense)
    systems = [*grid(("weights", "dense", "weights,dense"), ["none"], index), *grid(("weights,dense",), ["rnn"], index)]
    values = evaluate(index, dataset, systems).values
    figures = {system: {_MEASURE: values[each.name][_MEASURE]} for system, each in zip(_SYSTEMS, systems, strict=True)}
    server.request("DELETE", f"/{name}*", params={"expand_wildcards": "all"})
    return figures
