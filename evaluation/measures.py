"""Measures of rankings, computed by ir-measures with trec_eval's own code; tests of their differences; and the names of measures and signals in tables."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from termweave.errors import UsageError
from termweave.support.messages import counted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from termweave.records import Qrels, Run

#: Measures of the tables, in the order of the columns.
MEASURES = ("nDCG@10", "MRR@10", "recall@100")
#: The measure that counts wins and losses, compares generations and decides when training stops.
LEADING = MEASURES[0]
#: The last column of the tables: the share of the ten best documents that are judged. Judgements usually come from a pool of documents; a system
#: whose best documents were not in the pool scores too low.
JUDGED = "judged@10"
#: Name of a measure in lower case -> its name in ir-measures.
_KINDS = {"ndcg": "nDCG", "mrr": "RR", "recall": "R"}
#: The name of the lexical signal in tables: the engine scores it by BM25.
BM25 = "BM25"
#: Number of sign assignments drawn; the smallest possible p is 1 / (DRAWS + 1).
DRAWS = 10_000
#: A difference with a smaller p-value, corrected for the number of comparisons, counts as more than chance.
ALPHA = 0.05
#: Random signs at a time, and the most rows of them. Chunks have a multiple of four rows: then the generator gives the same signs.
_SIGNS, _ROWS = 1_000_000, 1_000


def per_query(
    run: Run, qrels: Qrels, queries: Sequence[str], *, relevant_from: int = 1, measures: Sequence[str] = MEASURES
) -> Mapping[str, NDArray[np.float64]]:
    """Compute the measures of every query.

    Args:
        run: The ranking, with the best documents of each query first; a query without results counts as 0.
        qrels: Judgements.
        queries: Ids of the queries, in the order of the result.
        relevant_from: Lowest grade that counts as relevant for MRR and recall; nDCG uses the grades as gains.
        measures: Names such as "nDCG@10", "MRR@10" and "recall@100", or `JUDGED`.

    Returns:
        Measure -> float64 ``(len(queries),)``.

    Raises:
        UsageError: A measure is unknown.
    """
    import numpy as np  # noqa: PLC0415

    numbers: dict[str, str] = {}

    def number(document: str) -> str:
        return numbers.setdefault(document, str(len(numbers)))

    # trec_eval is C: a NUL ends an id there, two ids that are equal up to it end the process, and so does half of a surrogate pair. So
    # it sees numbers for ids, and ranks for scores, which are float32 there. For these measures a grade below 0 (spam) is the same
    # as 0; pytrec_eval-terrier 0.5.11 writes outside its memory if all grades of a query are below -1.
    judged = {
        str(place): {number(document): max(0, grade) for document, grade in qrels[query].items()}
        for place, query in enumerate(queries)
        if qrels.get(query)
    }
    rankings = ((key, run.scores.get(queries[int(key)])) for key in judged)
    ranked = {key: {number(each): -rank for rank, each in enumerate(ranking)} for key, ranking in rankings if ranking}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ir-measures imports providers that are not installed
        import ir_measures  # noqa: PLC0415

        parsed = {}
        for name in measures:
            kind, cutoff = ("judged", 10) if name == JUDGED else parse_measure(name)
            measure = getattr(ir_measures, _KINDS.get(kind, "Judged"))
            parsed[name] = (measure(rel=relevant_from) if kind in {"mrr", "recall"} else measure) @ cutoff
        values = {measure: np.zeros(len(queries)) for measure in parsed.values()}
        for metric in ir_measures.iter_calc(list(values), judged, ranked):
            values[metric.measure][int(metric.query_id)] = metric.value
    return {name: values[measure] for name, measure in parsed.items()}


def parse_measure(name: str) -> tuple[str, int]:
    """Parse the name of a measure.

    Returns:
        "ndcg", "mrr" or "recall", and the cutoff.

    Raises:
        UsageError: There is no such measure.

    Example:
        >>> parse_measure("nDCG@10")
        ('ndcg', 10)
    """
    kind, _, cutoff = name.partition("@")
    if kind.lower() not in _KINDS or not re.fullmatch("[0-9]{1,9}", cutoff) or int(cutoff) < 1:
        raise UsageError(f"There is no measure {name!r}.", "Known: nDCG@K, MRR@K, recall@K, for example nDCG@10.")
    return kind.lower(), int(cutoff)


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


def interval(difference: NDArray[np.float64]) -> tuple[float, float]:
    """Compute the 95 % interval of the mean of paired differences ``(n,)``, n > 1, by Student's t.

    The quantile of t is a Cornish-Fisher expansion of the normal quantile; its error is below .5 % from four degrees of freedom on.
    """
    z = 1.959964
    freedom = len(difference) - 1
    t = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    t += (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    mean = float(difference.mean())
    half = t * float(difference.std(ddof=1)) / len(difference) ** 0.5
    return mean - half, mean + half


def queries(number: int, which: str = "") -> str:
    """Return a number of queries as text.

    Example:
        >>> queries(1), queries(2, "held-out")
        ('1 query', '2 held-out queries')
    """
    return counted(number, *(f"{which} {noun}".strip() for noun in ("query", "queries")))


def label(mode: str) -> str:
    """Return the name of a mode or signal in tables: "lexical" is printed as BM25."""
    return BM25 if mode == "lexical" else mode
