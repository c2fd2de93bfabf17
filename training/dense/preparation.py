"""From a data set to what dense training reads: token ids, candidate lists, hard negatives, the held-out questions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from termweave.encoders.analysis.model_tokenizer import ModelTokenizer
from termweave.encoders.kinds import kind_of
from termweave.encoders.kinds.anchored import AnchoredModel
from termweave.encoders.kinds.dense import DenseModel, DenseSettings
from termweave.encoders.layouts import read_folder
from termweave.encoders.manifest import TOKENIZER
from termweave.errors import UsageError
from termweave.training.backbone import loading
from termweave.training.dense.evaluation import DenseDevelopment
from termweave.training.dense.inputs import DenseInputs, tokenise

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from termweave.encoders.manifest import Manifest
    from termweave.training.dense.labels.candidate_lists import RankedLists
    from termweave.training.dense.model import Towers
    from termweave.training.methods.base import TrainingMethod
    from termweave.training.mixture import DataPart
    from termweave.training.setup import RunSetup


@dataclass(frozen=True)
class TargetContext:
    """The data from which a method computes its targets.

    Attributes:
        part: The data set, by name.
        inputs: What is known of it so far.
        model: As training begins.
        settings: Of the method.
        say: Told what happens.
    """

    part: DataPart
    inputs: DenseInputs
    model: Towers
    settings: Any
    say: Callable[[str], None]

    @property
    def setup(self) -> RunSetup:
        """The data set as it was read."""
        return self.part.setup

    @cached_property
    def question_vectors(self) -> NDArray[np.float32]:
        """Vectors of the training questions, by the model as training begins: ``(Q, d)``."""
        self.say(f"{self.part.name}: encoding {len(self.inputs.questions):,} questions")
        return self.model.vectors("query", self.inputs.questions)

    @cached_property
    def document_vectors(self) -> NDArray[np.float32]:
        """Vectors of the documents: ``(D, d)``."""
        self.say(f"{self.part.name}: encoding {len(self.inputs.documents):,} documents")
        return self.model.vectors("document", self.inputs.documents)

    def candidates(self, ranking: str, depth: int) -> RankedLists:
        """The best documents of each training question (`mining.mined`)."""
        from termweave.training.dense.mining import mined  # noqa: PLC0415 - the client of a server, which few runs ask

        return mined(self, ranking, depth)

    def hard_negatives(self) -> list[NDArray[np.int64]]:
        """BM25's best wrong documents of each question; [] where none are drawn."""
        if not self.settings.negatives or not self.settings.drawn:
            return []
        return self.candidates("bm25", self.settings.negatives).negatives(self.inputs.pairs.known)


def reading_of(backbone: Path) -> tuple[Manifest, DenseSettings]:
    """How the backbone's folder says that texts are read and states are pooled.

    Raises:
        UsageError: The folder is a cross-encoder or a sparse model, whose states are not made into vectors.
    """
    manifest = read_folder(backbone, check=False).manifest
    if manifest.kind not in (DenseModel.kind, AnchoredModel.kind):
        raise UsageError(
            f"The backbone {manifest.name!r} is {kind_of(manifest).label}.", "Name a model that gives vectors of texts."
        )
    return manifest, DenseSettings.from_manifest(manifest)


def prepare(
    method: TrainingMethod, part: DataPart, model: Towers, say: Callable[[str], None]
) -> tuple[DenseInputs, DenseDevelopment]:
    """Tokenise the texts, find hard negatives, compute the method's targets (`families.Family.prepare`)."""
    setup, settings = part.setup, part.settings
    _, reading = reading_of(setup.backbone)
    tokenizer = ModelTokenizer(setup.backbone / TOKENIZER, lower=reading.lower)
    length, whole = (loading.length(model.backbone, getattr(settings, name)) for name in ("training_length", "max_length"))
    query, document = reading.prompt("query"), reading.prompt("document")
    inputs = DenseInputs(
        share=part.share,
        pairs=setup.train,
        negatives=[],
        questions=tokenise(tokenizer, setup.train.questions, length, query),
        documents=tokenise(tokenizer, setup.texts, length, document),
    )
    context = TargetContext(part, inputs, model, settings, say)
    inputs = replace(inputs, negatives=context.hard_negatives())
    inputs = replace(inputs, targets=method.targets(replace(context, inputs=inputs)))
    searched = tokenise(tokenizer, setup.texts, whole, document)
    development = DenseDevelopment.from_setup(
        setup,
        bits=0,
        measure=settings.measure,
        questions=tokenise(tokenizer, setup.dev.questions, whole, query),
        documents=searched,
        fixed=model.vectors("document", searched) if model.fixed_documents else None,
    )
    return inputs, development
