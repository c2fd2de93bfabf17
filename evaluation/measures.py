"""Measures by ir-measures, which computes with trec_eval's own code."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, Any

from termweave.errors import UsageError
from termweave.evaluation.runs import strictly_decreasing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from termweave.records import Qrels, Run

#: What tables show, in their order.
MEASURES = ("nDCG@10", "MRR@10", "recall@100")
#: The one that wins and losses count, that generations are compared by and that training is stopped by.
LEADING = MEASURES[0]
#: The column beside them: which share of the ten best is judged at all (`judged_share`).
JUDGED = "judged@10"
#: Measures in lower case -> as ir-measures calls them.
_KINDS = {"ndcg": "nDCG", "mrr": "RR", "recall": "R"}


def per_query(
    run: Run, qrels: Qrels, queries: Sequence[str], *, relevant_from: int = 1, measures: Sequence[str] = MEASURES
) -> Mapping[str, NDArray[np.float64]]:
    """Every measure of every query.

    Args:
        run: The ranking, each query's documents best first; a query without results counts as 0.
        qrels: Judgements.
        queries: Ids, in the order of the result.
        relevant_from: Lowest grade that counts as relevant for MRR and recall; nDCG takes the grades as gains.
        measures: "nDCG@K", "MRR@K", "recall@K".

    Returns:
        Measure -> float64 ``(len(queries),)``.

    Raises:
        UsageError: A measure that is not known.
    """
    import numpy as np  # noqa: PLC0415

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ir-measures imports providers that are not installed
        import ir_measures  # noqa: PLC0415

        parsed = {name: _parse(name, relevant_from) for name in measures}
        values = {name: dict.fromkeys(queries, 0.0) for name in measures}
        back = {measure: name for name, measure in parsed.items()}
        # No measure here tells a grade below 0, as of spam, from 0; trec_eval (pytrec_eval-terrier 0.5.11) writes outside its memory
        # where a query has none above -2.
        judged = {query: {each: max(0, grade) for each, grade in grades.items()} for query, grades in qrels.items()}
        for metric in ir_measures.iter_calc(
            list(parsed.values()), judged, {query: strictly_decreasing(scores) for query, scores in run.scores.items()}
        ):
            if metric.query_id in values[back[metric.measure]]:
                values[back[metric.measure]][metric.query_id] = metric.value
    return {name: np.array([found[query] for query in queries]) for name, found in values.items()}


def judged_share(run: Run, qrels: Qrels, queries: Sequence[str], *, depth: int = 10) -> NDArray[np.float64]:
    """Which share of the best documents of every query is judged at all: judgements from a pool punish what was not pooled.

    Args:
        run: The ranking, best first; a query without results counts as 0.
        qrels: Judgements; a grade of 0 is one.
        queries: Ids, in the order of the result.
        depth: How many of the best.

    Returns:
        float64 ``(len(queries),)`` in [0, 1].
    """
    import numpy as np  # noqa: PLC0415

    shares = np.zeros(len(queries))
    for place, query in enumerate(queries):
        best = list(run.scores.get(query, {}))[:depth]
        if best:
            shares[place] = sum(document in qrels.get(query, {}) for document in best) / len(best)
    return shares


def check(name: str) -> tuple[str, int]:
    """Read the name of a measure.

    Returns:
        "ndcg", "mrr" or "recall", and the cutoff.

    Raises:
        UsageError: There is no such measure.

    Example:
        >>> check("nDCG@10")
        ('ndcg', 10)
    """
    kind, _, cutoff = name.partition("@")
    if kind.lower() not in _KINDS or not re.fullmatch("[0-9]{1,9}", cutoff) or int(cutoff) < 1:
        raise UsageError(f"There is no measure {name!r}.", "Known: nDCG@K, MRR@K, recall@K, for example nDCG@10.")
    return kind.lower(), int(cutoff)


def _parse(name: str, relevant_from: int) -> Any:
    import ir_measures  # noqa: PLC0415

    kind, cutoff = check(name)
    measure = getattr(ir_measures, _KINDS[kind])
    return measure @ cutoff if kind == "ndcg" else measure(rel=relevant_from) @ cutoff
