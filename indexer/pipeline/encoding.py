"""Encoding: what the models make of documents, as a function that a pipeline calls block by block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from termweave.records import Document, Encoding

if TYPE_CHECKING:
    from termweave.encoders import TextEncoder
    from termweave.statistics import CorpusStatistics

#: Encodes documents; one encoding for each, in their order.
Encode: TypeAlias = Callable[[Sequence[Document]], list[Encoding]]


def of_documents(encoder: TextEncoder, statistics: CorpusStatistics | None) -> Encode:
    """A function that encodes documents by their own text.

    Args:
        encoder: The models.
        statistics: The corpus statistics that term weights are based on; None without a weights model.
    """

    def encode(documents: Sequence[Document]) -> list[Encoding]:
        return encoder.encode([document.content for document in documents], kind="document", statistics=statistics)

    return encode
