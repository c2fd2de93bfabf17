"""Shared parts of the indexing benchmarks: ready encodings, a corpus, and a timer around the pipeline."""

# A script's functions need no types.
# ruff: noqa: ANN201, ANN202, D102, PT008
from __future__ import annotations

import itertools
import json
import os
import time
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np

from termweave import encoders, engine
from termweave.encoders.analysis.model_familiarity import Familiarity
from termweave.indexer.generations import deletion
from termweave.indexer.pipeline import pipeline
from termweave.records import Encoding, ModelInfo, TermWeights

#: Name of the index of this process and of its child processes, because several runs may share a server.
NAME = os.environ.setdefault("BENCH_INDEX", f"bench-indexing-{os.getpid()}")
DIMENSION = 384


class Cached:
    """Replaces the models by ready encodings."""

    analysis = None
    dimension = DIMENSION
    too_long = 0

    def __init__(self, variants: int = 512) -> None:
        random = np.random.default_rng(0)
        vocabulary = np.array([f"term{number}" for number in range(30_000)])
        self.models = {output: ModelInfo("synthetic", "0" * 16, DIMENSION, None, 0) for output in ("weights", "dense")}
        self._made = []
        for _ in range(variants):
            terms = np.unique(np.minimum(random.zipf(1.2, 90), 30_000) - 1)[:60]
            vector = random.normal(size=DIMENSION).astype(np.float32)
            impacts = random.uniform(0.1, 9, len(terms)).astype(np.float32)
            self._made.append((TermWeights(tuple(vocabulary[terms].tolist()), impacts), vector / np.linalg.norm(vector)))
        self._next = itertools.cycle(self._made)

    def familiarity(self, _texts: list[str]) -> dict[str, Familiarity]:
        return dict.fromkeys(self.models, Familiarity(100, 0.0, "Latin", None, 0.5, 1.3, "english"))

    def dense_spread(self) -> float:
        return 0.4

    def weights_spread(self) -> float:
        return 0.0

    def only(self, _outputs: object) -> Cached:
        return self

    def encode(self, texts: list[str], **_: object) -> list[Encoding]:
        return [Encoding(text, *next(self._next)) for text in texts]


def corpus(folder: Path, count: int, first: int = 0) -> Path:
    path = folder / f"{first}-{count}.jsonl"
    text = "Every document says the same sentence until it is long enough to look like a paragraph of a real text. " * 6
    with path.open("w", encoding="utf-8") as file:
        for number in range(first, first + count):
            file.write(json.dumps({"_id": f"d{number}", "title": f"number {number}", "text": text}) + "\n")
    return path


@contextmanager
def synthetic(cached: Cached | None = None):
    """Let builds use cached encodings."""
    cached = cached or Cached()
    with mock.patch.object(encoders, "load", lambda **_: cached):
        yield cached


def remove(server: engine.Engine) -> None:
    for index in server.request("GET", f"/{NAME}-*/_alias"):
        if not index.endswith(".stats"):
            deletion.remove_generation(server, index)


@contextmanager
def timed(times: list[float], change=lambda each: each):
    """Record how long the pipelines of builds run; `change` may replace a pipeline before it runs."""
    run = pipeline.Pipeline.run

    def noted(each, report):
        each = change(each)
        started = time.perf_counter()
        counts = run(each, report)
        times.append(time.perf_counter() - started)
        return counts

    with mock.patch.object(pipeline.Pipeline, "run", noted):
        yield
