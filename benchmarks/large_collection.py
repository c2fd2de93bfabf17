"""A large collection with known answers and ready encodings: the documents of several data sets together, filled up with mixed encodings.

Encoding takes nearly all of the time, so it is done once: the folder `keep` keeps the encodings in blocks, and an interrupted run goes on.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from termweave import corpora, encoders
from termweave.indexer.pipeline import encoding_store
from termweave.records import Document, Encoding, TermWeights
from termweave.statistics import CorpusStatistics, StatisticsCounter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from termweave.encoders.text_encoder import TextEncoder

#: Documents in a file of encodings.
BLOCK = 1_000


@dataclass(frozen=True)
class Question:
    """A test query with its encoding and its judgements: document -> grade."""

    id: str
    dataset: str
    encoding: Encoding
    grades: Mapping[str, int]


class LargeCollection:
    """The documents of several data sets with their encodings, and test queries with judgements.

    Args:
        folders: The data sets. A document's id is SET/ID.
        keep: Folder that keeps the encodings.
        most: The largest number of queries of a set.
    """

    def __init__(self, folders: Sequence[str], keep: Path, most: int = 300) -> None:
        self.keep = keep
        keep.mkdir(parents=True, exist_ok=True)
        self.datasets = {dataset.name: dataset for dataset in map(corpora.open_dataset, folders)}
        self.most = most
        self.documents = [
            replace(document, id=f"{name}/{document.id}")
            for name, dataset in self.datasets.items()
            for document in dataset.documents()
        ]

    @cached_property
    def encoder(self) -> TextEncoder:
        """The shipped model."""
        return encoders.load()

    @cached_property
    def statistics(self) -> CorpusStatistics:
        """The statistics of the documents' terms."""
        counter = StatisticsCounter(self.encoder.analysis or "")
        for start in range(0, len(self.documents), BLOCK):
            for terms in self.encoder.analyse([document.content for document in self.documents[start : start + BLOCK]]):
                counter.add(terms)
        return counter.result()

    @cached_property
    def encodings(self) -> list[Encoding]:
        """The encodings of the documents."""
        made: list[Encoding] = []
        for start in range(0, len(self.documents), BLOCK):
            part = self.documents[start : start + BLOCK]
            file = self.keep / f"{'-'.join(self.datasets)}-{start:09}.encodings"
            found = encoding_store.read(file, part)
            if found is None:
                print(f"encoding {start:,} of {len(self.documents):,}", file=sys.stderr, flush=True)
                found = self.encoder.encode([each.content for each in part], kind="document", statistics=self.statistics)
                encoding_store.keep(file, part, found)
            made += [replace(each, text="-") for each in found]
        return made

    @cached_property
    def questions(self) -> list[Question]:
        """Test queries of all data sets, encoded; of a set with many, a part drawn at random."""
        found: list[Question] = []
        for name, dataset in self.datasets.items():
            judged = dataset.qrels()
            queries = [each for each in dataset.queries() if any(grade > 0 for grade in judged.get(each.id, {}).values())]
            queries = random.Random(0).sample(queries, min(self.most, len(queries)))
            made = self.encoder.encode([query.text for query in queries], kind="query", statistics=self.statistics)
            for query, encoding in zip(queries, made, strict=True):
                grades = {f"{name}/{target}": grade for target, grade in judged[query.id].items()}
                found.append(Question(f"{name}/{query.id}", name, encoding, grades))
        return found

    def filled(self, size: int) -> Iterator[tuple[Document, Encoding]]:
        """`size` documents with their encodings: judged ones first, then the others, then mixed ones, which no judgement names."""
        judged = {target for question in self.questions for target in question.grades}
        pairs = list(zip(self.documents, self.encodings, strict=True))
        random.Random(0).shuffle(pairs)
        pairs.sort(key=lambda pair: pair[0].id not in judged)
        yield from pairs[:size]
        for number, made in enumerate(mixed(self.encodings, size - len(pairs))):
            first, second = self.documents[number % len(pairs)], self.documents[-1 - number % len(pairs)]
            text = f"{first.text[: len(first.text) // 2]} {second.text[len(second.text) // 2 :]}"
            yield Document(f"mixed/{number}", text), made


def mixed(encodings: Sequence[Encoding], count: int) -> Iterator[Encoding]:
    """Encodings of texts that would be recombined of two others: half of the terms of both, drawn, and the direction between their vectors.

    So a collection can be larger than one can encode: numbers, frequencies and weights of its terms are as in the real one.
    """
    drawn = np.random.default_rng(0)
    for _ in range(count):
        first, second = (encodings[place] for place in drawn.integers(0, len(encodings), 2))
        terms: dict[str, float] = {}
        for part in (first.weights, second.weights):
            if part is not None:
                kept = np.flatnonzero(drawn.random(len(part)) < 0.5)
                terms |= {part.terms[place]: float(part.weights[place]) for place in kept}
        vector = None
        if first.vector is not None and second.vector is not None:
            vector = first.vector + second.vector
            vector /= max(float(np.linalg.norm(vector)), 1e-6)
        yield Encoding("-", TermWeights(tuple(terms), np.fromiter(terms.values(), np.float32, len(terms))), vector)
