"""What `index --neighbours` costs beside encoding: documents a second encoded, and compared with all others.

    python benchmarks/neighbours.py

Encoded are passages of the demo corpus by the shipped model; compared are synthetic encodings, a block of 512 of them with as
many as the row says. No server.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

import numpy as np
from door import enter
from synthetic import Cached

from termweave import corpora, encoders
from termweave.indexer import expanding
from termweave.indexer.survey import blocks
from termweave.records import Document

if TYPE_CHECKING:
    from collections.abc import Callable

_ENCODED = 1024


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--documents", type=int, nargs="+", default=[10_000, 100_000, 300_000])
    arguments.add_argument("--neighbours", type=int, default=5)
    given = arguments.parse_args()
    encoder = encoders.load()
    texts = [each.content for each in corpora.open_source("demo").documents() if each.content][:_ENCODED]
    encode = rate(len(texts), lambda: encoder.encode(texts, kind="document"))
    print("| documents | encoded a second | compared a second | time of comparing against encoding |")
    print("|---:|---:|---:|---:|")
    for count in given.documents:
        corpus = synthetic(count)
        block = [Document(f"d{number}", "text", line=number) for number in range(512)]
        compared = rate(len(block), lambda corpus=corpus, block=block: corpus.expanded(block, given.neighbours))
        print(f"| {count:,} | {encode:,.0f} | {compared:,.0f} | {encode / compared:.2f} |", flush=True)


def rate(count: int, work: Callable[[], object]) -> float:
    """Texts a second, the better of two runs."""
    found = []
    for _ in range(2):
        began = time.perf_counter()
        work()
        found.append(count / (time.perf_counter() - began))
    return max(found)


def synthetic(count: int) -> expanding.Corpus:
    """A corpus of so many encodings that are there already; random vectors, every one another."""
    corpus, cached, random = expanding.Corpus(), Cached(), np.random.default_rng(0)
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
