"""What both computations of rNN share: the parameters, checked, and what comes out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

WeightFunction = Literal["linear", "exp"]
Normalisation = Literal["max", "mean"]


@dataclass(frozen=True, slots=True)
class Rules:
    """Parameters of `reciprocal`, with k already cut to the number of candidates.

    Attributes:
        columns: Length of an element's list, k + 1.
        k_exp: Entries averaged (Eq. 8).
        tau: Expansion (Eq. 5).
        weight_function: "linear" or "exp".
        weight_parameter: For "exp".
        inclusive: Expand at exactly two thirds, too.
        clamp: Negative weights count as 0.
    """

    columns: int
    k_exp: int
    tau: float
    weight_function: WeightFunction
    weight_parameter: float
    inclusive: bool
    clamp: bool

    @property
    def averaged(self) -> int:
        """Entries of the list that Eq. 8 averages."""
        return min(self.k_exp, self.columns)

    @property
    def close(self) -> int:
        """Length of the shorter list of Eq. 5. Reading: round(tau (k + 1)) + 2, half to even, never more than there are."""
        return min(round(self.tau * self.columns) + 2, self.columns)

    def weights(self, similarity: NDArray[np.float32]) -> NDArray[np.float32]:
        """f_w of Eq. 7, with the similarity in the place of the distance."""
        linear = self.weight_function == "linear"
        weights = similarity if linear else np.expm1(np.float32(self.weight_parameter) * similarity)
        return np.maximum(weights, 0) if self.clamp else weights


@dataclass(frozen=True, slots=True)
class Sets:
    """Expanded sets R* as bool ``(m, m)`` and J of every element with element 0, float32 ``(m,)``."""

    members: NDArray[np.bool_]
    jaccard: NDArray[np.float32]
