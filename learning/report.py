"""The report of a run: what was tried, the gain, the questions that moved with both lists, words, cost, and what was forgotten."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from html import escape
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from termweave.engine import EngineResponseError
from termweave.evaluation import latency, systems
from termweave.evaluation.report.html_page import html, moved_most
from termweave.indexer.generations import listing
from termweave.learning.candidates import PARTS, Part
from termweave.training import sample_cost
from termweave.training.dev_measure import ranking_measure
from termweave.training.methods import base

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from termweave.corpora import Dataset
    from termweave.engine import Engine
    from termweave.evaluation import Experiment, Row
    from termweave.learning.candidates import TrainedCandidate
    from termweave.learning.choice import Confirmation
    from termweave.search import Index

#: Documents of each list that are shown of a question that moved.
_SHOWN = 5
#: Searches that are timed on each generation.
_TIMED = 30


@dataclass(frozen=True)
class Moved:
    """A question whose figure changed much.

    Attributes:
        question: Its text.
        before: nDCG@10 of the live search.
        after: nDCG@10 of the new one.
        documents_before: Ids of the best documents of the live search.
        documents_after: Ids of the best documents of the new one.
        answers: Ids of the documents that are judged to answer it.
    """

    question: str
    before: float
    after: float
    documents_before: tuple[str, ...]
    documents_after: tuple[str, ...]
    answers: tuple[str, ...]


@dataclass(frozen=True)
class SearchCost:
    """What a search costs with a generation.

    Attributes:
        milliseconds: Median of a search, with this server and on this machine.
        bytes: Size of the generation on disk; 0 where the user may not ask.
    """

    milliseconds: float
    bytes: int


@dataclass(frozen=True)
class Forgetting:
    """The figures of two models on a sample of the demo: at most 50 of its questions in 300 documents.

    Attributes:
        part: "weights" or "dense".
        before: nDCG@10 of the model of the live index, this part alone.
        after: nDCG@10 of the new model.
    """

    part: Part
    before: float
    after: float


def forgetting(part: Part, before: Path, after: Path) -> Forgetting:
    """Compare two models on the demo.

    Args:
        part: What the models give: "weights" or "dense".
        before: Folder of the earlier model.
        after: Folder of the new one.
    """
    sample = sample_cost.draw("demo")
    figures = [
        float(ranking_measure(sample_cost.searched(folder, part, sample)[1], sample.gains).mean()) for folder in (before, after)
    ]
    return Forgetting(part, *figures)


def moved(experiment: Experiment, row: Row, dataset: Dataset) -> tuple[Moved, ...]:
    """The questions that gained most, then those that lost most."""
    qrels = dataset.qrels()
    old, new = (experiment.runs[name].scores for name in (experiment.baseline, row.system))
    return tuple(
        Moved(
            experiment.texts.get(query, query),
            before,
            after,
            tuple(list(old.get(query, {}))[:_SHOWN]),
            tuple(list(new.get(query, {}))[:_SHOWN]),
            tuple(sorted(document for document, grade in qrels[query].items() if grade > 0)[:_SHOWN]),
        )
        for query, before, after in moved_most(experiment, row)
    )


def cost(index: Index, questions: Sequence[str]) -> SearchCost:
    """Time searches as users make them, and look up the size of the generation.

    Args:
        index: The open index.
        questions: Texts.
    """
    timed = latency.measure(index, [systems.default_system(index)], questions[:_TIMED])
    size = bytes_of(index.engine, index.generation)
    return SearchCost(next((each.median for each in timed.values()), 0.0), size)


def bytes_of(server: Engine, generation: str) -> int:
    """Size of an index on disk; 0 where the user may not ask: the role of a search suffices to evaluate."""
    try:
        return listing.sizes(server, [generation]).get(generation, 0)
    except EngineResponseError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return 0


def gained_terms(model: TrainedCandidate, data: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The terms that gained and lost most weight against BM25."""
    if model.folder is None:
        return [], []
    method = base.get(model.candidate.method)
    inspection = method.inspect(model.folder, str(data), method.settings(model.candidate.settings), lambda _: None)
    if inspection is None:
        return [], []
    return [asdict(each) for each in inspection.gained], [asdict(each) for each in inspection.lost]


def page(
    confirmation: Confirmation, test: Dataset, tried: Sequence[TrainedCandidate], lists: Sequence[Moved], about: Mapping[str, str]
) -> str:
    """The report as one page that loads nothing from elsewhere: the table of `evaluate`, what was tried, and both lists of questions that moved."""
    rows = "".join(
        f"<tr><td>{escape(each.candidate.method)}, {each.steps} steps</td><td>{each.seconds:.0f} s</td><td class=text>{_result(each)}</td></tr>"
        for each in tried
    )
    shown = "".join(
        f"<tr><td class=text dir=auto>{escape(each.question)}</td><td>{each.before:.2f} to {each.after:.2f}</td>"
        f"<td class=text>{_ids(each.documents_before, each.answers)}</td><td class=text>{_ids(each.documents_after, each.answers)}</td></tr>"
        for each in lists
    )
    more = (
        "<h2>What was tried</h2><p class=dim>nDCG@10 of the held-out questions, with this part alone, before and after training.</p>"
        f"<div class=wide><table>{rows}</table></div>"
        "<h2>Questions that moved most, with the best documents before and after</h2><p class=dim>Bold: judged as an answer.</p>"
        f"<div class=wide><table>{shown}</table></div>"
    )
    return html(confirmation.experiment, test, about=about, more=more)


def _ids(documents: Sequence[str], answers: Sequence[str]) -> str:
    return ", ".join(f"<b>{escape(each)}</b>" if each in answers else escape(each) for each in documents)


def _result(model: TrainedCandidate) -> str:
    if model.dropped:
        return escape(model.dropped)
    precision = f"; int8 costs {-model.int8:.3f} there, so it is used in fp32" if model.int8 and model.precision == "fp32" else ""
    return f"{PARTS[model.candidate.part]}: {model.before:.4f} to {model.after:.4f}{precision}"
