"""Mine candidate documents for the training questions: by the model itself, BM25, a live index or a run file.

Memory stays bounded: scores are computed in blocks, and a live index is asked a few questions at a time. Lists of the model and of BM25
are kept in the cache folder under everything that they depend on, so that a run that is started again does not mine again. A live index is
always asked: its profiles and documents may have changed.
"""

from __future__ import annotations

from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from termweave import settings as machine_settings
from termweave.encoders.term_weighting import BM25
from termweave.engine import connect
from termweave.errors import UsageError
from termweave.search import Index
from termweave.support import atomic_files, paths, private_files
from termweave.training.backbone import loading
from termweave.training.data.bm25_index import SparseIndex, bm25_weights
from termweave.training.dense.labels import candidate_lists
from termweave.training.dense.labels.candidate_lists import RankedLists
from termweave.training.ranker.first_stage import INDEX

if TYPE_CHECKING:
    from collections.abc import Callable

    from termweave.training.dense.preparation import TargetContext


def mined(context: TargetContext, ranking: str, depth: int) -> RankedLists:
    """The best documents of each training question.

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
        towers = [loading.fingerprint(model.tower(side)) for side in ("query", "document")]
        return _cached(context, [ranking, *towers, model.pooling, str(model.unit)], depth, lambda: _by_model(context, depth))
    if ranking == "bm25":
        return _cached(context, [ranking, context.setup.statistics.hash], depth, lambda: _by_bm25(context, depth))
    if ranking.startswith(INDEX):
        index = Index.pinned(connect(machine_settings.load()), ranking.removeprefix(INDEX))
        return _by_index(context, index, depth)
    setup = context.setup
    return candidate_lists.from_run(Path(ranking), setup.train.questions, setup.examples.queries, setup.positions, depth)


def _by_model(context: TargetContext, depth: int) -> RankedLists:
    return candidate_lists.nearest(context.question_vectors, context.document_vectors, depth)


def _by_bm25(context: TargetContext, depth: int) -> RankedLists:
    setup = context.setup
    common = (setup.analysis, setup.statistics, BM25())
    index = SparseIndex(bm25_weights(setup.texts, *common, "document"))
    return candidate_lists.by_bm25(index, bm25_weights(setup.train.questions, *common, "query"), depth)


def _by_index(context: TargetContext, index: Index, depth: int) -> RankedLists:
    """What a live index finds with its adopted profile; documents that are not trained on are passed over."""
    questions = context.setup.train.questions
    context.say(f"{context.part.name}: asking the index {index.name} {len(questions):,} questions")
    run = index.run({str(row): question for row, question in enumerate(questions)}, k=depth, candidates=depth)
    place = context.setup.positions
    lists = [[place[each] for each in run.scores[str(row)] if each in place] for row in range(len(questions))]
    if not any(lists):
        raise UsageError(
            f"The index {index.name} found no document of {context.part.name}.",
            "Name an index of the same documents, by their ids.",
        )
    return candidate_lists.filled(lists, depth)


def _cached(context: TargetContext, what: list[str], depth: int, compute: Callable[[], RankedLists]) -> RankedLists:
    state = blake2b(repr([*what, depth, context.setup.places]).encode(), digest_size=12)
    for texts in (context.inputs.questions, context.inputs.documents):
        for array in (texts.values, texts.starts):
            state.update(np.ascontiguousarray(array).data)
    file = paths.cache() / "candidates" / f"{state.hexdigest()}.npy"
    if file.is_file():
        return RankedLists(np.load(file))
    lists = compute()
    buffer = BytesIO()
    np.save(buffer, lists.documents)
    private_files.make_folder(file.parent)
    atomic_files.write(file, buffer.getvalue(), private=True)
    return lists
