"""The candidate lists and target distributions of a list-wise method, made once before the first step.

The distributions come from judgements, from hybrid search (`hybrid_targets`), or from a trained ranker (`ranker_targets`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from termweave.rerank.neighbours.equations import Rules
from termweave.support import paths
from termweave.training.data import teacher_scores
from termweave.training.dense.candidate_lists import NOTHING, RankedLists, mined
from termweave.training.dense.evidence_scores import EvidenceSettings, evidence_scores
from termweave.training.dev_measure import best
from termweave.training.ranker.teacher import teach

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from termweave.training.dense.preparation import TargetContext

    #: ``(relevant places, candidates, evidence) -> r``, float64 ``(candidates,)``.
    Target = Callable[[Sequence[int], int, NDArray[np.float32] | None], NDArray[np.float64]]

#: What hybrid search's scores, between 0 and 2, are divided by.
_HYBRID_TEMPERATURE = 0.1
#: Smoothed scores below it count as irrelevant.
_LEAST = 0.1
#: Questions whose scores of all documents are computed at a time.
_BLOCK = 128


@dataclass(frozen=True)
class ListTargets:
    """What the loss compares with.

    Attributes:
        candidates: The list of each training query.
        targets: r of each list, float32 ``(Q, N)``.
        documents: Vectors of the documents by the base model, float32 ``(D, d)``; used as they are where the documents' encoder is fixed.
    """

    candidates: RankedLists
    targets: NDArray[np.float32]
    documents: NDArray[np.float32]


def judged_targets(context: TargetContext, target: Target, *, with_evidence: bool) -> ListTargets:
    """Retrieve candidates, the judged documents among them, and make the target distribution of each list.

    Args:
        context: What the targets are made of.
        target: Makes the distribution of one list.
        with_evidence: Whether `target` reads r'' of Algorithm 1. Candidates without it (beyond N_r) get no share, and f_n of line 6 reads
            the others alone: section 3.3 has similarities in the context N_r, and the paper says nothing of the rest.
    """
    lists = _judged_lists(context)
    scores = _evidence(context, lists) if with_evidence else None
    targets = np.zeros(lists.documents.shape, dtype=np.float32)
    for row, judged in enumerate(context.inputs.pairs.relevant):
        places = np.flatnonzero(lists.present[row] if scores is None else np.isfinite(scores[row]))
        relevant = np.flatnonzero(np.isin(lists.documents[row, places], list(judged))).tolist()
        targets[row, places] = target(relevant, len(places), None if scores is None else scores[row, places])
    return ListTargets(lists, targets, context.document_vectors)


def _judged_lists(context: TargetContext) -> RankedLists:
    """The candidates of each training question, the judged documents among them."""
    settings, pairs = context.settings, context.inputs.pairs
    lists = mined(context, settings.candidates_from, settings.candidates)
    return lists.without(pairs.spared).with_relevant(pairs.relevant)


def _evidence(context: TargetContext, lists: RankedLists) -> NDArray[np.float32]:
    """Algorithm 1, lines 1 to 5, cached by what they are computed from."""
    settings = context.settings
    rules = Rules(k=settings.k, k_exp=settings.k_exp, tau=settings.tau, inclusive=settings.inclusive)
    given = EvidenceSettings(settings.evidence_weight, settings.context, rules)
    context.say(f"{context.part.name}: evidence of {lists.documents.shape[1]} candidates for {len(lists):,} questions")
    vectors = (context.question_vectors, context.document_vectors)
    return evidence_scores(*vectors, lists, context.inputs.pairs.relevant, given, paths.cache() / "evidence")


def hybrid_targets(context: TargetContext) -> ListTargets:
    """The lists that hybrid search finds, and its scores as distributions: for questions that nobody judged."""
    vectors = (context.document_vectors, context.question_vectors)
    teacher = teacher_scores.vector_teacher("minmax", context.setup, *vectors)
    pairs, documents = context.inputs.pairs, np.arange(len(context.inputs.documents))
    depth = min(context.settings.candidates, len(documents))
    lists = np.zeros((len(pairs), depth), dtype=np.int64)
    targets = np.zeros((len(pairs), depth), dtype=np.float32)
    for first in range(0, len(pairs), _BLOCK):
        rows = np.arange(first, min(first + _BLOCK, len(pairs)))
        scores = teacher.scores(rows, documents)
        for row, own in zip(rows.tolist(), scores, strict=True):
            own[list(pairs.spared[row])] = -np.inf
        columns = best(scores, depth)
        powers = np.take_along_axis(scores, columns, axis=1) / _HYBRID_TEMPERATURE
        lists[rows] = np.where(np.isfinite(powers), columns, NOTHING)  # a short list reaches the spared documents
        shares = np.exp(powers - powers.max(axis=1, keepdims=True))
        targets[rows] = shares / shares.sum(axis=1, keepdims=True)
    return ListTargets(RankedLists(lists), targets, context.document_vectors)


def ranker_targets(context: TargetContext) -> ListTargets:
    """Retrieve candidates, put judged documents among them, and score each list: ``r = softmax(scores)``."""
    lists = _judged_lists(context)
    wanted = [row[there].tolist() for row, there in zip(lists.documents, lists.present, strict=True)]
    written = teach(context.settings.teacher, context.setup, wanted, context.say)
    targets = np.zeros(lists.documents.shape, dtype=np.float32)
    for row, documents in enumerate(wanted):
        scores = written.scores(np.array([row]), np.array(documents))[0]
        shares = np.exp(scores - scores.max())
        targets[row, lists.present[row]] = shares / shares.sum()
    return ListTargets(lists, targets, context.document_vectors)


def program_labels(
    scores: NDArray[np.float32],
    relevant: Sequence[int],
    *,
    boost: float = 1.0,
    keep: int | None = None,
    normalize: Literal["max-min", "std"] | None = "max-min",
) -> NDArray[np.float64]:
    """Turn smoothed scores into a distribution as the program of paper 002's authors does, beside Algorithm 1 as printed (`methods/coder.py`).

    The program works in half precision; this function works in double precision, so that values agree to about 1e-3.

    Args:
        scores: r'' of each candidate, ``(N,)``.
        relevant: Judged candidates; only their number is used.
        boost: b, for the first ``len(relevant)`` places of the sorted scores.
        keep: n_max.
        normalize: f_n over the candidates that are left.

    Returns:
        float64 ``(N,)``, sum 1. Where no score reaches .1 the judged candidates share the probability.
    """
    values = np.asarray(scores, np.float64)
    shares = np.zeros(len(values))
    order = np.argsort(-values, kind="stable")
    order = order[values[order] >= _LEAST][:keep]
    best = values[order]
    if len(order) and normalize is not None:
        spread = np.ptp(best) if normalize == "max-min" else best.std()
        best = (best - best.min()) / (spread or 1.0)
    best[: len(relevant)] *= boost
    left = best >= _LEAST
    if not left.any():
        shares[list(relevant)] = 1.0 / len(relevant)
        return shares
    shares[order[left]] = np.exp(best[left] - best[left].max())
    distribution: NDArray[np.float64] = shares / shares.sum()
    return distribution
