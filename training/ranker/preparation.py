"""From a data set to what ranker training reads: candidate lists of the training and the held-out questions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from termweave.encoders.term_weighting.bm25_anchor import BM25
from termweave.training.data.bm25_index import bm25_weights
from termweave.training.ranker.evaluation import RankerDevelopment
from termweave.training.ranker.first_stage import first_stage, lists_of
from termweave.training.ranker.inputs import RankerInputs

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from termweave.encoders.kinds.ranker import PairReader
    from termweave.training.mixture import DataPart
    from termweave.training.ranker.inputs import CandidateLists


def prepare(
    part: DataPart, reader: PairReader, whole: PairReader, say: Callable[[str], None]
) -> tuple[RankerInputs, RankerDevelopment]:
    """Rank the documents of all questions by the first stage (`families.Family.prepare`).

    Args:
        part: The data set.
        reader: Reads pairs in training.
        whole: Reads pairs as the model in use does.
        say: Told what happens.
    """
    setup, settings = part.setup, part.settings
    stage = first_stage(settings.candidates_from, setup, lambda line: say(f"{part.name}: {line}"))
    lists = lists_of(stage, setup.train, settings.candidates, with_relevant=True)
    inputs = RankerInputs(
        share=part.share,
        pairs=setup.train,
        negatives=[_wrong(lists, row, known) for row, known in enumerate(setup.train.known)],
        lists=lists,
        questions=setup.train.questions,
        documents=setup.texts,
        reader=reader,
    )
    plain = (setup.analysis, setup.statistics, BM25())
    development = RankerDevelopment(
        pairs=setup.dev,
        plain=bm25_weights(setup.texts, *plain, "document"),
        asked=bm25_weights(setup.dev.questions, *plain, "query"),
        bits=0,
        measure=settings.measure,
        lists=lists_of(stage, setup.dev, settings.reranked),
        documents=setup.texts,
        reader=whole,
    )
    say(f"{part.name}: dev {settings.measure} of the first stage {development.first_stage().mean():.4f}")
    return inputs, development


def _wrong(lists: CandidateLists, row: int, known: frozenset[int]) -> NDArray[np.int64]:
    """Columns of a list that hold wrong documents, best first."""
    columns = [column for column, document in enumerate(lists.documents[row].tolist()) if document >= 0 and document not in known]
    return np.array(columns, dtype=np.int64)
