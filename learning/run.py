"""One `termweave learn`: read and split the questions, train within a budget, build a trial generation, choose, confirm, report.

The folder of a run is ``learned/NAME/HASH`` in the state folder; the hash is that of the questions, the generation and the budget, so
that the same command goes on with what was stopped or killed:

``data/``        the questions in three parts, and the documents that training looks at
``live-*.trec``  what the live search found for the held-out and the test questions
``runs/``        one folder for each trained candidate
``report.html``, ``result.json``  the result; with the second the run has ended
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from termweave import corpora
from termweave.encoders import backbones, model_lookup
from termweave.encoders.models.store import HEADS
from termweave.errors import GateNotMet, InputError, UsageError
from termweave.evaluation import per_query, runs, systems
from termweave.evaluation.experiment import runs_of
from termweave.indexer import NotPublished, build
from termweave.indexer.generations import generations, option_compatibility, publication
from termweave.indexer.generations.live_documents import LiveDocuments
from termweave.learning import choice, questions, report, training_folder
from termweave.learning.candidates import candidates
from termweave.learning.forgetting import forgetting
from termweave.learning.learned import Learned
from termweave.learning.questions import HELD_OUT, TEST, TRAIN
from termweave.learning.training_rounds import TrainingRounds
from termweave.search import Index
from termweave.search.catalog.models import encoder_of
from termweave.support import atomic_files, file_locks, paths

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from termweave.corpora import Dataset
    from termweave.encoders import TextEncoder
    from termweave.engine import Engine
    from termweave.indexer.generations.generations import LiveGeneration
    from termweave.learning.candidates import Part, TrainedCandidate
    from termweave.learning.choice import Confirmation
    from termweave.learning.questions import JudgedQuestions, QuestionSplit
    from termweave.records import Query, Run
    from termweave.search.catalog.profiles import Profile

#: Connections to the server: a build sends over four, renews its lease and asks for other things.
CONNECTIONS = 6
_DATA, _RUNS, _RESULT, REPORT = "data", "runs", "result.json", "report.html"
#: Share of the budget that training may take; the rest is for building and measuring.
_TRAINING = 0.7
#: Most new questions that are searched to see whether questions have changed.
_DRIFTED = 300
#: Texts whose language is guessed.
_TEXTS = 200


@dataclass(frozen=True)
class LearningTask:
    """What to learn.

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
    models: Mapping[str, str | None] | None = None
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


def prepare(server: Engine, task: LearningTask, reports: Reports | None = None) -> Learning:
    """Read the documents and the questions, and split the questions; nothing is written.

    Args:
        server: The server.
        task: What to learn.
        reports: Where the run says how far it is.

    Raises:
        UsageError: The index or the questions cannot be used.
        InputError: There are too few questions.
    """
    live = generations.find_live(server, task.name)
    if live is None:
        raise UsageError(f"{task.name!r} has no live generation.", f"Build it: 'termweave index SOURCE {task.name}'.")
    reports = reports or Reports()
    source = LiveDocuments(server, live)
    reports.progress(0, None, "Reading the documents")
    identities: list[str] = []
    texts: list[str] = []
    for document in source.documents():
        identities.append(document.id)
        if len(texts) < _TEXTS:
            texts.append(document.content)
    home = paths.state() / "learned" / task.name
    asked = questions.read_any(server, task.name, task.spec, set(identities))
    parts, new, figure = None, frozenset[str](), None
    if task.update:
        figure, before = _run_of(home, live.index)
        parts = {query.text: part for part, kept in before.items() for query in kept.queries}
        new = frozenset(query.text for query in asked.queries if query.text not in parts)
        asked = questions.joined((asked, *before.values()))
    split = questions.split(asked, parts)
    state = f"{asked.hash} {live.index} {source.fingerprint} {task.minutes} {task.update}"
    folder = home / blake2b(state.encode(), digest_size=8).hexdigest()
    return Learning(server, task, reports, live, source, asked, split, folder, tuple(identities), tuple(texts), new, figure)


def _run_of(home: Path, generation: str) -> tuple[float, dict[str, JudgedQuestions]]:
    """What the run that made a generation measured on its test questions, and its questions by their part.

    Raises:
        UsageError: This host has no such run.
    """
    for result in sorted(home.glob(f"*/{_RESULT}")):
        written = orjson.loads(result.read_bytes())
        if written.get("generation") == generation:
            data = result.parent / _DATA
            return written["after"], {part: questions.stored(data, part) for part in (TRAIN, HELD_OUT, TEST)}
    raise UsageError(
        f"{generation} was not learned on this host, so nothing can be updated.",
        "Leave --update out: learning begins anew, with all questions.",
    )


def learn(server: Engine, task: LearningTask, reports: Reports | None = None) -> Learned:
    """Learn from judged questions, and leave a generation that searches better, if there is one, ready to be promoted.

    Arguments and errors as `prepare`.
    """
    return prepare(server, task, reports).run()


def _refuse(name: str) -> None:
    raise UsageError(f"Another process learns for {name!r}.", "Wait until it ends.")


@dataclass(frozen=True)
class Learning:
    """A run that is prepared.

    Attributes:
        server: The server.
        task: What to learn.
        reports: Where the run says how far it is.
        live: The live generation.
        source: The documents of the live generation.
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
    questions: JudgedQuestions
    split: QuestionSplit
    folder: Path
    identities: tuple[str, ...]
    texts: tuple[str, ...]
    new: frozenset[str] = frozenset()
    figure: float | None = None

    def drift(self) -> str:
        """How the live search ranks questions that it has not learned from, and how it ranked such questions when it was learned.

        Returns:
            A sentence; "" where there are fewer than `questions.FEWEST` new questions, or nothing was learned before.
        """
        queries = [query for query in self.questions.queries if query.text in self.new][:_DRIFTED]
        if self.figure is None or len(queries) < questions.FEWEST:
            return ""
        found = self._found(queries, "Searching new questions")
        values = per_query(found, self.questions.qrels, [query.id for query in queries])["nDCG@10"]
        mean, error = float(values.mean()), float(values.std()) / len(values) ** 0.5
        verdict = "learning again pays" if mean + 2 * error < self.figure else "they are like those that it has learned from"
        return (
            f"{len(self.new):,} questions are new. The live search ranks them with nDCG@10 {mean:.4f}, and ranked such questions with "
            f"{self.figure:.4f} when it was learned: {verdict}."
        )

    def run(self) -> Learned:
        """Train, build, choose and confirm.

        Raises:
            UsageError: Another process learns for this index.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with file_locks.one_at_a_time(self.folder.parent / ".lock", partial(_refuse, self.task.name)):
            return self._run(time.monotonic())

    def _run(self, started: float) -> Learned:
        encoder = encoder_of(self.live.lineage, self.task.name, self.task.models or {})
        live_runs = self._live_runs()
        data = self._data(live_runs[HELD_OUT])
        budget = _TRAINING * 60 * self.task.minutes - (time.monotonic() - started)
        rounds = TrainingRounds(data, self.folder / _RUNS, budget, self.reports.say, self.reports.progress)
        best = rounds.best(candidates(*self._begin(encoder)))
        if not best:
            return self._unchanged(rounds.trained, live_runs[TEST])
        generation = self._trial_generation(encoder, best)
        return self._improved(rounds.trained, best, encoder, generation, self._profile(generation))

    def _begin(self, encoder: TextEncoder) -> tuple[str | None, str]:
        """The weights model and the backbone that training begins with.

        Learned models are begun with by an update alone: it keeps the questions apart that they have learned from.
        """
        learned = paths.state() / "learned"
        folders = {output: Path(model.folder) for output, model in encoder.models.items() if model.folder}
        weights, dense = folders.get("weights"), folders.get("dense")
        start = weights if weights and (weights / HEADS).is_file() else None
        if start and learned in start.parents and not self.task.update:
            start = model_lookup.resolve("shipped")
        if dense and learned in dense.parents and self.task.update and list(dense.glob("*.safetensors")):
            return str(start) if start else None, str(dense)
        model = self.live.lineage.models.get("dense")
        return str(start) if start else None, model.name if model and model.name in backbones.BACKBONES else ""

    def _live_runs(self) -> dict[str, Run]:
        """What the live search finds for the held-out and the test questions; measured once, and kept."""
        files = {part: self.folder / f"live-{part}.trec" for part in (HELD_OUT, TEST)}
        if not all(file.is_file() for file in files.values()):
            for part, file in files.items():
                runs.write(self._found(self._queries(part), "Searching as now"), file)
        return {part: runs.read(file) for part, file in files.items()}

    def _found(self, queries: Sequence[Query], stage: str) -> Run:
        """What the live search finds, as users get it."""
        index = Index.pinned(self.server, self.task.name, **(self.task.models or {}))
        system = systems.default_system(index)
        found, _ = runs_of(index, queries, [system], lambda done, total: self.reports.progress(done, total, stage), 100)
        return found[system.name]

    def _queries(self, part: str) -> list[Query]:
        wanted = set(self.split.parts[part])
        return [query for query in self.questions.queries if query.id in wanted]

    def _data(self, live: Run) -> Path:
        """The training folder, written once."""
        data = self.folder / _DATA
        done = data / "qrels" / f"{TEST}.tsv"
        if not done.is_file():
            kept = training_folder.documents_to_keep(self.questions, self.split, live, list(self.identities))
            training_folder.write(data, self.questions, self.split, self.source.documents(), kept)
        return data

    def _trial_generation(self, encoder: TextEncoder, best: Mapping[Part, TrainedCandidate]) -> str:
        """Build a generation with the new models beside the old ones; it is not published."""
        models = _models(encoder, best)
        options = option_compatibility.options_of(self.server, self.live, models)

        def hold(_: str) -> None:
            raise GateNotMet("'termweave learn' has built it and not promoted it", "")

        def progress(stage: str, done: int, total: int | None, detail: str = "", /) -> None:
            del detail
            self.reports.progress(done, total, stage)

        try:
            built = build(self.server, self.source, self.task.name, options, progress, hold)
        except NotPublished as held:
            return held.built.index
        return built.index

    def _profile(self, generation: str) -> Profile:
        """Choose how the trial generation is searched, and store that with it."""
        index = Index.open(self.server, generation)
        profile = choice.choose(
            index,
            self._judged(HELD_OUT),
            lambda done, total: self.reports.progress(done, total, "Choosing on the held-out questions"),
        )
        index.adopt(profile)
        return profile

    def _confirmed(self, index: Index) -> Confirmation:
        """Compare with the live search on the test questions."""
        return choice.confirm(
            index,
            self._judged(TEST),
            str(self.folder / f"live-{TEST}.trec"),
            lambda done, total: self.reports.progress(done, total, "Confirming on the test questions"),
        )

    def _judged(self, part: str) -> Dataset:
        return corpora.open_dataset(f"{self.folder / _DATA}:{part}")

    def _unchanged(self, tried: Sequence[TrainedCandidate], live: Run) -> Learned:
        """The result where no model was improved by training."""
        per_question = per_query(live, self.questions.qrels, list(self.split.parts[TEST]))["nDCG@10"]
        mean = float(per_question.mean())
        return self._written(Learned(**self._asked(tried), before=mean, after=mean))

    def _improved(
        self,
        tried: Sequence[TrainedCandidate],
        best: Mapping[Part, TrainedCandidate],
        encoder: TextEncoder,
        generation: str,
        profile: Profile,
    ) -> Learned:
        """Confirm the choice, and report it."""
        models = self.task.models or {}
        confirmation, test = self._confirmed(Index.open(self.server, generation)), self._judged(TEST)
        row = next(each for each in confirmation.experiment.rows if each.system == confirmation.system)
        lists = report.moved(confirmation.experiment, row, test)
        asked = [query.text for query in test.queries()]
        self.reports.progress(0, None, "Timing searches")
        costs = {
            "before": report.cost(self.server, self.task.name, self.live.index, models, asked),
            "after": report.cost(self.server, self.task.name, generation, {}, asked),
        }
        self.reports.progress(0, None, "Measuring what was forgotten")
        folders = {output: model.folder for output, model in encoder.models.items()}
        forgot = tuple(
            forgetting(part, before, each.folder)
            for part, each in best.items()
            if each.folder and (before := folders.get(part)) is not None
        )
        gained, lost = report.gained_terms(best["weights"], self.folder / _DATA) if "weights" in best else ([], [])
        about = {"index": self.task.name, "questions": self.questions.name}
        atomic_files.write(self.folder / REPORT, report.page(confirmation, test, tried, lists, about).encode())
        return self._written(
            Learned(
                **self._asked(tried),
                before=confirmation.before,
                after=confirmation.after,
                p=confirmation.p,
                used={part: str(each.folder) for part, each in best.items()},
                generation=generation,
                confirmed=confirmation.confirmed,
                profile=profile.as_meta(),
                needed=confirmation.needed,
                systems=confirmation.table(),
                moved=lists,
                cost=costs,
                forgotten=forgot,
                gained=gained,
                lost=lost,
            )
        )

    def _asked(self, tried: Sequence[TrainedCandidate]) -> dict[str, Any]:
        return {
            "name": self.task.name,
            "questions": self.questions.name,
            "folder": self.folder,
            "parts": {part: len(ids) for part, ids in self.split.parts.items()},
            "tried": tuple(tried),
            "notes": self.questions.notes,
        }

    def _written(self, learned: Learned) -> Learned:
        atomic_files.write(self.folder / _RESULT, orjson.dumps(asdict(learned), default=str, option=orjson.OPT_INDENT_2))
        return learned


def promote(server: Engine, learned: Learned) -> Learned:
    """Make the trial generation live."""
    if learned.generation is None:
        raise InputError("No generation was built: training improved no model.")
    publication.promote(server, learned.name, learned.generation)
    return replace(learned, published=True)


def _models(encoder: TextEncoder, best: Mapping[Part, TrainedCandidate]) -> dict[str, str]:
    """The models of the trial generation: the new ones, and the live ones for what has none.

    Where one live model gives weights and vectors in one pass, a new model of weights gives the same vectors: its backbone was frozen.
    """
    known = encoder.models
    models: dict[str, str] = {part: str(each.folder) for part, each in best.items()}
    for part in ("weights", "dense"):
        if part not in models:
            models[part] = str(known[part].folder) if part in known else "none"
    joint = {"weights", "dense"} <= known.keys() and known["weights"].hash == known["dense"].hash
    if joint and "dense" not in best and "dense" in str(best["weights"].candidate.settings.get("outputs", "")):
        models["dense"] = models["weights"]
    return models
