"""The reranker `ltr`: boosted decision trees over the features that a search knows of each candidate (`candidate_features`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import inf, isnan
from typing import TYPE_CHECKING, Any

import orjson

from termweave.encoders import model_lookup
from termweave.encoders.manifest import ModelFolder
from termweave.encoders.recorded_models import ranker_folder
from termweave.errors import ModelError, UsageError
from termweave.records import ModelInfo
from termweave.rerank import candidate_features, decision_trees
from termweave.rerank.rerankers import Need, Reranker, RerankRequest, RerankResult, check_range
from termweave.signals import fusion
from termweave.signals.modes import Mode
from termweave.support.messages import first_line

if TYPE_CHECKING:
    from termweave.rerank.candidate_features import FeatureReader
    from termweave.rerank.decision_trees import DecisionTrees

#: Kind of the model folders, and their files: trees that LightGBM or XGBoost saved, and document -> its rates of clicks and conversions.
KIND, TREES, RATES = "ltr", "trees.txt", "rates.json"


@dataclass(frozen=True)
class FeatureRanker:
    """A model of the reranker `ltr`, read from its folder.

    Attributes:
        info: The model's name, hash and folder.
        trees: The decision trees, which give the scores.
        reader: Computes the features that the trees read.
        mode: The signals, weights and fusion of the first search, whose candidates the model was trained on.
        clicks_until: Time of the latest record in the log of clicks that the model was trained with, in seconds since 1970; None: the model has no
            clicks.
    """

    info: ModelInfo
    trees: DecisionTrees
    reader: FeatureReader
    mode: Mode
    clicks_until: float | None = None


@dataclass(frozen=True, slots=True)
class FeatureReranker(Reranker):
    """Rerank by decision trees. The sum of the leaves that a document reaches, a number without a unit, replaces the score so far.

    Attributes:
        model: A folder that `termweave train ltr` wrote.
        candidates: How many of the best documents are reranked; all others keep their order below them.
        hash: Content hash that the model must have, if the profile of an index names the model: then only a model on this host is opened, and only
            with this hash. "": any model.
    """

    model: str
    candidates: int = 100
    hash: str = ""

    def __post_init__(self) -> None:
        """Raise `UsageError` if there are no candidates."""
        check_range(KIND, self.candidates)

    @property
    def name(self) -> str:
        """The name that `--rerank` takes: "ltr@MODEL"."""
        return f"{KIND}@{self.model}"

    @property
    def needs(self) -> frozenset[Need]:
        """The vectors, metadata entries and signals from which the model's features are computed."""
        return open_feature_ranker(self.model, self.hash).reader.needs

    def rerank(self, request: RerankRequest) -> RerankResult:
        """Score the candidates by the model.

        Raises:
            ModelError: The model cannot be opened.
            UsageError: A feature cannot be computed.
        """
        ranker = open_feature_ranker(self.model, self.hash)
        rows = ranker.reader.matrix(request)

        def details(row: int) -> Mapping[str, Any]:
            base, added = ranker.trees.contributions(rows[row])
            numbers = [None if isnan(value) else value for value in rows[row].tolist()]
            values = dict(zip(ranker.trees.features, numbers, strict=True))
            shares = sorted(added.items(), key=lambda part: -abs(part[1]))
            features = [{"feature": name, "value": values[name], "share": share} for name, share in shares]
            return {"base": base, "features": features}

        return RerankResult(ranker.trees.scores(rows).tolist() if request.ids else [], details=details)


@cache
def open_feature_ranker(model: str, expected: str) -> FeatureRanker:
    """Open a model of the reranker `ltr`; each model is read once in a process.

    Args:
        model: The model's folder or name.
        expected: The hash that the model had when a profile was made with it; "": any hash.

    Raises:
        ModelError: The folder holds no such model, or one with another hash.
    """
    folder = ModelFolder.read(ranker_folder(model, expected))
    manifest = folder.manifest
    if manifest.kind != KIND:
        hint = "Name a folder of 'termweave train ltr', or use --rerank ranker@FOLDER for a cross-encoder."
        raise ModelError(f"{folder.path} is not a feature ranker but a model of the kind {manifest.kind!r}.", hint)
    try:
        trees = decision_trees.read(decision_trees.content_of(folder.path / TREES))
        names, types = tuple(manifest.settings["features"]), dict(manifest.settings["types"])
        trees = trees.with_names(names)
        stored = orjson.loads((folder.path / RATES).read_bytes()) if RATES in manifest.files else {}
        rates = {document: (float(clicks), float(conversions)) for document, (clicks, conversions) in stored.items()}
        reader = candidate_features.FeatureReader(names, types, trees.used, rates=rates)
        _ = reader.needs  # refuses a feature that is not known
        mode = Mode(KIND, **manifest.settings["mode"])
        fusion.method(mode.fusion)  # refuses a method that is not known
        usable = min(mode.weights.values()) >= 0 and 0 < sum(mode.weights.values()) < inf
        until = float(manifest.settings["clicks_until"]) if rates else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"The feature ranker in {folder.path} cannot be read: {first_line(error)}.", "Train again.") from error
    if not usable:
        raise ModelError(f"The weights of the signals in {folder.path} are negative, or sum to 0.", "Train the ranker again.")
    return FeatureRanker(ModelInfo(manifest.name, manifest.hash, None, None, 0, folder.path), trees, reader, mode, until)


def create(option: str = "") -> FeatureReranker:
    """Make the reranker `ltr` from its option, the name or folder of a model (an entry point of rerankers).

    Raises:
        UsageError: The option names no model, or no model of this name exists.
    """
    if not option:
        hint = "Train one: 'termweave train ltr --help'; then --rerank ltr@FOLDER."
        raise UsageError("The reranker 'ltr' needs a model, and no profile in use names one.", hint)
    model_lookup.resolve(option)
    return FeatureReranker(option)
