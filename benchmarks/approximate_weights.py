"""Approximate search of term weights (`sparse_vector`, SEISMIC) against the exact search of `rank_features`: recall, latency, size, time.

    termweave node start --heap 1024
    python benchmarks/approximate_weights.py ../shared/data/SET ... --keep DIR --sizes 10000 100000

OpenSearch's neural-search plugin has the field from 3.3 on. It takes numbers as terms, and version 3.6.0 ends a query with an error if one of its numbers is
32,768 or more. So the most frequent terms have a number of their own here, and the others share the rest by a hash: two of them in one number look
like one term. The columns *collide* measure how much that costs: the exact search, on these numbers. The weights are integers up to 255 in both fields, and
those of queries are rounded to 255 steps in both.

Latency: one client, the fastest of several searches of each query, median and 95th percentile over the queries. Indices have one shard, one
segment, and no `_source`.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from entry_point import enter
from large_collection import LargeCollection

from termweave import engine, settings
from termweave.records import Encoding
from termweave.signals import Fitting
from termweave.signals.impacts import escape
from termweave.signals.weights import SEPARATOR, Weights

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from termweave.engine import Engine
    from termweave.records import TermWeights

#: Numbers that a term can have, and how many of them belong to one term alone.
NUMBERS, OWN = 32_768, 24_576
#: Steps of a query's weight, and the weight that the field rounds to the last one; the plugin takes at most 64.
STEPS, TOP = 255, 51.0
DEPTH, QUERIES, ROUNDS, BULK = 100, 200, 3, 2_000


@dataclass(frozen=True)
class SeismicSettings:
    """A way to build and to search a `sparse_vector` field.

    Attributes:
        postings: The most documents in a list; 0: the plugin's default, .0005 of the documents.
        summary: Share of a cluster's weight that its summary keeps.
        top: Number of the query's terms whose lists are read, the heaviest first.
        heap: The larger, the fewer clusters are skipped.
    """

    postings: int
    summary: float
    top: int
    heap: float

    @property
    def built(self) -> tuple[int, float]:
        """What a search cannot change."""
        return self.postings, self.summary


@dataclass(frozen=True)
class Numbering:
    """The number of each term."""

    own: dict[str, int]

    @classmethod
    def of(cls, texts: Sequence[TermWeights]) -> Numbering:
        """Give the most frequent terms a number of their own."""
        frequency = Counter(term for weights in texts for term in weights.terms)
        return cls({term: number for number, (term, _) in enumerate(frequency.most_common(OWN))})

    def number(self, term: str) -> int:
        """The number of a term, from 0 to `NUMBERS` - 1."""
        own = self.own.get(term)
        digest = 0 if own is not None else int.from_bytes(blake2b(term.encode(), digest_size=4).digest(), "big")
        return own if own is not None else OWN + digest % (NUMBERS - OWN)

    def numbered(self, pairs: Sequence[tuple[str, float]]) -> dict[str, float]:
        """Number -> weight; the largest weight of the terms that share a number, as the field has it."""
        found: dict[str, float] = {}
        for term, weight in pairs:
            number = str(self.number(term))
            found[number] = max(weight, found.get(number, 0))
        return found


def rounded(query: TermWeights) -> list[tuple[str, float]]:
    """The terms of a query with weights in steps of `TOP` / `STEPS`."""
    most = float(query.weights.max())
    return [
        (term, max(1, round(weight / most * STEPS)) * TOP / STEPS)
        for term, weight in zip(query.terms, query.weights.tolist(), strict=True)
        if weight > 0
    ]


class SearchesOfOneSize:
    """The indices of one size, and their searches."""

    def __init__(self, server: Engine, collection: LargeCollection, size: int) -> None:
        self.server, self.size = server, size
        texts = [made.weights for _, made in collection.filled(size)]
        self.texts = [weights for weights in texts if weights is not None]
        sample = random.Random(0).sample(self.texts, min(512, len(self.texts)))
        self.signal = Weights.fit(Fitting(server.capabilities, [Encoding("", each) for each in sample]))
        self.numbering = Numbering.of(self.texts)
        asked = [each.encoding.weights for each in collection.questions]
        asked = [each for each in asked if each is not None and each.weights.max(initial=0) > 0]
        self.queries = [rounded(each) for each in random.Random(1).sample(asked, min(QUERIES, len(asked)))]
        self.vocabulary = len({term for weights in self.texts for term in weights.terms})

    def fill(self, name: str, mapping: dict[str, Any], fields: Callable[[Sequence[tuple[str, int]]], dict[str, float]]) -> str:
        """Build an index of one field `w`; return its size in MB and the seconds of its merge to one segment."""
        own = {"index.number_of_shards": 1, "index.number_of_replicas": 0, "index.refresh_interval": "-1"}
        sparse = {"index.sparse": True} if mapping["type"] == "sparse_vector" else {}
        body = {"settings": own | sparse, "mappings": {"_source": {"enabled": False}, "properties": {"w": mapping}}}
        self.server.request("DELETE", f"/{name}", params={"ignore_unavailable": True})
        self.server.request("PUT", f"/{name}", body=body)
        for start in range(0, len(self.texts), BULK):
            lines = []
            for number, weights in enumerate(self.texts[start : start + BULK], start):
                levels = self.signal.quantise(weights.weights).tolist()
                lines.append(orjson.dumps({"index": {"_id": str(number)}}))
                made = fields(list(zip(weights.terms, levels, strict=True)))
                lines.append(orjson.dumps({"w": made} if made else {}))  # `sparse_vector` refuses an empty object
            answer = self.server.request("POST", f"/{name}/_bulk", body=b"\n".join(lines) + b"\n")
            refused = [each["index"]["error"] for each in answer["items"] if "error" in each["index"]]
            assert not refused, refused[0]
        begun = time.perf_counter()
        self.server.request("POST", f"/{name}/_forcemerge", params={"max_num_segments": 1, "flush": True}, timeout=1800)
        self.server.request("POST", f"/{name}/_refresh")
        took = time.perf_counter() - begun
        (copies,) = self.server.request("GET", f"/{name}/_segments")["indices"][name]["shards"].values()
        size = sum(segment["size_in_bytes"] for segment in copies[0]["segments"].values())
        return f"{size / 1e6:.1f} | {took:.0f}"

    def search(self, name: str, bodies: Sequence[dict[str, Any]]) -> tuple[str, list[list[str]]]:
        """The latencies of searches as text, and the ids that each found."""
        fastest, found = np.full(len(bodies), np.inf), [[] for _ in bodies]
        for _ in range(ROUNDS):
            for place, body in enumerate(bodies):
                data = orjson.dumps(body | {"_source": False, "track_total_hits": False})
                begun = time.perf_counter()
                answer = self.server.request("POST", f"/{name}/_search", body=data, params={"request_cache": "false"})
                fastest[place] = min(fastest[place], (time.perf_counter() - begun) * 1000)
                found[place] = [hit["_id"] for hit in answer["hits"]["hits"]]
        return f"{np.median(fastest):.1f} | {np.percentile(fastest, 95):.1f}", found

    def exact(self, size: int, *, numbers: bool = False) -> list[dict[str, Any]]:
        """The bodies of the exact search for `size` documents."""
        tokens = [
            self.numbering.numbered(each) if numbers else {escape(term, SEPARATOR): weight for term, weight in each}
            for each in self.queries
        ]
        return [{"size": size, "query": {"neural_sparse": {"w": {"query_tokens": each}}}} for each in tokens]

    def approximate(self, size: int, variant: SeismicSettings) -> list[dict[str, Any]]:
        """The bodies of the approximate search."""
        method = {"k": size, "top_n": variant.top, "heap_factor": variant.heap}
        clauses = [{"query_tokens": self.numbering.numbered(each), "method_parameters": method} for each in self.queries]
        return [{"size": size, "query": {"neural_sparse": {"w": each}}} for each in clauses]


def recalls(found: Sequence[Sequence[str]], wanted: Sequence[Sequence[str]]) -> str:
    """Recall@10 and @100 of lists against exact ones, as text."""
    means = [
        np.mean([len({*some[:k]} & {*exact[:k]}) / len(exact[:k]) for some, exact in zip(found, wanted, strict=True) if exact])
        for k in (10, DEPTH)
    ]
    return f"{means[0]:.4f} | {means[1]:.4f}"


def compared(server: Engine, collection: LargeCollection, size: int, variants: Sequence[SeismicSettings]) -> Iterator[str]:
    """The rows of one size."""
    each, name = SearchesOfOneSize(server, collection, size), "bench-approximate"
    try:
        features = {"type": "rank_features"}
        built = each.fill(name, features, lambda pairs: {escape(term, SEPARATOR): level for term, level in pairs})
        each.search(name, each.exact(DEPTH))  # warms the server
        ten, _ = each.search(name, each.exact(10))
        hundred, wanted = each.search(name, each.exact(DEPTH))
        yield f"| {len(each.texts):,} | {each.vocabulary:,} | exact | {built} | {ten} | {hundred} | 1 | 1 |"
        built = each.fill(name, features, each.numbering.numbered)
        hundred, found = each.search(name, each.exact(DEPTH, numbers=True))
        ten, _ = each.search(name, each.exact(10, numbers=True))
        yield f"| {len(each.texts):,} | | exact, numbers | {built} | {ten} | {hundred} | {recalls(found, wanted)} |"
        for group in dict.fromkeys(variant.built for variant in variants):
            parameters = {
                "approximate_threshold": 1,
                "summary_prune_ratio": group[1],
                "quantization_ceiling_ingest": STEPS,
                "quantization_ceiling_search": TOP,
            }
            parameters |= {"n_postings": group[0]} if group[0] else {}
            method = {"name": "seismic", "parameters": parameters}
            built = each.fill(name, {"type": "sparse_vector", "method": method}, each.numbering.numbered)
            for variant in variants:
                if variant.built == group:
                    each.search(name, each.approximate(DEPTH, variant)[:50])
                    ten, _ = each.search(name, each.approximate(10, variant))
                    hundred, found = each.search(name, each.approximate(DEPTH, variant))
                    shown = f"{variant.postings or 'default'}, {variant.summary:g}, {variant.top}, {variant.heap:g}"
                    yield f"| {len(each.texts):,} | | {shown} | {built} | {ten} | {hundred} | {recalls(found, wanted)} |"
    finally:
        server.request("DELETE", f"/{name}", params={"ignore_unavailable": True})


def variants(texts: Sequence[str]) -> list[SeismicSettings]:
    """Read ``postings,summary,top,heap``."""
    read = [text.split(",") for text in texts]
    return [SeismicSettings(int(postings), float(summary), int(top), float(heap)) for postings, summary, top, heap in read]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", metavar="SET")
    parser.add_argument("--keep", type=Path, required=True, metavar="DIR")
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000], metavar="DOCUMENTS")
    usual = ["0,0.4,10,1", "4000,0.4,10,1", "4000,0.8,10,1.2", "4000,1,10,1", "4000,1,10,1.2", "4000,1,20,2"]
    parser.add_argument("--variants", nargs="+", default=usual, metavar="POSTINGS,SUMMARY,TOP,HEAP")
    parsed = parser.parse_args()
    server = engine.connect(settings.load())
    collection = LargeCollection(parsed.sets, parsed.keep)
    print("| documents | terms | search | MB | merge, s | 10: ms | p95 | 100: ms | p95 | recall@10 | @100 |")
    print("|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for size in parsed.sizes:
        for line in compared(server, collection, size, variants(parsed.variants)):
            print(line, flush=True)


if __name__ == "__main__":
    enter(main)
