"""Rankers: throughput against sentence-transformers, latency of a query, cost of int8, time budgets, early exit.

    python benchmarks/rankers.py speed ../shared/data/stackfaq --model MODEL
    python benchmarks/rankers.py quality ../shared/data/stackfaq --model MODEL --index NAME
    python benchmarks/rankers.py exit ../shared/data/wikiqa --index NAME

MODEL is a folder with a cross-encoder; without `speed --model`, all-MiniLM-L6-v2 with a new head, whose speed is that of a trained one. NAME is an
index of the data set. Everything runs on one thread and takes turns; times are of the processor, so that other programs hardly count. `exit` needs no
model: the cosine with the query stands in for a ranker behind learned weights. With `--quick` little is measured, and its figures mean nothing.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import tempfile
import time
from itertools import islice
from pathlib import Path

import numpy as np
from entry_point import enter

from termweave import corpora, engine, settings
from termweave.encoders import Ranker
from termweave.evaluation import randomisation_test
from termweave.evaluation.measures import per_query
from termweave.records import Run
from termweave.rerank.ranker import WINDOWS, CrossEncoderReranker
from termweave.rerank.rerankers import Reranking, RerankRequest
from termweave.search import Index
from termweave.search.ranking.order import order
from termweave.signals import modes

DEPTHS = (10, 20, 50, 100)
SHARES = (0.25, 0.5, 1.0)
RISKS, TOPS = (0.05, 0.1), (1, 3, 10)


def with_new_head(folder: Path) -> Path:
    """all-MiniLM-L6-v2 with an untrained head of one logit."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    from termweave.training import backbone_model

    base = backbone_model.installed()
    torch.manual_seed(0)
    AutoModelForSequenceClassification.from_pretrained(base, num_labels=1).save_pretrained(folder)
    AutoTokenizer.from_pretrained(base).save_pretrained(folder)
    return folder


def exported(model: Path, folder: Path) -> dict[str, Ranker]:
    """The model in fp32 and int8, one pair at a time."""
    from termweave.encoders.onnx import export

    parity = export.export(model, folder)
    print(f"Export: {parity}, mean score difference {parity.int8_score_difference:.3f} deviations.\n")
    return {precision: Ranker.load(folder, threads=1, precision=precision) for precision in ("fp32", "int8")}


def speed(model: Path | None, dataset: corpora.Dataset, rounds: int, *, quick: bool) -> None:
    """Throughput and latency."""
    import torch
    from sentence_transformers import CrossEncoder

    torch.set_num_threads(1)
    generator = np.random.default_rng(0)
    queries = [query.text for query in islice(dataset.queries(), 4 if quick else 40)]
    documents = [document.content for document in dataset.documents()]
    with tempfile.TemporaryDirectory() as work:
        folder = model or with_new_head(Path(work) / "model")
        rankers = exported(folder, Path(work) / "out")
        reference = CrossEncoder(str(folder), device="cpu")
        length = 4 if quick else 32
        took: dict[str, list[float]] = {"sentence-transformers": [], **{name: [] for name in rankers}}
        lengths = []
        for _ in range(rounds):
            query = str(generator.choice(queries))
            texts = [documents[row] for row in generator.choice(len(documents), length, replace=False)]
            lengths += reference.tokenizer([query] * length, texts, truncation=True, return_length=True)["length"]
            calls = {
                "sentence-transformers": lambda q=query, t=texts: reference.predict([(q, text) for text in t], batch_size=32)
            }
            calls |= {name: lambda r=ranker, q=query, t=texts: r.score(q, t) for name, ranker in rankers.items()}
            for name, call in calls.items():
                began = time.process_time()
                call()
                took[name].append(time.process_time() - began)
        print(f"{rounds} rounds of {length} pairs, {np.mean(lengths):.0f} tokens on average, longest {max(lengths)}.\n")
        print("| | pairs a second of the processor | against sentence-transformers | 95 % of the rounds |\n|---|---:|---:|---:|")
        for name, times in took.items():
            ratios = np.array(took["sentence-transformers"]) / np.array(times)
            low, high = np.quantile(ratios, [0.025, 0.975])
            rate = length / np.mean(times)
            print(f"| {name} | {rate:.1f} | {np.median(ratios):.2f} x | {low:.2f} to {high:.2f} |")
        print("\n| candidates | " + " | ".join(f"{name}: median, p95 (ms)" for name in rankers) + " |\n|---:|---:|---:|")
        for depth in DEPTHS[: 2 if quick else 4]:
            cells = []
            for ranker in rankers.values():
                times = []
                for query in queries[: min(rounds, 12)]:
                    texts = [documents[row] for row in generator.choice(len(documents), min(depth, len(documents)))]
                    began = time.process_time()
                    ranker.score(query, texts, windows=WINDOWS)
                    times.append((time.process_time() - began) * 1000)
                cells.append(f"{np.median(times):.0f}, {np.quantile(times, 0.95):.0f}")
            print(f"| {depth} | {' | '.join(cells)} |")


class Recorded:
    """A ranker whose logits are known."""

    def __init__(self, logits: dict[tuple[str, str], float], most: int | None = None, anchor: dict | None = None) -> None:
        self.logits, self.most, self.anchor = logits, most, anchor or {}

    def score(self, query: str, texts: list[str], windows: int = 1) -> np.ndarray:
        """As `Ranker.score`."""
        del windows
        return np.array([self.logits[query, text] for text in texts])

    def score_within(self, query: str, texts: list[str], seconds: float, windows: int = 1) -> np.ndarray:
        """The logits of the first `most` texts."""
        del seconds, windows
        return self.score(query, texts[: self.most])


def quality(model: Path, dataset: corpora.Dataset, name: str, most: int, options: dict) -> None:
    """nDCG@10 of int8, of budgets, and the risk and gain of an early exit."""
    index = Index.pinned(engine.connect(settings.load()), name)
    qrels = dataset.qrels()
    queries = [query for query in dataset.queries() if any(grade > 0 for grade in qrels.get(query.id, {}).values())][:most]
    mode = modes.parse("hybrid", index.signals)
    candidates = [
        each
        for first in range(0, len(queries), 16)
        for each in index.candidates(
            [query.text for query in queries[first : first + 16]], list(mode.weights), needs={"texts", "vectors"}
        )
    ]
    ids = [query.id for query in queries]
    depth = options["candidates"]
    first = [order(each, mode) for each in candidates]

    def measured(places: list) -> np.ndarray:
        run = Run("run", {key: {place.id: place.score for place in each} for key, each in zip(ids, places, strict=True)})
        return per_query(run, qrels, ids, relevant_from=dataset.relevant_from, measures=["nDCG@10"])["nDCG@10"]

    base = measured(first)

    def row(label: str, values: np.ndarray, against: np.ndarray, extra: str) -> None:
        p = randomisation_test(values, against)
        print(f"| {label} | {values.mean():.4f} | {values.mean() - against.mean():+.4f} | {p:.3f} | {extra} |")

    print(f"\n{len(ids)} questions, hybrid, best {depth} reranked, weight {options['weight']}.\n")
    print("| | nDCG@10 | difference to the line above it | p | documents scored |\n|---|---:|---:|---:|---:|")
    row("first stage", base, base, "0")
    with tempfile.TemporaryDirectory() as work:
        folder = str(Path(work) / "out")  # it says whether the ranker reads vectors
        rankers = exported(model, Path(folder))
        texts = [
            [each.texts[place.id] for place in places[:depth] if each.texts.get(place.id, "").strip()]
            for each, places in zip(candidates, first, strict=True)
        ]
        above, known, anchor = base, {}, {}
        for precision, ranker in rankers.items():
            seconds, logits = [], {}
            for query, each in zip(queries, texts, strict=True):
                began = time.process_time()
                scores = ranker.score(query.text, each, windows=WINDOWS)
                seconds.append(time.process_time() - began)
                logits |= {(query.text, text): float(score) for text, score in zip(each, scores, strict=True)}
            reranking = Reranking((CrossEncoderReranker(folder, scorer=Recorded(logits, anchor=ranker.anchor), **options),))
            values = measured([order(each, mode, reranking) for each in candidates])
            row(precision, values, above, f"{np.mean([len(each) for each in texts]):.1f}")
            above, known, anchor = values, logits, ranker.anchor
            print_budgets(ranker, precision, candidates, mode, ({**options, "model": folder}, base, measured))
    exits(known, anchor, queries, candidates, first, options)


def stand_in(dataset: corpora.Dataset, name: str, most: int, options: dict) -> None:
    """The early exit where the first stage is learned weights, and the cosine with the query stands in for the logit."""
    index = Index.pinned(engine.connect(settings.load()), name)
    queries = list(islice(dataset.queries(), most))
    mode, texts = modes.parse("weights", index.signals), [query.text for query in queries]
    candidates = [
        each
        for first in range(0, len(queries), 16)
        for each in index.candidates(texts[first : first + 16], ["weights"], needs={"texts", "vectors"})
    ]
    known = {
        (each.query.text, text): float(each.query.vector @ each.vectors[document])
        for each in candidates
        for document, text in each.texts.items()
        if document in each.vectors
    }
    exits(known, {}, queries, candidates, [order(each, mode) for each in candidates], options)


def print_budgets(ranker: Ranker, precision: str, candidates: list, mode: object, rest: tuple) -> None:
    """The rows of budgets: of each query a share of the time that its full reranking has just taken."""
    options, base, measured = rest
    for share in SHARES:
        places, reports = [], []
        for each in candidates:
            full = Reranking((CrossEncoderReranker(scorer=ranker, **options),))
            began = time.perf_counter()
            order(each, mode, full)
            limited = full.within(share * (time.perf_counter() - began) * 1000)
            cut = []
            places.append(order(each, mode, limited, report=cut.append))
            reports.append(cut[0].scored / cut[0].candidates if cut else 1.0)
        values = measured(places)
        p = randomisation_test(values, base)
        label = f"{precision}, {share:.0%} of the time (against the first stage)"
        print(
            f"| {label} | {values.mean():.4f} | {values.mean() - base.mean():+.4f} | {p:.3f} | {np.mean(reports):.0%} |",
            flush=True,
        )


def exits(known: dict, anchor: dict, queries: list, candidates: list, first: list, options: dict) -> None:
    """The early exit after `patience` documents in a row that did not enter the best k: risk of another best k, and what is saved.

    One half of the questions chooses the smallest patience whose risk, with one more question that fails, is within the
    stated one (conformal risk control); the other half is measured.
    """
    depth = options["candidates"]
    orders: list[list[list[str]]] = []  # of each question, after 0, 1, 2, ... documents, the ids best first
    for query, each, places in zip(queries, candidates, first, strict=True):
        head = [place for place in places[:depth] if (query.text, each.texts.get(place.id, "")) in known]
        request = RerankRequest(
            each.query,
            [place.id for place in head],
            [place.score for place in head],
            vectors=each.matrix([place.id for place in head]) if anchor else None,
            texts=[each.texts[place.id] for place in head],
        )
        after = []
        for count in range(len(head) + 1):
            scorer = Recorded(known, count, anchor)
            result = CrossEncoderReranker("m", budget=1.0, scorer=scorer, **options).rerank(request)
            totals = [result.keep * score + share for score, share in zip(request.scores, result.shares, strict=True)]
            after.append([head[row].id for row in sorted(range(len(head)), key=lambda row: -totals[row])])
        orders.append(after)
    print("\n| best k | stated risk | patience | risk on the other half | order differs | documents left out |")
    print("|---:|---:|---:|---:|---:|---:|")
    for k in TOPS:
        outcomes = {patience: np.array([stop(after, k, patience) for after in orders]) for patience in range(1, depth + 1)}
        for risk in RISKS:
            half = len(orders) // 2
            sound = [
                patience
                for patience, outcome in outcomes.items()
                if (outcome[:half, 0].sum() + 1) / (half + 1) <= risk  # conformal risk control with a loss of 0 or 1
            ]
            if not sound:
                print(f"| {k} | {risk:.0%} | none is sound with {half} questions | | | |")
                continue
            held = outcomes[min(sound)][half:]
            print(
                f"| {k} | {risk:.0%} | {min(sound)} | {held[:, 0].mean():.1%} | {held[:, 1].mean():.1%} | {held[:, 2].mean():.0%} |"
            )


def stop(after: list[list[str]], k: int, patience: int) -> tuple[float, float, float]:
    """Whether the best k change after the exit, whether their order does, and the share of documents that are not scored."""
    total = len(after) - 1
    quiet = 0
    for count in range(1, total + 1):
        quiet = quiet + 1 if set(after[count][:k]) == set(after[count - 1][:k]) and count > k else 0
        if quiet >= patience:
            break
    else:
        count = total
    changed = set(after[count][:k]) != set(after[total][:k])
    return float(changed), float(after[count][:k] != after[total][:k]), 1 - count / max(1, total)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["speed", "quality", "exit"])
    parser.add_argument("dataset")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--index")
    parser.add_argument("--candidates", type=int, default=30)
    parser.add_argument("--weight", type=float, default=0.5)
    parser.add_argument("--queries", type=int, default=200, help="most questions of `quality`")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    dataset = corpora.open_dataset(given.dataset)
    options = {"candidates": given.candidates, "weight": given.weight}
    if given.part == "speed":
        speed(given.model, dataset, 2 if given.quick else given.rounds, quick=given.quick)
    elif given.part == "exit" and given.index is not None:
        stand_in(dataset, given.index, given.queries, options)
    elif given.model is not None and given.index is not None:
        quality(given.model, dataset, given.index, given.queries, options)
    else:
        parser.error("quality needs --model and --index, exit needs --index")


if __name__ == "__main__":
    enter(main)
