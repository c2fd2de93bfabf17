"""Measures of rankings, computed by ir-measures with trec_eval's own code."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, Any

from termweave.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from termweave.records import Qrels, Run

#: Measures of the tables, in the order of the columns.
MEASURES = ("nDCG@10", "MRR@10", "recall@100")
#: The measure that counts wins and losses, compares generations and decides when training stops.
LEADING = MEASURES[0]
#: The last column of the tables: the share of the ten best documents that are judged (`judged_share`).
JUDGED = "judged@10"
#: Name of a measure in lower case -> its name in ir-measures.
_KINDS = {"ndcg": "nDCG", "mrr": "RR", "recall": "R"}


def per_query(
    run: Run, qrels: Qrels, queries: Sequence[str], *, relevant_from: int = 1, measures: Sequence[str] = MEASURES
) -> Mapping[str, NDArray[np.float64]]:
    """Compute the measures of every query.

    Args:
        run: The ranking, with the best documents of each query first; a query without results counts as 0.
        qrels: Judgements.
        queries: Ids of the queries, in the order of the result.
        relevant_from: Lowest grade that counts as relevant for MRR and recall; nDCG uses the grades as gains.
        measures: Names such as "nDCG@10", "MRR@10" and "recall@100".

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
    ranked = {
        key: {number(document): -rank for rank, document in enumerate(run.scores.get(queries[int(key)], ()))} for key in judged
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ir-measures imports providers that are not installed
        import ir_measures  # noqa: PLC0415

        parsed = {name: _parse(name, relevant_from) for name in measures}
        values = {measure: np.zeros(len(queries)) for measure in parsed.values()}
        for metric in ir_measures.iter_calc(list(values), judged, ranked):
            values[metric.measure][int(metric.query_id)] = metric.value
    return {name: values[measure] for name, measure in parsed.items()}


def judged_share(run: Run, qrels: Qrels, queries: Sequence[str], *, depth: int = 10) -> NDArray[np.float64]:
    """Compute the share of the best documents of every query that are judged.

    Judgements usually come from a pool of documents. A system whose best documents were not in the pool scores too low.

    Args:
        run: The ranking, best documents first; a query without results counts as 0.
        qrels: Judgements; a document with grade 0 is judged.
        queries: Ids of the queries, in the order of the result.
        depth: Number of best documents to look at.

    Returns:
        float64 ``(len(queries),)`` in [0, 1].
    """
    import numpy as np  # noqa: PLC0415

    shares = np.zeros(len(queries))
    for position, query in enumerate(queries):
        best = list(run.scores.get(query, {}))[:depth]
        if best:
            shares[position] = sum(document in qrels.get(query, {}) for document in best) / len(best)
    return shares


def check(name: str) -> tuple[str, int]:
    """Parse the name of a measure.

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
