"""Read modes (`--mode`): signals, their weights, and the fusion method."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from termweave.errors import UsageError
from termweave.signals import fusion


@dataclass(frozen=True, slots=True)
class Mode:
    """The signals of a search, their weights, and the fusion method.

    Attributes:
        name: The mode as the user wrote it, or the name of a profile.
        weights: Signal name -> weight; the weights sum to 1.
        fusion: Name of the fusion method.
    """

    name: str
    weights: Mapping[str, float]
    fusion: str = fusion.DEFAULT

    @property
    def single(self) -> bool:
        """Whether the mode has only one signal, whose scores then are the final scores."""
        return len(self.weights) == 1


def parse(text: str, available: Sequence[str], profiles: Collection[str] = ()) -> Mode:
    """Read the text of a mode.

    Args:
        text: "hybrid", the name of a signal, or a list of signals with weights: ``weights:0.6,dense:0.4``. ``@METHOD`` at the end
            names the fusion method.
        available: Names of the signals that the index has.
        profiles: Names of the profiles that the index has, for messages.

    Raises:
        UsageError: The index does not have a named signal, a weight is not a number, or the fusion method is unknown.

    Example:
        >>> parse("weights:3,dense:1", ["lexical", "weights", "dense"]).weights
        {'weights': 0.75, 'dense': 0.25}
        >>> parse("hybrid@rrf", ["lexical", "weights", "dense"]).fusion
        'rrf'
    """
    hint = f"Known: hybrid, {', '.join(available)}, or signals with weights (weights:0.6,dense:0.4)"
    hint += f"; profiles of tune: {', '.join(profiles)}." if profiles else "."
    if not text.strip():
        raise UsageError("The mode is empty.", hint)
    signals, separator, method_name = text.partition("@")
    method = fusion.method(method_name if separator else fusion.DEFAULT)
    if signals.strip() == "hybrid":
        parts = dict.fromkeys(hybrid(available), 1.0)
    else:
        parts = {}
        for part in signals.split(","):
            name, colon, weight = part.strip().partition(":")
            if name not in available:
                raise UsageError(f"The index has no signal{' or profile' if profiles else ''} {name!r}.", hint)
            if name in parts:
                raise UsageError(f"The mode {text!r} names {name!r} twice.", "Give each signal one weight.")
            parts[name] = finite(weight) if colon else 1.0
            if not parts[name] >= 0:
                raise UsageError(f"{weight!r} in the mode {text!r} is not a weight.", "Write NAME:NUMBER, such as dense:0.4.")
    total = sum(parts.values())
    if not 0 < total < math.inf:
        raise UsageError(f"The weights of the mode {text!r} sum to {total:g}.", "Give a signal a weight above 0, such as 0.6.")
    return Mode(text, {name: weight / total for name, weight in parts.items() if weight > 0}, method.name)


def hybrid(available: Sequence[str]) -> list[str]:
    """Names of the signals in the mode "hybrid": weights and dense. If weights is missing, lexical or else the first signal replaces it."""
    words = [name for name in ("weights", "lexical", *available) if name in available][:1]
    return list(dict.fromkeys(name for name in (*words, "dense") if name in available))


def finite(text: str) -> float:
    """Read a text as a number; NaN for a text that is no number, or an infinite one."""
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan
