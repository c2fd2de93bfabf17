"""From a data set to what dense training reads: token ids, candidate lists, hard negatives, the held-out questions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from termweave.encoders.analysis.word_pieces import ModelTokenizer
from termweave.encoders.manifest import TOKENIZER
from termweave.training.backbone import loading
from termweave.training.dense.evaluation import DenseDevelopment
from termweave.training.dense.inputs import DenseInputs, reading_of, tokenise

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from termweave.training.dense.inputs import TokenIds
    from termweave.training.dense.labels.candidate_lists import RankedLists
    from termweave.training.dense.model import Side, Towers
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


def training_inputs(
    part: DataPart, model: Towers, targets: Callable[[TargetContext], Any], say: Callable[[str], None]
) -> DenseInputs:
    """Tokenise the texts, find hard negatives, and compute the method's targets."""
    setup = part.setup
    inputs = DenseInputs(
        share=part.share,
        pairs=setup.train,
        negatives=[],
        questions=_tokens(part, model, setup.train.questions, "query", "training_length"),
        documents=_tokens(part, model, setup.texts, "document", "training_length"),
    )
    context = TargetContext(part, inputs, model, part.settings, say)
    inputs = replace(inputs, negatives=context.hard_negatives())
    return replace(inputs, targets=targets(replace(context, inputs=inputs)))


def held_out(part: DataPart, model: Towers) -> DenseDevelopment:
    """Tokenise the held-out questions and the documents that they are searched in, as the model reads them in use."""
    documents = _tokens(part, model, part.setup.texts, "document", "max_length")
    return DenseDevelopment.from_setup(
        part.setup,
        bits=0,
        measure=part.settings.measure,
        questions=_tokens(part, model, part.setup.dev.questions, "query", "max_length"),
        documents=documents,
        fixed=model.vectors("document", documents) if model.fixed_documents else None,
    )


def _tokens(part: DataPart, model: Towers, texts: Sequence[str], side: Side, length: str) -> TokenIds:
    """The token ids of texts, cut at the setting that `length` names."""
    _, reading = reading_of(part.setup.backbone)
    tokenizer = ModelTokenizer(part.setup.backbone / TOKENIZER, lower=reading.lower)
    return tokenise(tokenizer, texts, loading.length(model.backbone, getattr(part.settings, length)), reading.prompt(side))
