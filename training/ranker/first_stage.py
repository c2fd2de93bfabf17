"""The first stage of ranker training: the best documents of each question, by hybrid search in memory, by BM25, or from a run file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave import settings as machine_settings
from termweave.contracts.signal import Fitting
from termweave.encoders import load
from termweave.engine import connect
from termweave.errors import UsageError
from termweave.records import Capabilities, Encoding
from termweave.rerank.candidate_features import neighbourhood_features
from termweave.rerank.ranker import CrossEncoderReranker
from termweave.search import Index
from termweave.signals import modes
from termweave.signals.dense import Dense
from termweave.signals.fusion import Ranked, fuse
from termweave.signals.weights import Weights
from termweave.support.batching import in_parts
from termweave.support.messages import counted
from termweave.training.data.bm25_index import SparseIndex
from termweave.training.data.pairs import Pairs, count_terms
from termweave.training.data.teacher_scores import by_question
from termweave.training.dev_measure import vectors_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from termweave.training.setup import RunSetup

    #: Documents of a question, best first -> their features.
    Candidates = dict[int, tuple[float, ...]]
    #: Documents -> their scores, and whether these are of a fusion, which lie in [0, 1] already.
    Scored = tuple[Mapping[int, float], bool]

#: Fills up a block or list that is shorter than the others.
NOTHING = -1
#: Before the name of a live index.
INDEX = "index:"
#: The mode in which a live index is searched.
_HYBRID = "hybrid"
#: Documents of each signal that search looks at: their scores are fused, or those of one signal scaled to [0, 1].
_WINDOW = 100
#: Texts analysed at a time.
_BLOCK = 1024


@dataclass(frozen=True)
class CandidateLists:
    """The documents of each question that the first stage found, with the features that it gives them.

    Attributes:
        documents: int64 ``(Q, N)``, best first; `NOTHING` at the end of a shorter list.
        features: float32 ``(Q, N, F)``: the features that the first stage names, its score first.
    """

    documents: NDArray[np.int64]
    features: NDArray[np.float32]


class FirstStage:
    """Ranks the documents of a data set.

    Attributes:
        names: The features of a candidate.
    """

    names: tuple[str, ...] = ("score",)

    def rank(self, questions: Sequence[str], spared: Sequence[frozenset[int]], depth: int) -> list[Candidates]:
        """Return the best documents of each question, best first, with their features; documents in `spared` are left out."""
        rows = self.scored(questions, spared, max(depth, _WINDOW))
        return [_best(scores, left_out, depth, fused=fused) for (scores, fused), left_out in zip(rows, spared, strict=True)]

    def scored(self, questions: Sequence[str], spared: Sequence[frozenset[int]], window: int) -> list[Scored]:
        """Score the best `window` documents of each question."""
        raise NotImplementedError


def check(name: str, usual: str = "hybrid") -> None:
    """Raise `UsageError` if `name` names a run file that is not there; `usual` is the first stage that a method has by default.

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
    """Return the candidate lists of questions.

    Args:
        stage: The first stage.
        pairs: The questions.
        depth: Length of a list.
        with_relevant: Whether relevant documents that the stage did not find are put behind the list, with the lowest features of the list.
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


class HybridStage(FirstStage):
    """Hybrid search as `termweave search` fuses it: term weights and vectors of the shipped model, exact instead of approximate."""

    names = ("score", "cosine", "jaccard")

    def __init__(self, texts: Sequence[str]) -> None:
        """Encode the documents, and fit the signals to them."""
        self._encoder = load()
        self._statistics = count_terms(in_parts(texts, _BLOCK), self._encoder.analysis or "", self._encoder.analyse)
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
        self._vectors = vectors_of(encodings)

    def rank(self, questions: Sequence[str], spared: Sequence[frozenset[int]], depth: int) -> list[Candidates]:
        """See `FirstStage`. Features: the fused score, the cosine, and rNN's J among the documents that search reranks together."""
        together = CrossEncoderReranker("").candidates
        rows: list[Candidates] = []
        encoded = self._encoder.encode(questions, kind="query", statistics=self._statistics)
        for query, left_out in zip(encoded, spared, strict=True):
            assert query.vector is not None
            best = self._fused(query, left_out, max(depth, _WINDOW))[:depth]
            places = [document for document, _ in best]
            cosines, jaccard = self._vectors[places] @ query.vector, np.zeros(len(places))
            if places:
                jaccard[:together] = neighbourhood_features(query.vector, self._vectors[places[:together]])[1]
            features = zip((score for _, score in best), cosines.tolist(), jaccard.tolist(), strict=True)
            rows.append(dict(zip(places, features, strict=True)))
        return rows

    def _fused(self, query: Encoding, spared: frozenset[int], window: int) -> list[tuple[int, float]]:
        """Return the documents of both signals with their fused scores, best first."""
        assert query.weights is not None
        assert query.vector is not None
        words, values = self._index.search(query.weights, window, spared)
        cosines = self._vectors @ query.vector
        cosines[list(spared)] = -np.inf
        near = np.argsort(-cosines, kind="stable")[: min(window, len(cosines) - len(spared))]
        most = self._weights.full_match_score(query.weights)
        lists = {
            "weights": Ranked.from_scores(_named(words, values), window, self._weights, full_match_score=most),
            "dense": Ranked.from_scores(_named(near, cosines[near]), window, self._dense),
        }
        fused = fuse(lists, dict.fromkeys(lists, 0.5))
        return [(int(document), score) for document, score in fused.ranking]


def _named(documents: NDArray[np.int64], scores: NDArray[np.floating]) -> list[tuple[str, float]]:
    return list(zip(map(str, documents.tolist()), scores.tolist(), strict=True))


@dataclass(frozen=True)
class BM25Stage(FirstStage):
    """Ranks documents by BM25."""

    setup: RunSetup

    def scored(self, questions: Sequence[str], spared: Sequence[frozenset[int]], window: int) -> list[Scored]:
        """See `FirstStage`."""
        ranked = self.setup.bm25_index.rankings(self.setup.bm25_weights(questions, "query"), window, spared)
        return [(dict(zip(best.tolist(), scores.tolist(), strict=True)), False) for best, scores in ranked]


def found_by_index(index: Index, setup: RunSetup, questions: Sequence[str], depth: int, **how: Any) -> list[dict[int, float]]:
    """Search a live index for each question, and return document -> score, best first; documents that are not trained on are passed over.

    Raises:
        UsageError: The index has none of the documents.
    """
    run = index.run({str(number): question for number, question in enumerate(questions)}, k=depth, candidates=depth, **how)
    position, ranked = setup.positions, (run.scores[str(number)] for number in range(len(questions)))
    of_questions = [{position[each]: score for each, score in scores.items() if each in position} for scores in ranked]
    if not any(of_questions):
        raise UsageError(f"The index {index.name} found no training document.", "Name an index that has them, by the same ids.")
    return of_questions


@dataclass(frozen=True)
class LiveIndexStage(FirstStage):
    """Ranks by searching a live index with its signals fused and without a reranker. Documents that are not trained on are passed over."""

    name: str
    setup: RunSetup

    def scored(self, questions: Sequence[str], spared: Sequence[frozenset[int]], window: int) -> list[Scored]:
        """See `FirstStage`."""
        del spared
        index = Index.pinned(connect(machine_settings.load()), self.name)
        fused = not modes.parse(_HYBRID, index.signals).single
        return [(row, fused) for row in found_by_index(index, self.setup, questions, window, mode=_HYBRID, rerank="none")]


@dataclass(frozen=True)
class RunFileStage(FirstStage):
    """Ranks as a run file does. Questions that the file lacks are ranked by BM25, and a message says so."""

    file: Path
    setup: RunSetup
    say: Callable[[str], None]

    def scored(self, questions: Sequence[str], spared: Sequence[frozenset[int]], window: int) -> list[Scored]:
        """See `FirstStage`.

        Raises:
            InputError: The file ranks no document of any question.
        """
        queries = self.setup.examples.queries
        ranked = by_question(self.file, queries, self.setup.positions, queries.values())
        fused = all(0 <= score <= 1 for row in ranked.values() for score in row.values())
        missing = [place for place, question in enumerate(questions) if question not in ranked]
        if missing:
            self.say(f"{self.file} has no ranking of {counted(len(missing), 'question')}; BM25 ranks for them")
        unscored, left_out = [questions[place] for place in missing], [spared[place] for place in missing]
        by_bm25 = dict(zip(missing, BM25Stage(self.setup).scored(unscored, left_out, window), strict=True))
        return [by_bm25[place] if place in by_bm25 else (ranked[question], fused) for place, question in enumerate(questions)]


def _best(scores: Mapping[int, float], spared: frozenset[int], depth: int, *, fused: bool) -> Candidates:
    """Return the best documents with their scores, best first; not `fused`: the scores are scaled to [0, 1], as search does for a reranker."""
    ranked = sorted((-score, document) for document, score in scores.items() if document not in spared)[: max(depth, _WINDOW)]
    if fused or not ranked:
        return {document: (-negative,) for negative, document in ranked[:depth]}
    low, extent = -ranked[-1][0], ranked[-1][0] - ranked[0][0]  # as `Ranked.normalised`
    return {document: ((-negative - low) / extent if extent else 1.0,) for negative, document in ranked[:depth]}
