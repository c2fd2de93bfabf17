"""What int8 costs: held-out questions searched by the exported fp32 and int8 graphs, in a pool small enough to take seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.encoders import load
from termweave.training import scoring
from termweave.training.sparse import SparseIndex

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from termweave.encoders.runtime import Precision
    from termweave.records import Encoding
    from termweave.statistics import CorpusStatistics
    from termweave.training.scoring import Development

#: Questions asked; documents each brings to the pool, and how many of these answer it where many do.
_QUESTIONS, _EACH, _RELEVANT = 50, 6, 3


def cost(
    folder: Path, outputs: Sequence[str], development: Development, texts: Sequence[str], statistics: CorpusStatistics
) -> dict[str, Any]:
    """nDCG@10 of both graphs over the same at most 50 questions in the same at most 300 documents.

    Args:
        folder: Of the exported model.
        outputs: "weights", and "dense" where it has vectors.
        development: The held-out questions.
        texts: The documents that they point into.
        statistics: Of the corpus.

    Returns:
        ``{"questions", "documents", "weights": {"fp32", "int8", "change"}}``, and "dense" likewise; impacts are rounded as stored.
    """
    asked = range(0, len(development.pairs), -(-len(development.pairs) // _QUESTIONS))
    pool = _pool(development, asked)
    position = {place: index for index, place in enumerate(pool)}
    pairs = development.pairs.part(asked).within(position)
    gains = [dict.fromkeys(each, 1) for each in pairs.relevant]
    figures: dict[str, dict[str, float]] = {output: {} for output in outputs}
    precisions: tuple[Precision, ...] = ("fp32", "int8")
    for precision in precisions:
        encoder = load(str(folder), str(folder) if "dense" in outputs else "", precision=precision)
        documents = encoder.encode([texts[place] for place in pool], kind="document", statistics=statistics)
        asking = encoder.encode(pairs.questions, kind="query", statistics=statistics)
        impacts = scoring.stored([each.weights for each in documents if each.weights is not None], development.bits)
        factors = [each.weights for each in asking if each.weights is not None]
        figures["weights"][precision] = float(scoring.ndcg(impacts, factors, gains, pairs.spared).mean())
        if "dense" in outputs:
            scores = _vectors(asking) @ _vectors(documents).T
            for row, spared in zip(scores, pairs.spared, strict=True):
                row[list(spared)] = -np.inf
            best = np.argsort(-scores, axis=1, kind="stable")[:, :10]
            found = [(places, row[places]) for places, row in zip(best, scores, strict=True)]
            figures["dense"][precision] = float(scoring.graded(found, gains).mean())
    changes = {output: {**each, "change": each["int8"] - each["fp32"]} for output, each in figures.items()}
    return {"questions": len(asked), "documents": len(pool), **changes}


def _pool(development: Development, asked: Sequence[int]) -> list[int]:
    """Of every question some documents that answer it and those that BM25 takes for such."""
    index, wanted = SparseIndex(development.plain), set[int]()
    for each in asked:
        relevant = sorted(development.pairs.relevant[each])[:_RELEVANT]
        best = index.search(development.asked[each], _EACH, development.pairs.spared[each])[0].tolist()
        wanted.update(list(dict.fromkeys([*relevant, *best]))[:_EACH])
    return sorted(wanted)


def _vectors(encoded: Sequence[Encoding]) -> NDArray[np.float32]:
    return np.stack([each.vector for each in encoded if each.vector is not None])
