"""Plan a run of `termweave train`, or carry it out: read the data, train the model, export it, write its card.

The output folder of a run contains ``run.json`` (the settings that the user gave), ``checkpoints/`` (the state of the training),
``curves.svg`` (loss and development measure by step) and the files of the model, which `termweave index --weights` or `--dense` reads.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from termweave.corpora import exists, path_and_split
from termweave.encoders.kinds import read_folder
from termweave.encoders.manifest import MANIFEST, write_manifest
from termweave.errors import InputError, UsageError
from termweave.support import atomic_files, file_locks, private_files
from termweave.training import backbone_model, model_folder
from termweave.training.data.pairs import DEFAULT_TABLE, most_frequent
from termweave.training.dev_measure import CHANCE, compared
from termweave.training.mixture import DataPart, TrainedModel, learn, parts
from termweave.training.trainer.checkpoints import HISTORY, system_errors

if TYPE_CHECKING:
    from termweave.training.methods.base import Method, Say
    from termweave.training.methods.parameters import TrainingParameters
    from termweave.training.setup import RunSetup


RUN, CHECKPOINTS = "run.json", "checkpoints"


@dataclass(frozen=True)
class TrainingResult:
    """The result of a run.

    Attributes:
        folder: The model folder.
        hash: Hash of the model.
        history: History of the development measure (`History`).
        measure: Name of the development measure.
        bm25: Development measure of BM25.
        start: Development measure of the model at step 0.
        start_p: p-value of a randomisation test of `dev` against `start`.
        dev: Development measure of the model, with outputs rounded as an index stores them.
        dev_float: Development measure of the model, with its unrounded outputs.
        p: p-value of a randomisation test of `dev` against `bm25`.
        default: Whether the model can be a default, because it is not significantly worse than BM25.
        parity: Differences between the exported graphs and the model in torch; empty for a feature ranker, which has no graph.
        ndcg: The loss of nDCG@10 by int8 (`DevelopmentSet.int8_cost`); empty for a feature ranker.
    """

    folder: Path
    hash: str
    history: dict[str, Any]
    measure: str
    bm25: float
    start: float
    start_p: float
    dev: float
    dev_float: float
    p: float
    default: bool
    parity: dict[str, float]
    ndcg: dict[str, Any]

    @property
    def beats_its_start(self) -> bool:
        """Whether the best step ranks the held-out questions better than step 0 by more than chance (p below .05)."""
        return self.dev > self.start and self.start_p < CHANCE


def train(
    method: Method,
    spec: str,
    settings: TrainingParameters,
    out: Path,
    *,
    resume: bool = False,
    say: Say = lambda _: None,
    progress: Callable[..., None] = lambda *_, **__: None,
) -> TrainingResult:
    """Train a model and write its folder.

    Args:
        method: The training method.
        spec: The data set.
        settings: All settings of the method (`Method.settings`).
        out: Folder of the run and of the model.
        resume: Resume the run in `out`.
        say: Called with lines about the run.
        progress: Called with ``(done, total, stage)``.

    Raises:
        UsageError: `out` contains another run, or this run and `resume` is not set, or another process trains there.
        ModelError: The exported graph differs too much from the model.
        KeyboardInterrupt: The user pressed Ctrl-C. The run can be resumed; before its first checkpoint the folder is free again.
    """
    path = out.absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    with file_locks.one_at_a_time(path.parent / f".{path.name}.lock", partial(_refuse, out)):
        new = not out.is_dir()
        if not _claim(out, method, spec, settings, resume=resume) and resume:
            say(f"{out} holds no run to resume: a new one begins.")
        if is_finished(out):
            shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)  # a killed run may have left them
            say(f"The run in {out} is already finished.")
            return _result(out)
        try:
            if method.torch:
                data = parts(spec, settings, out, say)
                with system_errors(out):
                    trained = learn(method, data[0].settings, data, out / CHECKPOINTS, say=say, progress=progress)
                    _finish(method, data, settings, out, trained, say)
            else:
                method.run(spec, settings, out, say, progress)
        except BaseException as stopped:  # also Ctrl-C, which the user may press to correct a setting
            if _release(out, new=new) and isinstance(stopped, KeyboardInterrupt):
                say(f"Stopped before the first checkpoint: {out} holds nothing of this run, and the same command begins it anew.")
            raise
        return _result(out)


def _refuse(out: Path) -> None:
    raise UsageError(f"Another process is training in {out}.", "Wait until it ends, or name another folder with --out.")


def _claim(out: Path, method: Method, spec: str, settings: TrainingParameters, *, resume: bool) -> bool:
    """Reserve the output folder for this run by writing ``run.json``, unless it contains this run already.

    Returns:
        Whether it contained the run.
    """
    if holds(out, method, spec, settings, resume=resume):
        return True
    record = {"method": method.name, "dataset": _absolute(spec), "settings": asdict(settings)}
    out.mkdir(parents=True, exist_ok=True)
    atomic_files.write(out / RUN, orjson.dumps(record, option=orjson.OPT_INDENT_2))
    return False


def holds(out: Path, method: Method, spec: str, settings: TrainingParameters, *, resume: bool) -> bool:
    """Return whether the folder contains this run already; False: a new run can begin there.

    Raises:
        UsageError: The folder contains another run, or this run and `resume` is not set, or files that are not a run.
        InputError: ``run.json`` is damaged.
    """
    file, anew = out / RUN, "Start a new run in another folder: --out DIR."
    if not file.is_file():
        # A run that was killed at once may have left a temporary file.
        if out.is_dir() and not all(atomic_files.left_over(file, each) for each in out.iterdir()):
            raise UsageError(f"{out} is not empty and does not contain a run.", "Name another folder with --out.")
        return False
    if not resume:
        raise UsageError(f"{out} already contains a run.", "Resume it with --resume, or name another folder with --out.")
    try:
        record = orjson.loads(file.read_bytes())
        old = {"method": record["method"], "dataset": record["dataset"], **record["settings"]}
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{file} is damaged, so the run cannot be resumed.", anew) from error
    new = {"method": method.name, "dataset": _absolute(spec), **orjson.loads(orjson.dumps(asdict(settings)))}
    if old["method"] == new["method"] and old.keys() != new.keys():
        raise UsageError(f"{out} contains a run of another version of termweave, which has other parameters.", anew)
    different = [name for name in new if old.get(name) != new[name]]
    if different:
        differences = "; ".join(f"{name} was {old.get(name)!r} and is {new[name]!r}" for name in different)
        raise UsageError(f"{out} contains a run with other settings: {differences}.", anew)
    return True


def is_finished(out: Path) -> bool:
    """Whether the folder contains a run that wrote its model and its figures."""
    return (out / MANIFEST).is_file() and "train" in read_folder(out, check=False).manifest.metrics


def _release(out: Path, *, new: bool) -> bool:
    """Remove the files of a run that failed before its first checkpoint, so that the corrected command can use the folder; False: the files were kept.

    Args:
        out: The output folder.
        new: Whether this run created the folder.
    """
    if any((out / CHECKPOINTS).rglob(HISTORY)) or is_finished(out):
        return False
    for name in (CHECKPOINTS, backbone_model.SCRATCH):
        shutil.rmtree(out / name, ignore_errors=True)
    (out / RUN).unlink(missing_ok=True)
    if new and not any(out.iterdir()):
        out.rmdir()
    return True


def _absolute(spec: str) -> str:
    """Return the name of a data set with an absolute path, so that a run can be resumed from any working folder."""
    base, _ = path_and_split(spec)
    return f"{Path(base).resolve()}{spec[len(base) :]}" if exists(base) else spec


def _finish(
    method: Method, data: Sequence[DataPart], settings: TrainingParameters, out: Path, trained: TrainedModel, say: Say
) -> None:
    """Save, export and measure the model. Figures are written to the manifest last: a run without figures counts as unfinished."""
    from termweave.encoders.onnx.export import export, int8_cost  # noqa: PLC0415 - torch

    setup, model, development = data[0].setup, trained.model, trained.developments[0]
    bm25 = development.bm25()
    dev, unrounded = development.figures(model, unrounded=True)
    contents = model_folder.FolderContents(
        name=out.resolve().name,
        settings=trained.settings,
        setup=setup,
        statistics=most_frequent(setup.statistics, DEFAULT_TABLE),
        training=model_folder.described(method, settings, trained.settings, data),
    )
    model_folder.write(method, model, out, contents)
    parity = export(out)
    say(f"exported: {parity}")
    manifest = read_folder(out, check=False).manifest
    figures = compared(development.measure, trained.history.__dict__, dev, bm25, trained.start, unrounded)
    figures |= {"questions": len(dev), "documents": len(setup.places)}
    ndcg = development.int8_cost(out, manifest.outputs)
    say(int8_cost(ndcg))
    if model_folder.loses_too_much(ndcg):
        say(model_folder.ONLY_FP32)
        model_folder.remove_int8(out)
        manifest = read_folder(out, check=False).manifest
    quantisation = {**manifest.quantisation, "ndcg": ndcg}
    manifest = replace(manifest, quantisation=quantisation, metrics={"train": figures})
    model_folder.write_curves(out, figures["history"], development.measure)
    (out / "README.md").write_text(model_folder.card(manifest), encoding="utf-8")
    write_manifest(out, manifest)
    shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)


def _result(out: Path) -> TrainingResult:
    manifest = read_folder(out).manifest
    figures = manifest.metrics["train"]
    return TrainingResult(
        folder=out,
        hash=manifest.hash,
        **{each.name: figures[each.name] for each in fields(TrainingResult) if each.name in figures},
        parity=manifest.quantisation.get("parity", {}),
        ndcg=manifest.quantisation.get("ndcg", {}),
    )


@dataclass(frozen=True)
class TrainingPlan:
    """The data, sizes and settings of a planned run.

    Attributes:
        method: Name of the method.
        dataset: The DATASET argument.
        origin: Where the questions come from: judgements, clicks or the corpus itself.
        documents: Number of documents in the corpus.
        questions: Number of questions to train on, after the limits.
        trained_on: Number of documents that answer these questions.
        beside: The additional data sets, each as `DataPart.described`.
        dev: Number of held-out questions.
        searched: Number of documents in which the held-out questions are searched.
        backbone: Folder of the backbone.
        frozen: Whether the backbone is frozen, so that its hidden states can be cached.
        states_bytes: Size of the cached hidden states.
        before: Models that are trained first, such as LE-BS's scorer: method, steps and minutes of each.
        minutes: Estimate for all steps and evaluations, those of `before` included.
        memory_bytes: Estimate of the memory that the run itself takes, without `before`.
        settings: All settings.
    """

    method: str
    dataset: str
    origin: str
    documents: int
    questions: int
    trained_on: int
    beside: list[dict[str, Any]]
    dev: int
    searched: int
    backbone: str
    frozen: bool
    states_bytes: int
    before: list[dict[str, Any]]
    minutes: float
    memory_bytes: int
    settings: dict[str, Any]


def plan(method: Method, spec: str, settings: TrainingParameters, say: Callable[[str], None]) -> TrainingPlan:
    """Plan a run; settings and data that `train` would refuse at once are refused here, too.

    Raises:
        UsageError: The method has no plan.
    """
    if not method.torch:
        raise UsageError(f"{method.name} has no plan: it searches each question once and trains a minute.", "Leave --plan out.")
    with tempfile.TemporaryDirectory(dir=private_files.scratch()) as work:  # a backbone from scratch is made to measure it alone
        data = parts(spec, settings, Path(work), say)
        setup, settings = data[0].setup, data[0].settings
        model = method.build(settings, setup.backbone)
        method.refuse(settings, setup)
        settings = backbone_model.settled(model.backbone, settings, say)
        cost = method.cost(model, settings, setup)
        before = _before(method, data[0], say)
        width = 2 * int(orjson.loads((setup.backbone / "config.json").read_bytes())["hidden_size"])
    pieces = sum(_pieces(part.setup, settings.training_length) for part in data)
    frozen = settings.top_layers == 0
    looks = settings.steps // settings.every + 1
    seconds = cost.preparing + settings.steps * cost.step + looks * cost.look
    return TrainingPlan(
        method=method.name,
        dataset=spec,
        origin=setup.examples.origin,
        documents=len(setup.examples.corpus),
        questions=len(setup.train),
        trained_on=setup.trained_on,
        beside=[part.described() for part in data[1:]],
        dev=len(setup.dev),
        searched=len(setup.places),
        backbone=settings.backbone if settings.from_scratch else str(setup.backbone),
        frozen=frozen,
        states_bytes=round(2 * width * pieces) if frozen else 0,
        before=before,
        minutes=seconds / 60 + sum(each["minutes"] for each in before),
        memory_bytes=cost.memory_bytes,
        settings=asdict(settings),
    )


def _before(method: Method, part: DataPart, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Plan the run that a method needs first; []: the method needs no other run, or the cache has the model of that run."""
    earlier = method.before(part)
    if earlier is None:
        return []
    first, settings, folder = earlier
    if is_finished(folder):
        return []
    planned = plan(first, part.name, settings, say)
    return [{"method": first.name, "steps": planned.settings["steps"], "minutes": planned.minutes}]


def _pieces(setup: RunSetup, length: int) -> float:
    """Estimate the total number of word-pieces in all texts that are encoded, from a sample."""
    texts = setup.texts + setup.train.questions + setup.dev.questions
    sample = setup.tokenizer.encode(texts[:: max(1, len(texts) // 500)], length)
    return float(np.mean([len(pieces.ids) for pieces in sample])) * len(texts)
