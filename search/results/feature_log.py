"""Write the features of candidates to a file, as a feature ranker reads them, for other tools.

A file that ends in ``.csv`` is a table: query, document, label, and a column for each feature, empty where a value is missing. A file that ends in
``.txt`` or ``.letor`` is in the format of SVMrank and LETOR: ``label qid:N number:value ... # query document``, with the names of the features on top.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

from termweave.errors import UsageError
from termweave.rerank import candidate_features
from termweave.rerank.feature_ranker import FeatureReranker, open_feature_ranker
from termweave.rerank.rerankers import Need, Reranker, Reranking, RerankRequest, RerankResult
from termweave.search.ranking.order import order
from termweave.support import private_files

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from termweave.catalog.layout import DocumentLayout
    from termweave.rerank.candidate_features import FeatureReader
    from termweave.search.retrieval.candidates import Candidates
    from termweave.signals.modes import Mode

#: Candidates of a query whose features are logged unless a feature ranker reranks more or fewer.
_CANDIDATES = 100
_TABLE, _LETOR = ".csv", (".txt", ".letor")


@dataclass(frozen=True)
class CandidateFeatures:
    """The features of one query's candidates, best candidate first.

    Attributes:
        ids: Ids of the candidates.
        rows: The features, float64 ``(len(ids), features)``; NaN where a value is missing.
    """

    ids: Sequence[str]
    rows: NDArray[np.float64]


@dataclass(frozen=True)
class FeatureRecorder:
    """Computes the features of a query's candidates, exactly as a feature ranker in a search sees them.

    Attributes:
        reader: Computes the features.
        candidates: How many of the best documents get features.
        before: The rerankers that run before: their order and scores are features.
    """

    reader: FeatureReader
    candidates: int = _CANDIDATES
    before: tuple[Reranker, ...] = ()

    @property
    def needs(self) -> frozenset[Need]:
        """The data that search must fetch with the candidates."""
        return self.reader.needs.union(*(stage.needs for stage in self.before))

    def features(self, candidates: Candidates, mode: Mode) -> CandidateFeatures:
        """Compute the features of the candidates of a query.

        Args:
            candidates: The documents that the search found, with the data that `needs` names.
            mode: The signals and their fusion.
        """
        import numpy as np  # noqa: PLC0415 - `--help` does not rank

        stage = _Recording(self.reader, self.candidates, [])
        order(candidates, mode, Reranking((*self.before, stage)))
        return stage.recorded[0] if stage.recorded else CandidateFeatures((), np.zeros((0, len(self.reader.features))))


@dataclass(frozen=True)
class _Recording(Reranker):
    """A reranker that changes no score, and records the features of its candidates."""

    reader: FeatureReader
    candidates: int
    recorded: list[CandidateFeatures]
    name: str = "features"

    @property
    def needs(self) -> frozenset[Need]:
        return self.reader.needs

    def rerank(self, request: RerankRequest) -> RerankResult:
        self.recorded.append(CandidateFeatures(request.ids, self.reader.matrix(request)))
        return RerankResult([0.0] * len(request.ids), keep=1.0)


def recorder(layout: DocumentLayout, reranking: Reranking | None) -> FeatureRecorder:
    """Make the recorder for a search. It records the features that the search's reranker `ltr` reads, or else those of signals and metadata.

    Args:
        layout: The signals and fields of the index.
        reranking: The rerankers of the search; None: no reranking.

    Raises:
        UsageError: The index has more metadata entries than one search can read.
    """
    stages = reranking.stages if reranking else ()
    for number, stage in enumerate(stages):
        if isinstance(stage, FeatureReranker):
            reader = replace(open_feature_ranker(stage.model, stage.hash).reader, read=None)
            return FeatureRecorder(reader, stage.candidates, stages[:number])
    kinds = candidate_features.checked_entries(
        layout.kinds, "Log with a feature ranker, which names what it reads: --rerank ltr@FOLDER."
    )
    signals = [signal.name for signal in layout.signals if signal.name != "learned"]
    return FeatureRecorder(candidate_features.FeatureReader(tuple(candidate_features.names(signals, kinds, {})), kinds))


def check_name(path: str | Path) -> Path:
    """Return the path of a log after a check that its ending names a format.

    Raises:
        UsageError: The ending names no format.
    """
    if Path(path).suffix.lower() not in (_TABLE, *_LETOR):
        hint = f"Write NAME{_TABLE} for a table, or NAME{_LETOR[0]} or NAME{_LETOR[1]} for the format of SVMrank and LETOR."
        raise UsageError(f"The ending of {str(path)!r} does not name a format of features.", hint)
    return Path(path)


@contextmanager
def created(path: Path, names: Sequence[str]) -> Iterator[FeatureLog]:
    """Open a log for queries. At the end it replaces the file; after an error the earlier file is as it was.

    Args:
        path: The file, whose ending names the format.
        names: Names of the features.

    Raises:
        UsageError: The file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    if path.is_dir():
        raise UsageError(f"{path} is a folder, but a file is needed.", "Name a file in it.")
    try:
        file = private_files.open_private(temporary, encoding="utf-8", newline="")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.", "Name another place.") from None
    try:
        with file:
            yield FeatureLog(file, names, is_table=path.suffix.lower() == _TABLE)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


class FeatureLog:
    """Writes features to an open file, query by query."""

    def __init__(self, file: IO[str], names: Sequence[str], *, is_table: bool) -> None:
        self._file, self._queries = file, 0
        self._table = csv.writer(file, lineterminator="\n") if is_table else None
        if self._table:
            self._table.writerow(["query", "document", "label", *names])
        else:
            file.writelines(f"# {number} {_on_one_line(name)}\n" for number, name in enumerate(names, 1))

    def add(self, query: str, candidates: CandidateFeatures, labels: Sequence[int] = ()) -> None:
        """Write the candidates of one query.

        Args:
            query: Id or text of the query.
            candidates: The features of the candidates.
            labels: The judged grade of each candidate; (): nothing is judged, and 0 is written.
        """
        self._queries += 1
        query = _on_one_line(query)
        for document, row, label in zip(
            candidates.ids, candidates.rows.tolist(), labels or [0] * len(candidates.ids), strict=True
        ):
            values = ["" if value != value else f"{value:.9g}" for value in row]  # noqa: PLR0124 - NaN
            if self._table:
                self._table.writerow([query, document, label, *values])
            else:
                pairs = " ".join(f"{number}:{value}" for number, value in enumerate(values, 1) if value)
                self._file.write(f"{label} qid:{self._queries} {pairs} # {query} {_on_one_line(document)}\n")


def _on_one_line(text: str) -> str:
    """Replace line ends and other white space of a text (a query, an id or a name) by blanks."""
    return " ".join(text.split())
