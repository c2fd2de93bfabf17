"""Significance of differences: a paired randomisation test, and a correction for the number of comparisons."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

#: Number of sign assignments drawn; the smallest possible p is 1 / (DRAWS + 1).
DRAWS = 10_000
#: A difference with a smaller p-value, corrected for the number of comparisons, counts as more than chance.
ALPHA = 0.05
#: Random signs at a time, and the most rows of them. Chunks have a multiple of four rows: then the generator gives the same signs.
_SIGNS, _ROWS = 1_000_000, 1_000


def randomisation_test(first: NDArray[np.float64], second: NDArray[np.float64], *, draws: int = DRAWS, seed: int = 0) -> float:
    """Compute the two-sided paired randomisation test on the mean difference (Fisher; Smucker et al., CIKM 2007).

    If two systems are equally good, the sign of each query's difference is random. p is the share of random sign assignments,
    with the observed one included, whose mean is at least as far from 0 as the observed mean.

    Args:
        first: float64 ``(n,)``, one system's value for each query.
        second: The other system's values, in the same order.
        draws: Number of random sign assignments.
        seed: Seed of the draws; the same seed gives the same p.

    Returns:
        p in (0, 1].

    Example:
        >>> import numpy as np
        >>> randomisation_test(np.array([0.5, 0.5]), np.array([0.5, 0.5]))
        1.0
    """
    import numpy as np  # noqa: PLC0415

    difference = first - second
    observed = abs(difference.sum())
    if not difference.any():
        return 1.0
    random = np.random.default_rng(seed)
    extreme = 0
    tolerance = 1e-12 * max(1.0, np.abs(difference).sum())  # rounding, where the same numbers are added in another order
    rows = min(_ROWS, max(1, _SIGNS // len(difference) // 4) * 4)
    for start in range(0, draws, rows):
        signs = random.integers(0, 2, size=(min(rows, draws - start), len(difference)), dtype=np.int8) * 2 - 1
        extreme += int((np.abs(signs @ difference) >= observed - tolerance).sum())
    return (extreme + 1) / (draws + 1)


def holm(values: Sequence[float]) -> list[float]:
    """Correct p-values by Holm's step-down method, so that they hold for all comparisons of a table together.

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
