"""The plan and the result of `termweave learn`, as Python objects and as JSON, and the report of a run.

The plan, without training: what the questions are, what will be tried, and what it takes. The report: what was tried, the gain, the questions
that moved with both lists, words, cost, and what was forgotten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from http import HTTPStatus
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import orjson

from termweave.encoders.analysis.model_familiarity import guess_of, is_chinese
from termweave.engine import EngineResponseError
from termweave.evaluation import systems
from termweave.evaluation.html_page import html, moved_most
from termweave.indexer.generations import listing
from termweave.learning.choice import Confirmation, SystemFigure, no_feature_ranker
from termweave.learning.questions import HELD_OUT
from termweave.learning.training_rounds import MOST_DOCUMENTS, PARTS, Part, TrainedCandidate, tried_on
from termweave.support.messages import counted, sized
from termweave.training import sample_cost
from termweave.training.dev_measure import ranking_measure
from termweave.training.methods import base

if TYPE_CHECKING:
    from termweave.corpora import Dataset
    from termweave.engine import Engine
    from termweave.evaluation import Experiment, Row
    from termweave.learning.preparation import Learning
    from termweave.search import Index

#: Documents of each list that are shown of a question that moved.
_SHOWN = 5
#: Searches that are timed on each generation.
_TIMED = 30


@dataclass(frozen=True)
class Moved:
    """A question whose nDCG@10 differs much between the live search and the new one.

    Attributes:
        question: Text of the question.
        before: nDCG@10 of the live search.
        after: nDCG@10 of the new search.
        documents_before: Ids of the best documents of the live search.
        documents_after: Ids of the best documents of the new search.
        answers: Ids of the documents that are judged to answer the question.
    """

    question: str
    before: float
    after: float
    documents_before: tuple[str, ...]
    documents_after: tuple[str, ...]
    answers: tuple[str, ...]


@dataclass(frozen=True)
class SearchCost:
    """The time of a search with a generation, and the size of the generation.

    Attributes:
        milliseconds: Median time of a search, with this server and on this machine.
        bytes: Size of the generation on disk; 0: the user may not ask for it.
    """

    milliseconds: float
    bytes: int


@dataclass(frozen=True)
class Forgetting:
    """The figures of two models on a sample of the demo: at most 50 of its questions in 300 documents.

    Attributes:
        part: The output that was searched: "weights" or "dense".
        before: nDCG@10 of the model of the live index, with this output alone.
        after: nDCG@10 of the new model, likewise.
    """

    part: Part
    before: float
    after: float


def forgetting(part: Part, before: Path, after: Path) -> Forgetting:
    """Compare two models on a sample of the demo data set, to show what training made the new one forget.

    Args:
        part: The output of the models that is searched: "weights" or "dense".
        before: Folder of the earlier model.
        after: Folder of the new one.
    """
    sample = sample_cost.draw("demo")
    ranked = (sample_cost.searched(folder, part, sample)[1] for folder in (before, after))
    return Forgetting(part, *(float(ranking_measure(each, sample.gains).mean()) for each in ranked))


def moved(experiment: Experiment, row: Row, dataset: Dataset) -> tuple[Moved, ...]:
    """Return the questions whose nDCG@10 rose most, then the questions whose nDCG@10 fell most."""
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
        questions: Texts of the questions.
    """
    timed = systems.latency(index, [systems.default_system(index)], questions[:_TIMED])
    size = bytes_of(index.engine, index.generation)
    return SearchCost(next((each.median for each in timed.values()), 0.0), size)


def bytes_of(server: Engine, generation: str) -> int:
    """Return the size of an index on disk in bytes; 0: the user may not ask for it, because a role that can only search suffices to evaluate."""
    try:
        return listing.sizes(server, [generation]).get(generation, 0)
    except EngineResponseError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return 0


def gained_terms(model: TrainedCandidate, data: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the terms that gained most weight against BM25, and the terms that lost most."""
    method = base.get(model.candidate.method)
    settings = method.settings(model.candidate.settings)
    if model.folder is None or (inspection := method.inspect(model.folder, str(data), settings, lambda _: None)) is None:
        return [], []
    return [asdict(each) for each in inspection.gained], [asdict(each) for each in inspection.lost]


def page(
    confirmation: Confirmation, test: Dataset, tried: Sequence[TrainedCandidate], lists: Sequence[Moved], about: Mapping[str, str]
) -> str:
    """Return the report as one HTML page that loads nothing from elsewhere: all figures, the models tried, and the questions that moved most."""
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


@dataclass(frozen=True)
class Learned:
    """The result of a run of `termweave learn`.

    Attributes:
        name: The index.
        questions: Name of the questions.
        folder: Folder of the run, with the report.
        state: Hash of the live generation, its documents and its profile when learning began; promoting is refused once they have changed.
        parts: Part -> number of questions in it.
        tried: Every model that was trained.
        notes: Sentences that a user should know.
        before: nDCG@10 of the live search on the test questions.
        after: nDCG@10 of the new search; equal to `before` where no model helped.
        p: p-value of the difference.
        used: Part of the search -> folder of the new model.
        generation: The trial generation; None: none was built.
        encoded: Number of documents that were encoded for the trial generation; 0: no model that reads documents changed.
        confirmed: Whether the new search is better, p < .05.
        published: Whether the trial generation is live.
        profile: The profile with which the trial generation is searched.
        needed: About how many test questions a gain of this size needs to be confirmed; 0 where there is no gain.
        systems: Figures of all searches that the trial generation can do; they show what is lost where one part is left out.
        moved: The questions that gained and lost most, with the best documents before and after.
        cost: "before" and "after" -> time of a search and size of the index.
        forgotten: Figures of the earlier and the new models on questions of another kind, those of the demo.
        gained: The terms that gained most weight, where term weights were trained.
        lost: The terms that lost most weight.
        short_of_time: A sentence that names the models not trained for want of time, and what would help; "": all were trained.
    """

    name: str
    questions: str
    folder: Path
    state: str
    parts: Mapping[str, int]
    tried: tuple[TrainedCandidate, ...]
    notes: tuple[str, ...]
    before: float
    after: float
    p: float = 1.0
    used: Mapping[str, str] = field(default_factory=dict)
    generation: str | None = None
    encoded: int = 0
    confirmed: bool = False
    published: bool = False
    profile: Mapping[str, Any] | None = None
    needed: int = 0
    systems: tuple[SystemFigure, ...] = ()
    moved: tuple[Moved, ...] = ()
    cost: Mapping[str, SearchCost] = field(default_factory=dict)
    forgotten: tuple[Forgetting, ...] = ()
    gained: Sequence[Mapping[str, Any]] = ()
    lost: Sequence[Mapping[str, Any]] = ()
    short_of_time: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON values; folders become texts."""
        values: dict[str, Any] = orjson.loads(orjson.dumps(asdict(self), default=str))
        return values


def short_of_time(tried: Sequence[TrainedCandidate]) -> str:
    """Name the models that were not trained for want of time, and the time that they need; "": all were trained."""
    names = " and ".join(each.candidate.method for each in tried if each.needs)
    minutes = f"--minutes {max((each.needs for each in tried), default=0):g}"
    return names and f"The time was too short to train {names}. The same command with about {minutes} goes on from here."


#: Questions whose language is guessed.
_SAMPLE = 200


@dataclass(frozen=True)
class LearningPlan:
    """The plan of a run, for `termweave learn --plan`.

    Attributes:
        name: The index.
        questions: Name of the questions.
        parts: Part -> number of questions in it.
        answers: Number of documents that answer a question.
        questions_per_answer: Half of these documents answer at least so many questions.
        near_duplicates: Number of questions that have a near duplicate; near duplicates stay in the same part.
        documents: Number of documents in the index.
        trained_on: Number of documents that training looks at.
        languages: "questions" and "documents" -> guessed language; "english" also stands for an unknown language.
        methods: The training methods that are tried, as far as there is time; "ltr", a feature ranker, comes after the fusion.
        encoding_minutes: About how many minutes it takes to encode all documents.
        documents_stay: Whether encoding all documents takes too long for the budget, so that only models that read queries are trained.
        minutes: The budget in minutes.
        memory_bytes: About the most memory that training takes with a small encoder.
        disk_bytes: About the free disk space that a generation and the runs take with a small encoder.
        notes: Sentences that a user should know.
    """

    name: str
    questions: str
    parts: dict[str, int]
    answers: int
    questions_per_answer: float
    near_duplicates: int
    documents: int
    trained_on: int
    languages: dict[str, str]
    methods: tuple[str, ...]
    encoding_minutes: float
    documents_stay: bool
    minutes: float
    memory_bytes: int
    disk_bytes: int
    notes: tuple[str, ...]


#: Memory of torch with a small encoder, its gradients and the optimiser's moments; and bytes on disk of each trained model.
_MEMORY, _MODEL = 2_000_000_000, 250_000_000


def plan(learning: Learning) -> LearningPlan:
    """Return the plan of a prepared run."""
    judged, split = learning.questions, learning.split
    counts = Counter(document for grades in judged.qrels.values() for document, grade in grades.items() if grade > 0)
    languages = {
        "questions": _language([query.text for query in judged.queries[:_SAMPLE]]),
        "documents": _language([text[:500] for text in learning.texts]),
    }
    notes = list(learning.notes)
    if languages["questions"] != languages["documents"]:
        notes.append(
            f"The questions seem to be {languages['questions']}, the documents {languages['documents']}: "
            "the models that come with termweave know one language each."
        )
    tried = tried_on(learning)
    why_not = no_feature_ranker(len(split.parts[HELD_OUT]))
    notes += [why_not] if why_not else []
    bytes_now = bytes_of(learning.server, learning.live.index)
    return LearningPlan(
        name=learning.task.name,
        questions=judged.name,
        parts={part: len(ids) for part, ids in split.parts.items()},
        answers=len(counts),
        questions_per_answer=float(median(counts.values())),
        near_duplicates=split.near_duplicates,
        documents=len(learning.identities),
        trained_on=min(MOST_DOCUMENTS, len(learning.identities)),
        languages=languages,
        methods=(*(each.method for each in tried), *([] if why_not else ["ltr"])),
        encoding_minutes=learning.encoding_minutes,
        documents_stay=learning.documents_stay,
        minutes=learning.task.minutes,
        memory_bytes=_MEMORY,
        disk_bytes=2 * bytes_now + (len(tried) + 2) * _MODEL,
        notes=tuple(notes),
    )


def _language(texts: list[str]) -> str:
    return "chinese" if is_chinese(texts) else guess_of(" ".join(texts)) or "english"


def lines(plan: LearningPlan) -> list[tuple[str, Any]]:
    """Return the plan as pairs of a name and a value, for a table."""
    parts = plan.parts
    trained = [each for each in plan.methods if each != "ltr"]
    last = " and a feature ranker (ltr)" if "ltr" in plan.methods else ""
    encoded = f"all documents, where another model needs it ({plan.encoding_minutes:.1f} minutes)"
    return [
        ("questions", f"{sum(parts.values()):,} of {plan.questions}, {plan.near_duplicates:,} with a near duplicate"),
        (
            "answers",
            f"{plan.answers:,} of {counted(plan.documents, 'document')}, questions for each: {plan.questions_per_answer:g} (median)",
        ),
        ("split", f"{parts['train']:,} to train, {parts['dev']:,} to choose, {parts['test']:,} to confirm"),
        ("language", " / ".join(dict.fromkeys(plan.languages.values()))),
        ("tries", f"{', '.join(trained)}, as far as there is time, then the fusion of what won{last}"),
        ("encodes", "no document" if plan.documents_stay else encoded),
        ("time", f"about {plan.minutes:g} minutes"),
        ("memory", f"about {sized(plan.memory_bytes)}"),
        ("disk", f"about {sized(plan.disk_bytes)}"),
    ]
