"""The anchor of a ranker: what search knows of a candidate before the ranker reads it, added to the logit with learned weights.

    logit = residual(query, document) + sum over features of weight * feature

The features are the score so far, the cosine of the document's vector with the query's, and rNN's J among the candidates. A model folder
names its features and weights in ``termweave.json`` (`encoders.kinds.ranker.anchor_of`); `termweave train sir` writes them.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from termweave.encoders.manifest import MANIFEST
from termweave.encoders.recorded_models import ranker_folder
from termweave.errors import TermweaveError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from termweave.rerank.rerankers import RerankRequest

#: Parameters of the neighbourhoods, those of the reranker `rnn`.
_NEIGHBOURS, _AVERAGED = 10, 3


def needs_vectors(model: str, expected: str = "") -> bool:
    """Whether a ranker's anchor reads vectors; False for a model that cannot be opened, because opening it says what is wrong.

    A model on the hub is fetched, as opening it would fetch it.

    Args:
        model: A name or folder.
        expected: The model's hash, if the profile of an index names it: then only models that this host has are read.
    """
    try:
        return _reads_vectors(model, expected)
    except TermweaveError:
        return False


@cache
def _reads_vectors(model: str, expected: str) -> bool:
    from termweave.encoders.kinds import read_folder  # noqa: PLC0415
    from termweave.encoders.kinds.ranker import anchor_of  # noqa: PLC0415 - numpy

    folder = ranker_folder(model, expected)
    weights = anchor_of(read_folder(folder, check=False).manifest) if (folder / MANIFEST).is_file() else {}
    return bool({"cosine", "jaccard"} & weights.keys())


def shares(weights: Mapping[str, float], request: RerankRequest) -> list[float]:
    """What the anchor adds to the logit of each candidate.

    Args:
        weights: Feature -> weight.
        request: The query and its candidates.

    Raises:
        UsageError: The anchor reads vectors, and the query has none.
    """
    if not weights:
        return [0.0] * len(request.ids)
    columns: dict[str, Sequence[float]] = {"score": request.scores}
    if {"cosine", "jaccard"} & weights.keys():
        if request.query.vector is None or request.vectors is None:
            raise UsageError(
                "The ranker was trained with vectors, and this index has no dense model.",
                "Index with a dense model, or train a ranker with --set candidates_from=bm25.",
            )
        cosines, jaccard = neighbourhood_features(request.query.vector, request.vectors)
        columns |= {"cosine": cosines.tolist(), "jaccard": jaccard.tolist()}
    return [sum(weight * columns[name][row] for name, weight in weights.items()) for row in range(len(request.ids))]


def neighbourhood_features(
    query: NDArray[np.float32], vectors: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Cosine and rNN's J of each candidate: float32 ``(n,)`` twice.

    Args:
        query: Unit vector ``(d,)``.
        vectors: Unit vectors of the candidates ``(n, d)``, those that are reranked together.
    """
    from termweave.rerank import Rules, neighbourhood  # noqa: PLC0415 - loads numpy

    context = neighbourhood(query, vectors, Rules(_NEIGHBOURS, _AVERAGED, 0.0, clamp=True))
    return context.similarity, context.jaccard
