"""Train term weights on one half of a book, build a generation with them, and let the other half decide whether it goes live.

A run lies in the state folder, under ``trained/NAME/TIME``: ``data/`` is a BEIR folder with the corpus as it was when training began and the
grades to learn from; ``model/`` is what `termweave train` writes. A run that was stopped goes on from there. Nothing here is imported by
the process that serves the pages: `training_process` runs it in one of its own.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from termweave import corpora, engine, source_settings
from termweave.encoders.layouts import read_folder
from termweave.encoders.manifest import MANIFEST
from termweave.encoders.models.store import HEADS
from termweave.errors import InputError, UsageError
from termweave.evaluation.book.reader import HELD_OUT, TRAIN, BookDataset
from termweave.evaluation.book.store import JudgementBook
from termweave.evaluation.publication_gate import PublicationGate
from termweave.indexer import Built, NotPublished, build
from termweave.indexer.generations import generations, option_compatibility
from termweave.search.catalog import lineage
from termweave.search.catalog.models import encoder_of
from termweave.support import atomic_files, file_locks
from termweave.training import run
from termweave.training.data import dataset
from termweave.training.methods import base
from termweave.ui.background.training_places import MARGIN, RESULT, TrainingTask, answered_queries, home, unfinished

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from termweave.corpora import OpenedSource
    from termweave.encoders import TextEncoder
    from termweave.engine import Engine
    from termweave.indexer.generations.generations import LiveGeneration
    from termweave.records import Query
    from termweave.training.run import TrainingResult

#: The method, and the share of the model that training begins with in the result: it keeps what that model can do elsewhere.
_METHOD, _KEPT = "fectek", 0.3
#: Steps between two looks at the queries that decide when to stop.
_EVERY = 50
#: One in so many of the queries to learn from decides when training stops.
_DEVELOPMENT = 4
_DATA, _MODEL = "data", "model"
#: Connections to the server: a build sends over four, renews its lease and asks for other things.
_CONNECTIONS = 6


@dataclass(frozen=True)
class TrainingReports:
    """Where a run says how far it is.

    Attributes:
        update: Called with (done, total, stage).
        say: Called with sentences.
    """

    update: Callable[..., None]
    say: Callable[[str], None]


def train(task: TrainingTask, reports: TrainingReports) -> dict[str, Any]:
    """Train, build and measure; returns JSON data, `docs/schemas/trained.1.json` without ``schema``.

    Raises:
        TermweaveError: Something is missing or wrong; what was done so far stays, so that the run can go on.
        KeyboardInterrupt: The run was stopped; likewise.
    """
    place = home(task.name)
    place.mkdir(parents=True, exist_ok=True)
    with (
        file_locks.one_at_a_time(place / ".lock", partial(_refuse, task.name)),
        engine.connect(task.settings, pool_maxsize=_CONNECTIONS) as server,
    ):
        live = _live(server, task.name)
        encoder = encoder_of(live.lineage, task.name, task.models)
        folder = _folder(task, server, encoder)
        trained = _trained(folder, reports)
        made = _described(task.name, trained)
        if made["steps"]:  # else the model is the one that training began with
            made |= _built(task, server, live, encoder, trained, reports)
        atomic_files.write(folder / RESULT, orjson.dumps(made, option=orjson.OPT_INDENT_2))
        shutil.rmtree(folder / _DATA, ignore_errors=True)
        return made


def _refuse(name: str) -> None:
    raise UsageError(f"Another process trains for {name!r}.", "Wait until it ends.")


def _live(server: Engine, name: str) -> LiveGeneration:
    live = generations.find_live(server, name)
    if live is None:
        raise UsageError(f"{name!r} has no live generation.", "Build it: 'termweave index SOURCE NAME'.")
    return live


def _folder(task: TrainingTask, server: Engine, encoder: TextEncoder) -> Path:
    """The folder of the run: the one that was stopped, or a new one with its data."""
    stopped = unfinished(task.name)
    if task.resume and stopped is not None:
        return stopped
    _delete_stopped(server, task.name)
    folder = home(task.name) / f"{datetime.now(UTC):%Y%m%d%H%M%S}"
    _write_data(folder / _DATA, task, answered_queries(JudgementBook(server, task.name), TRAIN))
    _write_settings(folder, encoder.models["weights"].opened, skip_bad=bool(task.reading.get("skip_bad")))
    return folder


def _delete_stopped(server: Engine, name: str) -> None:
    """Delete the runs that were stopped. One whose model a generation has stays: it ended between its build and its last line."""
    stopped = [each for each in home(name).iterdir() if each.is_dir() and not (each / RESULT).is_file()]
    built = [each.index for each in generations.list_generations(server, name) if not each.unreadable] if stopped else []
    used = {model.hash for index in built for model in lineage.read(server, index).models.values()}
    for folder in stopped:
        if (folder / _MODEL / MANIFEST).is_file() and read_folder(folder / _MODEL, check=False).manifest.hash in used:
            atomic_files.write(folder / RESULT, b"null")
        else:
            shutil.rmtree(folder)


def _opened(task: TrainingTask) -> OpenedSource:
    """The corpus; an index as corpus is read from the same server, unless its address names another."""
    index = corpora.IndexReading(settings=lambda url: source_settings.load(url, task.settings))
    return corpora.open_source(task.source, index=index, **task.reading)


def _write_settings(folder: Path, source: Path, *, skip_bad: bool) -> None:
    """Write the settings of the method: start from the live model, and learn from questions made of the corpus, too.

    A few dozen judged queries alone only make the model worse elsewhere, so that no step is kept; with the others it learns from both.
    """
    settings: dict[str, Any] = {"skip_bad": str(skip_bad).lower(), "every": _EVERY}
    if (source / HEADS).is_file():
        settings |= {"start": str(source), "keep": str(_KEPT)}
    corpus = str(folder / _DATA / "corpus.jsonl")
    try:
        dataset.read(corpus, base.get(_METHOD).settings(settings))
        settings["beside"] = corpus
    except InputError:
        pass  # so few or so short documents that no questions can be made of them
    (folder / "settings.json").write_bytes(orjson.dumps(settings))


def _write_data(folder: Path, task: TrainingTask, judged: list[tuple[Query, dict[str, int]]]) -> None:
    """Write corpus and grades as a BEIR folder. A part of the queries, drawn evenly, decides when training stops."""
    (folder / "qrels").mkdir(parents=True)
    source = _opened(task)
    with (folder / "corpus.jsonl").open("wb") as file:
        for each in source.documents():
            line = {"_id": each.id, "title": each.title, "text": each.text, "metadata": dict(each.metadata)}
            file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
    queries = [orjson.dumps({"_id": query.id, "text": query.text}).decode() for query, _ in judged]
    (folder / "queries.jsonl").write_text("".join(f"{line}\n" for line in queries), encoding="utf-8")
    for split, part in (
        ("dev", judged[::_DEVELOPMENT]),
        ("train", [each for at, each in enumerate(judged) if at % _DEVELOPMENT]),
    ):
        rows = [f"{query.id}\t{document}\t{grade}\n" for query, grades in part for document, grade in grades.items()]
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows), encoding="utf-8")


def _trained(folder: Path, reports: TrainingReports) -> TrainingResult:
    """Train, or go on with it, or find that the model is finished."""
    method = base.get(_METHOD)
    settings = method.settings(orjson.loads((folder / "settings.json").read_bytes()))
    model, data = folder / _MODEL, folder / _DATA
    reports.say(f"Training in {folder}")

    def say(line: str) -> None:
        reports.say(line.replace(str(data / "corpus.jsonl"), "corpus").replace(str(data), "book"))

    return run.train(
        method,
        str(data),
        settings,
        model,
        resume=(model / run.RUN).is_file() or (model / MANIFEST).is_file(),
        say=say,
        progress=reports.update,
    )


def _described(name: str, result: TrainingResult) -> dict[str, Any]:
    """What came out of training, before a generation is built."""
    values, best = result.history["values"], result.history["best"]
    return {
        "index": name,
        "generation": None,
        "documents": 0,
        "published": False,
        "reason": "No step ranked the queries that decide when to stop better than the model that training began with.",
        "gates": [],
        "model": {"folder": str(result.folder), "hash": result.hash},
        "measure": result.measure,
        "before": values[0],
        "after": values[best],
        "steps": result.history["steps"][best],
        "notes": [],
    }


def _built(
    task: TrainingTask,
    server: Engine,
    live: LiveGeneration,
    encoder: TextEncoder,
    result: TrainingResult,
    reports: TrainingReports,
) -> dict[str, Any]:
    """Build the generation, and publish it if the held-out half allows it."""
    known, model = encoder.models, str(result.folder)
    models = {"weights": model, "dense": "none"}
    if "dense" in known:  # the same folder for both outputs: one pass of the model for each text
        models["dense"] = model if known["dense"].hash == known["weights"].hash else str(known["dense"].folder)
    if "dense_query" in live.lineage.models:
        models["dense_query"] = str(known["dense_query"].folder)
    options = replace(option_compatibility.options_of(server, live, models), skip_bad=bool(task.reading.get("skip_bad")))
    judged = BookDataset(f"book:{task.name}", JudgementBook(server, task.name), HELD_OUT)
    opened = {name: models[name] for name in ("weights", "dense")}
    gate = PublicationGate(server, task.name, opened, judged, within=MARGIN, first=False, say=reports.say)

    def progress(stage: str, done: int, total: int | None, detail: str = "", /) -> None:
        del detail
        reports.update(done, total, stage)

    def measured(generation: str) -> None:
        reports.update(0, None, "Measuring on the held-out queries")
        gate(generation)

    reason = ""
    try:
        built = build(server, _opened(task), task.name, options, progress, measured)
    except NotPublished as missed:
        if not isinstance(missed.built, Built):
            raise
        built, reason = missed.built, missed.message
    return {
        "generation": built.index,
        "documents": built.documents,
        "published": not reason,
        "reason": reason,
        "gates": gate.verdicts,
        "notes": [*built.notes, *built.warnings],
    }
