"""The first stage of ranker training: the best documents of each question, by hybrid search in memory, by BM25, or from a run file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from termweave import settings as machine_settings
from termweave.contracts.signal import Fitting
from termweave.encoders import load
from termweave.encoders.term_weighting import BM25
from termweave.engine import connect
from termweave.errors import InputError, UsageError
from termweave.records import Capabilities
from termweave.rerank.anchor import neighbourhood_features
from termweave.rerank.ranker import CrossEncoderReranker
from termweave.search import Index
from termweave.signals import modes
from termweave.signals.dense import Dense
from termweave.signals.fusion import Ranked, fuse
from termweave.signals.weights import Weights
from termweave.statistics import StatisticsCounter
from termweave.support.batching import in_parts
from termweave.support.messages import counted
from termweave.training.data.bm25_index import SparseIndex, bm25_weights
from termweave.training.data.teacher_scores import by_question
from termweave.training.ranker.inputs import NOTHING, CandidateLists

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from termweave.records import Encoding
    from termweave.training.data.pairs import Pairs
    from termweave.training.setup import RunSetup

#: Before the name of a live index.
INDEX = "index:"
#: The mode in which a live index is searched.
_HYBRID = "hybrid"
#: Documents of each signal that search looks at: their scores are fused, or those of one signal scaled to [0, 1].
_WINDOW = 100
#: Texts analysed at a time.
_BLOCK = 1024


class FirstStage(Protocol):
    """Ranks the documents of a data set."""

    @property
    def names(self) -> tuple[str, ...]:
        """The features of a candidate."""
        ...

    def rank(self, questions: Sequence[str], spared: Sequence[frozenset[int]], depth: int) -> list[dict[int, tuple[float, ...]]]:
        """The best documents of each question, best first, with their features; documents in `spared` are left out."""
        ...


def check(name: str, usual: str = "hybrid") -> None:
    """Refuse a run file that is not there; `usual`: the first stage that a method has by default.

    Raises:
        UsageError: There is no such file.
    """
    if name not in (usual, "bm25") and not name.startswith(INDEX) and not Path(name).is_file():
        raise UsageError(f"There is no run file {name}.", f"Set candidates_from to {usual}, bm25, index:NAME, or a TREC run.")


def first_stage(name: str, setup: RunSetup, say: Callable[[str], None]) -> FirstStage:
    """Return the first stage that the setting `candidates_from` names."""
    if name.startswith(INDEX):
        return LiveIndexStage(name.removeprefix(INDEX), setup)
    if name == "hybrid":
        say(f"encoding {len(setup.places):,} documents for hybrid search")
        return HybridStage(setup.texts)
    return BM25Stage(setup) if name == "bm25" else RunFileStage(Path(name), setup, say)


def lists_of(stage: FirstStage, pairs: Pairs, depth: int, *, with_relevant: bool = False) -> CandidateLists:
    """Candidate lists of questions.

    Args:
        stage: The first stage.
        pairs: The questions.
        depth: Length of a list.
        with_relevant: Put relevant documents that the stage did not find behind the list, with its lowest features.
    """
    rows = stage.rank(pairs.questions, pairs.spared, depth)
    if with_relevant:
        for row, relevant in zip(rows, pairs.relevant, strict=True):
            lowest = tuple(np.min([*row.values()], axis=0).tolist()) if row else (0.0,) * len(stage.names)
            row.update(dict.fromkeys(sorted(relevant - row.keys()), lowest))
    width = max((len(row) for row in rows), default=0)
    documents = np.full((len(rows), width), NOTHING, dtype=np.int64)
    features = np.zeros((len(rows), width, len(stage.names)), dtype=np.float32)
    for place, row in enumerate(rows):
        if row:
            documents[place, : len(row)], features[place, : len(row)] = list(row), list(row.values())
    return CandidateLists(documents, features)


@dataclass(frozen=True)
class HybridStage:
    """Hybrid search as `termweave search` fuses it: term weights and vectors of the shipped model, exact instead of approximate.

    Attributes:
        texts: The documents.
    """

    texts: Sequence[str]
    names: tuple[str, ...] = ("score", "cosine", "jaccard")

    @cached_property
    def _opened(self) -> _InMemory:
        return _InMemory(self.texts)

    def rank(self, questions: Sequence[str], spared: Sequence[frozenset[int]], depth: int) -> list[dict[int, tuple[float, ...]]]:
        """See `FirstStage`. Features: the fused score, the cosine, and rNN's J among the documents that search reranks together."""
        opened, together = self._opened, CrossEncoderReranker("").candidates
        rows: list[dict[int, tuple[float, ...]]] = []
        for query, left_out in zip(opened.encode(questions), spared, strict=True):
            assert query.vector is not None
            best = opened.search(query, left_out, max(depth, _WINDOW))[:depth]
            places = [document for document, _ in best]
            cosines, jaccard = opened.vectors[places] @ query.vector, np.zeros(len(places))
            if places:
                jaccard[:together] = neighbourhood_features(query.vector, opened.vectors[places[:together]])[1]
            features = zip((score for _, score in best), cosines.tolist(), jaccard.tolist(), strict=True)
            rows.append(dict(zip(places, features, strict=True)))
        return rows


class _InMemory:
    """The documents of a corpus, encoded by the shipped model, with the signals fitted to them."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._encoder = load()
        counter = StatisticsCounter(self._encoder.analysis or "")
        for part in in_parts(texts, _BLOCK):
            for terms in self._encoder.analyse(part):
                counter.add(terms)
        self._statistics = counter.result()
        encodings = self._encoder.encode(texts, kind="document", statistics=self._statistics)
        fitting = Fitting(
            Capabilities(""),
            encodings[:: max(1, len(encodings) // _BLOCK)],
            self._encoder.dimension,
            dense_spread=self._encoder.dense_spread(),
            statistics=self._statistics,
        )
        self._weights, self._dense = Weights.fit(fitting), Dense.fit(fitting)
        self._index = SparseIndex([self._weights.rounded(each.weights) for each in encodings if each.weights is not None])
        self.vectors = np.stack([each.vector for each in encodings if each.vector is not None])

    def encode(self, questions: Sequence[str]) -> list[Encoding]:
        """The questions as search encodes them."""
        return self._encoder.encode(questions, kind="query", statistics=self._statistics)

    def search(self, query: Encoding, spared: frozenset[int], window: int) -> list[tuple[int, float]]:
        """The documents of both signals with their fused scores, best first."""
        assert query.weights is not None
        assert query.vector is not None
        words, values = self._index.search(query.weights, window, spared)
        cosines = self.vectors @ query.vector
        cosines[list(spared)] = -np.inf
        near = np.argsort(-cosines, kind="stable")[: min(window, len(cosines) - len(spared))]
        lists = {
            "weights": Ranked.from_scores(
                _named(words, values), window, self._weights, full_match_score=self._weights.full_match_score(query.weights)
            ),
            "dense": Ranked.from_scores(_named(near, cosines[near]), window, self._dense),
        }
        fused = fuse(lists, dict.fromkeys(lists, 0.5))
        return [(int(document), score) for document, score in fused.ranking]


def _named(documents: NDArray[np.int64], scores: NDArray[np.floating]) -> list[tuple[str, float]]:
    return list(zip(map(str, documents.tolist()), scores.tolist(), strict=True))


@dataclass(frozen=True)
class BM25Stage:
    """BM25."""

    setup: RunSetup
    names: tuple[str, ...] = ("score",)

    def rank(self, questions: Sequence[str], spared: Sequence[frozenset[int]], depth: int) -> list[dict[int, tuple[float, ...]]]:
        """See `FirstStage`. Scores are scaled to [0, 1] for each question, as search scales those of one signal for a reranker."""
        common = (self.setup.analysis, self.setup.statistics, BM25())
        index = SparseIndex(bm25_weights(self.setup.texts, *common, "document"))
        rows: list[dict[int, tuple[float, ...]]] = []
        for question, left_out in zip(bm25_weights(questions, *common, "query"), spared, strict=True):
            best, scores = index.search(question, max(depth, _WINDOW), left_out)
            scores_of = dict(zip(best.tolist(), scores.tolist(), strict=True))
            rows.append(_best(scores_of, left_out, depth, fused=False))
        return rows


@dataclass(frozen=True)
class LiveIndexStage:
    """A live index, searched with its signals fused and without a reranker. Documents that are not trained on are passed over."""

    name: str
    setup: RunSetup
    names: tuple[str, ...] = ("score",)

    def rank(self, questions: Sequence[str], spared: Sequence[frozenset[int]], depth: int) -> list[dict[int, tuple[float, ...]]]:
        """See `FirstStage`. Scores of a fusion lie in [0, 1]; those of one signal are scaled to it for each question, as search does it.

        Raises:
            UsageError: The index has none of the documents.
        """
        index, position = Index.pinned(connect(machine_settings.load()), self.name), self.setup.positions
        fused = not modes.parse(_HYBRID, index.signals).single
        asked = {str(number): question for number, question in enumerate(questions)}
        window = max(depth, _WINDOW)
        run = index.run(asked, k=window, candidates=window, mode=_HYBRID, rerank="none")
        known = [{position[each]: score for each, score in run.scores[number].items() if each in position} for number in asked]
        if not any(known):
            raise UsageError(
                f"The index {self.name} found no document of the training data.",
                "Name an index of the same documents, by their ids.",
            )
        return [_best(row, left_out, depth, fused=fused) for row, left_out in zip(known, spared, strict=True)]


@dataclass(frozen=True)
class RunFileStage:
    """A run file. Questions that are missing in it are ranked by BM25, which is said."""

    file: Path
    setup: RunSetup
    say: Callable[[str], None]
    names: tuple[str, ...] = ("score",)

    def rank(self, questions: Sequence[str], spared: Sequence[frozenset[int]], depth: int) -> list[dict[int, tuple[float, ...]]]:
        """See `FirstStage`. Scores of a fusion, which lie in [0, 1], stay as they are; others are scaled to it for each question.

        Raises:
            InputError: The file ranks no document of any question.
        """
        setup = self.setup
        known = by_question(self.file, setup.examples.queries, setup.positions)
        fused = all(0 <= score <= 1 for row in known.values() for score in row.values())
        missing = [place for place, question in enumerate(questions) if question not in known]
        if known.keys().isdisjoint(setup.examples.queries.values()):
            raise InputError(
                f"{self.file} ranks no document of the training data for any of its {counted(len(setup.examples.queries), 'question')}.",
                "Its queries are ids or texts of the data set's questions, its documents ids of the corpus.",
            )
        if missing:
            self.say(f"{self.file} has no ranking of {counted(len(missing), 'question')}; BM25 ranks for them")
        words = BM25Stage(setup).rank([questions[place] for place in missing], [spared[place] for place in missing], depth)
        by_words = dict(zip(missing, words, strict=True))
        return [
            by_words[place] if place in by_words else _best(known[question], spared[place], depth, fused=fused)
            for place, question in enumerate(questions)
        ]


def _best(known: dict[int, float], spared: frozenset[int], depth: int, *, fused: bool) -> dict[int, tuple[float, ...]]:
    """The best documents, best first, with a score in [0, 1]."""
    own = sorted((-score, document) for document, score in known.items() if document not in spared)[: max(depth, _WINDOW)]
    if fused or not own:
        return {document: (-negative,) for negative, document in own[:depth]}
    low, extent = -own[-1][0], own[-1][0] - own[0][0]
    return {
        document: ((-negative - low) / extent if extent else 1.0,) for negative, document in own[:depth]
    }  # as `Ranked.normalised`
