"""The declaration of a term-weight method, and the parameters that all these methods share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from termweave.errors import UsageError
from termweave.training.methods.base import TrainingMethod
from termweave.training.methods.parameter_declaration import ParameterGroup, TrainingParameter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from termweave.encoders.term_weighting.weight_function import Form

#: The value of `start` that needs no other model.
ANCHOR = "anchor"
#: Settings that determine the shape of the heads -> their names in a manifest.
_SHAPE = {
    **{name: name for name in ("hidden", "layer", "shared", "terms", "query", "tf_power", "k1", "b")},
    "fcm": "gate",
    "bmes": "tags",
    "anchor": "kind",
}


@dataclass(frozen=True, kw_only=True)
class TermWeightMethod(TrainingMethod):
    """A method that trains term weights.

    Attributes:
        form: Returns the form of weights (how logits become weights) for the settings.
        texts: ``(settings) -> (questions, documents)`` of a step, for ``--plan``.
    """

    family: str = "term_weights"
    form: Callable[[Mapping[str, Any]], Form]
    texts: Callable[[Mapping[str, Any]], tuple[int, int]]


HEAD = ParameterGroup(
    "Term-weight head",
    (
        TrainingParameter(
            "outputs",
            "weights,dense",
            "Outputs of the model: term weights alone, or also the pooled vector.",
            ("weights", "weights,dense"),
        ),
        TrainingParameter(
            "terms",
            "word",
            "Terms that get weights: words (Chinese ones by jieba), or the backbone's word-pieces.",
            ("word", "piece"),
        ),
        TrainingParameter(
            "hidden",
            128,
            "Width of the head's hidden layer; 0: a linear head on the last layer, as in the papers.",
            least=0,
            most=10_000,
        ),
        TrainingParameter(
            "layer", -1, "The lower of the two layers whose states a deep head reads; -1: the one in the middle.", least=-1
        ),
        TrainingParameter(
            "dropout", 0.0, "Share of the inputs of a head's last layer that is left out in a step.", least=0, most=0.95
        ),
        TrainingParameter("k1", 1.2, "BM25's k1, if weights are anchored on BM25.", least=0, most=100),
        TrainingParameter("b", 0.75, "BM25's b, if weights are anchored on BM25.", least=0, most=1),
        # An index stores impacts exactly up to 511, which is nine bits (`signals.weights`). With more bits a figure would be too good.
        TrainingParameter(
            "bits", 8, "Number of bits in which weights are rounded for the development measure; 0: no rounding.", least=0, most=9
        ),
    ),
)


def _check_start(settings: Mapping[str, Any]) -> None:
    if settings["keep"] and settings["start"] == ANCHOR:
        raise UsageError(f"keep={settings['keep']} has no effect with start={ANCHOR}.", "Set start=MODEL too, or remove keep.")


def _defaults_of_start(given: Mapping[str, object]) -> Mapping[str, object]:
    """The settings that the heads of the model to start from were trained with."""
    name = str(given.get("start", ANCHOR)).strip()
    if name == ANCHOR:
        return {}
    from termweave.encoders.layouts import read_folder  # noqa: PLC0415 - only needed with start=MODEL
    from termweave.encoders.model_lookup import resolve  # noqa: PLC0415

    manifest = read_folder(resolve(name), check=False).manifest
    known = {**manifest.heads, **manifest.anchor, "terms": manifest.terms}
    return {setting: known[key] for setting, key in _SHAPE.items() if known.get(key) not in (None, "")}


START = ParameterGroup(
    "Start",
    (
        TrainingParameter(
            "start",
            ANCHOR,
            "Where the heads start: at the anchor, or at the heads of a trained model on the same backbone (a folder, or a name such as "
            "shipped), whose shape and anchor are then the defaults.",
        ),
        TrainingParameter(
            "keep",
            0.0,
            "With start=MODEL: the share of that model in the result. The evaluated and saved parameters are interpolated between the "
            "trained ones (0) and those of the start (1).",
            least=0,
            most=0.95,
        ),
    ),
    _check_start,
    _defaults_of_start,
)
