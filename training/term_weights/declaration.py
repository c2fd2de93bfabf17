"""The parameters that all term-weight methods share."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - `declared_settings` reads the annotations
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Ge, Le

from termweave.declared_settings import Setting
from termweave.errors import UsageError
from termweave.training.methods.parameters import ParameterRecord, TrainingParameters

if TYPE_CHECKING:
    from termweave.encoders.term_weighting.weight_function import Form

#: The value of `start` that needs no other model.
ANCHOR = "anchor"
#: Parameters that determine the shape of the heads -> their names in a manifest.
_SHAPE = {
    **{name: name for name in ("hidden", "shared", "terms", "query", "tf_power")},
    "fcm": "gate",
    "bmes": "tags",
    "anchor": "kind",
}
#: Parameters of a shape that a manifest holds as 0 or 1.
_FLAGS = ("shared", "fcm", "bmes")


@dataclass(frozen=True)
class HeadParameters(ParameterRecord):
    """What the model gives, and the shape of its heads."""

    heading: ClassVar[str] = "Term-weight head"
    outputs: Annotated[
        Literal["weights", "weights,dense"], Setting("Outputs of the model: term weights alone, or also the pooled vector.")
    ] = "weights,dense"
    terms: Annotated[
        Literal["word", "piece"],
        Setting("Terms that get weights: words (Chinese ones by jieba), or the backbone's word-pieces."),
    ] = "word"
    hidden: Annotated[
        int,
        Setting("Width of the head's hidden layer; 0: a linear head on the last layer, as in the papers."),
        Ge(0),
        Le(10_000),
    ] = 128
    shared: Annotated[bool, Setting("One head for documents and queries, as in the papers.")] = False


@dataclass(frozen=True)
class StartParameters(ParameterRecord):
    """The model that a run starts from."""

    heading: ClassVar[str] = "Start"
    start: Annotated[
        str,
        Setting(
            "Where the heads start: at the anchor, or at the heads of a trained model on the same backbone (a folder, or a name such as "
            "shipped), whose shape and anchor are then the defaults."
        ),
    ] = ANCHOR
    keep: Annotated[
        float,
        Setting(
            "With start=MODEL: the share of that model in the result. The evaluated and saved parameters are interpolated between the "
            "trained ones (0) and those of the start (1)."
        ),
        Ge(0),
        Le(0.95),
    ] = 0.0

    @classmethod
    def derived(cls, given: Mapping[str, object]) -> dict[str, object]:
        """Take the shape of the heads from the model to start from."""
        return super().derived(given) | _shape_of(str(given.get("start", ANCHOR)).strip())

    def check(self) -> None:
        """Refuse to keep a part of no model."""
        super().check()
        if self.keep and self.start == ANCHOR:
            raise UsageError(f"keep={self.keep} has no effect with start={ANCHOR}.", "Set start=MODEL too, or remove keep.")


def _shape_of(name: str) -> dict[str, object]:
    """Return the parameters that the heads of a model were trained with."""
    if name == ANCHOR:
        return {}
    from termweave.encoders.layouts import read_folder  # noqa: PLC0415 - only needed with start=MODEL
    from termweave.encoders.model_lookup import resolve  # noqa: PLC0415

    manifest = read_folder(resolve(name), check=False).manifest
    known = {**manifest.heads, **manifest.anchor, "terms": manifest.terms}
    shape = {parameter: known[key] for parameter, key in _SHAPE.items() if known.get(key) not in (None, "")}
    return {parameter: bool(value) if parameter in _FLAGS else value for parameter, value in shape.items()}


@dataclass(frozen=True)
class TermWeightParameters(HeadParameters, StartParameters, TrainingParameters):
    """The parameters of every method that trains term weights."""

    family: ClassVar[str] = "term_weights"
    # What a method does that lacks the parameter of this name.
    fcm = False
    bmes = False

    def form(self) -> Form:
        """Return the form of weights: how logits become weights."""
        raise NotImplementedError

    def texts(self) -> tuple[int, int]:
        """Return how many questions and documents a step reads, for ``--plan``."""
        raise NotImplementedError
