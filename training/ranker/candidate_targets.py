"""A trained ranker as teacher of a list-wise dense method: its distribution over the candidates of each training question."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from termweave.training.dense.labels.list_targets import ListTargets
from termweave.training.ranker.teacher import teach

if TYPE_CHECKING:
    from termweave.training.dense.preparation import TargetContext


def ranker_targets(context: TargetContext) -> ListTargets:
    """Retrieve candidates, put judged documents among them, and score each list: ``r = softmax(scores)``."""
    settings, pairs = context.settings, context.inputs.pairs
    lists = context.candidates(settings.candidates_from, settings.candidates)
    lists = lists.without(pairs.spared).with_relevant(pairs.relevant)
    wanted = [row[there].tolist() for row, there in zip(lists.documents, lists.present, strict=True)]
    written = teach(settings.teacher, context.setup, wanted, context.say)
    targets = np.zeros(lists.documents.shape, dtype=np.float32)
    for row, documents in enumerate(wanted):
        scores = written.scores(np.array([row]), np.array(documents))[0]
        shares = np.exp(scores - scores.max())
        targets[row, lists.present[row]] = shares / shares.sum()
    return ListTargets(lists, targets, context.document_vectors)
