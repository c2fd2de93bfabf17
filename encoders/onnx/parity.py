"""The comparison of graphs with torch that an export makes: sample texts, differences, cosines, rank correlations."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from termweave.encoders.onnx.runtime import Outputs

#: Number of texts in the sample.
_SAMPLE = 64


@dataclass(frozen=True)
class Parity:
    """How close the graphs of a model are to torch, over the sample texts. A figure that a kind does not have is None.

    Attributes:
        texts: Number of sample texts.
        fp32_difference: Largest absolute difference between torch and the fp32 graph, over all outputs.
        int8_rank_correlation: Spearman's, between fp32 and int8 weights of each text (or scores of all); mean over the texts.
        int8_multiplier_difference: Mean absolute difference of the multipliers.
        int8_cosine_min: Smallest cosine between an fp32 and an int8 vector.
        int8_cosine_mean: Mean cosine between an fp32 and an int8 vector.
        int8_score_difference: Mean absolute difference of a ranker's scores, in standard deviations of the fp32 scores.
        dequantised_cosine_min: Smallest cosine between an fp32 vector and one of int8's weights computed in fp32.
    """

    texts: int
    fp32_difference: float
    int8_rank_correlation: float | None = None
    int8_multiplier_difference: float | None = None
    int8_cosine_min: float | None = None
    int8_cosine_mean: float | None = None
    int8_score_difference: float | None = None
    dequantised_cosine_min: float | None = None

    def __str__(self) -> str:
        parts = [f"fp32 within {self.fp32_difference:.1g} of torch"]
        if self.int8_rank_correlation is not None:
            parts.append(f"int8 rank correlation {self.int8_rank_correlation:.4f}")
        elif self.int8_cosine_min is not None:
            parts.append(f"int8 cosine at least {self.int8_cosine_min:.4f}")
        return ", ".join(parts)

    def as_dict(self) -> dict[str, float]:
        """The figures for ``termweave.json`` and --json."""
        return {name: round(value, 8) for name, value in asdict(self).items() if value is not None}


def largest_difference(first: Outputs, second: Outputs) -> float:
    """The largest absolute difference over all texts and outputs; NaN if one of them is NaN."""
    differences = [
        np.abs(a - b).max() for one, other in zip(first, second, strict=True) for a, b in zip(one, other, strict=True) if a.size
    ]
    return float(np.max(differences)) if differences else 0.0


def cosines(pairs: Sequence[tuple[NDArray[np.float32], NDArray[np.float32]]]) -> dict[str, float]:
    """Smallest and mean cosine of pairs of unit vectors."""
    values = [float(one @ other) for one, other in pairs]
    return {"cosine_min": min(values), "cosine_mean": float(np.mean(values))}


def rank_correlation(pairs: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]]) -> float:
    """Mean over the texts of Spearman's correlation; texts with four values or fewer, or with equal values, do not count."""
    values = [_spearman(one, other) for one, other in pairs if len(one) > 4 and np.ptp(one) > 0]
    return float(np.mean(values)) if values else 1.0


def _spearman(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    ranks = [values.argsort().argsort().astype(np.float64) for values in (one, other)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def sample_texts() -> list[str]:
    """English prose of many lengths that every Python brings along: its own language reference."""
    from pydoc_data.topics import topics  # noqa: PLC0415

    paragraphs = [" ".join(part.split()) for _, topic in sorted(topics.items()) for part in topic.split("\n\n")]
    prose = [text for text in paragraphs if len(text) > 40 and text.count(" ") > 6]
    special = ["", "word", "What is the capital of France?", " ".join(prose[:12])]
    count = _SAMPLE - len(special)
    return [*prose[:: max(1, len(prose) // count)][:count], *special]
