"""Plan a `termweave learn` without training: what the questions are, what will be tried, and what it takes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from termweave.encoders.analysis.model_familiarity import guess_of, is_chinese
from termweave.learning.choice import no_feature_ranker
from termweave.learning.questions import HELD_OUT
from termweave.learning.report import bytes_of
from termweave.learning.run import tried_on
from termweave.learning.training_folder import MOST_DOCUMENTS
from termweave.support.messages import counted, sized

if TYPE_CHECKING:
    from termweave.learning.preparation import Learning

#: Questions whose language is guessed.
_SAMPLE = 200


@dataclass(frozen=True)
class LearningPlan:
    """What a run would do.

    Attributes:
        name: The index.
        questions: Name of the questions.
        parts: Part -> number of questions in it.
        answers: Number of documents that answer a question.
        questions_per_answer: Half of these documents answer at least so many questions.
        near_duplicates: Questions that have a near duplicate, which stays in the same part.
        documents: Number of documents in the index.
        trained_on: Number of documents that training looks at.
        languages: "questions" and "documents" -> guessed language; "english" also stands for an unknown one.
        methods: The training methods that are tried, as far as there is time; "ltr", a feature ranker, comes after the fusion.
        encoding_minutes: About how long it takes to encode all documents.
        documents_stay: Whether that is too long, so that documents stay as they are encoded, and only what reads queries is trained.
        minutes: The budget.
        memory_bytes: Memory that training takes at most with a small encoder, about.
        disk_bytes: Free disk space that a generation and the runs take with a small encoder, about.
        notes: What a user should know.
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
    """Plan a run that is prepared."""
    asked, split = learning.questions, learning.split
    counts = Counter(document for grades in asked.qrels.values() for document, grade in grades.items() if grade > 0)
    languages = {
        "questions": _language([query.text for query in asked.queries[:_SAMPLE]]),
        "documents": _language([text[:500] for text in learning.texts]),
    }
    notes = list(learning.notes)
    if languages["questions"] != languages["documents"]:
        notes.append(
            f"The questions seem to be {languages['questions']}, the documents {languages['documents']}: "
            "the models that come with termweave know one language each."
        )
    tried = tried_on(learning)
    last: tuple[str, ...] = ("ltr",)
    if why_not := no_feature_ranker(len(split.parts[HELD_OUT])):
        notes.append(why_not)
        last = ()
    bytes_now = bytes_of(learning.server, learning.live.index)
    return LearningPlan(
        name=learning.task.name,
        questions=asked.name,
        parts={part: len(ids) for part, ids in split.parts.items()},
        answers=len(counts),
        questions_per_answer=float(median(counts.values())),
        near_duplicates=split.near_duplicates,
        documents=len(learning.identities),
        trained_on=min(MOST_DOCUMENTS, len(learning.identities)),
        languages=languages,
        methods=(*(each.method for each in tried), *last),
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
    """The plan as pairs of a name and a value, for a table."""
    parts = plan.parts
    trained = [each for each in plan.methods if each != "ltr"]
    last = " and a feature ranker (ltr)" if "ltr" in plan.methods else ""
    return [
        ("questions", f"{sum(parts.values()):,} of {plan.questions}, {plan.near_duplicates:,} with a near duplicate"),
        (
            "answers",
            f"{plan.answers:,} of {counted(plan.documents, 'document')}, questions for each: {plan.questions_per_answer:g} (median)",
        ),
        ("split", f"{parts['train']:,} to train, {parts['dev']:,} to choose, {parts['test']:,} to confirm"),
        ("language", " / ".join(dict.fromkeys(plan.languages.values()))),
        ("tries", f"{', '.join(trained)}, as far as there is time, then the fusion of what won{last}"),
        (
            "encodes",
            "no document"
            if plan.documents_stay
            else f"all documents, where another model needs it ({plan.encoding_minutes:.1f} minutes)",
        ),
        ("time", f"about {plan.minutes:g} minutes"),
        ("memory", f"about {sized(plan.memory_bytes)}"),
        ("disk", f"about {sized(plan.disk_bytes)}"),
    ]
