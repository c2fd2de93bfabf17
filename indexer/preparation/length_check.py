"""A warning about texts that are longer than a model reads, and what that costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from termweave.encoders import TextEncoder


#: What a model gives -> what becomes of it behind the last word-piece that the model reads.
_COSTS = {"dense": "their vectors stand for the beginning alone", "weights": "words further on get no learned weight"}


def warnings(encoder: TextEncoder, texts: Sequence[str], *, passages: bool) -> list[str]:
    """Warn about a sample of texts, if half a per cent or more of them are longer than the model reads.

    Args:
        encoder: The models.
        texts: The sample.
        passages: Whether the texts are passages of documents.
    """
    longest = min((model.max_length for output, model in encoder.models.items() if output != "dense_query"), default=0)
    long = share([length > longest for length in encoder.lengths(texts)]) if longest else ""
    if not long:
        return []
    noun, advice = ("passages", "a smaller --passage-size") if passages else ("documents", "--passage-size 160")
    cost = ", and ".join(cost for output, cost in _COSTS.items() if output in encoder.models)
    return [
        f"{long} of the {noun} are longer than the {longest} word-pieces that the model reads: {cost}. Use {advice} to cover the whole text."
    ]


def share(flags: Sequence[bool]) -> str:
    """The share of true values as a percentage; "" if it rounds to zero."""
    part = sum(flags) / len(flags)
    return f"{part:.0%}" if part >= 0.005 else ""
