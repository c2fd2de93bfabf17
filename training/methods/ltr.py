"""A feature ranker: LambdaMART over what the search knows of each candidate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le

from termweave.declared_settings import Setting
from termweave.support import LazyModule
from termweave.training.methods.base import Method
from termweave.training.methods.parameters import PRESET, ParameterRecord

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from termweave.training import feature_ranker
    from termweave.training.methods.base import Say
else:
    # `termweave train --help` reads this file and needs no numpy.
    feature_ranker = LazyModule("termweave.training.feature_ranker")


@dataclass(frozen=True)
class FeatureRankerParameters(ParameterRecord):
    """The parameters of ltr.

    Attributes:
        reading: How the corpus is read; the documents are those of the index.
    """

    heading: ClassVar[str] = "Of ltr"
    preset: Annotated[Literal["default"], PRESET] = "default"
    candidates_from: Annotated[str, Setting("Live index whose default search is reranked: index:NAME; it must be given.")] = ""
    candidates: Annotated[int, Setting("Best documents of that search that are reranked."), Ge(5), Le(1000)] = 100
    metadata: Annotated[tuple[str, ...], Setting("Typed metadata entries that are features; empty: all; none: none.")] = ()
    clicks: Annotated[str, Setting("Log of user behaviour whose clicks are features: ubi:FOLDER, ubi:opensearch.")] = ""
    steps: Annotated[int, Setting("Most trees; cross-validation chooses how many of them are kept."), Ge(1), Le(2000)] = 300
    rate: Annotated[float, Setting("Learning rate."), Gt(0), Le(1)] = 0.05
    outputs: Annotated[
        Literal["trees", "trees,letor", "trees,csv"],
        Setting("The features, too, as letor.txt (format of SVMrank) or features.csv."),
    ] = "trees"
    start: Annotated[str, Setting("File of trees by LightGBM or XGBoost (JSON) to measure; nothing is trained.")] = ""
    seed: Annotated[int, Setting("The same seed gives the same model."), Ge(0), Le(2**31 - 1)] = 0
    reading: Mapping[str, Any] = field(default_factory=dict)


class Ltr(Method):
    """Boosted decision trees over the scores of the signals, vectors and metadata: a reranker that takes a millisecond.

        lambda_ij = -sigma |Delta nDCG_ij| / (1 + exp(sigma (s_i - s_j)))   of each pair i, j of a question, i the better one
        s = sum of the trees; each is fitted to the sums of a document's lambdas

    It reranks the best documents of an index by what the search has at hand: the score, rank and spread of each signal, cosine, rNN's J,
    and typed metadata such as votes, dates and categories (docs/rankers.md lists the features). Cross-validation over the questions
    measures it and chooses the number of trees. Train it on questions that the index's own models have not learned from: their scores are
    too good there.
    """

    name = "ltr"
    source = "LambdaMART (Burges 2010), by LightGBM"
    parameters = FeatureRankerParameters  # type: ignore[assignment]  # not of torch: none of the common ones
    kind = "ltr"
    torch = False

    def run(self, spec: str, settings: Any, out: Path, say: Say, progress: Callable[..., None]) -> None:
        """Train trees on what an index finds for judged questions, and write the folder."""
        feature_ranker.train(spec, settings, out, say, progress)
