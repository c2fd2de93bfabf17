"""What dense training reads: token ids, stored flat in memory and padded batch by batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.encoders.kinds import kind_of, read_folder
from termweave.encoders.kinds.anchored import AnchoredModel
from termweave.encoders.kinds.dense import DenseModel, DenseSettings
from termweave.errors import UsageError
from termweave.support.batching import in_parts
from termweave.training.data.sampler import TrainingInputs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from termweave.encoders.analysis.word_pieces import ModelTokenizer
    from termweave.encoders.manifest import Manifest

#: Texts tokenised at a time.
_BLOCK = 1024


@dataclass(frozen=True)
class TokenIds:
    """The token ids of many texts.

    Attributes:
        values: int32 ``(all tokens,)``, text after text.
        starts: int64 ``(texts + 1,)``: text i is ``values[starts[i]:starts[i + 1]]``.
    """

    values: NDArray[np.int32]
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each text, ``(texts,)``."""
        return np.diff(self.starts)

    def padded(self, texts: Sequence[int] | NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Token ids and mask of some texts: int64 ``(T, n)`` each, n the length of the longest."""
        rows = [self.values[self.starts[text] : self.starts[text + 1]] for text in texts]
        ids = np.zeros((len(rows), max((len(row) for row in rows), default=0)), dtype=np.int64)
        mask = np.zeros_like(ids)
        for place, row in enumerate(rows):
            ids[place, : len(row)], mask[place, : len(row)] = row, 1
        return ids, mask


def reading_of(backbone: Path) -> tuple[Manifest, DenseSettings]:
    """How the backbone's folder says that texts are read and states are pooled.

    Raises:
        UsageError: The folder is a cross-encoder or a sparse model, whose states are not made into vectors.
    """
    manifest = read_folder(backbone, check=False).manifest
    if manifest.kind not in (DenseModel.kind, AnchoredModel.kind):
        raise UsageError(
            f"The backbone {manifest.name!r} is {kind_of(manifest).label}.", "Name a model that gives vectors of texts."
        )
    return manifest, DenseSettings.from_manifest(manifest)


def tokenise(tokenizer: ModelTokenizer, texts: Sequence[str], max_length: int, prompt: str = "") -> TokenIds:
    """Tokenise texts as the trained model will read them.

    Args:
        tokenizer: Of the model.
        texts: Any texts.
        max_length: Tokens to keep of each, special tokens included.
        prompt: Put before every text.
    """
    rows = [ids for part in in_parts(texts, _BLOCK) for ids in tokenizer.encode([prompt + text for text in part], max_length)]
    values = np.concatenate(rows).astype(np.int32) if rows else np.zeros(0, np.int32)
    return TokenIds(values, np.cumsum([0, *(len(row) for row in rows)]))


@dataclass(frozen=True)
class DenseInputs(TrainingInputs):
    """What dense batches are drawn from.

    Attributes:
        negatives: For each question its hard negatives, best first; may be empty.
        questions: Token ids of the training questions.
        documents: Token ids of all documents.
        targets: What the method computed before training (`BiEncoderMethod.targets`).
    """

    negatives: list[NDArray[np.int64]]
    questions: TokenIds
    documents: TokenIds
    targets: Any = None


def by_length(lengths: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    """Positions in chunks of texts of about one length, the longest first: little padding, and the largest chunk fails at once."""
    order = np.argsort(-lengths, kind="stable")
    return [order[first : first + size] for first in range(0, len(order), size)]
