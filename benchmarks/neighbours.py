"""What `index --neighbours` costs beside encoding: documents a second encoded, and compared with all others.

    python benchmarks/neighbours.py

Encoded are passages of the demo corpus by the shipped model; compared are synthetic encodings, a block of 512 of them with as
many as the row says. No server. With `--quick` both are as small as can be: that shows that the script works.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

import numpy as np
from entry_point import enter
from synthetic import Cached

from termweave import corpora, encoders
from termweave.indexer.pipeline import neighbour_expansion
from termweave.indexer.preparation.corpus_pass import blocks
from termweave.records import Document

if TYPE_CHECKING:
    from collections.abc import Callable

_ENCODED = 1024


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--documents", type=int, nargs="+", default=[10_000, 100_000, 300_000])
    arguments.add_argument("--neighbours", type=int, default=5)
    arguments.add_argument("--quick", action="store_true", help="the smallest input, to see whether the script works")
    given = arguments.parse_args()
    if given.quick:
        given.documents, encoded = [600], 8
    else:
        encoded = _ENCODED
    encoder = encoders.load()
    texts = [each.content for each in corpora.open_source("demo").documents() if each.content][:encoded]
    encode = rate(len(texts), lambda: encoder.encode(texts, kind="document"))
    print("| documents | encoded a second | compared a second | time of comparing against encoding |")
    print("|---:|---:|---:|---:|")
    for count in given.documents:
        corpus = synthetic(count)
        block = [Document(f"d{number}", "text", line=number) for number in range(512)]
        compared = rate(len(block), lambda corpus=corpus, block=block: corpus.expanded(block, given.neighbours))
        print(f"| {count:,} | {encode:,.0f} | {compared:,.0f} | {encode / compared:.2f} |", flush=True)


def rate(count: int, work: Callable[[], object]) -> float:
    """Return texts per second, the better of two runs."""
    found = []
    for _ in range(2):
        began = time.perf_counter()
        work()
        found.append(count / (time.perf_counter() - began))
    return max(found)


def synthetic(count: int) -> neighbour_expansion.Corpus:
    """Make a corpus of ready encodings with different random vectors."""
    corpus, cached, random = neighbour_expansion.Corpus(), Cached(), np.random.default_rng(0)
    documents = (Document(f"d{number}", "text", line=number) for number in range(count))
    for block in blocks(documents):
        made = cached.encode([each.text for each in block])
        vectors = random.normal(size=(len(block), len(made[0].vector))).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        corpus.add(block, [each.__class__(each.text, each.weights, vector) for each, vector in zip(made, vectors, strict=True)])
    corpus.close()
    return corpus


if __name__ == "__main__":
    enter(main)
