"""Whether explanations add up, on hits drawn at random from a live index: ``python benchmarks/explanations.py NAME DATASET``.

For each hit: the shares of its parts against the final score, the terms of each word signal against that signal's score,
and what `Index.explain` says of the same document against the hit. Modes and rerankers take turns.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time

from entry_point import enter

from termweave import corpora, engine, settings
from termweave.search import Index

MODES = ("hybrid", "lexical", "weights", "dense", "lexical:1,weights:2,dense:3")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("dataset")
    parser.add_argument("--hits", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    index = Index.open(engine.connect(settings.load()), asked.name)
    queries = [query.text for query in corpora.open_dataset(asked.dataset).queries()]
    draw = random.Random(asked.seed)
    ways = itertools.cycle(itertools.product(MODES, ("none", "rnn")))
    parts = terms = again = 0.0
    seen = 0
    began = time.perf_counter()
    while seen < asked.hits:
        mode, rerank = next(ways)
        query = draw.choice(queries)
        hits = index.search(query, mode=mode, rerank=rerank, k=100, explain=True)
        for hit in draw.sample(hits, min(5, len(hits), asked.hits - seen)):
            told = hit.explain()
            parts = max(parts, abs(sum(part["share"] for part in told["parts"]) - hit.score))
            for part in told["parts"]:
                if part.get("terms"):
                    summed = sum(term["share"] for term in part["terms"])
                    terms = max(terms, abs(summed - part["score"]) / max(1.0, abs(part["score"])))
            seen += 1
        one = draw.choice(hits) if hits else None
        if one is not None:
            same = index.explain(query, one.id, mode=mode, rerank=rerank)
            again = max(again, abs(same.score - one.score), float(same.rank != one.rank))
    print(f"{seen} hits of {asked.name} in {time.perf_counter() - began:.0f} s; largest differences:")
    print(f"  shares of the parts and the final score     {parts:.1e}")
    print(f"  terms and the signal's score (relative)     {terms:.1e}")
    print(f"  score and rank by `explain` of the same hit {again:.1e}")
    if max(parts, terms) > 1e-5:
        sys.exit(1)


if __name__ == "__main__":
    enter(main)
