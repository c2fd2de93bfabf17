"""Learn: train within a budget, build a trial generation, choose how it is searched, confirm the choice, report; and promote it.

The trial generation (`build_trial`) is the live one with the new models, which nobody searches yet. Documents are encoded only where that is
needed: where only the query encoder was trained (method `coder`), or no model at all, so that only the search itself changes, the server copies
the live generation, and the documents keep their vectors. Else all documents are encoded with the new models.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from termweave import corpora, encoders
from termweave.catalog import generations
from termweave.catalog.layout import signal_class
from termweave.encoders.kinds import read_folder
from termweave.encoders.manifest import MANIFEST, write_manifest
from termweave.errors import InputError, UsageError
from termweave.evaluation import per_query, runs, systems
from termweave.indexer import BuildOptions, UpdateMode, build, rebuild_options, update
from termweave.indexer.generations import listing, publication
from termweave.learning import choice, report
from termweave.learning.preparation import DATA, LEARNED, QUERY, RESULT, Learning, LearningTask, Reports, live_documents, prepare
from termweave.learning.questions import HELD_OUT, TEST
from termweave.learning.report import Learned
from termweave.learning.training_rounds import (
    PARTS,
    Part,
    TrainedCandidate,
    TrainingRounds,
    documents_to_keep,
    tried_on,
    write_folder,
)
from termweave.rerank.stored_rerankers import reranking_of
from termweave.search import Index, self_matches
from termweave.support import atomic_files, file_locks, paths, private_files
from termweave.support.stopwatch import stopwatch
from termweave.training.model_folder import MOST_LOST, remove_int8

if TYPE_CHECKING:
    from termweave.corpora import Dataset
    from termweave.engine import Engine
    from termweave.learning.choice import Choice
    from termweave.records import Run


_RUNS, _REPORT = "runs", "report.html"
#: Share of the budget that training may take; the rest is for building and measuring.
_TRAINING = 0.7


def learn(server: Engine, task: LearningTask, reports: Reports | None = None) -> Learned:
    """Learn from judged questions, and leave a generation that searches better, if there is one, ready to be promoted.

    Arguments and errors as `preparation.prepare`.
    """
    return run(prepare(server, task, reports))


def run(learning: Learning) -> Learned:
    """Train models, build the trial generation, choose how it is searched, and confirm the choice on the test questions.

    Raises:
        UsageError: Another process learns for this index, or the index changed meanwhile.
    """
    watch = stopwatch()
    private_files.make_folder(paths.state() / LEARNED)
    private_files.make_folder(learning.folder)
    with file_locks.one_at_a_time(learning.folder.parent / ".lock", partial(_refuse, learning.task.name)):
        learning.begin()
        live_runs = _live_runs(learning)
        data = _training_data(learning, live_runs[HELD_OUT])
        budget = 0.0 if learning.trains_no_more else _TRAINING * 60 * learning.task.minutes - watch()
        rounds = TrainingRounds(data, learning.folder / _RUNS, learning.task.minutes, budget, learning.reports)
        try:
            best, chosen = rounds.best(tried_on(learning)), None
            if not best:  # the trial generation would be a copy: what is best for it is chosen on the live one
                live = Index.pinned(learning.server, learning.task.name, **(learning.task.models or {}))
                chosen = _choice(learning, live)
                mode, reranking = live.choose(None)
                profile = chosen.profile
                if (dict(mode.weights), mode.fusion, reranking) == (dict(profile.weights), profile.fusion, reranking_of(profile)):
                    of_question = per_query(live_runs[TEST], learning.questions.qrels, list(learning.split.parts[TEST]))
                    mean = float(of_question["nDCG@10"].mean())
                    tried = [*rounds.trained, *filter(None, [chosen.ranker])]
                    return _written(learning, tried, before=mean, after=mean)
            _refuse_changed(learning.server, learning.task.name, learning.state)
            trial = build_trial(learning, best)
            index = Index.open(learning.server, trial.index)
            chosen = chosen or _choice(learning, index)
            index.adopt(chosen.profile)
            return _improved(learning, [*rounds.trained, *filter(None, [chosen.ranker])], trial, chosen)
        except KeyboardInterrupt:
            learning.reports.say(_best_so_far(rounds.trained))
            raise


def promote(server: Engine, learned: Learned) -> Learned:
    """Make the trial generation live.

    Raises:
        InputError: No generation was built.
        UsageError: The index changed since learning began: the trial generation has other documents, or was compared with another search.
    """
    if learned.generation is None:
        raise InputError(
            "No generation was built, because training improved no model. The live generation of the index stays as it is."
        )
    _refuse_changed(server, learned.name, learned.state)
    publication.promote(server, learned.name, learned.generation)
    return replace(learned, published=True)


def _refuse(name: str) -> None:
    raise UsageError(f"Another process learns for {name!r}.", "Wait until it ends.")


def _refuse_changed(server: Engine, name: str, state: str) -> None:
    live = generations.find_live(server, name)
    if live is None or live_documents(server, live)[1] != state:
        raise UsageError(
            f"{name!r} has changed since learning began, so nothing is promoted: what was learned fits the earlier documents and profile.",
            "Repeat the command to learn on the index as it is now.",
        )


def _best_so_far(trained: Sequence[TrainedCandidate]) -> str:
    """Return a text that names the best models of a stopped run, and says how the run is continued."""
    helped = [each for each in trained if each.helped]
    if not helped:
        return "Stopped before training improved a model. The same command goes on from here."
    parts = {each.candidate.part: each for each in sorted(helped, key=lambda each: each.after)}
    best = ", ".join(
        f"{each.candidate.method} ({PARTS[part]} alone: nDCG@10 {each.before:.4f} before, {each.after:.4f} after; in {each.folder})"
        for part, each in parts.items()
    )
    return (
        f"Stopped. The best so far on held-out questions: {best}. The same command goes on from here; with '--minutes 1' it trains no "
        "more, but builds and proves a search with these models."
    )


def _live_runs(learning: Learning) -> dict[str, Run]:
    """Return part -> ranked documents of the live search, for the held-out and the test questions; a run searches once and keeps the files."""
    files = {part: learning.folder / f"live-{part}.trec" for part in (HELD_OUT, TEST)}
    if not all(file.is_file() for file in files.values()):
        for part, file in files.items():
            runs.write(learning.live_run(learning.queries(part), "Searching as now"), file)
    return {part: runs.read(file) for part, file in files.items()}


def _training_data(learning: Learning, live: Run) -> Path:
    """Return the folder of the training data; it is written once for a run."""
    data = learning.folder / DATA
    if not (data / "qrels" / f"{TEST}.tsv").is_file():
        documents = documents_to_keep(learning.questions, learning.split, live, learning.identities)
        write_folder(data, learning.questions, learning.split, learning.source.documents(), documents)
    return data


def _judged(learning: Learning, part: str) -> Dataset:
    return corpora.open_dataset(f"{learning.folder / DATA}:{part}")


def _choice(learning: Learning, index: Index) -> Choice:
    """Choose on the held-out questions how an index is searched."""
    progress = learning.reports.counter("Choosing on the held-out questions")
    judged, folder = _judged(learning, HELD_OUT), learning.folder / f"ltr-{index.generation}"
    return choice.choose(index, judged, progress, folder, learning.former, learning.questions.name)


def _improved(learning: Learning, tried: Sequence[TrainedCandidate], trial: TrialGeneration, chosen: Choice) -> Learned:
    """Compare the trial generation with the live search on the test questions, write the report, and return the result."""
    generation, best = trial.index, dict(trial.best)
    if chosen.ranker and chosen.ranker.folder:
        best["ranker"] = chosen.ranker
    server, name, folder = learning.server, learning.task.name, learning.folder
    test = _judged(learning, TEST)
    live_run = str(folder / f"live-{TEST}.trec")
    progress = learning.reports.counter("Confirming on the test questions")
    confirmation = choice.confirm(Index.open(server, generation), test, live_run, progress)
    row = next(each for each in confirmation.experiment.rows if each.system == confirmation.system)
    lists = report.moved(confirmation.experiment, row, test)
    questions = [query.text for query in test.queries()]
    learning.reports.progress(0, None, "Timing searches")
    before = Index.open(server, learning.live.index, **(learning.task.models or {}))
    costs = {"before": report.cost(before, questions), "after": report.cost(Index.open(server, generation), questions)}
    learning.reports.progress(0, None, "Measuring what was forgotten")
    folders = {output: model.folder for output, model in learning.encoder.models.items()}
    forgot = tuple(
        report.forgetting(part, old, each.folder)
        for part, each in best.items()
        if each.folder and (old := folders.get(part)) is not None
    )
    gained, lost = report.gained_terms(best["weights"], folder / DATA) if "weights" in best else ([], [])
    built = {(each.candidate.method, each.steps): each for each in best.values()}  # with the precision that was chosen
    tried = [built.get((each.candidate.method, each.steps), each) for each in tried]
    about = {"index": name, "questions": learning.questions.name, "documents encoded": f"{trial.encoded:,}"}
    atomic_files.write(folder / _REPORT, report.page(confirmation, test, tried, lists, about).encode(), private=True)
    return _written(
        learning,
        tried,
        self_matches.remarks(confirmation.experiment.self_matches),
        before=confirmation.before,
        after=confirmation.after,
        p=confirmation.p,
        used={part: str(each.folder) for part, each in best.items()},
        generation=generation,
        encoded=trial.encoded,
        confirmed=confirmation.confirmed,
        profile=chosen.profile.as_meta(),
        needed=confirmation.needed,
        systems=confirmation.table(),
        moved=lists,
        cost=costs,
        forgotten=forgot,
        gained=gained,
        lost=lost,
    )


def _written(learning: Learning, tried: Sequence[TrainedCandidate], remarks: Sequence[str] = (), **figures: Any) -> Learned:
    """Write the result into the folder of the run, which ends the run, and return it."""
    learned = Learned(
        name=learning.task.name,
        questions=learning.questions.name,
        folder=learning.folder,
        state=learning.state,
        parts={part: len(ids) for part, ids in learning.split.parts.items()},
        tried=tuple(tried),
        notes=(*learning.notes, *remarks),
        short_of_time="" if learning.trains_no_more else report.short_of_time(tried),
        **figures,
    )
    atomic_files.write(learned.folder / RESULT, orjson.dumps(learned.as_json(), option=orjson.OPT_INDENT_2), private=True)
    return learned


#: Least mean cosine of the vectors of documents by two graphs of one encoder; int8 costs .007.
_SAME = 0.97
#: A loss of nDCG@10 by int8 in training's check of 50 questions from which on both graphs are measured through the index. From
#: `MOST_LOST` on training has left the fp32 graph alone.
_DOUBTFUL = 0.002


@dataclass(frozen=True)
class TrialGeneration:
    """A generation that is built and not published.

    Attributes:
        index: Name of the generation.
        best: Part of the search -> the new model that serves it, with the precision that was chosen.
        encoded: Number of documents that were encoded for the generation.
    """

    index: str
    best: dict[Part, TrainedCandidate]
    encoded: int


def build_trial(learning: Learning, best: Mapping[Part, TrainedCandidate]) -> TrialGeneration:
    """Build the trial generation, with vectors of the int8 graph or, if int8 costs more than .005 on the held-out questions, of the fp32 graph."""
    trial = _built(learning, best)
    dense = best.get("dense")
    if dense is None or dense.folder is None or dense.precision == "fp32" or dense.int8 is None or dense.int8 >= -_DOUBTFUL:
        return trial
    precise = _built(learning, {**best, "dense": replace(dense, folder=fp32_copy(dense.folder), precision="fp32")})
    change = _vectors_alone(learning, trial.index) - _vectors_alone(learning, precise.index)
    chosen = precise if change < -MOST_LOST else trial
    return replace(chosen, best={**chosen.best, "dense": replace(chosen.best["dense"], int8=change)})


def fp32_copy(folder: Path) -> Path:
    """Copy a model folder, and the folders of its towers, with the fp32 graphs alone.

    The copy has another hash than the original: an index that was encoded in fp32 opens the copy, and never the int8 graph of the original.

    Returns:
        The folder of the copy, beside the original; it is made once.
    """
    copy, part = (folder.with_name(f"{folder.name}-{name}") for name in ("fp32", "fp32.part"))
    if copy.is_dir():
        return copy
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(folder, part)
    remove_int8(part)
    for file in part.rglob(MANIFEST):
        manifest = read_folder(file.parent, check=False).manifest
        digest = blake2b(f"{manifest.hash} fp32".encode(), digest_size=8).hexdigest()
        write_manifest(file.parent, replace(manifest, hash=digest))
    return part.rename(copy)


def _query_encoder(learning: Learning, best: Mapping[Part, TrainedCandidate]) -> Path | None:
    """Return the trained query encoder, if no other model was trained and the live generation has the vectors that it was trained with; else None."""
    dense = best.get("dense")
    if dense is None or "weights" in best or "dense" not in learning.encoder.models:
        return None
    if dense.folder is None or not (dense.folder / QUERY).is_dir():
        return None
    texts = learning.texts[:20]
    live, trained = (
        np.stack([each.vector for each in encoder.encode(texts, kind="document") if each.vector is not None])
        for encoder in (learning.encoder.only({"dense"}), encoders.load("none", dense.folder))
    )
    same = live.shape == trained.shape and float((live * trained).sum(axis=1).mean()) >= _SAME
    return dense.folder / QUERY if same else None


def _built(learning: Learning, best: Mapping[Part, TrainedCandidate]) -> TrialGeneration:
    """Return a generation with these models; it is built once in a run."""
    query = _query_encoder(learning, best)
    copied = query is not None or not best
    encoded = 0 if copied else len(learning.identities)
    models = sorted((part, str(each.folder)) for part, each in best.items())
    note = learning.folder / f"generation-{blake2b(repr(models).encode(), digest_size=4).hexdigest()}.txt"
    server, name, live_models = learning.server, learning.task.name, learning.encoder.models
    if note.is_file():
        index = note.read_text(encoding="utf-8")
        if index in {each.index for each in listing.list_generations(server, name)}:
            return TrialGeneration(index, dict(best), encoded)

    def hold(_: str) -> str:
        return "'termweave learn' has built it and not promoted it"

    def progress(stage: str, done: int, total: int | None, detail: str = "", /) -> None:
        del detail
        learning.reports.progress(done, total, stage)

    if copied:
        folders = {part: str(live_models[part].folder) for part in ("weights", "dense") if part in live_models}
        now = BuildOptions(weights=folders.get("weights"), dense=folders.get("dense"), dense_query=query and str(query))
        index = update(server, learning.source, name, now, UpdateMode(new=True), progress, hold).index
    else:
        options = rebuild_options.options_of(server, learning.live, _models(learning, best))
        signals = options.signals or ()
        new = best.keys() - {signal_class(each).needs for each in signals}  # trained for an index that has no such signal
        options = replace(options, signals=(*signals, *sorted(new)))
        index = build(server, learning.source, name, options, progress, hold).index
    atomic_files.write(note, index.encode())
    return TrialGeneration(index, dict(best), encoded)


def _vectors_alone(learning: Learning, generation: str) -> float:
    """Measure nDCG@10 of the held-out questions when a generation is searched by vectors alone."""
    index = Index.open(learning.server, generation)
    queries = learning.queries(HELD_OUT)
    run = learning.run_of(index, systems.system_of("dense", None, index), queries, "Measuring int8's cost")
    return float(per_query(run, learning.questions.qrels, [each.id for each in queries])["nDCG@10"].mean())


def _models(learning: Learning, best: Mapping[Part, TrainedCandidate]) -> dict[str, str]:
    """Return the models of the trial generation by part: the new model, or the live one for a part without a new model.

    Where one live model gives weights and vectors in one pass, a new model of weights gives the same vectors: its backbone was frozen.
    """
    live_models = learning.encoder.models
    models = {part: str(live_models[part].folder) if part in live_models else "none" for part in ("weights", "dense")}
    models |= {part: str(each.folder) for part, each in best.items()}
    joint = {"weights", "dense"} <= live_models.keys() and live_models["weights"].hash == live_models["dense"].hash
    if joint and "dense" not in best and "dense" in str(best["weights"].candidate.settings.get("outputs", "")):
        models["dense"] = models["weights"]
    if "dense_query" in live_models and "dense" not in best:
        models["dense_query"] = str(live_models["dense_query"].folder)
    return models
