"""Prepare a `termweave learn`: read the documents and the questions, and split the questions. Nothing is written.

The folder of a run is ``learned/NAME/HASH`` in the state folder; the hash is that of the questions, their parts, the generation, its
profile and its models, so that the same command goes on with what was stopped or killed:

``budget.json``      the largest budget of its commands, and how long encoding all documents takes
``data/``            the questions in three parts, and the documents that training looks at
``live-*.trec``      what the live search found for the held-out and the test questions
``runs/``            one folder for each trained candidate
``generation-*.txt`` the names of the trial generations
``report.html``, ``result.json``  the result; with the second the run has ended
"""

from __future__ import annotations

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
    from collections.abc import Callable, Iterable, Mapping, Sequence

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
    """The order for a run of `termweave learn`.

    Attributes:
        name: Name of the index.
        spec: The questions, as `learning.questions.read` takes them; None: the book of the index and the log of user behaviour.
        minutes: The budget.
        models: Models of the index in place of those that it names.
        update: Go on from the live models, which were learned, with the questions of that time and new ones.
    """

    name: str
    spec: str | None = None
    minutes: float = 20.0
    models: Mapping[str, str | Path | None] | None = None
    update: bool = False


@dataclass(frozen=True)
class Reports:
    """Where a run says how far it is.

    Attributes:
        progress: Called with (done, total, stage).
        say: Called with sentences.
    """

    progress: Callable[..., None] = lambda *_, **__: None
    say: Callable[[str], None] = lambda _: None

    def counter(self, stage: str) -> Callable[[int, int], None]:
        """Return a function that reports (done, total) of one stage."""
        return lambda done, total: self.progress(done, total, stage)


@dataclass(frozen=True)
class Learning:
    """A run that is prepared.

    Attributes:
        server: The server.
        task: What to learn.
        reports: Where the run says how far it is.
        live: The live generation.
        source: The documents of the live generation.
        state: Hash of the live generation, its documents and its profile.
        encoder: The models of the live generation.
        questions: The questions that have an answer in it.
        split: Their parts.
        folder: Folder of the run.
        identities: Ids of all documents.
        texts: The first texts.
        new: Texts of the questions that an update learns from for the first time.
        figure: nDCG@10 of the live search on the test questions of the time when it was learned; None without an update.
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
        """The budget of earlier commands of this run, as `begin` wrote it; {} before the first."""
        file = self.folder / _BUDGET
        begun: dict[str, float] = orjson.loads(file.read_bytes()) if file.is_file() else {}
        return begun

    @property
    def _minutes(self) -> float:
        """The largest budget of this command and earlier ones: a smaller one does not give up what is trained."""
        return max(self.task.minutes, self._begun.get("minutes", 0.0))

    @property
    def trains_no_more(self) -> bool:
        """Whether a command with ``--minutes 1`` ends a run that was begun with more."""
        return self.task.minutes <= 1 < self._minutes

    def begin(self) -> None:
        """Write the budget into the folder of the run."""
        budget = {"minutes": self._minutes, "encoding_minutes": self.encoding_minutes}
        atomic_files.write(self.folder / _BUDGET, orjson.dumps(budget))

    @cached_property
    def encoding_minutes(self) -> float:
        """About how long it takes to encode all documents, from a few of them; measured once for a run."""
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
        """Whether the budget has no time to encode all documents again, so that only what reads queries is trained."""
        return self.encoding_minutes > _ENCODING * self._minutes

    @property
    def former(self) -> Profile | None:
        """The profile in use."""
        return profiles.find(self.live.lineage, None)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the user about the questions, and about how the run goes on from them."""
        notes = [*self.questions.notes, self.drift()]
        if out := len(self.questions.queries) - sum(map(len, self.split.parts.values())):
            notes.append(
                f"{counted(out, 'question')} left out: the live models were trained on them, or they are like those of several parts."
            )
        if not self.split.parts[TRAIN]:
            notes.append("Too few judged questions can train: those made of documents do, the judged ones choose and confirm.")
        if self.documents_stay:
            notes.append(
                f"Encoding {counted(len(self.identities), 'document')} again would take about {self.encoding_minutes:,.0f} of the "
                f"{self._minutes:g} minutes: the documents stay as they are encoded, and only what reads queries is trained."
            )
        if self.former and (inherited := profiles.inherited(self.former)):
            notes.append(f"Kept from the profile {self.former.name!r}: {inherited}.")
        return tuple(filter(None, notes))

    def drift(self) -> str:
        """Compare the live search on questions that it has not learned from with its figure at the time when it was learned.

        Returns:
            A sentence; "" where there are fewer than `questions.FEWEST` new questions, or nothing was learned before.
        """
        queries = [query for query in self.questions.queries if query.text in self.new][:_DRIFTED]
        if self.figure is None or len(queries) < questions.FEWEST:
            return ""
        run = self.live_run(queries, "Searching new questions")
        values = per_query(run, self.questions.qrels, [query.id for query in queries])["nDCG@10"]
        mean, error = float(values.mean()), float(values.std()) / len(values) ** 0.5
        verdict = "learning again pays" if mean + 2 * error < self.figure else "they are like those that it has learned from"
        return (
            f"{len(self.new):,} questions are new. The live search ranks them with nDCG@10 {mean:.4f}, and ranked such questions with "
            f"{self.figure:.4f} when it was learned: {verdict}."
        )

    def live_run(self, queries: Sequence[Query], stage: str) -> Run:
        """Search some questions as users search the live index."""
        index = Index.pinned(self.server, self.task.name, **(self.task.models or {}))
        return self.run_of(index, systems.default_system(index), queries, stage)

    def run_of(self, index: Index, system: System, queries: Sequence[Query], stage: str) -> Run:
        """Search some questions in a generation in one way."""
        searched, notes = runs_of(index, queries, [system], self.reports.counter(stage), 100, self.questions.qrels)
        for note in notes:
            self.reports.say(f"{stage}: {note}")
        return searched[system.name]

    def queries(self, part: str) -> list[Query]:
        """The questions of a part."""
        ids = set(self.split.parts[part])
        return [query for query in self.questions.queries if query.id in ids]


def prepare(server: Engine, task: LearningTask, reports: Reports | None = None) -> Learning:
    """Read the documents and the questions, and split the questions.

    Args:
        server: The server.
        task: What to learn.
        reports: Where the run says how far it is.

    Raises:
        UsageError: The index or the questions cannot be used, a build of it is unfinished, or the rules of the profile leave no place for
            another reranker.
        InputError: There are too few questions, or they are in another language than the documents.
    """
    live = generations.find_live(server, task.name)
    if live is None:
        raise UsageError(f"{task.name!r} has no live generation.", f"Build it: 'termweave index SOURCE {task.name}'.")
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
            raise UsageError(
                f"{live.index} was not learned on this host, so nothing can be updated.",
                "Leave --update out: learning begins anew, with all questions.",
            )
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
    """The documents of a live generation, and a hash of it, of them and of the profile in use: it tells whether anything changed since."""
    source, profile = LiveDocuments(server, live), live.lineage.profile
    search = orjson.dumps([profile, live.lineage.profiles.get(profile)], option=orjson.OPT_SORT_KEYS).decode()
    return source, blake2b(f"{live.index} {source.fingerprint} {search}".encode(), digest_size=8).hexdigest()


def _learned_from(live: LiveGeneration) -> tuple[float | None, list[tuple[str, JudgedQuestions]]]:
    """The questions that the live search has learned from: those of the runs that made its generation, a model or its profile.

    Returns:
        nDCG@10 of the test questions, as the newest of these runs measured it, and parts with their questions; those that trained come
        first. (None, []): no such run is on this host.
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
    """The hashes of models that were trained, and of the encoders of queries in them."""
    files = (Path(folder) / part / MANIFEST for folder in folders for part in ("", QUERY))
    return {orjson.loads(file.read_bytes())["hash"] for file in files if file.is_file()}
