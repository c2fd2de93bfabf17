"""What term weights cost and what can be saved: quantisation, index size and latency against BM25, pruning, drift of statistics.

    termweave node start
    python benchmarks/impacts.py ../shared/data/nfcorpus ../shared/data/cranfield ../shared/data/stackfaq > docs/impacts.md

Shipped int8 model, full collections, test splits. Indices are made for the purpose, one a signal, merged to one segment, and
deleted afterwards. `--keep DIR` keeps the encodings from run to run (encoding is nearly all of the time).
"""

from __future__ import annotations

import argparse
import pickle
import random
import statistics as numbers
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from entry_point import enter

from termweave import corpora, encoders, engine, settings
from termweave.catalog.layout import DocumentLayout, engine_id
from termweave.contracts.signal import Fitting, Pruning, Signal
from termweave.evaluation import per_query
from termweave.records import Document, Encoding, Run, TermWeights
from termweave.search.retrieval.candidates import gather, signal_requests
from termweave.signals.learned import LearnedWeights
from termweave.signals.lexical import Lexical
from termweave.signals.weights import Weights
from termweave.statistics import CorpusStatistics, StatisticsCounter
from termweave.training.data.bm25_index import SparseIndex

if TYPE_CHECKING:
    from termweave.engine import Engine

DEPTH = 100
TIMED_QUERIES, ROUNDS = 100, 5

HEAD = """# Impacts: what term weights cost, and what can be saved

Shipped int8 model, full collections, test splits, OpenSearch {version}. Made by `python benchmarks/impacts.py {sets}`.
No default was chosen by these tables: nothing is pruned unless you ask for it.
The shipped model was trained on pairs of stackfaq.
"""


@dataclass
class BenchmarkSet:
    """A data set with its encodings."""

    name: str
    dataset: corpora.Dataset
    documents: list[Any]
    statistics: CorpusStatistics
    impacts: list[TermWeights]
    queries: list[Encoding]

    @classmethod
    def read(cls, folder: str, keep: Path | None) -> BenchmarkSet:
        """Open a data set and encode it, or load the stored encodings."""
        dataset = corpora.open_dataset(folder)
        documents = list(dataset.documents())
        file = keep / f"{dataset.name}.pickle" if keep else None
        if file is None or not file.exists():
            print(f"encoding {dataset.name}", file=sys.stderr, flush=True)
            encoder = encoders.load(dense="none")
            texts = [document.content for document in documents]
            counter = StatisticsCounter(encoder.analysis or "")
            for terms in encoder.analyse(texts):
                counter.add(terms)
            counted = counter.result()
            impacts = [each.weights for each in encoder.encode(texts, kind="document", statistics=counted)]
            asked = [query.text for query in dataset.queries()]
            encoded = (counted, impacts, encoder.encode(asked, kind="query", statistics=counted))
            if file is not None:
                file.write_bytes(pickle.dumps(encoded))
        else:
            encoded = pickle.loads(file.read_bytes())
        return cls(dataset.name, dataset, documents, *encoded)

    def ndcg(self, scored: Callable[[TermWeights], list[tuple[str, float]]]) -> float:
        """Return the mean measures of a function from a query's weights to its best documents."""
        return self.measures({query: scored(each.weights) for query, each in self.asked()})["nDCG@10"]

    def asked(self) -> Iterator[tuple[str, Encoding]]:
        """Return the ids and encodings of the queries."""
        return zip([query.id for query in self.dataset.queries()], self.queries, strict=True)

    def measures(self, ranked: dict[str, list[tuple[str, float]]]) -> dict[str, float]:
        """Return means over the queries."""
        run = Run("run", {query: dict(best) for query, best in ranked.items()})
        values = per_query(run, self.dataset.qrels(), list(ranked), relevant_from=self.dataset.relevant_from)
        return {name: float(each.mean()) for name, each in values.items()}

    def exact(self, impacts: Sequence[TermWeights], query: Callable[[TermWeights], TermWeights] = lambda each: each) -> float:
        """Return nDCG@10 of exact dot products, computed without an engine."""
        index, ids = SparseIndex(impacts), [document.id for document in self.documents]

        def scored(weights: TermWeights) -> list[tuple[str, float]]:
            best, scores = index.search(query(weights), DEPTH)
            return [(ids[place], float(score)) for place, score in zip(best, scores, strict=True)]

        return self.ndcg(scored)

    def fitting(self, server: Engine) -> Fitting:
        """Return what a build knows: a sample of 512 documents."""
        drawn = random.Random(0).sample(self.impacts, min(512, len(self.impacts)))
        return Fitting(server.capabilities, [Encoding("", each) for each in drawn], statistics=self.statistics)


def quantisation(collections: Sequence[BenchmarkSet], server: Engine) -> Iterator[str]:
    yield "## Quantisation\n"
    yield (
        "nDCG@10 of exact dot products: with float weights, with the integers from 1 to 255 that the index stores, and with the query's "
        "weights as such integers, too.\n"
    )
    yield "| set | float | documents 8 bit | loss | both 8 bit | loss |\n|---|---:|---:|---:|---:|---:|"
    for each in collections:
        signal = Weights.fit(each.fitting(server))
        largest = max(float(query.weights.weights.max(initial=0)) for query in each.queries)
        stored = [signal.rounded(impacts) for impacts in each.impacts]
        exact, documents = each.exact(each.impacts), each.exact(stored)
        both = each.exact(stored, lambda query, top=largest: Weights(w_max=top).rounded(query))
        yield f"| {each.name} | {exact:.4f} | {documents:.4f} | {exact - documents:+.4f} | {both:.4f} | {exact - both:+.4f} |"


def against_bm25(collections: Sequence[BenchmarkSet], server: Engine) -> Iterator[str]:
    yield "\n## Index size and latency against BM25\n"
    yield (
        "Each signal has an index of its own with text and `_source`, in one segment. Latency: one client searches for 100 hits; the "
        "fastest of five searches counts, the systems take turns, and the median over 100 queries is shown. *k at equal recall*: how many "
        "hits reach BM25's recall@100. `weights` is a `rank_features` field searched by `neural_sparse`.\n"
    )
    yield (
        "| set | system | impacts a document | size, MB | to BM25 | nDCG@10 | recall@100 | ms | to BM25 | k at equal recall | to BM25 |\n"
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    )
    for each in collections:
        fitting = each.fitting(server)
        systems: dict[str, Signal] = {
            "BM25": Lexical(),
            "weights": Weights.fit(fitting),
            "weights, --prune 0.1": Weights.fit(replace(fitting, pruning=Pruning(below=0.1))),
            "learned": LearnedWeights.fit(fitting),
        }
        names = {system: f"bench-impacts-{each.name}-{place}" for place, system in enumerate(systems)}
        try:
            yield from _compared(each, server, systems, names)
        finally:
            for name in names.values():
                server.request("DELETE", f"/{name}", params={"ignore_unavailable": True})


def _compared(each: BenchmarkSet, server: Engine, systems: dict[str, Signal], names: dict[str, str]) -> Iterator[str]:
    sizes, ranked, times, reach = {}, {}, {}, {}
    for system, signal in systems.items():
        sizes[system] = filled(server, names[system], signal, each)
        ranked[system] = searched(server, names[system], signal, each)
    measures = {system: each.measures(ranking) for system, ranking in ranked.items()}
    times = latencies(server, names, systems, each, dict.fromkeys(systems, DEPTH))
    target = measures["BM25"]["recall@100"]
    for system, ranking in ranked.items():
        cut = (
            k for k in range(1, DEPTH + 1) if each.measures({q: hits[:k] for q, hits in ranking.items()})["recall@100"] >= target
        )
        reach[system] = next(cut, None)
    equal = latencies(server, names, systems, each, {system: k or DEPTH for system, k in reach.items()})
    for system, signal in systems.items():
        stored = (
            [signal.stored_weights(Document("", ""), Encoding("", impacts)) for impacts in each.impacts]
            if system != "BM25"
            else []
        )
        mean = f"{sum(len(kept) for kept in stored if kept) / len(stored):.1f}" if stored else ""
        figures = measures[system]
        k = reach[system]
        at_equal = f"{k} | {equal[system] / equal['BM25']:.2f}" if k else "not reached | "
        yield (
            f"| {each.name} | {system} | {mean} | {sizes[system] / 1e6:.2f} | {sizes[system] / sizes['BM25']:.2f} | {figures['nDCG@10']:.4f} "
            f"| {figures['recall@100']:.4f} | {times[system]:.1f} | {times[system] / times['BM25']:.2f} | {at_equal} |"
        )


def filled(server: Engine, name: str, signal: Signal, collection: BenchmarkSet) -> int:
    """Build an index with one signal; return its bytes on disk."""
    server.request("DELETE", f"/{name}", params={"ignore_unavailable": True})
    layout = DocumentLayout([signal])
    own = {"index.number_of_shards": 1, "index.number_of_replicas": 0, "index.refresh_interval": "-1"}
    server.request("PUT", f"/{name}", body={"settings": {**layout.settings(), **own}, "mappings": layout.mapping({})})
    for first in range(0, len(collection.documents), 500):
        lines = []
        part = slice(first, first + 500)
        for document, impacts in zip(collection.documents[part], collection.impacts[part], strict=True):
            lines.append(orjson.dumps({"index": {"_id": engine_id(document.id)}}))
            lines.append(orjson.dumps(layout.document(document, Encoding(document.content, impacts), collection.statistics)))
        answer = server.request("POST", f"/{name}/_bulk", body=b"\n".join(lines) + b"\n")
        assert not answer["errors"]
    server.request("POST", f"/{name}/_forcemerge", params={"max_num_segments": 1, "flush": True})
    server.request("POST", f"/{name}/_refresh")
    # Not `_stats`: the size of the store is cached for ten seconds (3.6.0).
    (copies,) = server.request("GET", f"/{name}/_segments")["indices"][name]["shards"].values()
    return sum(segment["size_in_bytes"] for segment in copies[0]["segments"].values())


def searched(server: Engine, name: str, signal: Signal, collection: BenchmarkSet) -> dict[str, list[tuple[str, float]]]:
    """Return a function from a query to its best documents, which asks the engine."""
    ranked = {}
    asked = list(collection.asked())
    for first in range(0, len(asked), 16):
        part = asked[first : first + 16]
        prepared = [signal_requests(encoding, [signal], server.capabilities, depth=DEPTH) for _, encoding in part]
        for (query, _), candidates in zip(part, gather(server, name, prepared, [signal])[0], strict=True):
            ranked[query] = list(candidates.lists[signal.name].scores.items())
    return ranked


def latencies(
    server: Engine, names: dict[str, str], systems: dict[str, Signal], collection: BenchmarkSet, sizes: dict[str, int]
) -> dict[str, float]:
    """Median over queries of the fastest of several searches, in milliseconds; the systems run in changing order."""
    draw = random.Random(0)
    fastest: dict[str, list[float]] = {system: [] for system in systems}
    for query in draw.sample(collection.queries, min(TIMED_QUERIES, len(collection.queries))):
        took: dict[str, float] = {}
        for _ in range(ROUNDS):
            for system in draw.sample(list(systems), len(systems)):
                bodies = signal_requests(query, [systems[system]], server.capabilities, depth=sizes[system]).bodies
                for data in [orjson.dumps(body) for body in bodies.values()]:
                    begun = time.perf_counter()
                    server.request("POST", f"/{names[system]}/_search", body=data)
                    took[system] = min(took.get(system, 1e9), time.perf_counter() - begun)
        for system, seconds in took.items():
            fastest[system].append(seconds)
    return {system: numbers.median(each) * 1000 for system, each in fastest.items()}


def pruning(collections: Sequence[BenchmarkSet], server: Engine) -> Iterator[str]:
    yield "\n## Pruning\n"
    yield (
        "`--prune 0.1` leaves out impacts below .1 of the largest; `--prune 30%` leaves out the lightest 30 % of each document. The table "
        "shows the share of the postings that is kept, and the share of nDCG@10 (exact dot products of the stored integers).\n"
    )
    yield f"| --prune | {' | '.join(f'{each.name}: postings | nDCG@10' for each in collections)} |"
    yield f"|---|{'---:|---:|' * len(collections)}"
    for text in ("0.03", "0.05", "0.1", "0.12", "0.14", "0.16", "0.2", "0.25", "0.3", "10%", "20%", "30%", "40%", "50%", "60%"):
        cells = []
        for each in collections:
            signal, wanted = Weights.fit(each.fitting(server)), Pruning.parse(text)
            kept = [wanted.apply(impacts, signal.w_max) for impacts in each.impacts]
            postings = sum(map(len, kept)) / sum(map(len, each.impacts))
            share = each.exact([*map(signal.rounded, kept)]) / each.exact([*map(signal.rounded, each.impacts)])
            cells.append(f"{postings:.3f} | {share:.3f}")
        yield f"| {text} | {' | '.join(cells)} |"


def drift(collections: Sequence[BenchmarkSet]) -> Iterator[str]:
    yield "\n## Statistics that have drifted\n"
    yield (
        "What is lost if the documents' weights are anchored on statistics of other texts: nDCG@10 minus nDCG@10 with the corpus's own "
        "statistics. *moved*: share of the postings whose idf differs by more than .5 (`CorpusStatistics.drift`); a drift above .2 counts "
        "as large.\n"
    )
    yield "| set | statistics of | moved | never counted | large | nDCG@10 |\n|---|---|---:|---:|---|---:|"
    for each in collections:
        own = each.exact(each.impacts)
        for name, other in _tables(each, collections):
            drift = other.drift(each.statistics)
            cost = each.exact([_reweighed(impacts, each.statistics, other) for impacts in each.impacts]) - own
            yield f"| {each.name} | {name} | {drift.moved:.2f} | {drift.unseen:.2f} | {'yes' if drift.large else 'no'} | {cost:+.4f} |"


def _tables(each: BenchmarkSet, collections: Sequence[BenchmarkSet]) -> Iterator[tuple[str, CorpusStatistics]]:
    order = list(range(len(each.impacts)))
    shuffled = random.Random(0).sample(order, len(order))
    for name, places in (
        ("half of it, drawn", shuffled[: len(order) // 2]),
        ("a tenth, drawn", shuffled[: len(order) // 10]),
        ("a hundredth, drawn", shuffled[: len(order) // 100]),
        ("its first half", order[: len(order) // 2]),
        ("its first tenth", order[: len(order) // 10]),
    ):
        counter = StatisticsCounter(each.statistics.analysis)
        for place in places:
            counter.add(each.impacts[place].terms)
        # Impacts contain every term once, so the average length does not change: only document frequencies drift here.
        yield name, replace(counter.result(), average_length=each.statistics.average_length)
    for other in collections:
        if other is not each:
            yield other.name, other.statistics


def _reweighed(impacts: TermWeights, own: CorpusStatistics, other: CorpusStatistics) -> TermWeights:
    """Return the impacts with another idf, and the same length and multiplier."""
    ratio = np.array([other.idf(term) / own.idf(term) for term in impacts.terms], dtype=np.float32)
    return TermWeights(impacts.terms, impacts.weights * ratio)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", metavar="SET")
    parser.add_argument("--keep", type=Path, metavar="DIR")
    parsed = parser.parse_args()
    server = engine.connect(settings.load())
    collections = [BenchmarkSet.read(folder, parsed.keep) for folder in parsed.sets]
    sets = " ".join(f"../shared/data/{Path(folder).name}" for folder in parsed.sets)
    print(HEAD.format(version=server.capabilities.version, sets=sets))
    for lines in (
        quantisation(collections, server), against_bm25(collections, server), pruning(collections, server), drift(collections)
    ):  # fmt: skip
        for line in lines:
            print(line, flush=True)


if __name__ == "__main__":
    enter(main)
