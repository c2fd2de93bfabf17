"""The features of a candidate: numbers that a search knows about it besides its text, by which a trained model can rank.

==================  =======================================================================================================
``score``           the score so far, of the fusion or of the reranker before
``rank``            the candidate's rank by that score, from 1
``terms``           number of the query's terms
``NAME.score``      score of the signal NAME, such as ``dense.score``; missing where the signal did not return the document
``NAME.rank``       the document's rank in the signal's list, from 1; missing likewise
``NAME.value``      the signal's score, scaled to [0, 1] by min-max as fusion does; 0 where the signal did not return it
``NAME.best``       the best score in the signal's list
``NAME.spread``     how far the signal's scores lie apart, less if not even its best document holds all words (`Signal.spread`)
``cosine``          cosine of the document's vector with the query's
``jaccard``         share of near neighbours in common with the query: rNN's J (`rerank.neighbours.reciprocal`)
``neighbours``      mean cosine with the three candidates that are best so far, the document itself left out
``clicks``          clicks of all queries / clicks expected from the positions shown (`corpora.behaviour.click_model`)
``conversions``     purchases, downloads and the like, divided likewise
``metadata.F``      number or truth value of the metadata entry F; the largest of several
``metadata.F.age``  days since the date F; negative for a date to come
``metadata.F=V``    1 where V is among the texts of F, else 0
==================  =======================================================================================================

Features of a signal read only its window (the best candidates, which fusion counts), so that a deeper page does not change them. Clicks and
conversions come from the log that the model was trained with; a document that the log did not show has 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from math import nan
from typing import TYPE_CHECKING

import numpy as np

from termweave.errors import UsageError
from termweave.rerank.neighbours.equations import Rules
from termweave.rerank.neighbours.reciprocal import neighbourhood
from termweave.rerank.rerankers import METADATA, SIGNAL, RerankRequest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from termweave.signals.fusion import Ranked

    Column = NDArray[np.float64]
    _Values = Column | Sequence[float] | float

_AGE = ".age"
#: Features that are read from vectors.
_OF_VECTORS = ("cosine", "jaccard", "neighbours")
#: Features of each signal.
_OF_SIGNALS = ("score", "rank", "value", "best", "spread")
#: Features that are read from a log of user behaviour.
OF_BEHAVIOUR = ("clicks", "conversions")
#: Their value for a document that the log did not show.
UNSEEN = 1.0
#: The best candidates that `neighbours` looks at.
_NEIGHBOURS = 3
#: k and k_exp of rNN's neighbourhoods, those of the reranker `rnn`.
_SETS = 10, 3
#: Metadata entries of one search: a server gives 100 columns (`index.max_docvalue_fields_search`), the vector among them.
_MOST_ENTRIES = 95
#: Types of metadata that are numbers.
NUMBERS = ("long", "double", "boolean")
#: A year after 9999 or before 1.
_FAR_YEAR = re.compile(r"[+-]\d{4,9}", re.ASCII)
_SECONDS_OF_400_YEARS = 146_097 * 86_400


def names(signals: Sequence[str], types: Mapping[str, str], values: Mapping[str, Sequence[str]]) -> list[str]:
    """The names of all features that the candidates of an index can have.

    Args:
        signals: Names of the signals that are searched.
        types: Metadata entry -> its type (`signals.typed_fields.TYPES`).
        values: Metadata entry of type "keyword" -> the texts that become features.
    """
    features = ["score", "rank", "terms", *(f"{signal}.{part}" for signal in signals for part in _OF_SIGNALS)]
    features += _OF_VECTORS if "dense" in signals else ()
    for name, kind in types.items():
        if kind in NUMBERS:
            features.append(METADATA + name)
        elif kind == "date":
            features.append(f"{METADATA}{name}{_AGE}")
        else:
            features += [f"{METADATA}{name}={value}" for value in values.get(name, ())]
    return features


def checked_entries(types: Mapping[str, str], hint: str) -> Mapping[str, str]:
    """Return the metadata entries that become features (entry -> type), after a check of their number.

    Raises:
        UsageError: There are more entries than one search can read; `hint` says what to do.
    """
    if len(types) > _MOST_ENTRIES:
        raise UsageError(f"A search reads at most {_MOST_ENTRIES} metadata entries as features, not {len(types)}.", hint)
    return types


def needs(features: Iterable[str], types: Mapping[str, str]) -> frozenset[str]:
    """The data that search must fetch with the candidates so that these features can be computed (`rerankers.Need`).

    Args:
        features: Names of the features.
        types: Metadata entry -> its type when the model was trained.
    """
    needed = set[str]()
    for name in features:
        if (entry := _entry(name, types)) is not None:
            needed.add(METADATA + entry[0])
        elif name in _OF_VECTORS:
            needed.add("vectors")
        elif "." in name:
            needed.add(SIGNAL + name.rpartition(".")[0])
    return frozenset(needed)


def _entry(feature: str, types: Mapping[str, str]) -> tuple[str, str, str] | None:
    """The metadata entry of a feature, the entry's type, and the text that the entry is compared with ("" for a number or a date).

    None: the feature does not read metadata.

    Raises:
        UsageError: There is no feature of this name.
    """
    if feature.startswith(METADATA):
        entry = feature.removeprefix(METADATA)
        if (kind := types.get(entry)) in NUMBERS:
            return entry, kind, ""
        if entry.endswith(_AGE) and types.get(dated := entry.removesuffix(_AGE)) == "date":
            return dated, "date", ""
        name, equals, value = entry.partition("=")
        if equals and types.get(name) == "keyword":
            return name, "keyword", value
    elif feature in ("score", "rank", "terms", *_OF_VECTORS, *OF_BEHAVIOUR) or feature.rpartition(".")[2] in _OF_SIGNALS:
        return None
    raise UsageError(f"There is no feature {feature!r}.", "docs/rankers.md lists the features.")


@dataclass(frozen=True)
class FeatureReader:
    """Computes the features of candidates.

    Attributes:
        features: Names of the features, in the order of the columns.
        types: Metadata entry -> its type when the model was trained.
        read: The features that the model uses; all other columns are left empty (NaN). None: all features are computed.
        now: The time from which the age of a date counts; None: the time of the search.
        rates: Document id -> its features `clicks` and `conversions`.
    """

    features: tuple[str, ...]
    types: Mapping[str, str]
    read: frozenset[str] | None = None
    now: datetime | None = None
    rates: Mapping[str, Sequence[float]] = field(default_factory=dict, repr=False)

    @cached_property
    def needs(self) -> frozenset[str]:
        """The data that search must fetch with the candidates, as the function `needs` says."""
        return needs(self.features if self.read is None else sorted(self.read), self.types)

    def matrix(self, request: RerankRequest) -> Column:
        """The features of the candidates, float64 ``(len(request.ids), len(features))``; NaN where a value is missing.

        Raises:
            UsageError: A feature is not known, needs vectors and there are none, or an entry has another type than in training.
        """
        weights = request.query.weights
        values: dict[str, _Values] = {
            "score": request.scores,
            "rank": np.arange(1.0, len(request.ids) + 1),
            "terms": float(len(request.query.text.split()) if weights is None else len(weights.terms)),
        }
        columns = np.full((len(self.features), len(request.ids)), np.nan)
        for row, feature in enumerate(self.features):
            if self.read is None or feature in self.read:
                if feature not in values:
                    values |= self._columns(feature, request)
                columns[row] = values[feature]
        return columns.T

    def _columns(self, feature: str, request: RerankRequest) -> Mapping[str, _Values]:
        """The values of a feature for all candidates, and of further features that the same computation gives: feature -> values."""
        if feature in OF_BEHAVIOUR:
            which = OF_BEHAVIOUR.index(feature)
            return {feature: [self.rates[document][which] if document in self.rates else UNSEEN for document in request.ids]}
        if feature in _OF_VECTORS:
            return self._of_vectors(feature, request)
        if (entry := _entry(feature, self.types)) is not None:
            return {feature: self._of_metadata(entry, request)}
        signal = feature.rpartition(".")[0]
        if signal not in request.lists:
            hint = "Search in the mode that the ranker was trained with, or train again."
            raise UsageError(f"The ranker was trained with the signal {signal!r}, and this search does not use it.", hint)
        return {f"{signal}.{part}": values for part, values in _of_signal(request.lists[signal], request.ids).items()}

    @staticmethod
    def _of_vectors(feature: str, request: RerankRequest) -> dict[str, Column]:
        query, vectors = request.dense("A ranker that was trained with vectors")
        if feature == "neighbours":
            best = vectors @ vectors[: _NEIGHBOURS + 1].T
            counted = np.ones_like(best)
            counted[:, _NEIGHBOURS:] = 0.0
            for row in range(min(_NEIGHBOURS, len(best))):  # the fourth takes the place of the document itself
                counted[row, row], counted[row, _NEIGHBOURS:] = 0.0, 1.0
            return {feature: (best * counted).sum(axis=1) / np.maximum(1.0, counted.sum(axis=1))}
        cosine, jaccard = neighbourhood_features(query, vectors)
        return {"cosine": cosine.astype(np.float64), "jaccard": jaccard.astype(np.float64)}

    def _of_metadata(self, entry: tuple[str, str, str], request: RerankRequest) -> list[float]:
        name, kind, value = entry
        assert request.metadata is not None
        values = [metadata.get(name, ()) for metadata in request.metadata]
        now = self.now or datetime.now(UTC)
        read: Callable[[object], float] = number if kind != "date" else lambda value: seconds_since(value, now) / 86_400
        try:
            if kind == "keyword":
                return [float(value in map(_text, each)) for each in values]
            return [max(map(read, each), default=nan) for each in values]
        except (TypeError, ValueError) as error:
            problem = f"The ranker was trained with {name!r} as a {kind}; a document has another type there."
            raise UsageError(problem, "Train it again on the index as it is now.") from error


def neighbourhood_features(
    query: NDArray[np.float32], vectors: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The features `cosine` and `jaccard` (rNN's J) of each candidate: two arrays float32 ``(n,)``.

    Args:
        query: Unit vector ``(d,)``.
        vectors: Unit vectors ``(n, d)`` of all candidates that are reranked together.
    """
    context = neighbourhood(query, vectors, Rules(*_SETS, 0.0, clamp=True))
    return context.similarity, context.jaccard


def _text(value: object) -> str:
    """Return a value of the metadata that is a text; raise `TypeError` for anything else."""
    if isinstance(value, str):
        return value
    raise TypeError


def number(value: object) -> float:
    """Return a value of the metadata that is a number or a truth value, as a float; raise `TypeError` for anything else."""
    if isinstance(value, bool | int | float):
        return float(value)
    raise TypeError


def seconds_since(value: object, now: datetime) -> float:
    """Seconds from a date of the metadata to `now`, negative for a date in the future; raise `ValueError` for a value that is no date.

    Servers know years before 1 and after 9999, which Python's datetime lacks. The calendar repeats every 400 years, so such a date is moved by
    a multiple of 400 years before it is read.
    """
    text, moved = str(value), 0
    if year := _FAR_YEAR.match(text):
        moved = (int(year[0]) - 2000) // 400
        text = f"{int(year[0]) - 400 * moved}{text[year.end() :]}"
    then = datetime.fromisoformat(text)
    return (now - (then if then.tzinfo else then.replace(tzinfo=UTC))).total_seconds() - moved * _SECONDS_OF_400_YEARS


def _of_signal(ranked: Ranked, ids: Sequence[str]) -> dict[str, _Values]:
    """The five features of one signal for the candidates: last part of the feature's name ("score", "rank", ...) -> values."""
    window = list(islice(ranked.scores, ranked.within))
    places = dict(zip(window, range(1, len(window) + 1), strict=True))
    scaled = dict(zip(window, ranked.normalised(), strict=False))
    return {
        "score": [ranked.scores[document] if document in places else nan for document in ids],
        "rank": [places.get(document, nan) for document in ids],
        "value": [scaled.get(document, 0.0) for document in ids],
        "best": ranked.high,
        "spread": ranked.spread,
    }
