"""Pairs of questions and relevant documents, and data sets on disk with their statistics."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from termweave.corpora import open_dataset, open_source
from termweave.statistics import CorpusStatistics, StatisticsCounter
from termweave.support.batching import in_parts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from termweave.encoders.analysis.words import Analysis
    from termweave.records import Qrels, Query

#: Texts analysed at a time.
ANALYSED = 1024
#: Terms of the table of document frequencies that a model brings for text without a corpus.
DEFAULT_TABLE = 25_000


@dataclass(frozen=True)
class Pairs:
    """Questions and, for each, the documents that answer it, as indices into a collection.

    Attributes:
        questions: Texts of the questions.
        relevant: For each question at least one document index.
        shares: How often each question is drawn, float64 summing to 1; None: all equally often.
        spared: For each question documents that count as neither right nor wrong: never drawn, and left out of its ranking.
    """

    questions: list[str]
    relevant: list[frozenset[int]]
    shares: NDArray[np.float64] | None = None
    spared: list[frozenset[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.spared:
            object.__setattr__(self, "spared", [frozenset()] * len(self.questions))

    def __len__(self) -> int:
        return len(self.questions)

    @cached_property
    def known(self) -> list[frozenset[int]]:
        """Return for each question the documents that must not be used as wrong answers: relevant and spared ones."""
        return [relevant | spared for relevant, spared in zip(self.relevant, self.spared, strict=True)]

    def add_to(self, digest: blake2b) -> None:
        """Add the questions, with their relevant and spared documents and their shares, to a digest (hash)."""
        for question, relevant, spared in zip(self.questions, self.relevant, self.spared, strict=True):
            digest.update(repr((question, sorted(relevant), sorted(spared))).encode())
        if self.shares is not None:
            digest.update(self.shares.tobytes())

    def part(self, places: Sequence[int]) -> Pairs:
        """Return the questions at `places`, in this order, with their documents; their shares sum to 1 again."""
        shares = None if self.shares is None else self.shares[list(places)] / self.shares[list(places)].sum()
        return Pairs(
            [self.questions[place] for place in places],
            [self.relevant[place] for place in places],
            shares,
            [self.spared[place] for place in places],
        )

    def within(self, position: Mapping[int, int]) -> Pairs:
        """Return the pairs with new indices of documents; documents without a new index are left out."""

        def moved(sets: Sequence[frozenset[int]]) -> list[frozenset[int]]:
            return [frozenset(position[each] for each in documents if each in position) for documents in sets]

        return Pairs(self.questions, moved(self.relevant), self.shares, moved(self.spared))


class Collection:
    """One data set on disk, in the BEIR layout, read once."""

    def __init__(self, path: Path) -> None:
        """Read the documents.

        Raises:
            TermweaveError: The data set is not there or cannot be read.
        """
        self.name, self.path = path.name, path
        self._statistics: dict[str, CorpusStatistics] = {}
        documents = list(open_source(str(path)).documents())
        self.ids = [document.id for document in documents]
        self.texts = [document.content for document in documents]
        self.index = {identifier: place for place, identifier in enumerate(self.ids)}

    def judged(self, split: str) -> tuple[list[Query], Qrels]:
        """Return queries and judgements of a split.

        Raises:
            UsageError: No such split.
        """
        dataset = open_dataset(f"{self.path}:{split}")
        return dataset.queries(), dataset.qrels()

    def statistics(self, analysis: Analysis) -> CorpusStatistics:
        """Return statistics that are counted over the whole collection, even if only a part of it is trained on or searched."""
        if analysis.id not in self._statistics:
            self._statistics[analysis.id] = count([self.texts], analysis)
        return self._statistics[analysis.id]


def count(collections: Iterable[Sequence[str]], analysis: Analysis) -> CorpusStatistics:
    """Count the statistics of all texts of all collections together."""
    return count_terms(chain.from_iterable(in_parts(texts, ANALYSED) for texts in collections), analysis.id, analysis.terms)


def count_terms(
    parts: Iterable[Sequence[str]], analysis: str, terms_of: Callable[[Sequence[str]], Iterable[Sequence[str]]]
) -> CorpusStatistics:
    """Count the statistics of some texts, part by part; `terms_of` gives the terms of each text, as the analysis of this id does."""
    counter = StatisticsCounter(analysis)
    for part in parts:
        for terms in terms_of(part):
            counter.add(terms)
    return counter.result()


def most_frequent(statistics: CorpusStatistics, terms: int) -> CorpusStatistics:
    """Reduce statistics to the most frequent terms, so that a default table is small enough to ship; other terms count as never seen."""
    frequent = sorted(statistics.document_frequency.items(), key=lambda pair: (-pair[1], pair[0]))[:terms]
    return CorpusStatistics(statistics.analysis, statistics.documents, statistics.average_length, dict(frequent))


def sample(pairs: Pairs, documents: int, questions: int, seed: int) -> tuple[list[int], Pairs]:
    """Draw a part of a collection that is small enough for a pass of the backbone: relevant documents, then their questions.

    Args:
        pairs: All pairs of the collection.
        documents: Largest number of documents.
        questions: Largest number of questions.
        seed: The same seed draws the same part.

    Returns:
        The drawn documents, and the pairs of questions that one of them answers; all indices point into the collection. Answers that were
        not drawn are spared, because a caller may look at them for another reason.
    """
    generator = random.Random(seed)  # noqa: S311 - a draw, not a secret
    every = sorted({document for relevant in pairs.relevant for document in relevant})
    chosen = sorted(generator.sample(every, min(documents, len(every))))
    drawn = frozenset(chosen)
    answered = [number for number, relevant in enumerate(pairs.relevant) if relevant & drawn]
    generator.shuffle(answered)
    part = pairs.part(answered[:questions])
    relevant = [each & drawn for each in part.relevant]
    spared = [every - answers for every, answers in zip(part.known, relevant, strict=True)]
    return chosen, replace(part, relevant=relevant, spared=spared)
