"""Queries of inference-free sparse encoders: the weight of each token comes from a table, and no graph runs.

    w_t = table[t] if the query holds the token t, else 0

The table lies in the folder as ``model.safetensors`` (`SparseStaticEmbedding` of sentence-transformers: one number for each entry of
the vocabulary) or as ``idf.json`` (OpenSearch's models: entry -> weight). Entries that weigh 0 or less are no terms of a query:
OpenSearch takes positive weights only.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.encoders.analysis.model_tokenizer import ModelTokenizer
from termweave.encoders.kinds.safetensors import read_safetensors
from termweave.encoders.manifest import TOKENIZER
from termweave.encoders.term_weighting.anchored_terms import check_finite
from termweave.errors import ModelError
from termweave.records import TermWeights

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

_AGAIN = "Copy the model folder again."


class Vocabulary:
    """The entries of a tokeniser's vocabulary, by number. Special tokens and numbers without an entry are no terms."""

    def __init__(self, tokenizer: Any) -> None:
        entries = tokenizer.get_vocab(with_added_tokens=True)
        self.entries: NDArray[Any] = np.full(max(entries.values()) + 1, "", dtype=object)
        self.entries[list(entries.values())] = list(entries)
        self._is_term = self.entries != ""
        special = [number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special]
        self._is_term[special] = False

    def __len__(self) -> int:
        return len(self.entries)

    def terms_of(self, weights: NDArray[np.float32]) -> TermWeights:
        """The entries that weigh more than 0: ``(v,)``, where v may exceed the vocabulary (padding for the hardware)."""
        check_finite(weights)
        size = min(len(weights), len(self))
        places = np.flatnonzero((weights[:size] > 0) & self._is_term[:size])
        return TermWeights(tuple(self.entries[places].tolist()), weights[places].astype(np.float32))


class QueryTable:
    """A table of query weights and the tokeniser of queries."""

    def __init__(self, file: Path, tokenizer: Path, *, model: str) -> None:
        """Read the table.

        Args:
            file: ``model.safetensors`` or a JSON file.
            tokenizer: Folder of the tokeniser.
            model: The name of the model, for messages.

        Raises:
            ModelError: A file is missing or damaged, or the table belongs to another vocabulary.
        """
        self._tokenizer = ModelTokenizer(tokenizer / TOKENIZER)
        self.vocabulary = Vocabulary(self._tokenizer.tokenizer)
        self._weights = _read(file, self._tokenizer.tokenizer, len(self.vocabulary), model)

    def weigh(self, texts: Sequence[str], max_length: int) -> list[TermWeights]:
        """The weights of the tokens of each query; a token counts once, however often it stands there.

        Args:
            texts: The queries.
            max_length: The most tokens of a query; 0: no limit.
        """
        length = max_length or max(self._tokenizer.lengths(texts), default=0)
        return [self._terms(ids) for ids in self._tokenizer.encode(texts, length, special=False)]

    def _terms(self, ids: NDArray[np.int64]) -> TermWeights:
        weights = np.zeros(len(self._weights), dtype=np.float32)
        weights[ids] = self._weights[ids]
        return self.vocabulary.terms_of(weights)


def _read(file: Path, tokenizer: Any, size: int, model: str) -> NDArray[np.float32]:
    """The table as one number for each entry of the vocabulary."""
    if not file.is_file():
        raise ModelError(f"The model {model!r} has no table of query weights: {file} is missing.", _AGAIN)
    try:
        if file.suffix == ".json":
            weights = np.zeros(size, dtype=np.float32)
            for token, weight in json.loads(file.read_bytes()).items():
                if (number := tokenizer.token_to_id(token)) is not None:
                    weights[number] = weight
        else:
            weights = read_safetensors(file)["weight"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"{file} is not a table of query weights: {error}.", _AGAIN) from error
    if weights.ndim != 1 or len(weights) < size:
        raise ModelError(
            f"{file} has {len(weights)} weights, and the vocabulary of {model!r} has {size} entries.",
            "The table belongs to another model: copy the model folder again.",
        )
    return weights
