"""What an index needs on disk and in memory, and what smaller fields cost: vectors as bytes or quantised, pruned impacts.

    termweave node start --heap 1024
    python benchmarks/storage.py ../shared/data/SET ... --keep DIR --size 100000

Each signal has an index of its own without text, in one shard and one segment: its fields, the copy for rerankers and `_source`. *memory*: the
files that a search reads and that should fit the server's page cache, vectors and graph, or postings. nDCG@10: test queries of all sets
together; *hybrid* joins the row's signal with the other one as it is stored by default. `tune --prune 99%` finds its rule on one half of the
queries. Latency: one client asks for 100 hits; the fastest of several searches of each query, median and 95th percentile.
"""

from __future__ import annotations

import argparse
import itertools
import random
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from entry_point import enter
from large_collection import LargeCollection

from termweave import engine, settings
from termweave.evaluation import per_query
from termweave.evaluation.tuning.pruning import JudgedList, choose
from termweave.records import Document, Run
from termweave.search.ranking import modes
from termweave.search.ranking.order import order
from termweave.search.retrieval.candidates import gather
from termweave.search.retrieval.requests import signal_requests
from termweave.signals import DocumentLayout, Fitting, Pruning
from termweave.signals.dense import Dense
from termweave.signals.layout import engine_id
from termweave.signals.weights import Weights

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from large_collection import Question

    from termweave.engine import Engine
    from termweave.search.ranking.fusion import Ranked
    from termweave.search.retrieval.candidates import Candidates
    from termweave.signals import Signal

DEPTH, BULK, TIMED, ROUNDS = 100, 1_000, 100, 3
#: Endings of Lucene's files that hold what searches read: postings and terms; vectors as they are or quantised, and graphs.
_READ = {"weights": ("doc", "tim", "tip", "psm", "pos"), "dense": ("vec", "veq", "veb", "vex", "vem")}


@dataclass(frozen=True)
class Stored:
    """A way to store a signal.

    Attributes:
        signal: The signal with its parameters.
        mapping: What the mapping of its k-NN field says beside.
    """

    signal: Signal
    mapping: dict[str, Any] = field(default_factory=dict)


@dataclass
class Measured:
    """What was measured of one way to store a signal."""

    size: float
    memory: float
    seconds: float
    lists: list[Candidates]
    latency: str


class Storage:
    """Indices of one collection."""

    def __init__(self, server: Engine, collection: LargeCollection, size: int) -> None:
        self.server, self.questions = server, collection.questions
        self.pairs = list(collection.filled(size))
        sample = [made for _, made in random.Random(0).sample(self.pairs, min(512, len(self.pairs)))]
        self.fitting = Fitting(server.capabilities, sample, len(self.pairs[0][1].vector))

    def measure(self, way: Stored) -> Measured:
        """Build the index of one way, search it, and delete it."""
        name = "bench-storage"
        try:
            begun = time.perf_counter()
            self._fill(name, way)
            took = time.perf_counter() - begun
            size, memory = self._bytes(name, way.signal.name)
            return Measured(size, memory, took, self._candidates(name, way.signal), self._latency(name, way.signal))
        finally:
            self.server.request("DELETE", f"/{name}", params={"ignore_unavailable": True})

    def found(self, words: Measured, target: float) -> str:
        """The rule of `tune --prune`, found on one half of the queries; says on standard output what it keeps on the other half."""
        by_id = {document.id: made.weights for document, made in self.pairs}
        signal = Weights.fit(self.fitting)
        lists = []
        for question, each in zip(self.questions, words.lists, strict=True):
            documents = {}
            for document in each.lists["weights"].scores:
                weights = by_id[document]
                documents[document] = dict(zip(weights.terms, signal.quantise(weights.weights).tolist(), strict=True))
            factors = each.clauses["weights"].terms if "weights" in each.clauses else {}
            lists.append(JudgedList(factors or {}, documents, question.grades))
        random.Random(0).shuffle(lists)
        half = len(lists) // 2
        sample = [signal.quantise(made.weights.weights) for _, made in self.pairs[:: max(1, len(self.pairs) // 2000)]]
        report = choose("all sets", lists[:half], lists[half:], target, signal.levels, sample)
        print(
            f"`tune --prune {target:.0%}` finds {report.rule} on {report.fitted} queries; on the other {report.held_out} it keeps "
            f"{report.kept:.3f} of nDCG@10 {report.ndcg:.4f}, and {report.postings:.2f} of the impacts\n",
            flush=True,
        )
        return report.rule

    def _fill(self, name: str, way: Stored) -> None:
        layout = DocumentLayout([way.signal])
        mapping = layout.mapping({})
        if way.mapping:
            mapping["properties"]["vector"] = {**mapping["properties"]["vector"], **way.mapping}
        own = {"index.number_of_shards": 1, "index.number_of_replicas": 0, "index.refresh_interval": "-1"}
        self.server.request("DELETE", f"/{name}", params={"ignore_unavailable": True})
        self.server.request("PUT", f"/{name}", body={"settings": {**layout.settings(), **own}, "mappings": mapping})
        for start in range(0, len(self.pairs), BULK):
            lines = []
            for document, made in self.pairs[start : start + BULK]:
                lines.append(orjson.dumps({"index": {"_id": engine_id(document.id)}}))
                body = layout.document(Document(document.id, "-"), made)
                lines.append(orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY))
            answer = self.server.request("POST", f"/{name}/_bulk", body=b"\n".join(lines) + b"\n", timeout=600)
            assert not answer["errors"], str(answer)[:400]
        self.server.request("POST", f"/{name}/_forcemerge", params={"max_num_segments": 1, "flush": True}, timeout=3600)
        self.server.request("POST", f"/{name}/_refresh")

    def _bytes(self, name: str, signal: str) -> tuple[float, float]:
        """Megabytes on disk, and of the files that a search reads."""
        segments = self.server.request("GET", f"/{name}/_segments")["indices"][name]["shards"]["0"][0]["segments"]
        assert len(segments) == 1, f"{len(segments)} segments"
        answer = self.server.request(
            "GET", f"/{name}/_stats/segments", params={"include_segment_file_sizes": "true", "level": "indices"}
        )
        sizes = answer["indices"][name]["primaries"]["segments"]["file_sizes"]
        read = sum(
            entry["size_in_bytes"]
            for ending, entry in sizes.items()
            if ending in _READ[signal] and not (ending == "vec" and "veq" in sizes)  # a search reads the quantised vectors alone
        )
        return sum(segment["size_in_bytes"] for segment in segments.values()) / 1e6, read / 1e6

    def _candidates(self, name: str, signal: Signal) -> list[Candidates]:
        found: list[Candidates] = []
        for start in range(0, len(self.questions), 16):
            part = self.questions[start : start + 16]
            prepared = [signal_requests(each.encoding, [signal], self.server.capabilities, depth=DEPTH) for each in part]
            found += gather(self.server, name, prepared, [signal])[0]
        return found

    def _latency(self, name: str, signal: Signal) -> str:
        fastest = []
        for question in random.Random(0).sample(self.questions, min(TIMED, len(self.questions))):
            bodies = signal_requests(question.encoding, [signal], self.server.capabilities, depth=DEPTH).bodies
            for data in [orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY) for body in bodies.values()]:
                took = []
                for _ in range(ROUNDS):
                    begun = time.perf_counter()
                    self.server.request("POST", f"/{name}/_search", body=data)
                    took.append((time.perf_counter() - begun) * 1000)
                fastest.append(min(took))
        return f"{np.median(fastest):.1f} | {np.percentile(fastest, 95):.1f}"


def ndcg(questions: Sequence[Question], found: Sequence[dict[str, float]]) -> float:
    """Mean nDCG@10."""
    run = Run("run", {each.id: scores for each, scores in zip(questions, found, strict=True)})
    judged = {each.id: dict(each.grades) for each in questions}
    return float(per_query(run, judged, list(judged))["nDCG@10"].mean())


def alone(lists: Sequence[Candidates], signal: str) -> list[dict[str, float]]:
    """The scores of one signal."""
    return [dict(each.lists[signal].scores) for each in lists]


def hybrid(weights: Sequence[Candidates], dense: Sequence[Candidates]) -> list[dict[str, float]]:
    """The scores of the default search."""
    mode = modes.parse("hybrid", ["weights", "dense"])
    found = []
    for words, vectors in zip(weights, dense, strict=True):
        both: dict[str, Ranked] = {**words.lists, **vectors.lists}
        joined = replace(words, lists=both, clauses={**words.clauses, **vectors.clauses})
        found.append({place.id: place.score for place in order(joined, mode)})
    return found


def recall(questions: Sequence[Question], lists: Sequence[Candidates], pairs: Sequence[Any]) -> float:
    """Recall@100 of vectors against exact inner products of floats; documents as near as the hundredth count as found."""
    rows = {document.id: row for row, (document, _) in enumerate(pairs)}
    vectors = np.stack([made.vector for _, made in pairs])
    shares = []
    for question, each in zip(questions, lists, strict=True):
        exact = vectors @ question.encoding.vector
        least = np.partition(exact, -DEPTH)[-DEPTH] if len(exact) >= DEPTH else exact.min()
        shares.append(np.mean([exact[rows[found]] >= least - 1e-6 for found in each.lists["dense"].scores]))
    return float(np.mean(shares))


def dense_rows(storage: Storage, plain: Measured, words: Measured, floats: Dense) -> Iterator[str]:
    """The rows of vectors."""
    quantised = {"name": "sq", "parameters": {"bits": 7, "confidence_interval": 1.0}}
    method = {
        "name": "hnsw",
        "engine": "lucene",
        "space_type": "innerproduct",
        "parameters": {"m": floats.m, "ef_construction": floats.ef_construction, "encoder": quantised},
    }
    ways = {
        "vectors as floats": None,
        "vectors as bytes (`--vectors byte`)": Stored(Dense.fit(replace(storage.fitting, byte_vectors=True))),
        "vectors quantised to 7 bits (`sq`)": Stored(floats, {"method": method}),
    }
    for label, way in ways.items():
        found = plain if way is None else storage.measure(way)
        yield (
            f"| {label} | {found.size:.1f} | {found.memory:.1f} | {found.seconds:.0f} | {found.latency} "
            f"| {recall(storage.questions, found.lists, storage.pairs):.4f} | {ndcg(storage.questions, alone(found.lists, 'dense')):.4f} "
            f"| {ndcg(storage.questions, hybrid(words.lists, found.lists)):.4f} |"
        )


def weights_rows(storage: Storage, plain: Measured, words: Measured, rules: Sequence[str]) -> Iterator[str]:
    """The rows of impacts."""
    for rule in ("", *rules):
        found = words
        if rule:
            found = storage.measure(Stored(Weights.fit(replace(storage.fitting, pruning=Pruning.parse(rule)))))
        exact = [set(each) for each in alone(words.lists, "weights")]
        kept = [len(one & set(each)) / len(one) for one, each in zip(exact, alone(found.lists, "weights"), strict=True) if one]
        label = f"impacts, `--prune {rule}`" if rule else "impacts, all"
        yield (
            f"| {label} | {found.size:.1f} | {found.memory:.1f} | {found.seconds:.0f} | {found.latency} | {np.mean(kept):.4f} "
            f"| {ndcg(storage.questions, alone(found.lists, 'weights')):.4f} "
            f"| {ndcg(storage.questions, hybrid(found.lists, plain.lists)):.4f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", metavar="SET")
    parser.add_argument("--keep", type=Path, required=True, metavar="DIR")
    parser.add_argument("--size", type=int, default=100_000, metavar="DOCUMENTS")
    parser.add_argument("--prune", nargs="+", default=["0.1", "0.16", "0.2"], metavar="RULE")
    parsed = parser.parse_args()
    collection = LargeCollection(parsed.sets, parsed.keep)
    storage = Storage(engine.connect(settings.load()), collection, parsed.size)
    print(f"{len(storage.pairs):,} documents, {len(storage.questions):,} queries\n")
    header = "| stored | MB | memory, MB | built, s | ms | p95 | recall@100 | nDCG@10 | hybrid |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    words = storage.measure(Stored(Weights.fit(storage.fitting)))
    floats = Dense.fit(storage.fitting)
    plain = storage.measure(Stored(floats))
    found = storage.found(words, 0.99)
    rules = [*parsed.prune, *([found] if found != "none" else [])]
    print(header, flush=True)
    for line in itertools.chain(weights_rows(storage, plain, words, rules), dense_rows(storage, plain, words, floats)):
        print(line, flush=True)


if __name__ == "__main__":
    enter(main)
