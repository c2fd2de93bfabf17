"""Rerankers for wishes of a shop or a newspaper, such as popular or recent documents first; no training: `boost`, `decay`, `match`, `diverse`.

    boost@votes:0.2            (1 - 0.2) * s + 0.2 * log(1 + votes) / log(1 + the most votes of a candidate)
    boost@votes:0.2:500        (1 - 0.2) * s + 0.2 * votes / (votes + 500)
    decay@released:0.2:30d     (1 - 0.2) * s + 0.2 * 2^(-age / 30 days)
    decay@price:0.2:10:25      (1 - 0.2) * s + 0.2 * 2^(-|price - 25| / 10)
    decay@place:0.2:10km:52.5,13.4
                               (1 - 0.2) * s + 0.2 * 2^(-distance from that latitude and longitude / 10 km)
    match@title:0.2            (1 - 0.2) * s + 0.2 * idf of the query's terms that the title holds / idf of all its terms
    diverse@0.3                maximal marginal relevance: (1 - 0.3) * s - 0.3 * the largest cosine with a document ranked above, at least 0

s is the score so far, which a fusion puts into [0, 1]. A document without the value gets 0 for the second
summand. A date in the future has the age 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.errors import UsageError
from termweave.rerank.candidate_features import NUMBERS, number, seconds_since
from termweave.rerank.rerankers import METADATA, WORDS, Need, Reranker, RerankRequest, RerankResult
from termweave.signals.modes import finite

if TYPE_CHECKING:
    from termweave.catalog.layout import DocumentLayout

#: Share of a rule that names none.
_SHARE = 0.1
#: Documents that are ranked anew; the others keep their order below.
_CANDIDATES = 100
#: Seconds of the units of a half-life.
_UNITS = {"h": 3600.0, "d": 86_400.0, "w": 7 * 86_400.0, "y": 365.25 * 86_400.0}
#: What a rule reads -> the types of such entries.
_KINDS = {"numbers": NUMBERS, "dates": ("date",), "points": ("geo_point",)}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)([hdwy]|km)")
#: Mean radius of the Earth in kilometres.
_RADIUS = 6371.0


@dataclass(frozen=True, slots=True)
class FieldRule(Reranker):
    """The reranker `boost` or `decay`: raises a document's score by the worth of a metadata value, such as many votes or a recent date.

    Attributes:
        name: The name that `--rerank` takes, with its option: "boost@votes:0.2".
        field: Name of the metadata entry, which has a type (number, date or point).
        share: Weight of the value's worth in the new score, from 0 to 1; the score so far has the weight 1 - share.
        pivot: With `boost` the value that is worth 0.5; None: the worth is the logarithm, divided by the largest one among the candidates. With
            `decay` the distance at which the worth is halved, in seconds for dates, in kilometres for points, in the entry's own unit for numbers.
        origin: With `decay` of numbers or points (latitude, longitude), the value that is worth most; None: the entry is a date, or the rule is
            `boost`.
        decays: Whether the rule is `decay`.
        candidates: How many of the best documents get new scores.
    """

    name: str
    field: str
    share: float
    pivot: float | None
    origin: float | tuple[float, float] | None = None
    decays: bool = False
    candidates: int = _CANDIDATES

    @property
    def needs(self) -> frozenset[Need]:
        """The metadata entry that search must read for each candidate."""
        return frozenset({METADATA + self.field})

    def rerank(self, request: RerankRequest) -> RerankResult:
        """Add the worth of each candidate's metadata value to its score.

        Raises:
            UsageError: A candidate's value is not of the type that the rule reads.
        """
        assert request.metadata is not None
        try:
            now = datetime.now(UTC)
            best = [self._best(metadata.get(self.field, ()), now) for metadata in request.metadata]
        except (TypeError, ValueError) as error:
            raise self._refusal() from error
        worth = [merit for _, merit in best]
        if not self.decays and self.pivot is None:
            most = max(worth, default=0.0)
            worth = [merit / most if most else 0.0 for merit in worth]

        def details(row: int) -> Mapping[str, Any]:
            return {"field": self.field, "value": best[row][0], "worth": worth[row], "weight": self.share}

        return RerankResult([self.share * each for each in worth], 1 - self.share, details=details)

    def check(self, layout: DocumentLayout) -> None:
        """Raise `UsageError` if the metadata entry has another type in this index than the rule reads."""
        column = layout.column(self.field)
        if column is not None and (column.number or column.kind) not in _KINDS[self._reads]:
            raise self._refusal()

    @property
    def _reads(self) -> str:
        return "points" if isinstance(self.origin, tuple) else "dates" if self.decays and self.origin is None else "numbers"

    def _refusal(self) -> UsageError:
        hint = "For numbers write decay@FIELD:SHARE:DISTANCE:BEST." if self._reads == "dates" else "Name another entry."
        return UsageError(f"{self.name} reads metadata entries of {self._reads}, and {self.field!r} holds something else.", hint)

    def _best(self, values: Sequence[Any], now: datetime) -> tuple[Any, float]:
        """The value of a document that is worth most, and its worth; (None, 0) for a document without a value."""
        worth = [self._worth(value, now) for value in values]
        return max(zip(values, worth, strict=True), key=lambda pair: pair[1], default=(None, 0.0))

    def _worth(self, value: Any, now: datetime) -> float:
        """The worth of one value, from 0 to 1; with `boost` and no pivot log(1 + value), which `rerank` then divides by the largest one."""
        if not self.decays:
            above = max(0.0, number(value))
            return math.log1p(above) if self.pivot is None else above / (above + self.pivot)
        assert self.pivot is not None
        if isinstance(self.origin, tuple):
            distance = _kilometres(_point(str(value)), self.origin)
        else:
            distance = max(0.0, seconds_since(value, now)) if self.origin is None else abs(number(value) - self.origin)
        return float(2.0 ** (-distance / self.pivot))


@dataclass(frozen=True, slots=True)
class FieldMatch(Reranker):
    """The reranker `match`: raises a score by the idf-weighted share of the query's terms that a field of the document holds.

    Attributes:
        name: The name that `--rerank` takes, with its option: "match@title:0.2".
        field: Title, text or an entry of the metadata.
        share: Weight of the matching terms in the new score, from 0 to 1; the score so far has the weight 1 - share.
        candidates: How many of the best documents get new scores.
    """

    name: str
    field: str
    share: float
    candidates: int = _CANDIDATES

    @property
    def needs(self) -> frozenset[Need]:
        """The text of the field, which search must read for each candidate."""
        return frozenset({WORDS + self.field})

    def rerank(self, request: RerankRequest) -> RerankResult:
        """Add the worth of the query's terms that each document holds. Of a query part and its synonyms, the best match counts."""
        assert request.index_terms is not None
        assert request.metadata is not None
        index_terms, rewritten = request.index_terms, request.query.rewritten
        parts = rewritten.parts if rewritten and rewritten.parts else ((request.query,),)
        texts_of = [[each.text for each in part] for part in parts]
        weighed = [[{term: index_terms.idf(term) for term in terms} for terms in index_terms.cut(each)] for each in texts_of]
        total = sum(sum(part[0].values()) for part in weighed)
        texts = ["\n".join(metadata.get(WORDS + self.field, ())) for metadata in request.metadata]
        terms_of = [set(terms) for terms in index_terms.cut(texts)]

        def worth(terms: set[str]) -> float:
            most = [sum(part[0].values()) * max(_shared(each, terms) for each in part) for part in weighed]
            return sum(most) / total if total else 0.0

        shares = [worth(terms) for terms in terms_of]

        def details(row: int) -> Mapping[str, Any]:
            matched = {term for part in weighed for each in part for term in each if term in terms_of[row]}
            return {"field": self.field, "matched": sorted(matched), "worth": shares[row], "weight": self.share}

        return RerankResult([self.share * each for each in shares], 1 - self.share, details=details)


def _shared(weighed: Mapping[str, float], terms: set[str]) -> float:
    """The share of the total weight of weighted terms (term -> weight) that falls to terms in a set; 0 if all weights are 0."""
    whole = sum(weighed.values())
    return sum(weight for term, weight in weighed.items() if term in terms) / whole if whole else 0.0


@dataclass(frozen=True, slots=True)
class Diversity(Reranker):
    """The reranker `diverse`: maximal marginal relevance (Carbonell and Goldstein 1998), by the cosines between the documents' vectors.

    Attributes:
        name: The name that `--rerank` takes, with its option: "diverse@0.3".
        share: lambda, the weight of a document's similarity to documents above it, which lowers its score.
        candidates: How many of the best documents get new scores.
    """

    name: str
    share: float
    candidates: int = _CANDIDATES

    @property
    def needs(self) -> frozenset[Need]:
        """The documents' vectors, which search must read with the candidates."""
        return frozenset({"vectors"})

    def rerank(self, request: RerankRequest) -> RerankResult:
        """Choose the documents one after the other, each time the best after the penalty for similarity to those already chosen.

        The new scores fall from each chosen document to the next, so that sorting by score gives the same order.

        Raises:
            UsageError: The index has no vectors.
        """
        if request.vectors is None:
            raise UsageError("diverse needs vectors, and this index has no dense model.", "Index with a dense model.")
        relevance = (1 - self.share) * np.array(request.scores, dtype=float)
        repeated, nearest = np.zeros(len(request.ids)), np.full(len(request.ids), -1)
        waiting = np.ones(len(request.ids), dtype=bool)
        for _ in request.ids:
            best = int(np.where(waiting, relevance - self.share * repeated, -np.inf).argmax())
            waiting[best] = False
            cosines = request.vectors @ request.vectors[best]
            nearer = waiting & (cosines > repeated)  # an opposite document repeats nothing, and does not gain by it
            repeated[nearer], nearest[nearer] = cosines[nearer], best

        def details(row: int) -> Mapping[str, Any]:
            other = request.ids[nearest[row]] if nearest[row] >= 0 else None
            return {"cosine": float(repeated[row]), "of": other, "weight": self.share}

        return RerankResult((-self.share * repeated).tolist(), 1 - self.share, details=details)


def boost(option: str = "") -> FieldRule:
    """Make the reranker `boost` from its option ``FIELD[:SHARE[:PIVOT]]`` (an entry point of rerankers)."""
    field, share, pivot = _parts("boost", option, "FIELD[:SHARE[:PIVOT]], such as boost@votes:0.2", 3)
    return FieldRule(f"boost@{option}", field, _share("boost", share), _above_zero("boost", pivot) if pivot else None)


def decay(option: str = "") -> FieldRule:
    """Make the reranker `decay` from its option (an entry point of rerankers).

    The option is ``FIELD:SHARE:HALF-LIFE`` for a date, and ``FIELD:SHARE:DISTANCE:BEST`` for a number or a point.
    """
    form = "FIELD:SHARE:HALF-LIFE, such as decay@released:0.2:30d, or FIELD:SHARE:DISTANCE:BEST, such as decay@price:0.2:10:25"
    field, share, span, origin = _parts("decay", option, form, 4)
    if not span:
        raise UsageError(f"decay@{option} names no half-life.", f"Write decay@{form}.")
    written = _SPAN.fullmatch(span)
    length, unit = (written[1], written[2]) if written else (span, "")
    best: float | tuple[float, float] | None = None
    if unit == "km":
        try:
            best = _point(origin)
        except ValueError:
            raise UsageError(f"{origin!r} in decay is not a place.", "Write latitude,longitude, such as 52.5,13.4.") from None
    elif origin:
        best, length = _float("decay", origin), span
    elif not written:
        hint = "Write 12h, 30d, 4w or 2y; for numbers decay@FIELD:SHARE:DISTANCE:BEST."
        raise UsageError(f"The half-life {span!r} of decay has no unit.", hint)
    distance = _above_zero("decay", length) * (_UNITS[unit] if unit and best is None else 1.0)
    return FieldRule(f"decay@{option}", field, _share("decay", share), distance, best, decays=True)


def match(option: str = "") -> FieldMatch:
    """Make the reranker `match` from its option ``FIELD[:SHARE]`` (an entry point of rerankers)."""
    field, share = _parts("match", option, "FIELD[:SHARE], such as match@title:0.2", 2)
    return FieldMatch(f"match@{option}", field, _share("match", share))


def diverse(option: str = "") -> Diversity:
    """Make the reranker `diverse` from its option ``SHARE``, 0.3 if it is empty (an entry point of rerankers)."""
    return Diversity(f"diverse@{option}" if option else "diverse", _share("diverse", option or "0.3"))


def _point(text: str) -> tuple[float, float]:
    """Read latitude and longitude in degrees from the server's form ("52.5, 13.4"); raise `ValueError` for anything else."""
    latitude, longitude = map(float, text.split(","))
    if not (abs(latitude) <= 90 and abs(longitude) <= 180):
        raise ValueError
    return latitude, longitude


def _kilometres(one: tuple[float, float], other: tuple[float, float]) -> float:
    """The distance in kilometres between two points (latitude, longitude in degrees) on a sphere, by the haversine formula."""
    (a, east), (b, west) = (map(math.radians, point) for point in (one, other))
    half = math.sin((a - b) / 2) ** 2 + math.cos(a) * math.cos(b) * math.sin((east - west) / 2) ** 2
    return 2 * _RADIUS * math.asin(min(1.0, math.sqrt(half)))


def _parts(name: str, option: str, form: str, most: int) -> list[str]:
    """Split an option at its colons: the field without "metadata.", then its further parts, with "" for each part that is missing."""
    field, *others = option.split(":")
    if not field or len(others) >= most:
        raise UsageError(f"{name}@{option} cannot be read." if option else f"{name} names no field.", f"Write {name}@{form}.")
    return [field.removeprefix(METADATA), *others, *[""] * (most - 1 - len(others))]


def _share(name: str, text: str) -> float:
    share = _float(name, text) if text else _SHARE
    if not 0 <= share <= 1:
        raise UsageError(f"The share of {name} is a number from 0 to 1, not {text}.", "Write 0.2, for example.")
    return share


def _above_zero(name: str, text: str) -> float:
    value = _float(name, text)
    if value <= 0:
        raise UsageError(f"{name} needs a number above 0, not {text}.", "Write 10, for example.")
    return value


def _float(name: str, text: str) -> float:
    if math.isnan(value := finite(text)):
        raise UsageError(f"{text!r} in {name} is not a number.", "Write a plain number, such as 0.2.")
    return value
