"""Write the features of each candidate, as a feature ranker reads them, to a file: `--log-features FILE`.

`termweave.search.results.feature_log` describes the formats.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from termweave.declared_settings import Setting
from termweave.errors import UsageError
from termweave.search.feature import Answered, Feature, Ranking, Search

if TYPE_CHECKING:
    from termweave.search.retrieval.plan import Retrieval


def _file(value: Any) -> Any:
    from termweave.search.results.feature_log import check_name  # noqa: PLC0415 - not needed by `--help`

    return str(check_name(value)) if isinstance(value, str | Path) else value


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """Where features are logged.

    Attributes:
        log_features: A file that gets the features of the candidates (`termweave.search.results.feature_log`); it is replaced.
    """

    log_features: Annotated[
        str | None,
        Setting(
            "Write what a feature ranker (ltr) sees of each candidate to this file, for other tools: NAME.csv, or NAME.txt in the format of "
            "SVMrank and LETOR. An earlier file is replaced.",
            "FILE",
            heading="Options",
            convert=_file,
            served=False,
        ),
    ] = None


class FeatureLogging(Feature[LogOptions]):
    """Computes the features of the candidates in the first round of each query, and writes them to a file in the order of the queries."""

    def __init__(self, options: LogOptions, search: Search) -> None:
        """Choose the features: those that the search's feature ranker reads, or else those of the signals and the metadata."""
        from termweave.search.results import feature_log  # noqa: PLC0415 - not needed by `--help`

        super().__init__(options, search)
        self._recorder = feature_log.recorder(search.generation.layout, search.reranking)

    def plan(self, plan: Retrieval) -> Retrieval:
        """Ask for the data from which the features are computed."""
        if plan.server_fusion is not None:
            hint = "Remove --server-fusion or --log-features."
            raise UsageError("--log-features needs the scores of each signal, which --server-fusion does not return.", hint)
        return replace(plan, needs={*plan.needs, *self._recorder.needs})

    def rank(self, ranking: Ranking) -> Ranking:
        """Compute and remember the features of the candidates; the ranking stays."""
        if FeatureLogging not in ranking.memory:
            ranking.memory[FeatureLogging] = self._recorder.features(ranking.candidates, self.search.mode)
        return ranking

    def through(self, answered: Iterator[Answered]) -> Iterator[Answered]:
        """Write the features of each answered query to the file; after an error an earlier file is as it was."""
        from termweave.search.results import feature_log  # noqa: PLC0415 - not needed by `--help`

        assert self.options.log_features
        with feature_log.created(Path(self.options.log_features), self._recorder.reader.features) as log:
            for each in answered:
                log.add(each.query, each.rounds[0].memory[FeatureLogging])
                yield each
