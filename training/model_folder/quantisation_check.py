"""Measure the loss by int8, and the shipped model: search held-out questions with the exported graphs, in a pool that takes only seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from termweave.encoders import load
from termweave.encoders.model_lookup import DEFAULT, resolve
from termweave.evaluation.measures import LEADING, randomisation_test
from termweave.training.data.bm25_index import SparseIndex
from termweave.training.dev_measure import depth, ranking_measure, rankings, search_measure, stored, vectors_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from termweave.encoders.onnx.runtime import Precision
    from termweave.statistics import CorpusStatistics
    from termweave.training.dev_measure import DevelopmentSet

#: Number of questions.
QUESTIONS = 50
#: Documents per question in the pool, and the most of these that may be relevant.
_EACH, _RELEVANT = 6, 3


def cost(
    folder: Path, outputs: Sequence[str], development: DevelopmentSet, texts: Sequence[str], statistics: CorpusStatistics
) -> dict[str, Any]:
    """Measure nDCG@10 of both graphs with at most 50 questions in at most 300 documents.

    Args:
        folder: Folder of the exported model.
        outputs: Outputs of the model: "weights", "dense" or both.
        development: The held-out questions.
        texts: The documents that the indices in `development` point into.
        statistics: Statistics of the corpus.

    Returns:
        ``{"questions", "documents", "weights": {"fp32", "int8", "change"}}``, and "dense" likewise; impacts are rounded as stored.
        "shipped" is the model that comes with termweave, and "shipped_p" the p-value of the int8 graph against it, unless it cuts words otherwise.
    """
    numbers = range(0, len(development.pairs), -(-len(development.pairs) // QUESTIONS))
    pool = _pool(development, numbers)
    position = {place: index for index, place in enumerate(pool)}
    pairs = development.pairs.part(numbers).within(position)
    gains = [dict.fromkeys(each, 1) for each in pairs.relevant]
    measured: dict[str, dict[str, NDArray[np.float64]]] = {output: {} for output in outputs}
    models: dict[str, tuple[Path, Precision | None]] = {"fp32": (folder, "fp32"), "int8": (folder, "int8")}
    models["shipped"] = (resolve(DEFAULT), None)
    for name, (model, precision) in models.items():
        encoder = load(model if "weights" in outputs else "", model if "dense" in outputs else "", precision=precision)
        if encoder.analysis is not None and encoder.analysis != statistics.analysis:
            continue  # the shipped model is not for this language
        documents = encoder.encode([texts[place] for place in pool], kind="document", statistics=statistics)
        questions = encoder.encode(pairs.questions, kind="query", statistics=statistics)
        if "weights" in outputs:
            impacts = stored([each.weights for each in documents if each.weights is not None], development.bits)
            factors = [each.weights for each in questions if each.weights is not None]
            measured["weights"][name] = search_measure(impacts, factors, gains, pairs.spared)
        if "dense" in outputs:
            ranked = rankings(vectors_of(questions), vectors_of(documents), depth(LEADING), pairs.spared)
            measured["dense"][name] = ranking_measure(list(ranked), gains)
    return {"questions": len(numbers), "documents": len(pool), **{output: _figures(each) for output, each in measured.items()}}


def _figures(measured: Mapping[str, NDArray[np.float64]]) -> dict[str, float]:
    """The means, what int8 changes, and whether it differs from the shipped model by chance."""
    figures = {name: float(values.mean()) for name, values in measured.items()}
    if "shipped" in measured:
        figures["shipped_p"] = float(randomisation_test(measured["int8"], measured["shipped"]))
    return {**figures, "change": figures["int8"] - figures["fp32"]}


def _pool(development: DevelopmentSet, questions: Sequence[int]) -> list[int]:
    """Choose some relevant documents and BM25's best documents for every question."""
    index, pool = SparseIndex(development.plain), set[int]()
    for question in questions:
        relevant = sorted(development.pairs.relevant[question])[:_RELEVANT]
        best = index.search(development.asked[question], _EACH, development.pairs.spared[question])[0].tolist()
        pool.update(list(dict.fromkeys([*relevant, *best]))[:_EACH])
    return sorted(pool)
