"""Training within a budget, by successive halving: a short run of every candidate, then a long one of the best for each part.

A candidate is a method of `termweave train` with settings, for one part of the search. A feature ranker comes last (`choice`). Every candidate
is trained on one BEIR folder, with the questions, and the documents that training looks at.

Figures here are measured in training, on the held-out questions, with one signal alone. They decide which models are built into
the trial generation; `learning.choice` then measures the trial generation through the server.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import orjson

from termweave.catalog.layout import signal_class
from termweave.encoders import backbones, model_lookup
from termweave.encoders.kinds import read_folder
from termweave.encoders.manifest import HEADS, MANIFEST
from termweave.errors import InputError, ModelError, UsageError
from termweave.learning.preparation import LEARNED, Learning, Reports
from termweave.learning.questions import HELD_OUT, TRAIN, JudgedQuestions, QuestionSplit
from termweave.support import atomic_files, paths, private_files
from termweave.support.stopwatch import stopwatch
from termweave.training import run
from termweave.training.methods import base
from termweave.training.model_folder import loses_too_much

if TYPE_CHECKING:
    from termweave.records import Document, Run

Part = Literal["weights", "dense", "ranker"]
#: What messages call the parts.
PARTS: Mapping[Part, str] = {"weights": "term weights", "dense": "vectors", "ranker": "ranker"}
#: Most documents that training looks at: with more, every look at the held-out questions would take minutes on two cores.
MOST_DOCUMENTS = 6000
#: How many of the best documents of the live system are kept for each question: wrong ones among them are the hardest.
_HARDEST = 10
#: Looks at the held-out questions in a run, besides that of step 0.
_LOOKS = 3
#: Files of a run: the steps that the budget allows, and the seconds that it took once it has ended.
_STEPS, _SECONDS = "steps.txt", "seconds.txt"
#: Most steps of a long run, for each step of the short one.
_LONGEST = 8


@dataclass(frozen=True)
class Candidate:
    """A model to train.

    Attributes:
        method: Name of the training method.
        part: The part of the search that the model serves: "weights", "dense" or "ranker".
        share: Share of the training time that its first, short run may take.
        steps: Steps of the first run.
        settings: Settings of the method that differ from its defaults.
        fewest: Fewest steps that show what the method can do; without time for so many, the candidate is not tried.
    """

    method: str
    part: Part
    share: float
    steps: int
    settings: Mapping[str, Any]
    fewest: int = 10


def candidates(
    start: str, start_backbone: str, backbone: str, *, joint: bool, documents_stay: bool = False, from_corpus: bool = False
) -> list[Candidate]:
    """Return the candidates to train for an index.

    Args:
        start: Folder of the live weights model, from which training goes on; "": training cannot go on from it.
        start_backbone: Backbone of the live weights model; "": all-MiniLM-L6-v2.
        backbone: Backbone of the live dense model; "": all-MiniLM-L6-v2.
        joint: Whether the live weights model also gives the live vectors.
        documents_stay: Whether documents keep their encodings, so that only models that read queries can be trained.
        from_corpus: Whether questions are made of the corpus, because too few are judged to train on.
    """
    corpus = {"pairs": "corpus"} if from_corpus else {}
    encoder = {**corpus, **({"backbone": backbone} if backbone else {})}
    weights = {**corpus, "outputs": "weights,dense" if joint else "weights"}
    weights |= {name: value for name, value in (("start", start), ("backbone", start_backbone)) if value}
    every = [
        Candidate("fectek", "weights", 0.2, 200, weights),
        Candidate("dtr", "dense", 0.12, 60, encoder),
        Candidate("coder", "dense", 0.06, 60, {**encoder, "labels": "auto" if from_corpus else "hard"}),
        Candidate("le-bs", "dense", 0.08, 60, {"labels": "tfidf", **encoder}),
    ]
    left_out = {"fectek", "dtr", "le-bs"} if documents_stay else set()
    return [each for each in every if each.method not in left_out | ({"le-bs"} if from_corpus else set())]


def tried_on(learning: Learning) -> list[Candidate]:
    """Return the candidates to train in a run: for what the index stores, or, where all documents are encoded again, for what the server can store.

    Only an update starts from models that an earlier run learned: it keeps the questions that they have learned from in their parts.
    """
    learned = paths.state() / LEARNED
    folders = {output: Path(model.folder) for output, model in learning.encoder.models.items() if model.folder}
    weights, dense = folders.get("weights"), folders.get("dense")
    start = weights if weights and (weights / HEADS).is_file() else None
    while start and learned in start.parents and not learning.task.update:
        start = _begun_with(start)
    backbone = _backbone(dense)
    if dense and learned in dense.parents and learning.task.update and list(dense.glob("*.safetensors")):
        backbone = str(dense)
    joint = weights is not None and weights == dense
    stored = {signal.needs for signal in learning.live.lineage.layout.signals}
    able, stay = learning.server.capabilities, learning.documents_stay
    from_corpus = not learning.split.parts["train"]
    tried = candidates(str(start or ""), _backbone(start), backbone, joint=joint, documents_stay=stay, from_corpus=from_corpus)
    return [each for each in tried if each.part in stored or not (stay or signal_class(each.part).unavailable(able))]


def _begun_with(learned: Path) -> Path:
    """Return the folder of the model from which a learned model was trained; the shipped model's where that folder is gone."""
    begun = _made_with(learned, "start")
    return Path(begun) if begun and (Path(begun) / HEADS).is_file() else model_lookup.resolve("shipped")


def _backbone(folder: Path | None) -> str:
    """Return the name of the backbone that a model is itself, or was trained from; "": no known name, which stands for all-MiniLM-L6-v2."""
    if folder is None:
        return ""
    made_from = _made_with(folder, "backbone")
    name = next((name for name in (read_folder(folder, check=False).manifest.name, made_from) if name in backbones.BACKBONES), "")
    return name or (_backbone(Path(made_from)) if made_from and Path(made_from).is_dir() else "")


def _made_with(folder: Path, setting: str) -> str:
    """Return the value of a setting with which a model was trained; "": the model was not trained, or its training names no such setting."""
    return str(read_folder(folder, check=False).manifest.training.get("options", {}).get(setting, ""))


@dataclass(frozen=True)
class TrainedCandidate:
    """The result of training a candidate.

    Attributes:
        candidate: The candidate that was trained.
        steps: Steps of the run.
        seconds: Seconds that training took, without the time in which other processes had the processors.
        folder: The model folder; None: the run failed or was not begun, see `dropped`.
        before: Figure of the model at step 0 of this run.
        after: Figure of the model at its best step.
        best: Number of the best step; 0: training did not help.
        int8: Change of nDCG@10 by int8; of vectors that lose in training's check it is measured again through the index; None: not measured.
        precision: "int8" or "fp32".
        dropped: Why there is no model; "": there is a model.
        needs: About the `--minutes` that training would take; 0: the candidate was not dropped for want of time.
    """

    candidate: Candidate
    steps: int
    seconds: float
    folder: Path | None = None
    before: float = 0.0
    after: float = 0.0
    best: int = 0
    int8: float | None = None
    precision: str = "int8"
    dropped: str = ""
    needs: float = 0.0

    @property
    def helped(self) -> bool:
        """Return whether training improved the model from which it started."""
        return self.folder is not None and self.best > 0


def documents_to_keep(questions: JudgedQuestions, split: QuestionSplit, live: Run, every: list[str]) -> set[str]:
    """Choose the documents that training looks at: answers and best results of held-out questions, then answers of training questions, then random ones.

    Args:
        questions: All questions.
        split: The parts of the questions.
        live: Ranked documents of the live search for the held-out questions.
        every: Ids of all documents.
    """
    if len(every) <= MOST_DOCUMENTS:
        return set(every)
    chosen: set[str] = set()
    for query in split.parts[HELD_OUT]:
        chosen.update(document for document, grade in questions.qrels[query].items() if grade > 0)
        chosen.update(list(live.scores.get(query, {}))[:_HARDEST])
    generator = random.Random(0)  # noqa: S311 - a draw, not a secret
    answers = {document for query in split.parts[TRAIN] for document, grade in questions.qrels[query].items() if grade > 0}
    for part, most in ((answers, MOST_DOCUMENTS * 3 // 4), (set(every), MOST_DOCUMENTS)):
        rest = sorted(part - chosen)
        chosen.update(generator.sample(rest, max(0, min(len(rest), most - len(chosen)))))
    return chosen


def write_folder(
    folder: Path, questions: JudgedQuestions, split: QuestionSplit, documents: Iterable[Document], chosen: set[str]
) -> None:
    """Write the training data as a folder in BEIR's layout.

    Args:
        folder: The folder to make.
        questions: All questions.
        split: The parts of the questions. Each becomes a file of judgements.
        documents: All documents of the index.
        chosen: Ids of the documents to write.
    """
    private_files.make_folder(folder)
    private_files.make_folder(folder / "qrels")
    with private_files.open_private(folder / "corpus.jsonl", "wb") as file:
        for document in documents:
            if document.id in chosen:
                line = {"_id": document.id, "title": document.title, "text": document.text, "metadata": dict(document.metadata)}
                file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
    with private_files.open_private(folder / "queries.jsonl", "wb") as file:
        for query in questions.queries:
            file.write(orjson.dumps({"_id": query.id, "text": query.text}, option=orjson.OPT_APPEND_NEWLINE))
    for part, ids in split.parts.items():
        rows = [
            f"{query}\t{document}\t{grade}\n"
            for query in ids
            for document, grade in questions.qrels[query].items()
            if document in chosen or part not in {TRAIN, HELD_OUT}
        ]
        judged = "".join(["query-id\tcorpus-id\tscore\n", *rows])
        # The last file says that the folder is whole.
        atomic_files.write(folder / "qrels" / f"{part}.tsv", judged.encode("utf-8"), private=True)


class TrainingRounds:
    """Trains the candidates of one run of `termweave learn`; a training that is already finished is not repeated.

    Args:
        data: The training folder.
        home: Folder in which each training has a folder.
        minutes: The budget of the whole run.
        seconds: Seconds of the budget that are left for training.
        reports: Callbacks for the progress.
    """

    def __init__(self, data: Path, home: Path, minutes: float, seconds: float, reports: Reports) -> None:
        self._data, self._home, self._minutes, self._seconds, self._reports = data, home, minutes, seconds, reports
        self.trained: list[TrainedCandidate] = []

    def best(self, candidates: Sequence[Candidate]) -> dict[Part, TrainedCandidate]:
        """Train the candidates, and return the best model of each part for which training helped."""
        short = [self._train(each, "short", each.steps, min(self._seconds * each.share, self._left)) for each in candidates]
        parts = list(dict.fromkeys(each.candidate.part for each in short if each.helped))
        for number, part in enumerate(parts):
            ahead = max((each for each in short if each.candidate.part == part and each.helped), key=lambda each: each.after)
            budget = self._left / (len(parts) - number)
            steps = min(_LONGEST * ahead.steps, int(budget / max(0.1, ahead.seconds) * ahead.steps))
            if steps >= 2 * ahead.steps:
                self._train(ahead.candidate, f"long-{self._minutes:g}", steps, budget)
        self._add_finished(candidates)
        helped = [each for each in self.trained if each.helped]
        return {part: max((each for each in helped if each.candidate.part == part), key=lambda one: one.after) for part in parts}

    def _add_finished(self, candidates: Sequence[Candidate]) -> None:
        """Add the long trainings that commands with another budget have finished; they take no time from the present command."""
        folders = {each.folder.parent for each in self.trained if each.folder}
        for candidate in candidates:
            for finished in sorted(self._home.glob(f"{candidate.method}-long-*/{_SECONDS}")):
                if finished.parent not in folders:
                    label = finished.parent.name.removeprefix(f"{candidate.method}-")
                    self._train(candidate, label, candidate.steps, 0.0)

    @property
    def _left(self) -> float:
        return self._seconds - sum(each.seconds for each in self.trained)

    def _train(self, candidate: Candidate, label: str, steps: int, budget: float) -> TrainedCandidate:
        result = self._run(candidate, label, steps, budget)
        self.trained.append(result)
        return result

    def _run(self, candidate: Candidate, label: str, steps: int, budget: float) -> TrainedCandidate:
        """Train one candidate with as many steps as the budget allows."""
        method = base.get(candidate.method)
        folder = self._home / f"{candidate.method}-{label}"
        finished = folder / _SECONDS
        watch = stopwatch()
        try:
            if budget <= 0 and not finished.is_file():
                return TrainedCandidate(candidate, steps, 0.0, dropped="no time is left", needs=2 * self._minutes)
            if not (folder / _STEPS).is_file():
                minutes = run.plan(method, str(self._data), _settings(candidate, steps), lambda _: None).minutes
                needs = ceil(self._minutes * max(2, minutes * 60 / (candidate.share * self._seconds)))
                if minutes * 60 > budget:
                    steps = int(steps * budget / (minutes * 60))
                    if steps < candidate.fewest:
                        why = f"{candidate.fewest} steps take more time than this method may have"
                        return TrainedCandidate(candidate, steps, watch(), dropped=why, needs=needs)
                folder.mkdir(parents=True, exist_ok=True)
                atomic_files.write(folder / _STEPS, str(steps).encode())
            steps = int((folder / _STEPS).read_text(encoding="utf-8"))
            model = folder / "model"
            self._reports.say(f"Training {candidate.method} for {steps} steps")
            result = run.train(
                method,
                str(self._data),
                _settings(candidate, steps),
                model,
                resume=(model / run.RUN).is_file() or (model / MANIFEST).is_file(),
                say=self._reports.say,
                progress=lambda done, total=None, stage="": self._reports.progress(done, total, f"{candidate.method}: {stage}"),
            )
            if not finished.is_file():
                atomic_files.write(finished, str(watch()).encode())
        except (InputError, ModelError, UsageError) as error:
            return TrainedCandidate(candidate, steps, watch(), dropped=error.message)
        values, best = result.history["values"], result.history["best"]
        return TrainedCandidate(
            candidate,
            steps,
            float(finished.read_text(encoding="utf-8")),
            result.folder,
            before=values[0],
            after=values[best],
            best=result.history["steps"][best],
            int8=result.ndcg.get(candidate.part, {}).get("change"),
            precision="fp32" if loses_too_much(result.ndcg) else "int8",
        )


def _settings(candidate: Candidate, steps: int) -> Any:
    """Return all settings with which a candidate is trained for this number of steps."""
    return base.get(candidate.method).settings({**candidate.settings, "steps": steps, "every": max(1, steps // _LOOKS)})
