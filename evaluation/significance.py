"""Is a difference one? Paired randomisation test, corrected for the number of comparisons."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

#: Sign assignments drawn; the smallest p that can come out is 1 / (DRAWS + 1).
DRAWS = 10_000
_CHUNK = 1_000


def randomisation_test(first: NDArray[np.float64], second: NDArray[np.float64], *, draws: int = DRAWS, seed: int = 0) -> float:
    """Two-sided paired randomisation test on the mean difference (Fisher; Smucker et al., CIKM 2007).

    If the two systems were one, the sign of each query's difference would be a coin's toss: p is the share of sign
    assignments that give a mean at least as far from 0 as the one seen, itself included.

    Args:
        first: float64 ``(n,)``, one value a query.
        second: The other system's values, same order.
        draws: Random sign assignments.
        seed: The same seed gives the same p.

    Returns:
        p in (0, 1].

    Example:
        >>> import numpy as np
        >>> randomisation_test(np.array([0.5, 0.5]), np.array([0.5, 0.5]))
        1.0
    """
    import numpy as np  # noqa: PLC0415

    difference = first - second
    seen = abs(difference.sum())
    if not difference.any():
        return 1.0
    random = np.random.default_rng(seed)
    extreme = 0
    tolerance = 1e-12 * max(1.0, np.abs(difference).sum())  # sums of the same numbers in another order
    for start in range(0, draws, _CHUNK):
        signs = random.integers(0, 2, size=(min(_CHUNK, draws - start), len(difference)), dtype=np.int8) * 2 - 1
        extreme += int((np.abs(signs @ difference) >= seen - tolerance).sum())
    return (extreme + 1) / (draws + 1)


def holm(values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: p-values that hold for all comparisons of a table together.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(values)), key=lambda position: values[position])
    corrected = [0.0] * len(values)
    highest = 0.0
    for rank, position in enumerate(order):
        highest = max(highest, min(1.0, values[position] * (len(values) - rank)))
        corrected[position] = highest
    return corrected
