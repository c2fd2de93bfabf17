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

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from termweave.encoders import hub
from termweave.encoders.kinds import sentence_layout
from termweave.encoders.kinds.anchored import AnchoredModel, Bm25Model
from termweave.encoders.kinds.dense import DenseModel
from termweave.encoders.kinds.ranker import RankerModel
from termweave.encoders.kinds.sparse import SparseModel
from termweave.encoders.manifest import MANIFEST, Manifest, ModelFolder
from termweave.errors import ModelError

if TYPE_CHECKING:
    from termweave.encoders.kinds.base import OpenModel

_ALL: tuple[type[OpenModel], ...] = (AnchoredModel, Bm25Model, DenseModel, SparseModel, RankerModel)
KINDS: Mapping[str, type[OpenModel]] = {model.kind: model for model in _ALL}


def kind_of(manifest: Manifest) -> type[OpenModel]:
    """The class of the kind of a model.

    Raises:
        ModelError: This termweave does not know the kind.
    """
    kind = KINDS.get(manifest.kind)
    if kind is None:
        raise ModelError(f"{manifest.name!r} has the kind {manifest.kind!r}; known: {', '.join(KINDS)}.", "Update termweave.")
    return kind


def read_folder(path: Path, *, check: bool = True, name: str = "") -> ModelFolder:
    """Read a folder that termweave wrote, or one in the layout of sentence-transformers.

    Args:
        path: The folder.
        check: Compare every file with its digest (15 ms for the shipped model).
        name: The name that the user gave; a model of the Hugging Face hub keeps it as its name.

    Raises:
        ModelError: A file is missing or altered, or the model is of a sort that termweave does not run; the message says which.
    """
    if (path / MANIFEST).is_file():
        return ModelFolder.read(path, check=check)
    return sentence_layout.read(path, name if hub.is_hub_name(name) else path.name)
