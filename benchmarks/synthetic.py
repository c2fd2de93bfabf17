"""What the benchmarks of indexing share: encodings that are there already, a corpus, a clock around the pipeline."""

# A script's functions need no types.
# ruff: noqa: ANN201, ANN202, D102, PT008
from __future__ import annotations

import itertools
import json
import time
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np

from termweave import encoders, engine
from termweave.encoders.language import Familiarity
from termweave.encoders.text import ModelInfo
from termweave.indexer import generations, pipeline
from termweave.records import Encoding, TermWeights

NAME = "bench-indexing"
DIMENSION = 384


class Cached:
    """In the place of the models: encodings that are there already."""

    analysis = None
    dimension = DIMENSION
    too_long = 0

    def __init__(self, variants: int = 512) -> None:
        random = np.random.default_rng(0)
        vocabulary = np.array([f"term{number}" for number in range(30_000)])
        self.models = {output: ModelInfo("synthetic", "0" * 16, Path(), DIMENSION, None, 0) for output in ("weights", "dense")}
        self._made = []
        for _ in range(variants):
            terms = np.unique(np.minimum(random.zipf(1.2, 90), 30_000) - 1)[:60]
            vector = random.normal(size=DIMENSION).astype(np.float32)
            impacts = random.uniform(0.1, 9, len(terms)).astype(np.float32)
            self._made.append((TermWeights(tuple(vocabulary[terms].tolist()), impacts), vector / np.linalg.norm(vector)))
        self._next = itertools.cycle(self._made)

    def familiarity(self, _texts: list[str]) -> dict[str, Familiarity]:
        return dict.fromkeys(self.models, Familiarity(100, 0.0, "Latin", None, 0.5, 1.3, "english"))

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
    """Builds use cached encodings."""
    cached = cached or Cached()
    with mock.patch.object(encoders, "load", lambda **_: cached):
        yield cached


def remove(server: engine.Engine) -> None:
    for index in server.request("GET", f"/{NAME}-*/_alias"):
        if not index.endswith(".stats"):
            generations.remove(server, index)


@contextmanager
def timed(times: list[float], change=lambda each: each):
    """Note how long the pipelines of builds run; `change` may exchange one before it does."""
    run = pipeline.Pipeline.run

    def noted(each, report):
        each = change(each)
        started = time.perf_counter()
        counts = run(each, report)
        times.append(time.perf_counter() - started)
        return counts

    with mock.patch.object(pipeline.Pipeline, "run", noted):
        yield
