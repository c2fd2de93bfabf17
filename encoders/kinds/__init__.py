"""Model kinds: how a model folder becomes weights, vectors or scores. `Manifest.kind` names the kind of a folder.

==========  ==============  ==========================================================================================
kind        outputs         computation
==========  ==============  ==========================================================================================
anchored    weights, dense  a multiplier per word-piece on top of BM25, and a mean-pooled vector, in one pass
dense       dense           a transformer's states, pooled; one encoder, or one for queries and one for documents
bm25        weights         BM25 with the words of a language, for texts that no model knows; no graph
sparse      weights         a masked-language-model head: a weight for every entry of the vocabulary; queries also from a table
ranker      scores          a cross-encoder: query and document in one sequence, one score
==========  ==============  ==========================================================================================

A new kind is one module with a subclass of `OpenModel` and one entry in `KINDS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.encoders.kinds.anchored import AnchoredModel
from termweave.encoders.kinds.bm25 import Bm25Model
from termweave.encoders.kinds.dense import DenseModel
from termweave.encoders.kinds.ranker import RankerModel
from termweave.encoders.kinds.sparse import SparseModel
from termweave.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from termweave.encoders.kinds.base import OpenModel
    from termweave.encoders.manifest import Manifest

KINDS: Mapping[str, type[OpenModel]] = {
    model.kind: model for model in (AnchoredModel, Bm25Model, DenseModel, SparseModel, RankerModel)
}


def kind_of(manifest: Manifest) -> type[OpenModel]:
    """The class of the kind of a model.

    Raises:
        ModelError: This termweave does not know the kind.
    """
    kind = KINDS.get(manifest.kind)
    if kind is None:
        raise ModelError(
            f"The model {manifest.name!r} is of the kind {manifest.kind!r}; this termweave runs {', '.join(KINDS)}.",
            "Update termweave, or name another model.",
        )
    return kind
