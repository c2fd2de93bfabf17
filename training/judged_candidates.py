"""The candidates that an index finds for judged questions, with their features: what a feature ranker is trained on."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from termweave.corpora.behaviour.click_model import rates
from termweave.corpora.index.ubi_indices import PREFIX, UbiLog
from termweave.errors import InputError, UsageError
from termweave.evaluation import per_query
from termweave.evaluation.experiment import CandidateFetcher
from termweave.records import Run
from termweave.rerank import candidate_features
from termweave.rerank.rerankers import METADATA
from termweave.search.results import feature_log
from termweave.search.results.feature_log import CandidateFeatures, FeatureRecorder
from termweave.support.normal_form import normalised

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from termweave.corpora import Dataset
    from termweave.corpora.behaviour.ubi import Behaviour
    from termweave.search import Index
    from termweave.search.retrieval.candidates import Candidates
    from termweave.search.rewriting.configuration import Rewriting
    from termweave.signals.modes import Mode
    from termweave.training.methods.ltr import FeatureRankerParameters

MEASURE = "nDCG@10"
#: Fewest questions that can be trained on: with fewer a fold has hardly any.
FEWEST = 20
_NONE = "none"
#: Most frequent texts of a metadata entry that are features; parts of the questions in cross-validation.
_TEXTS, _FOLDS = 20, 5


@dataclass(frozen=True)
class JudgedCandidates:
    """The candidates of judged questions, with their features.

    Attributes:
        features: Names of the columns.
        types: Metadata entry -> its type.
        questions: Ids of the questions.
        documents: The candidates of each question, in the order of the first stage.
        rows: The features of each question's candidates: ``(candidates, features)``.
        qrels: The judgements.
        relevant_from: Lowest grade that counts as relevant.
        texts: Text of each question.
        behaviour: The log that rates of clicks and conversions come from; None: these rates are no features.
    """

    features: tuple[str, ...]
    types: Mapping[str, str]
    questions: tuple[str, ...]
    documents: tuple[Sequence[str], ...]
    rows: tuple[NDArray[np.float64], ...]
    qrels: Mapping[str, Mapping[str, int]]
    relevant_from: int
    texts: tuple[str, ...]
    behaviour: Behaviour | None = None

    def folds(self, seed: int) -> list[int]:
        """Return the fold (group of cross-validation) of each question, drawn at random; questions with the same text share a fold."""
        numbers = list(range(len(self.questions)))
        random.Random(seed).shuffle(numbers)  # noqa: S311 - a draw, not a secret
        of_text: dict[str, int] = {}
        for at, number in enumerate(numbers):
            of_text.setdefault(normalised(self.texts[number]), at % _FOLDS)
        return [of_text[normalised(text)] for text in self.texts]

    def with_rates(self, folds: Sequence[int], held_out: int | None = None) -> JudgedCandidates:
        """Return a copy in which rates of clicks and conversions are counted without the question's own fold.

        The rates come from the clicks of questions of other folds alone, so that a question's features cannot hold what its judgements say.

        Args:
            folds: The fold of each question.
            held_out: A fold that counts in no feature of any question: the one that a model is measured on.
        """
        columns = [
            (at, candidate_features.OF_BEHAVIOUR.index(name))
            for at, name in enumerate(self.features)
            if name in candidate_features.OF_BEHAVIOUR
        ]
        if self.behaviour is None or not columns:
            return self
        tables = {
            fold: rates(self.behaviour, {text for text, at in zip(self.texts, folds, strict=True) if at in {fold, held_out}})
            for fold in set(folds)
        }
        rows = []
        for fold, documents, matrix in zip(folds, self.documents, self.rows, strict=True):
            filled = matrix.copy()
            for at, which in columns:
                filled[:, at] = [
                    tables[fold][document][which] if document in tables[fold] else candidate_features.UNSEEN
                    for document in documents
                ]
            rows.append(filled)
        return replace(self, rows=tuple(rows))

    def figures(self, scores: Sequence[NDArray[np.float64]] | None = None) -> NDArray[np.float64]:
        """Return nDCG@10 of each question with its candidates ordered by `scores`; None: in the order of the first stage."""
        scores_of_all = [-np.arange(len(each), dtype=float) for each in self.documents] if scores is None else scores
        ranked: dict[str, dict[str, float]] = {}
        for question, documents, values in zip(self.questions, self.documents, scores_of_all, strict=True):
            best = np.argsort(-values, kind="stable")
            ranked[question] = {documents[at]: -float(place) for place, at in enumerate(best)}
        qrels = {question: dict(self.qrels[question]) for question in self.questions}
        run, names = Run("features", ranked), list(self.questions)
        return per_query(run, qrels, names, relevant_from=self.relevant_from, measures=[MEASURE])[MEASURE]

    def grades(self, question: int) -> NDArray[np.int64]:
        """Return the grade of each candidate of a question; 0: the candidate is not judged or not relevant."""
        judged = self.qrels[self.questions[question]]
        return np.array([max(0, judged.get(document, 0)) for document in self.documents[question]], dtype=np.int64)

    def write(self, path: Path) -> None:
        """Write the features with the grades as labels; the ending of the file names the format."""
        with feature_log.created(path, self.features) as log:
            for number, question in enumerate(self.questions):
                candidates = CandidateFeatures(self.documents[number], self.rows[number])
                log.add(question, candidates, self.grades(number).tolist())


def gather(
    index: Index,
    dataset: Dataset,
    mode: Mode,
    settings: FeatureRankerParameters,
    progress: Callable[[int, int], None],
    rewrite: Rewriting | None = None,
) -> JudgedCandidates:
    """Search an index for the questions of a data set, and return the candidates with their features.

    Args:
        index: The index.
        dataset: The questions; those without a relevant document are left out.
        mode: Mode of the first stage.
        settings: Which features, and how many candidates.
        progress: Called with (questions done, total).
        rewrite: How questions are rewritten; None: questions are searched as they are.

    Raises:
        UsageError: A signal or a metadata entry is not in the index.
        InputError: There are fewer than `FEWEST` questions, or the log of clicks is about other documents.
    """
    qrels = dataset.qrels()
    queries = [query for query in dataset.queries() if any(grade > 0 for grade in qrels[query.id].values())]
    if len(queries) < FEWEST:
        raise InputError(
            f"{dataset.name}:{dataset.split} has {len(queries)} questions with an answer, and a feature ranker needs at least {FEWEST}.",
            "Judge more questions, or name a split with more.",
        )
    types = _types(index.layout.kinds, settings.metadata)
    signals = [name for name in index.signals if name != "learned"]
    needs = {*candidate_features.needs(candidate_features.names(signals, types, {}), types), *(METADATA + name for name in types)}
    depth = max(100, settings.candidates)
    fetcher = CandidateFetcher(index, list(mode.weights), depth=depth, needs=needs, rewrite=rewrite, qrels=qrels)
    candidates = list(fetcher.candidates(queries, progress))
    values = _values(candidates, types)
    behaviour = _behaviour(settings.clicks)
    names = (*candidate_features.names(signals, types, values), *(candidate_features.OF_BEHAVIOUR if behaviour else ()))
    recorder = FeatureRecorder(candidate_features.FeatureReader(names, types, now=datetime.now(UTC)), settings.candidates)
    features = [recorder.features(each, mode) for each in candidates]
    judged = JudgedCandidates(
        names,
        types,
        tuple(query.id for query in queries),
        tuple(each.ids for each in features),
        tuple(each.rows for each in features),
        qrels,
        dataset.relevant_from,
        tuple(query.text for query in queries),
        behaviour,
    )
    if behaviour and not {document for _, document in behaviour.pairs}.intersection(chain.from_iterable(judged.documents)):
        raise InputError(
            f"The log {settings.clicks} showed none of the documents that the index finds for the questions.",
            "Name a log whose documents (object_id, query_response_hit_ids) have the ids that they have in the index.",
        )
    return judged.with_rates(judged.folds(settings.seed))


def _behaviour(clicks: str) -> Behaviour | None:
    """Open the log of user behaviour that the setting `clicks` names; None: the setting is empty.

    Raises:
        UsageError: The setting names no log of user behaviour: a list of clicks does not say which other documents were shown.
    """
    if not clicks:
        return None
    if not clicks.startswith(PREFIX):
        raise UsageError(f"clicks={clicks} does not say which documents were shown.", "Name ubi:FOLDER or ubi:opensearch.")
    return UbiLog(clicks).behaviour


def _types(of_index: Mapping[str, str], entries: Sequence[str]) -> Mapping[str, str]:
    """Return the metadata entries that are used as features, with their types.

    Raises:
        UsageError: The index has no typed entry with one of the names.
    """
    if list(entries) == [_NONE]:
        return {}
    if unknown := [name for name in entries if name not in of_index]:
        raise UsageError(
            f"The index has no typed metadata entry {unknown[0]!r}.", f"It has: {', '.join(sorted(of_index)) or 'none'}."
        )
    chosen = {name: kind for name, kind in of_index.items() if not entries or name in entries}
    hint = "Name those that say how good a document is: --set metadata=votes,released."
    return candidate_features.checked_entries(chosen, hint)


def _values(candidates: Sequence[Candidates], types: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the most frequent texts of each keyword entry among the candidates; each text is in at least one candidate in a hundred."""
    counts: dict[str, Counter[str]] = {name: Counter() for name, kind in types.items() if kind == "keyword"}
    for each in candidates:
        for metadata in each.metadata.values():
            for name, counter in counts.items():
                counter.update(set(metadata.get(name, ())))
    least = sum(len(each.metadata) for each in candidates) / 100
    # Ties by text: a set has another order in each process, and the trees draw features by their places.
    best = {name: sorted(counter.items(), key=lambda each: (-each[1], each[0]))[:_TEXTS] for name, counter in counts.items()}
    return {name: [value for value, count in texts if count >= least] for name, texts in best.items()}
