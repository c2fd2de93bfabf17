"""What signals over weighted terms share: the scale, which terms the engine takes, the terms of a query."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from termweave.errors import ModelError
from termweave.records import TermWeights
from termweave.signals.base import Fitting, Output, Signal
from termweave.signals.pruning import Pruning

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from termweave.records import Document, Encoding

#: Longer terms are dropped: they are no words, and 32,766 bytes refuse the whole document.
MAX_TERM_LENGTH = 200
#: The share of the sample's impacts that the scale covers; what lies above is clipped.
_QUANTILE = 0.999


@dataclass(frozen=True)
class WeightedTerms(Signal):
    """A signal that stores term weights as integers.

    Attributes:
        w_max: The impact at the top of the scale; fixed before the first document.
        levels: The largest integer stored, that of `w_max`; heavier impacts are clipped to it.
        prune_share: `Pruning.share`.
        prune_below: `Pruning.below`.
        saturation: s of x (1 + s) / (x + s), which takes the place of x, an impact's share of `w_max`: BM25's saturation of a
            term frequency, with s for k1. The smaller, the less a heavy term outweighs several light ones. None: x as it is.
    """

    needs: ClassVar[Output | None] = "weights"

    w_max: float = 1.0
    levels: int = 255
    prune_share: float = 0.0
    prune_below: float = 0.0
    saturation: float | None = None

    @classmethod
    def fit(cls, fitting: Fitting) -> Self:
        """Take a high quantile of the sample's impacts as `w_max`."""
        w_max = scale([encoding.weights.weights for encoding in fitting.sample if encoding.weights is not None])
        return cls(w_max=w_max, prune_share=fitting.pruning.share, prune_below=fitting.pruning.below)

    def quantise(self, impacts: NDArray[np.float32]) -> NDArray[np.int64]:
        """Impacts ``(n,)`` to integers of 1..`levels`: no word is lost to rounding."""
        import numpy as np  # noqa: PLC0415 - not needed by `--help`

        scaled = np.rint(self.scaled(impacts.astype(np.float64)))
        return np.minimum(np.maximum(scaled, 1), self.levels).astype(np.int64)  # np.clip takes four times as long for a text

    def scaled(self, impacts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Impacts on the scale of what is stored, not yet rounded or clipped."""
        on_scale = impacts * (self.levels / self.w_max)
        if self.saturation is None:
            return on_scale
        half = self.saturation * self.levels
        return on_scale * (self.levels + half) / (on_scale + half)

    def impacts_of(self, stored: Mapping[str, Any]) -> TermWeights:
        """The impacts that a document's `_source` holds, as far as rounding and clipping have left them."""
        import numpy as np  # noqa: PLC0415 - not needed by `--help`

        found = self.levels_of(stored)
        levels = np.fromiter(found.values(), np.float64, len(found))
        if self.saturation is not None:
            half = self.saturation * self.levels
            levels = levels.clip(max=self.levels)  # another program may have stored what no saturation gives
            levels *= half / (self.levels - levels + half)  # in this order: 255 + half may round to 255
        return TermWeights(tuple(found), (levels * (self.w_max / self.levels)).astype(np.float32))

    def par(self, query: TermWeights) -> float | None:
        """`TermWeights.par` on the scale of what is stored; under saturation as if all terms weighed what they do on average."""
        import numpy as np  # noqa: PLC0415 - not needed by `--help`

        factors = float(query.weights.sum())
        if query.par is None or factors <= 0:
            return None
        return factors * float(self.scaled(np.array(query.par / factors)))

    def rounded(self, weights: TermWeights) -> TermWeights:
        """The weights of a text as the integers that are stored of them."""
        return TermWeights(weights.terms, self.quantise(weights.weights).astype("float32"))

    @abstractmethod
    def levels_of(self, stored: Mapping[str, Any]) -> dict[str, float]:
        """Term -> the integer that a document's `_source` holds of it."""

    def kept(self, document: Document, encoding: Encoding) -> TermWeights | None:
        """What is stored of a document's weights; None where there are none.

        Raises:
            ModelError: A weight is no number.
        """
        if encoding.weights is None or not len(encoding.weights):
            return None
        if not math.isfinite(encoding.weights.weights.dot(encoding.weights.weights)):
            raise _no_number(f"document {document.id!r}")
        weights = encoding.weights
        if self.prune_share or self.prune_below:
            weights = Pruning(self.prune_share, self.prune_below).apply(weights, self.w_max)
        if max(map(len, weights.terms)) <= MAX_TERM_LENGTH and "" not in weights.terms:
            return weights
        held = [place for place, term in enumerate(weights.terms) if storable(term)]
        return weights.part(held)


def scale(sample: Sequence[NDArray[np.float32]]) -> float:
    """`WeightedTerms.w_max` for the impacts of some texts; 1 where there are none.

    Raises:
        ModelError: One is no number.
    """
    import numpy as np  # noqa: PLC0415 - not needed by `--help`

    impacts = np.concatenate(sample) if sample else np.zeros(0)
    if not np.isfinite(impacts).all():
        raise _no_number("a sample of the documents")
    return (float(np.quantile(impacts, _QUANTILE, method="higher")) if len(impacts) else 0.0) or 1.0


def _no_number(whose: str) -> ModelError:
    return ModelError(
        f"The model gave a term weight that is no number (NaN or infinity) for {whose}.",
        "The model folder is damaged or was exported from a diverged training.",
    )


def escape(term: str, sign: str) -> str:
    """A term without a sign that means something where the term is written, reversibly.

    Example:
        >>> escape("3.5", "."), escape("100%", ".")
        ('3%2E5', '100%25')
    """
    return term.replace("%", "%25").replace(sign, f"%{ord(sign):02X}")


def unescape(name: str, sign: str) -> str:
    """The inverse of `escape`."""
    return name.replace(f"%{ord(sign):02X}", sign).replace("%25", "%")


def storable(term: str) -> bool:
    """Whether a term can be a feature name or a token."""
    return 0 < len(term) <= MAX_TERM_LENGTH


def to_send(query: TermWeights, budget: int) -> tuple[dict[str, float], tuple[str, ...]]:
    """The terms of a query as they are sent, and those beyond the budget; both heaviest first."""
    pairs = zip(query.terms, query.weights.tolist(), strict=True)
    weighted = sorted(((term, factor) for term, factor in pairs if factor > 0 and storable(term)), key=lambda p: (-p[1], p[0]))
    return dict(weighted[:budget]), tuple(term for term, _ in weighted[budget:])
