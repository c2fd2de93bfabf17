"""The candidate lists and target distributions of a list-wise method, made once before the first step.

Lists come from the model's own vectors, from BM25, from a run file or from a live index (`mined`). Memory stays bounded: scores are computed
in blocks. Lists of the model are kept in the cache folder under everything that they depend on, so that a run that is started again does not
encode again. A live index is always asked: its profiles and documents may have changed.

The distributions come from judgements, from hybrid search (`hybrid_targets`), or from a trained ranker (`ranker_targets`). With evidence from
judgements (paper 002, Algorithm 1) the scores r'' of lines 1 to 5 are computed here (`evidence_scores`), because they depend on the base model's
vectors and on the parameters of the neighbourhood alone; lines 6 to 9, which make distributions of the scores, are in `methods/coder.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from termweave import settings as machine_settings
from termweave.engine import connect
from termweave.rerank.neighbours.equations import Rules
from termweave.rerank.neighbours.reciprocal import evidence
from termweave.search import Index
from termweave.support import paths, private_files
from termweave.support.python_processes import process_pool
from termweave.training import backbone_model
from termweave.training.data import teacher_scores
from termweave.training.dev_measure import best, rankings
from termweave.training.ranker.first_stage import INDEX, NOTHING, found_by_index
from termweave.training.ranker.teacher import teach

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from termweave.training.dense.model import TargetContext

    #: The best documents of each question, int64 ``(Q, N)``, best first; `NOTHING` at the end of a shorter list.
    Lists = NDArray[np.int64]
    #: ``(relevant places, candidates, evidence) -> r``, float64 ``(candidates,)``.
    Target = Callable[[Sequence[int], int, NDArray[np.float32] | None], NDArray[np.float64]]


#: What hybrid search's scores, between 0 and 2, are divided by.
_HYBRID_TEMPERATURE = 0.1
#: Smoothed scores below it count as irrelevant.
_LEAST = 0.1
#: Questions whose scores are computed at a time: the unit of work of a process, and what is lost by a kill.
_BLOCK = 128
#: Fewer questions are not worth the start of worker processes.
_FEW = 256
_COMPLETE = "scores.npy"
#: Of processes that compute: they are the parallelism, so that each computes products with one thread.
_SINGLE_THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def without(lists: Lists, spared: Sequence[frozenset[int]]) -> Lists:
    """Leave documents out of the lists; the documents behind them move up."""
    rows = zip(lists.tolist(), spared, strict=True)
    return filled([[each for each in row if each not in left_out] for row, left_out in rows], lists.shape[1])


def with_relevant(lists: Lists, relevant: Sequence[frozenset[int]]) -> Lists:
    """Put the judged documents that a list lacks into its last places: a list-wise loss needs them in it."""
    width = max([lists.shape[1], *(len(judged) for judged in relevant)])
    rows = []
    for row, judged in zip(lists.tolist(), relevant, strict=True):
        listed = [each for each in row if each != NOTHING]
        missing = sorted(judged - set(listed))
        places = [place for place, each in enumerate(listed) if each not in judged]  # a judged one makes no room for another
        excess = max(0, len(listed) + len(missing) - width)
        dropped = set(places[len(places) - excess :])
        rows.append([each for place, each in enumerate(listed) if place not in dropped] + missing)
    return filled(rows, width)


def nearest(queries: NDArray[np.float32], documents: NDArray[np.float32], depth: int) -> Lists:
    """Return for each query the documents with the largest inner products, ties by index: an exact search in blocks of bounded memory."""
    return np.stack([columns for columns, _ in rankings(queries, documents, depth)])


def from_run(file: Path, questions: Sequence[str], queries: Mapping[str, str], documents: Mapping[str, int], depth: int) -> Lists:
    """Read the best documents of each question from a TREC run, or from a file whose lines are query, document and score.

    Args:
        file: The run.
        questions: Texts of the training questions.
        queries: Id of each question -> its text; the file names them by either.
        documents: Id of each document -> its index.
        depth: Length of a list.

    Raises:
        InputError: The file cannot be read as a run, or names no training question with a document of the collection.
    """
    scores = teacher_scores.by_question(file, queries, documents, questions)
    ranked = [scores.get(question, {}) for question in questions]
    return filled([sorted(row, key=lambda each: (-row[each], each))[:depth] for row in ranked], depth)


def filled(lists: Sequence[Sequence[int]], depth: int) -> Lists:
    """Return lists of different lengths as one array, with at most `depth` documents of each list."""
    documents = np.full((len(lists), depth), NOTHING, dtype=np.int64)
    for row, listed in enumerate(lists):
        documents[row, : len(listed)] = listed
    return documents


def mined(context: TargetContext, ranking: str, depth: int) -> Lists:
    """Find the best documents of each training question; BM25 finds only documents that hold a word of the question.

    Args:
        context: Questions, documents and the model.
        ranking: "model", "bm25", "index:NAME", or the path of a run file.
        depth: Length of a list.

    Raises:
        UsageError: The live index has none of the documents.
        InputError: The run file cannot be used.
    """
    if ranking == "model":
        model = context.model
        towers = [backbone_model.fingerprint(model.tower(side)) for side in ("query", "document")]
        key = [ranking, *towers, model.pooling, str(model.unit)]
        return _cached(context, key, depth, lambda: nearest(context.question_vectors, context.document_vectors, depth))
    setup, questions = context.setup, context.setup.train.questions
    if ranking == "bm25":
        ranked = setup.bm25_index.rankings(setup.bm25_weights(questions, "query"), depth)
        return filled([documents.tolist() for documents, _ in ranked], depth)
    if ranking.startswith(INDEX):
        index = Index.pinned(connect(machine_settings.load()), ranking.removeprefix(INDEX))
        context.say(f"{context.part.name}: asking the index {index.name} {len(questions):,} questions")
        return filled([list(ranked) for ranked in found_by_index(index, setup, questions, depth)], depth)
    return from_run(Path(ranking), questions, setup.examples.queries, setup.positions, depth)


def _cached(context: TargetContext, what: list[str], depth: int, compute: Callable[[], Lists]) -> Lists:
    state = blake2b(repr([*what, depth, context.setup.places]).encode(), digest_size=12)
    for texts in (context.inputs.questions, context.inputs.documents):
        for array in (texts.values, texts.starts):
            state.update(np.ascontiguousarray(array).data)
    file = paths.cache() / "candidates" / f"{state.hexdigest()}.npy"
    if not file.is_file():
        private_files.make_folder(file.parent)
        teacher_scores.write_array(file, compute(), private=True)
    lists: Lists = np.load(file)
    return lists


@dataclass(frozen=True)
class ListTargets:
    """Candidate lists, and the distribution over each list that the model learns.

    Attributes:
        candidates: The list of each training query.
        targets: r of each list, float32 ``(Q, N)``.
        documents: Vectors of the documents by the base model, float32 ``(D, d)``; used as they are where the documents' encoder is fixed.
    """

    candidates: Lists
    targets: NDArray[np.float32]
    documents: NDArray[np.float32]


def judged_targets(context: TargetContext, target: Target, *, with_evidence: bool) -> ListTargets:
    """Retrieve candidates, the judged documents among them, and make the target distribution of each list.

    Args:
        context: The data that the targets are made of.
        target: Makes the distribution of one list.
        with_evidence: Whether `target` reads r'' of Algorithm 1. Candidates without an r'' (beyond N_r) get no share, and f_n of line 6
            reads only candidates that have one: section 3.3 has similarities in the context N_r, and the paper says nothing of the rest.
    """
    lists, settings = _judged_lists(context), context.settings
    scores: NDArray[np.float32] | None = None
    if with_evidence:  # Algorithm 1, lines 1 to 5
        rules = Rules(k=settings.k, k_exp=settings.k_exp, tau=settings.tau, inclusive=settings.inclusive)
        of_evidence = EvidenceSettings(settings.evidence_weight, settings.context, rules)
        context.say(f"{context.part.name}: evidence of {lists.shape[1]} candidates for each of {len(lists):,} questions")
        vectors, home = (context.question_vectors, context.document_vectors), paths.cache() / "evidence"
        scores = evidence_scores(*vectors, lists, context.inputs.pairs.relevant, of_evidence, home)
    targets = np.zeros(lists.shape, dtype=np.float32)
    for row, judged in enumerate(context.inputs.pairs.relevant):
        places = np.flatnonzero(lists[row] != NOTHING if scores is None else np.isfinite(scores[row]))
        relevant = np.flatnonzero(np.isin(lists[row, places], list(judged))).tolist()
        targets[row, places] = target(relevant, len(places), None if scores is None else scores[row, places])
    return ListTargets(lists, targets, context.document_vectors)


def _judged_lists(context: TargetContext) -> Lists:
    """Return the candidates of each training question, the judged documents among them."""
    settings, pairs = context.settings, context.inputs.pairs
    lists = mined(context, settings.candidates_from, settings.candidates)
    return with_relevant(without(lists, pairs.spared), pairs.relevant)


def hybrid_targets(context: TargetContext) -> ListTargets:
    """Retrieve candidates by hybrid search, and make distributions of the hybrid scores: for questions that nobody judged."""
    vectors = (context.document_vectors, context.question_vectors)
    teacher = teacher_scores.vector_teacher("minmax", context.setup, *vectors)
    pairs, documents = context.inputs.pairs, np.arange(len(context.inputs.documents))
    depth = min(context.settings.candidates, len(documents))
    lists = np.zeros((len(pairs), depth), dtype=np.int64)
    targets = np.zeros((len(pairs), depth), dtype=np.float32)
    for first in range(0, len(pairs), _BLOCK):
        rows = np.arange(first, min(first + _BLOCK, len(pairs)))
        scores = teacher.scores(rows, documents)
        for row, of_question in zip(rows.tolist(), scores, strict=True):
            of_question[list(pairs.spared[row])] = -np.inf
        columns = best(scores, depth)
        powers = np.take_along_axis(scores, columns, axis=1) / _HYBRID_TEMPERATURE
        lists[rows] = np.where(np.isfinite(powers), columns, NOTHING)  # a short list reaches the spared documents
        shares = np.exp(powers - powers.max(axis=1, keepdims=True))
        targets[rows] = shares / shares.sum(axis=1, keepdims=True)
    return ListTargets(lists, targets, context.document_vectors)


def ranker_targets(context: TargetContext) -> ListTargets:
    """Retrieve candidates, put judged documents among them, and score each list: ``r = softmax(scores)``."""
    lists = _judged_lists(context)
    candidates = [row[row != NOTHING].tolist() for row in lists]
    written = teach(context.settings.teacher, context.setup, candidates, context.say)
    targets = np.zeros(lists.shape, dtype=np.float32)
    for row, documents in enumerate(candidates):
        scores = written.scores(np.array([row]), np.array(documents))[0]
        shares = np.exp(scores - scores.max())
        targets[row, lists[row] != NOTHING] = shares / shares.sum()
    return ListTargets(lists, targets, context.document_vectors)


def program_labels(
    scores: NDArray[np.float32],
    relevant: Sequence[int],
    *,
    boost: float = 1.0,
    keep: int | None = None,
    normalize: Literal["max-min", "std"] | None = "max-min",
) -> NDArray[np.float64]:
    """Turn smoothed scores into a distribution as the program of paper 002's authors does, which differs from Algorithm 1 (`methods/coder.py`).

    The program works in half precision; this function works in double precision, so that values agree to about 1e-3.

    Args:
        scores: r'' of each candidate, ``(N,)``.
        relevant: Judged candidates; only their number is used.
        boost: b, for the first ``len(relevant)`` places of the sorted scores.
        keep: n_max, the number of best candidates that keep a label.
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


@dataclass(frozen=True)
class EvidenceSettings:
    """The parameters of evidence scores.

    Attributes:
        weight: lambda of Eq. 1: 1 is geometric similarity alone, 0 that of reciprocal neighbours alone.
        context: N_r, the number of a list's best candidates in which neighbourhoods are computed; other candidates get no evidence. 0: all.
        rules: The parameters of the neighbourhoods.
    """

    weight: float
    context: int
    rules: Rules = field(default_factory=partial(Rules, k=21, k_exp=3, tau=0.0))


def evidence_scores(
    queries: NDArray[np.float32],
    documents: NDArray[np.float32],
    lists: Lists,
    relevant: Sequence[frozenset[int]],
    settings: EvidenceSettings,
    home: Path,
    *,
    workers: int | None = None,
) -> NDArray[np.float32]:
    """Compute r'' of every candidate of every list, in parallel.

    Worker processes, which share the vectors through files, compute blocks of questions. Each block is written when it is done: a run that was
    killed goes on where it stopped.

    Args:
        queries: float32 ``(Q, d)``.
        documents: float32 ``(D, d)``.
        lists: Candidates of each query, the judged ones among them (`with_relevant`).
        relevant: Judged documents of each query.
        settings: Parameters of the scores.
        home: Folder of the cache.
        workers: Number of worker processes; None: there is one for each processor.

    Returns:
        float32 ``(Q, N)``; -inf for a candidate outside the context, and where a list is shorter.
    """
    state = blake2b(digest_size=12)  # of everything that the evidence is computed from
    for array in (queries, documents, lists):
        state.update(repr(array.shape).encode())
        state.update(np.ascontiguousarray(array).data)
    state.update(repr([sorted(judged) for judged in relevant]).encode())
    state.update(repr(astuple(settings)).encode())
    folder = home / state.hexdigest()
    whole = folder / _COMPLETE
    if whole.is_file():
        result: NDArray[np.float32] = np.load(whole)
        return result
    private_files.make_folder(folder)
    blocks = range(0, len(queries), _BLOCK)
    missing = [first for first in blocks if not (folder / f"{first}.npy").is_file()]
    if missing:
        shared: dict[str, NDArray[Any]] = {"queries": queries, "documents": documents, "lists": lists}
        for name, content in shared.items():
            teacher_scores.write_array(folder / f"{name}.npy", content)
        work = [(first, [sorted(judged) for judged in relevant[first : first + _BLOCK]]) for first in missing]
        count = min(workers or os.cpu_count() or 1, len(missing))
        compute = partial(_block, folder, settings)
        if count == 1 or len(missing) * _BLOCK <= _FEW:
            for each in work:
                compute(each)
        else:
            with process_pool(count, **_SINGLE_THREADS) as pool:
                list(pool.map(compute, work))
    result = np.concatenate([np.load(folder / f"{first}.npy") for first in blocks])
    teacher_scores.write_array(whole, result)
    for file in folder.iterdir():
        if file.name != _COMPLETE:
            file.unlink()
    return result


def list_evidence(
    query: NDArray[np.float32],
    documents: NDArray[np.float32],
    candidates: NDArray[np.int64],
    judged: Sequence[int],
    settings: EvidenceSettings,
) -> NDArray[np.float32]:
    """Compute r'' of one list: float32 ``(N,)``.

    Args:
        query: float32 ``(d,)``.
        documents: float32 ``(D, d)``.
        candidates: int64 ``(N,)``, with `NOTHING` at the end of a shorter list.
        judged: Documents that are known to be relevant; at least one is a candidate.
        settings: Parameters of the scores.
    """
    listed = candidates[candidates != NOTHING]
    relevant = np.flatnonzero(np.isin(listed, judged))
    inside = np.arange(len(listed)) < (settings.context or len(listed))
    inside[relevant] = True  # a judged document is a probe wherever it was retrieved
    places = np.flatnonzero(inside)
    scores = np.full(len(candidates), -np.inf, dtype=np.float32)
    probes = np.searchsorted(places, relevant).tolist()
    scores[places] = evidence(query, documents[listed[places]], probes, weight=settings.weight, rules=settings.rules)
    return scores


def _block(folder: Path, settings: EvidenceSettings, work: tuple[int, list[list[int]]]) -> None:
    first, relevant = work
    queries, documents, lists = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("queries", "documents", "lists"))
    scores = [list_evidence(queries[row], documents, lists[row], judged, settings) for row, judged in enumerate(relevant, first)]
    teacher_scores.write_array(folder / f"{first}.npy", np.stack(scores))
