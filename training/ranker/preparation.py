"""From a data set to what ranker training reads: candidate lists of the training and the held-out questions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from termweave.encoders.kinds.ranker import PairReader, RankerSettings
from termweave.encoders.kinds.sentence_layout import has_types
from termweave.encoders.manifest import Manifest, ModelFolder
from termweave.training.backbone import loading
from termweave.training.ranker.evaluation import RankerDevelopment
from termweave.training.ranker.first_stage import check, first_stage, lists_of
from termweave.training.ranker.inputs import RankerInputs

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from termweave.training.methods.cross_encoder import RankerParameters
    from termweave.training.mixture import DataPart
    from termweave.training.ranker.first_stage import FirstStage
    from termweave.training.ranker.inputs import CandidateLists
    from termweave.training.ranker.model import AnchoredRanker
    from termweave.training.setup import RunSetup


def reader_of(setup: RunSetup, model: AnchoredRanker, settings: RankerParameters, length: str = "training_length") -> PairReader:
    """What turns pairs into token ids, as the written folder will (`sentence_layout`).

    Raises:
        ModelError: The tokeniser has no template for pairs.
    """
    tokens = loading.length(model.backbone, getattr(settings, length))
    reading = RankerSettings(types=has_types(setup.backbone))
    manifest = Manifest(setup.backbone.name, "ranker", ("scores",), "", tokens, settings=reading.as_dict())
    return PairReader(ModelFolder(setup.backbone, manifest, {}), reading)


def training_inputs(part: DataPart, model: AnchoredRanker, say: Callable[[str], None]) -> RankerInputs:
    """Rank the documents of the training questions by the first stage."""
    setup, settings = part.setup, part.settings
    lists = lists_of(_stage(part, say), setup.train, settings.candidates, with_relevant=True)
    return RankerInputs(
        share=part.share,
        pairs=setup.train,
        negatives=[_wrong(lists, row, known) for row, known in enumerate(setup.train.known)],
        lists=lists,
        questions=setup.train.questions,
        documents=setup.texts,
        reader=reader_of(setup, model, settings),
    )


def held_out(part: DataPart, model: AnchoredRanker, say: Callable[[str], None]) -> RankerDevelopment:
    """Rank the documents of the held-out questions by the first stage."""
    setup, settings = part.setup, part.settings
    development = RankerDevelopment.from_setup(
        setup,
        bits=0,
        measure=settings.measure,
        lists=lists_of(_stage(part, say), setup.dev, settings.reranked),
        documents=setup.texts,
        reader=reader_of(setup, model, settings, "max_length"),
    )
    say(f"{part.name}: dev {settings.measure} of the first stage {development.first_stage().mean():.4f}")
    return development


def _stage(part: DataPart, say: Callable[[str], None]) -> FirstStage:
    """The first stage, which encodes the documents once for both kinds of questions."""
    name = part.settings.candidates_from
    check(name)
    return part.once("first stage", lambda: first_stage(name, part.setup, lambda line: say(f"{part.name}: {line}")))


def _wrong(lists: CandidateLists, row: int, known: frozenset[int]) -> NDArray[np.int64]:
    """Columns of a list that hold wrong documents, best first."""
    columns = [column for column, document in enumerate(lists.documents[row].tolist()) if document >= 0 and document not in known]
    return np.array(columns, dtype=np.int64)
