"""Prune the term weights of documents (`index --prune`). Its effect on size and quality is measured in docs/impacts.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from termweave.errors import UsageError

if TYPE_CHECKING:
    from termweave.records import TermWeights


@dataclass(frozen=True, slots=True)
class Pruning:
    """Which impacts (document term weights) are not stored. The heaviest term of a document is always stored.

    Attributes:
        share: The share of each document's terms that is left out, the lightest first; 0 to 1.
        below: Impacts below this share of `WeightedTerms.w_max` are left out; 0 to 1.
    """

    share: float = 0.0
    below: float = 0.0

    def __str__(self) -> str:
        return f"{100 * self.share:g}%" if self.share else f"{self.below:g}" if self.below else "none"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``0.05`` (a threshold, as a share of the largest impact) or ``30%`` (a share of each document's terms).

        Raises:
            UsageError: The text is neither.

        Example:
            >>> Pruning.parse("30%"), Pruning.parse("0.05")
            (Pruning(share=0.3, below=0.0), Pruning(share=0.0, below=0.05))
        """
        by_share = text.endswith("%")
        try:
            value = float(text.removesuffix("%")) / (100 if by_share else 1)
        except ValueError:
            value = -1.0
        if not 0 <= value < 1:
            raise UsageError(
                f"{text!r} is not a value for --prune.",
                "Write 0.05 for impacts below .05 of the largest, or 30% for the lightest 30 % of each document's terms.",
            )
        return cls(share=value) if by_share else cls(below=value)

    def apply(self, weights: TermWeights, w_max: float) -> TermWeights:
        """The terms of one document that are stored, in their order."""
        import numpy as np  # noqa: PLC0415

        if not len(weights) or not (self.share or self.below):
            return weights
        kept = weights.weights >= min(self.below * w_max, float(weights.weights.max()))
        if self.share:
            lightest = np.argsort(weights.weights, kind="stable")[: int(self.share * len(weights))]
            kept[lightest] = False
        return weights.part(np.flatnonzero(kept).tolist())
