"""Evidence scores of many candidate lists (paper 002, Algorithm 1, lines 1 to 5): computed in parallel, cached, resumable.

The scores r'' depend on the base model's vectors and on the parameters of the neighbourhood alone, so they are computed once, before
the first step. The remaining lines 6 to 9, which make target distributions of the scores, are cheap and stay in `methods/coder.py`.

Blocks of questions are computed by worker processes that share the vectors through files, and each block is written when it is done: a
run that was killed goes on where it stopped.
"""

from __future__ import annotations

import os
from dataclasses import astuple, dataclass, field
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.rerank.neighbours.equations import Rules
from termweave.rerank.neighbours.reciprocal import evidence
from termweave.support import private_files
from termweave.support.python_processes import process_pool
from termweave.training.data.teacher_scores import write_array
from termweave.training.ranker.first_stage import NOTHING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from termweave.training.dense.list_targets import RankedLists

#: Questions of a block: the unit of work, and what is lost by a kill.
BLOCK = 128
#: Fewer questions are not worth the start of worker processes.
_FEW = 256
_COMPLETE = "scores.npy"
#: Of processes that compute: they are the parallelism, so that each computes products with one thread.
_SINGLE_THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


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
    lists: RankedLists,
    relevant: Sequence[frozenset[int]],
    settings: EvidenceSettings,
    home: Path,
    *,
    workers: int | None = None,
) -> NDArray[np.float32]:
    """Compute r'' of every candidate of every list.

    Args:
        queries: float32 ``(Q, d)``.
        documents: float32 ``(D, d)``.
        lists: Candidates of each query, the judged ones among them (`RankedLists.with_relevant`).
        relevant: Judged documents of each query.
        settings: Parameters of the scores.
        home: Folder of the cache.
        workers: Number of worker processes; None: there is one for each processor.

    Returns:
        float32 ``(Q, N)``; -inf for a candidate outside the context, and where a list is shorter.
    """
    state = blake2b(digest_size=12)  # of everything that the evidence is computed from
    for array in (queries, documents, lists.documents):
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
    blocks = range(0, len(queries), BLOCK)
    missing = [first for first in blocks if not (folder / f"{first}.npy").is_file()]
    if missing:
        shared: dict[str, NDArray[Any]] = {"queries": queries, "documents": documents, "lists": lists.documents}
        for name, content in shared.items():
            write_array(folder / f"{name}.npy", content)
        work = [(first, [sorted(judged) for judged in relevant[first : first + BLOCK]]) for first in missing]
        count = min(workers or os.cpu_count() or 1, len(missing))
        compute = partial(_block, folder, settings)
        if count == 1 or len(missing) * BLOCK <= _FEW:
            for each in work:
                compute(each)
        else:
            with process_pool(count, **_SINGLE_THREADS) as pool:
                list(pool.map(compute, work))
    result = np.concatenate([np.load(folder / f"{first}.npy") for first in blocks])
    write_array(whole, result)
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
    write_array(folder / f"{first}.npy", np.stack(scores))
