"""The parameters of rNN, with their checks, and the result of both computations of neighbour sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from termweave.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

WeightFunction = Literal["linear", "exp"]
Normalisation = Literal["max", "mean"]

#: The largest exponent that is computed directly; exp overflows float32 above 88.7.
_LARGEST_EXPONENT = 80.0
#: The largest weight parameter. With a larger one only the nearest neighbour would count, and products would overflow float32.
_LARGEST_PARAMETER = 1e6


@dataclass(frozen=True, slots=True)
class Rules:
    """The parameters of rNN: how neighbours are found and weighted.

    Attributes:
        k: Neighbours an element lists besides itself; at most N count.
        k_exp: Entries of the list, itself included, that are averaged (Eq. 8); 1 averages nothing.
        tau: Size of the sets that expand R, as a share of k, in [0, 1] (Eq. 5); 0 expands nothing.
        weight_function: "linear": v = s; "exp": v = exp(weight_parameter * s) - 1.
        weight_parameter: For "exp", above 0 and at most a million.
        normalize: Divide each row of similarities by its maximum or mean before anything else.
        inclusive: Expand at an overlap of exactly two thirds too (Eq. 5 as printed; the authors' program does not).
        clamp: Take negative weights of Eq. 7 as 0, which keeps J in [0, 1].

    Raises:
        UsageError: A parameter is outside its range.
    """

    k: int = 10
    k_exp: int = 3
    tau: float = 0.0
    weight_function: WeightFunction = "linear"
    weight_parameter: float = 1.0
    normalize: Normalisation | None = None
    inclusive: bool = False
    clamp: bool = False

    def __post_init__(self) -> None:
        if not (hasattr(self.k, "__index__") and hasattr(self.k_exp, "__index__")):
            raise UsageError(f"k and k_exp of rNN are whole numbers, not {self.k!r} and {self.k_exp!r}.")
        if self.k < 1 or self.k_exp < 1:
            raise UsageError(f"k and k_exp of rNN are at least 1, not {self.k} and {self.k_exp}.")
        if not 0 <= self.tau <= 1:
            raise UsageError(f"tau of rNN is a number from 0 to 1, not {self.tau}.")
        if self.weight_function not in {"linear", "exp"}:
            raise UsageError(f"rNN has no weight function {self.weight_function!r}.", "Known: linear, exp.")
        if not 0 < self.weight_parameter <= _LARGEST_PARAMETER:
            raise UsageError(
                f"The weight parameter of rNN is above 0 and at most {_LARGEST_PARAMETER:g}, not {self.weight_parameter}."
            )
        if self.normalize not in {None, "max", "mean"}:
            raise UsageError(f"rNN has no normalisation {self.normalize!r}.", "Known: None, max, mean.")

    def columns(self, elements: int) -> int:
        """Length of a neighbour list: the element itself plus k neighbours, at most the number of elements."""
        return min(self.k + 1, elements)

    def averaged(self, columns: int) -> int:
        """Entries of the list that Eq. 8 averages."""
        return min(self.k_exp, columns)

    def close(self, columns: int) -> int:
        """Length of the shorter list of Eq. 5. Reading: round(tau (k + 1)) + 2, half to even, at most `columns`."""
        return min(round(self.tau * columns) + 2, columns)

    def weights(self, similarity: NDArray[np.float32], members: NDArray[np.bool_]) -> NDArray[np.float32]:
        """Weights f_w of Eq. 7: ``(m, m)``, 0 for elements that are not members of the set. Rows are scaled to sum 1 later.

        If exp would overflow, a row is divided by the largest exponential of its members; the later scaling removes that factor.
        (The largest of the whole row would not do: a hub that is not a member would round all members to 0.)
        """
        weights = members.astype(np.float32)
        weights *= similarity
        if self.weight_function == "exp":
            parameter = np.float32(self.weight_parameter)
            top = weights.max(axis=1, keepdims=True)
            high = parameter * top > _LARGEST_EXPONENT
            if high.any():
                below = np.where(members, parameter * (weights - top), -np.inf)
                scaled = np.exp(below) - np.where(members, np.exp(-parameter * top), 0)
                weights = np.where(high, scaled, np.expm1(parameter * np.where(high, 0, weights)))
            else:
                weights = np.expm1(parameter * weights)
        return np.maximum(weights, 0) if self.clamp else weights


@dataclass(frozen=True, slots=True)
class Sets:
    """Overlaps of the neighbour sets in a context of m elements.

    Attributes:
        jaccard: J of each probe with each element, float32 ``(probes, m)``.
        shared: float32 ``(probes, m, m)``: the part of J that each element j adds, ``min(v_pj, v_cj) / sum_j max(v_pj, v_cj)``; sums to
            `jaccard` over the last axis. None if it was not requested.
    """

    jaccard: NDArray[np.float32]
    shared: NDArray[np.float32] | None
