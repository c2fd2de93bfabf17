"""What `--mode` says: which signals, with which weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from termweave.errors import UsageError
from termweave.search import fusion

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Mode:
    """Signals and their weights in the fusion.

    Attributes:
        name: As it was asked for.
        weights: Signal name -> weight; they sum to 1.
        fusion: Name of the method that joins them.
    """

    name: str
    weights: Mapping[str, float]
    fusion: str = fusion.DEFAULT

    @property
    def single(self) -> bool:
        """One signal alone: its own scores, nothing to fuse."""
        return len(self.weights) == 1


def parse(text: str, available: Sequence[str], profiles: Collection[str] = ()) -> Mode:
    """Read a mode.

    Args:
        text: "hybrid", the name of a signal, or a weighted list: ``weights:0.6,dense:0.4``; behind an @ the fusion method.
        available: Signals of the index.
        profiles: Names that mean something elsewhere, for messages.

    Raises:
        UsageError: It names what the index does not have, weights that are none, or an unknown method.

    Example:
        >>> parse("weights:3,dense:1", ["lexical", "weights", "dense"]).weights
        {'weights': 0.75, 'dense': 0.25}
        >>> parse("hybrid@rrf", ["lexical", "weights", "dense"]).fusion
        'rrf'
    """
    if not text.strip():
        raise UsageError("The mode is empty.", _known(available, profiles))
    signals, at, by = text.partition("@")
    joined = fusion.method(by if at else fusion.DEFAULT)
    if signals == "hybrid":
        parts = dict.fromkeys(hybrid(available), 1.0)
    else:
        parts = {}
        for part in signals.split(","):
            name, weighted, weight = part.strip().partition(":")
            if name not in available:
                raise UsageError(
                    f"The index has no signal{' or profile' if profiles else ''} {name!r}.", _known(available, profiles)
                )
            if name in parts:
                raise UsageError(f"The mode {text!r} names {name!r} twice.", "Give each signal one weight.")
            parts[name] = _weight(weight, text) if weighted else 1.0
    total = sum(parts.values())
    if not 0 < total < math.inf:
        raise UsageError(
            f"The weights of the mode {text!r} sum to {total:g}.", "Give at least one signal a weight above 0, such as 0.6."
        )
    return Mode(text, {name: weight / total for name, weight in parts.items() if weight > 0}, joined.name)


def _known(available: Sequence[str], profiles: Collection[str]) -> str:
    known = f"Known: hybrid, {', '.join(available)}, or signals with weights (weights:0.6,dense:0.4)"
    return f"{known}; profiles of tune: {', '.join(profiles)}." if profiles else f"{known}."


def hybrid(available: Sequence[str]) -> list[str]:
    """Weights and dense; lexical, or else another signal, takes the place of weights where the index has none."""
    wordy = [name for name in ("weights", "lexical", *available) if name in available][:1]
    return list(dict.fromkeys(name for name in (*wordy, "dense") if name in available))


def _weight(text: str, mode: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not math.isfinite(weight) or weight < 0:
        raise UsageError(
            f"{text!r} in the mode {mode!r} is not a weight.", "Write NAME:NUMBER, for example weights:0.6,dense:0.4."
        )
    return weight
