"""Prepare a run of `termweave learn`: read the documents and the questions, and split the questions. Nothing is written.

The folder of a run is ``learned/NAME/HASH`` in the state folder; the hash is that of the questions, their parts, the generation, its
profile and its models, so that the same command continues a run that was stopped or killed:

``budget.json``      the largest budget of the run's commands, and how long encoding all documents takes
``data/``            the questions in three parts, and the documents that training looks at
``live-*.trec``      what the live search found for the held-out and the test questions
``runs/``            one folder for each trained candidate
``generation-*.txt`` the names of the trial generations
``report.html``, ``result.json``  the result; once ``result.json`` is there, the run has ended
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from termweave.catalog import generations
from termweave.encoders.manifest import MANIFEST
from termweave.encoders.recorded_models import encoder_of
from termweave.errors import InputError, UsageError
from termweave.evaluation import per_query, systems
from termweave.evaluation.experiment import runs_of
from termweave.indexer.ledger import unfinished_builds
from termweave.indexer.stored_documents import LiveDocuments
from termweave.learning import questions
from termweave.learning.questions import PARTS, TRAIN, JudgedQuestions, QuestionSplit
from termweave.rerank.stored_rerankers import leave_room
from termweave.search import Index, profiles
from termweave.support import atomic_files, paths
from termweave.support.messages import counted
from termweave.support.stopwatch import stopwatch

if TYPE_CHECKING:
    from termweave.catalog.generations import LiveGeneration
    from termweave.catalog.profiles import Profile
    from termweave.encoders import TextEncoder
    from termweave.engine import Engine
    from termweave.evaluation.systems import System
    from termweave.records import Query, Run

#: Connections to the server: a build sends over four, renews its lease and asks for other things.
CONNECTIONS = 6
DATA, RESULT, _BUDGET = "data", "result.json", "budget.json"
#: Folder of the runs of all indices, in the state folder; folder of the encoder of queries in that of a model with two encoders.
LEARNED, QUERY = "learned", "query"
#: Most new questions that are searched to see whether questions have changed.
_DRIFTED = 300
#: Texts whose language is guessed, and those that are encoded to see how long all documents would take.
_TEXTS, _TIMED = 200, 16
#: Share of the budget that encoding all documents again may take.
_ENCODING = 0.4


@dataclass(frozen=True)
class LearningTask:
    """What the user asked a run of `termweave learn` to do.

    Attributes:
        name: Name of the index.
        spec: The questions, as `learning.questions.read` takes them; None: the book of the index and the log of user behaviour.
        minutes: The budget of the run, in minutes.
        models: Models with which the index is opened, in place of the models that the index names.
        update: Whether training goes on from the live models, which an earlier run learned, with the questions of that run and new ones.
    """

    name: str
    spec: str | None = None
    minutes: float = 20.0
    models: Mapping[str, str | Path | None] | None = None
    update: bool = False


@dataclass(frozen=True)
class Reports:
    """Callbacks through which a run reports its progress.

    Attributes:
        progress: Called with (done, total, stage).
        say: Called with sentences for the user.
    """

    progress: Callable[..., None] = lambda *_, **__: None
    say: Callable[[str], None] = lambda _: None

    def counter(self, stage: str) -> Callable[[int, int], None]:
        """Return a function that reports (done, total) of one stage."""
        return lambda done, total: self.progress(done, total, stage)


@dataclass(frozen=True)
class Learning:
    """A run of `termweave learn` whose documents and questions are read; nothing is trained yet.

    Attributes:
        server: The server.
        task: What to learn.
        reports: Callbacks for the progress of the run.
        live: The live generation.
        source: The documents of the live generation.
        state: Hash of the live generation, its documents and its profile.
        encoder: The models of the live generation.
        questions: The questions that have an answer in the live generation.
        split: The three parts of the questions.
        folder: Folder of the run.
        identities: Ids of all documents.
        texts: Texts of the first documents.
        new: Texts of the questions that an update learns from for the first time.
        figure: nDCG@10 of the live search, measured on the test questions of the run that learned it; None: this run is no update.
    """

    server: Engine
    task: LearningTask
    reports: Reports
    live: LiveGeneration
    source: LiveDocuments
    state: str
    encoder: TextEncoder
    questions: JudgedQuestions
    split: QuestionSplit
    folder: Path
    identities: list[str]
    texts: list[str]
    new: frozenset[str] = frozenset()
    figure: float | None = None

    @cached_property
    def _begun(self) -> dict[str, float]:
        """Return the budget and the encoding time that earlier commands of this run wrote (`begin`); {}: there was no earlier command."""
        file = self.folder / _BUDGET
        begun: dict[str, float] = orjson.loads(file.read_bytes()) if file.is_file() else {}
        return begun

    @property
    def _minutes(self) -> float:
        """Return the largest budget of this run's commands so far, so that a command with a smaller budget gives up no trained model."""
        return max(self.task.minutes, self._begun.get("minutes", 0.0))

    @property
    def trains_no_more(self) -> bool:
        """Return whether this command ends the run without training: it has ``--minutes 1``, and an earlier command of the run had more."""
        return self.task.minutes <= 1 < self._minutes

    def begin(self) -> None:
        """Write the budget and the encoding time into the folder of the run."""
        budget = {"minutes": self._minutes, "encoding_minutes": self.encoding_minutes}
        atomic_files.write(self.folder / _BUDGET, orjson.dumps(budget))

    @cached_property
    def encoding_minutes(self) -> float:
        """Return about how many minutes it takes to encode all documents, from the time for a few of them; it is measured once for a run."""
        if "encoding_minutes" in self._begun:
            return self._begun["encoding_minutes"]
        sample = self.texts[:: max(1, len(self.texts) // _TIMED)][:_TIMED]
        if not self.encoder.models:
            return 0.0
        self.encoder.encode(sample[:1], kind="document")  # opens the graph
        watch = stopwatch()
        self.encoder.encode(sample, kind="document")
        return watch() / len(sample) * len(self.identities) / 60

    @property
    def documents_stay(self) -> bool:
        """Return whether the budget is too small to encode all documents again; then only models that read queries are trained."""
        return self.encoding_minutes > _ENCODING * self._minutes

    @property
    def former(self) -> Profile | None:
        """Return the profile that the index uses; None: no profile is adopted."""
        return profiles.find(self.live.lineage, None)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Return sentences for the user about the questions, and about the way in which the run uses them."""
        notes = [*self.questions.notes, self.drift()]
        if out := len(self.questions.queries) - sum(map(len, self.split.parts.values())):
            notes.append(
                f"{counted(out, 'question')} left out: the live models were trained on them, or near duplicates of them are in several parts."
            )
        if not self.split.parts[TRAIN]:
            notes.append(
                "Too few questions are judged to train on them: questions made of the documents train, the judged ones choose and confirm."
            )
        if self.documents_stay:
            notes.append(
                f"Encoding {counted(len(self.identities), 'document')} again would take about {self.encoding_minutes:,.0f} of the "
                f"{self._minutes:g} minutes: the documents stay as they are encoded, and only what reads queries is trained."
            )
        if self.former and (inherited := profiles.inherited(self.former)):
            notes.append(f"Kept from the profile {self.former.name!r}: {inherited}.")
        return tuple(filter(None, notes))

    def drift(self) -> str:
        """Compare nDCG@10 of the live search on new questions with its nDCG@10 at the time when it was learned.

        Returns:
            A sentence; "": there are fewer than `questions.FEWEST` new questions, or the run is no update.
        """
        queries = [query for query in self.questions.queries if query.text in self.new][:_DRIFTED]
        if self.figure is None or len(queries) < questions.FEWEST:
            return ""
        run = self.live_run(queries, "Searching new questions")
        values = per_query(run, self.questions.qrels, [query.id for query in queries])["nDCG@10"]
        mean, error = float(values.mean()), float(values.std()) / len(values) ** 0.5
        verdict = "learning again pays" if mean + 2 * error < self.figure else "the new questions are like those of then"
        return (
            f"{len(self.new):,} questions are new. The live search ranks them with nDCG@10 {mean:.4f}, and ranked such questions with "
            f"{self.figure:.4f} when it was learned: {verdict}."
        )

    def live_run(self, queries: Sequence[Query], stage: str) -> Run:
        """Search the live index for some questions, as its users do, and return the ranked documents."""
        index = Index.pinned(self.server, self.task.name, **(self.task.models or {}))
        return self.run_of(index, systems.default_system(index), queries, stage)

    def run_of(self, index: Index, system: System, queries: Sequence[Query], stage: str) -> Run:
        """Search a generation for some questions in the way that `system` describes, and return the ranked documents."""
        searched, notes = runs_of(index, queries, [system], self.reports.counter(stage), 100, self.questions.qrels)
        for note in notes:
            self.reports.say(f"{stage}: {note}")
        return searched[system.name]

    def queries(self, part: str) -> list[Query]:
        """Return the questions of one part: "train", "dev" or "test"."""
        ids = set(self.split.parts[part])
        return [query for query in self.questions.queries if query.id in ids]


def prepare(server: Engine, task: LearningTask, reports: Reports | None = None) -> Learning:
    """Read the documents and the questions, and split the questions.

    Args:
        server: The server.
        task: What to learn.
        reports: Callbacks for the progress of the run.

    Raises:
        UsageError: The index or the questions cannot be used, a build of it is unfinished, or the rules of the profile leave no place for
            another reranker.
        InputError: There are too few questions, or they are in another language than the documents.
    """
    live = generations.find_live(server, task.name)
    if live is None:
        raise UsageError(f"{task.name!r} has no live generation.", f"Build one: 'termweave index SOURCE {task.name}'.")
    unfinished_builds.refuse(server, task.name)  # before hours of training
    if former := profiles.find(live.lineage, None):
        leave_room(former, 1, "learning")
    reports = reports or Reports()
    source, state = live_documents(server, live)
    encoder = encoder_of(live.lineage, task.name, task.models or {})
    reports.progress(0, None, "Reading the documents")
    identities: list[str] = []
    texts: list[str] = []
    for document in source.documents():
        identities.append(document.id)
        if len(texts) < _TEXTS:
            texts.append(document.content)
    judged = questions.read_any(server, task.name, task.spec, set(identities))
    measured, before = _learned_from(live)
    # Without an update, too, the questions stay in their parts: a live model stays where no new one is better.
    parts = {query.text: part for part, earlier in reversed(before) for query in earlier.queries}
    new, figure = frozenset[str](), None
    if task.update:
        if measured is None:
            raise UsageError(f"No run of learn on this host made {live.index}.", "Leave --update out: learning begins anew.")
        figure = measured
        new = frozenset(query.text for query in judged.queries if query.text not in parts)
        judged = questions.joined((judged, *(earlier for _, earlier in before)))
    split = questions.split(judged, parts)
    _refuse_foreign(task.name, encoder, judged)
    models = {output: model.hash for output, model in encoder.models.items()}
    key = orjson.dumps([judged.hash, state, task.update, split.parts, models], option=orjson.OPT_SORT_KEYS)
    folder = paths.state() / LEARNED / task.name / blake2b(key, digest_size=8).hexdigest()
    return Learning(server, task, reports, live, source, state, encoder, judged, split, folder, identities, texts, new, figure)


def _refuse_foreign(name: str, encoder: TextEncoder, judged: JudgedQuestions) -> None:
    """Raise `InputError` for questions in a language that no model of the index knows."""
    familiarities = encoder.familiarity([query.text for query in judged.queries[:_TEXTS]]).values()
    if familiarities and all(
        each.verdict == "foreign" or (each.guess and each.language and each.guess != each.language.lower())
        for each in familiarities
    ):
        reason = next(iter(familiarities)).reason
        raise InputError(
            f"The models of {name!r} do not know the language of {judged.name} ({reason}), so nothing can be learned from these questions.",
            "Name questions in the language of the documents, or index with a model that knows both languages (--dense).",
        )


def live_documents(server: Engine, live: LiveGeneration) -> tuple[LiveDocuments, str]:
    """Return the documents of a live generation, and a hash of generation, documents and profile that shows later whether any of them changed."""
    source, profile = LiveDocuments(server, live), live.lineage.profile
    search = orjson.dumps([profile, live.lineage.profiles.get(profile)], option=orjson.OPT_SORT_KEYS).decode()
    return source, blake2b(f"{live.index} {source.fingerprint} {search}".encode(), digest_size=8).hexdigest()


def _learned_from(live: LiveGeneration) -> tuple[float | None, list[tuple[str, JudgedQuestions]]]:
    """Return the questions of all runs that made the live generation, one of its models or its profile.

    Returns:
        nDCG@10 of the test questions, as the newest of these runs measured it, and pairs of a part's name and its questions, training
        questions first. (None, []): no such run is on this host.
    """
    models, profile = {model.hash for model in live.lineage.models.values()}, live.lineage.profiles.get(live.lineage.profile)
    runs: list[tuple[tuple[bool, float], Path, Mapping[str, Any]]] = []
    for result in (paths.state() / LEARNED).glob(f"*/*/{RESULT}"):
        written = orjson.loads(result.read_bytes())
        of_it = written.get("generation") == live.index
        if of_it or (profile and written.get("profile") == profile) or models & _hashes(written.get("used", {}).values()):
            runs.append(((of_it, result.stat().st_mtime), result.parent / DATA, written))
    runs.sort(key=itemgetter(0), reverse=True)
    parts = [(part, questions.stored(data, part, written["questions"])) for part in PARTS for _, data, written in runs]
    figures = [written["after"] for *_, written in runs]
    return (figures[0] if figures else None), parts


def _hashes(folders: Iterable[str]) -> set[str]:
    """Return the hashes of the models in some model folders, and of the query encoders in their subfolders."""
    files = (Path(folder) / part / MANIFEST for folder in folders for part in ("", QUERY))
    return {orjson.loads(file.read_bytes())["hash"] for file in files if file.is_file()}
