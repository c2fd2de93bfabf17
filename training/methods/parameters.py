"""The parameters that several methods share: frozen dataclasses whose fields carry their type, range and help (`termweave.declared_settings`).

A method derives its own record from those that it takes. A subclass that repeats a field (``batch: int = 32``) changes its default.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le

from termweave.declared_settings import LARGEST, Setting, written
from termweave.errors import UsageError
from termweave.training.data import pseudo_queries

#: Whole numbers from 0 and from 1.
Count = Annotated[int, Ge(0), Le(LARGEST)]
Positive = Annotated[int, Ge(1), Le(LARGEST)]
#: Places in a list of documents.
Depth = Annotated[int, Ge(0), Le(10_000)]
#: Real numbers: a part of one, a factor that is not 0, and the weight of a part of a loss.
Share = Annotated[float, Ge(0), Le(1)]
Factor = Annotated[float, Gt(0), Le(1000)]
Weight = Annotated[float, Ge(0), Le(1e6)]
#: The backbone that is made anew. It knows nothing until it is trained: all of it is trained by default, and it gives no vector.
FROM_SCRATCH = "scratch"
#: The value of `epochs` that leaves the number of steps to `steps`.
_NO_EPOCHS = -1.0
#: Word-pieces of a text. No backbone has more positions, and a new one with so many still takes only some megabytes.
Length = Annotated[int, Ge(8), Le(32_768)]
#: Settings of a preset that trains on all questions and documents, as papers do.
EVERYTHING = {"documents": LARGEST, "questions": LARGEST}
#: Those of a preset whose paper prints how long it trains: to the end, because a warm-up may be longer than three evaluations.
TO_THE_END = {**EVERYTHING, "patience": LARGEST}
#: The parameter `preset`, which each method declares with the names of its presets.
PRESET = Setting("Settings to begin with; a parameter that is set wins over them.")


@dataclass(frozen=True)
class ParameterRecord:
    """The base of all records of parameters.

    Attributes:
        heading: Heading above the parameters of a class in ``termweave train METHOD --help``.
    """

    heading: ClassVar[str] = ""

    @classmethod
    def derived(cls, changed: Mapping[str, object]) -> dict[str, object]:
        """Return defaults that follow from the given settings; some may be of parameters that the method lacks."""
        del changed
        return {}

    def check(self) -> None:
        """Raise `UsageError` for values that do not go together."""


@dataclass(frozen=True)
class DataParameters(ParameterRecord):
    """The questions and documents that are read, and their numbers."""

    heading: ClassVar[str] = "Data"
    pairs: Annotated[
        Literal["auto", "qrels", "clicks", "corpus"],
        Setting("Source of questions; auto: the first that there is of judgements, clicks, corpus."),
    ] = "auto"
    clicks: Annotated[
        str,
        Setting(
            "Click log (lines of query, document id, count), or log of user behaviour (ubi:FOLDER, ubi:opensearch, ubi:https://HOST:9200)."
        ),
    ] = ""
    views: Annotated[
        tuple[str, ...],
        Setting("How questions are made: title -> body, heading -> section, first sentence -> rest, cropped spans."),
    ] = pseudo_queries.VIEWS
    documents: Annotated[int, Setting("Largest number of documents to train on."), Ge(2), Le(LARGEST)] = 5000
    questions: Annotated[int, Setting("Largest number of questions to train on."), Ge(2), Le(LARGEST)] = 12_000
    dev: Annotated[int, Setting("Most questions that decide when to stop, of split dev or held out."), Ge(5), Le(LARGEST)] = 300

    def check(self) -> None:
        """Raise `UsageError` for unknown views, and for a click log that would not be read."""
        super().check()
        if not self.views or set(self.views).difference(pseudo_queries.VIEWS):
            raise UsageError(f"views={written(self.views)} are no views.", f"Name some of {', '.join(pseudo_queries.VIEWS)}.")
        if self.clicks and self.pairs not in ("auto", "clicks"):
            raise UsageError(f"pairs={self.pairs} does not read the click log {self.clicks}.", "Set pairs=clicks, or no clicks.")


@dataclass(frozen=True)
class BackboneParameters(ParameterRecord):
    """The transformer that reads the texts."""

    heading: ClassVar[str] = "Backbone"
    backbone: Annotated[
        str,
        Setting(
            "Folder of a BERT-like model in transformers' layout, or hf:OWNER/NAME; empty: all-MiniLM-L6-v2, if its package is installed; "
            "'scratch': a small new model with a vocabulary of the corpus's characters, which sets top_layers=-1 and outputs=weights."
        ),
    ] = ""
    layers: Annotated[Count, Setting("Layers of the backbone to use, from below; half take half the time; 0: all.")] = 0
    top_layers: Annotated[int, Setting("Top layers that are trained; 0: none, -1: the whole backbone."), Ge(-1), Le(LARGEST)] = 0
    max_length: Annotated[Length, Setting("Word-pieces that the model sees in use, up to the backbone's limit.")] = 256
    training_length: Annotated[Length, Setting("Word-pieces of a text that training looks at, up to the same limit.")] = 128

    @property
    def from_scratch(self) -> bool:
        """Return whether the backbone is a new one, with random weights."""
        return self.backbone == FROM_SCRATCH

    @classmethod
    def derived(cls, changed: Mapping[str, object]) -> dict[str, object]:
        """Return derived defaults: a backbone made from scratch is trained as a whole, and gives term weights alone."""
        scratch = {"top_layers": -1, "outputs": "weights"} if changed.get("backbone") == FROM_SCRATCH else {}
        return super().derived(changed) | scratch


@dataclass(frozen=True)
class LoopParameters(ParameterRecord):
    """Steps, batches and when to stop."""

    heading: ClassVar[str] = "Training loop"
    seed: Annotated[int, Setting("The same seed gives the same model on the same machine."), Ge(0), Le(2**32 - 1)] = 0
    steps: Annotated[Positive, Setting("Largest number of optimiser steps.")] = 500
    epochs: Annotated[float, Setting("Passes over DATASET's questions; -1: steps counts."), Ge(_NO_EPOCHS), Le(100_000)] = (
        _NO_EPOCHS
    )
    batch: Annotated[int, Setting("Questions (or texts) in a batch."), Ge(1), Le(10_000)] = 48
    every: Annotated[Positive, Setting("Steps between evaluations on the held-out questions; each writes a checkpoint.")] = 100
    patience: Annotated[Positive, Setting("Evaluations without a better figure after which training stops.")] = 3
    measure: Annotated[Literal["nDCG@10", "MRR@10", "recall@100"], Setting("Measure that decides when to stop.")] = "nDCG@10"

    def check(self) -> None:
        """Raise `UsageError` for a run that takes no step."""
        super().check()
        if self.epochs != _NO_EPOCHS and self.epochs <= 0:
            raise UsageError(f"epochs={self.epochs:g} trains nothing.", "Set epochs above 0, or leave it out: then steps counts.")

    def steps_of(self, questions: int, share: float = 1.0) -> int:
        """Count the steps of a run: `epochs` passes over the training questions, or where no epochs are set, `steps`.

        Args:
            questions: Training questions of DATASET.
            share: Share of the batches that are drawn from DATASET.
        """
        return self.steps if self.epochs == _NO_EPOCHS else math.ceil(self.epochs * math.ceil(questions / self.batch) / share)


@dataclass(frozen=True)
class OptimiserParameters(ParameterRecord):
    """AdamW and its learning rates."""

    heading: ClassVar[str] = "Optimiser (AdamW)"
    rate: Annotated[float, Setting("Peak learning rate of all that is trained beside the backbone."), Gt(0), Le(10)] = 1e-3
    layers_rate: Annotated[float, Setting("Peak learning rate of the backbone's layers."), Gt(0), Le(10)] = 5e-5
    schedule: Annotated[Literal["one-cycle", "linear", "constant"], Setting("How the rate falls after warm-up.")] = "one-cycle"
    warmup: Annotated[float, Setting("Steps in which the rate rises; below 1: their share of all."), Ge(0), Le(LARGEST)] = 0.3
    weight_decay: Annotated[float, Setting("Weight decay; scalars have none."), Ge(0), Le(100)] = 0.01
    precision: Annotated[
        Literal["auto", "fp32", "bf16"],
        Setting("The backbone's numbers in training; auto: bf16 on a GPU that has it, else fp32."),
    ] = "auto"


@dataclass(frozen=True)
class TrainingParameters(BackboneParameters, DataParameters, LoopParameters, OptimiserParameters):
    """The parameters of every method.

    Attributes:
        reading: How the corpus is read: keyword arguments of `corpora.open_source`. It comes from options of the command line.
    """

    reading: Mapping[str, Any] = field(default_factory=dict)
    # What a method does that lacks the parameter of this name.
    preset = "default"
    beside = tuple[str, ...]()
    terms = "word"
    outputs = ""
    teacher = "none"
    negatives = 0
    drawn = 0
    joint = 0.0
    keep = 0.0
    may_freeze = True

    def fitted(self, *, made: bool) -> TrainingParameters:
        """Return the settings, with values filled in that depend on whether questions are `made` of the corpus."""
        del made
        return self

    def check(self) -> None:
        """Raise `UsageError` where nothing is trained, or the vector of cut layers or of an untrained backbone is used."""
        super().check()
        if self.top_layers == 0 and not self.may_freeze:
            raise UsageError("The method trains layers, and top_layers=0 freezes all of them.", "Set top_layers=-1, or above 0.")
        scratch, cut = self.from_scratch, self.layers and self.top_layers == 0
        if not (scratch or cut):
            return
        from termweave.training.data.teacher_scores import MADE  # noqa: PLC0415 - numpy

        dense, teacher = "dense" in self.outputs, self.teacher in MADE
        if scratch and (teacher or (dense and not self.joint)):
            raise UsageError("Vectors of a backbone from scratch are random.", "Leave outputs and teacher out, or set joint=1.")
        if cut and (dense or teacher):
            raise UsageError(
                f"layers={self.layers} cuts off the layers that the vector of the frozen backbone is made of.",
                "Set outputs=weights and a teacher that is a file or none, or leave layers out.",
            )


@dataclass(frozen=True)
class MixtureParameters(ParameterRecord):
    """Other data sets to learn from."""

    heading: ClassVar[str] = "Other data sets"
    beside: Annotated[
        tuple[str, ...],
        Setting(
            "Other data sets to learn from, separated by commas; each gives as many batches as DATASET. Of a BEIR folder the judged pairs are "
            "used; of a corpus questions are made; pairs, clicks, a teacher's file and the names of fields apply to DATASET alone."
        ),
    ] = ()


@dataclass(frozen=True)
class NegativesParameters(ParameterRecord):
    """Wrong documents that look right."""

    heading: ClassVar[str] = "Hard negatives"
    negatives: Annotated[Depth, Setting("BM25's best wrong documents of a question, to draw from; 0: none.")] = 25
    drawn: Annotated[Depth, Setting("How many of them each question gets in a batch; FecTek's paper has 15.")] = 1
    in_batch: Annotated[bool, Setting("The other questions' documents are negatives too.")] = True
    # What a method does that lacks the parameter of this name.
    random_negatives = 0

    def check(self) -> None:
        """Raise `UsageError` for batches without a wrong document, from which nothing is learned."""
        super().check()
        if not (self.in_batch or self.random_negatives or (self.negatives and self.drawn)):
            raise UsageError("No wrong document is drawn for a question.", "Set in_batch=true, or negatives and drawn above 0.")
