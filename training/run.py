"""One run of `termweave train`: data, model, training, export, card, and what can be seen of the result.

A run lives in its output folder: ``run.json`` says what was asked for, ``checkpoints/`` how far it came; the rest is the model
folder that `termweave index --weights` reads.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from termweave import atomic, locks
from termweave.corpora import exists, path_and_split
from termweave.encoders.folder import MANIFEST, ModelFolder, write_manifest
from termweave.errors import InputError, UsageError
from termweave.evaluation import randomisation_test
from termweave.training import card, making, methods
from termweave.training.checkpoints import latest
from termweave.training.learning import learn
from termweave.training.pairs import DEFAULT_TABLE, most_frequent
from termweave.training.prospect import SCRATCH, parts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from termweave.training.learning import Learned, Part

RUN, CHECKPOINTS = "run.json", "checkpoints"


@dataclass(frozen=True)
class Result:
    """What came out.

    Attributes:
        folder: The model folder.
        hash: Of the model.
        history: Of the development figure.
        bm25: nDCG@10 of BM25 on the development questions.
        dev: Of the model, impacts stored in `bits` bits.
        dev_float: Of the model, impacts as floats.
        p: Randomisation test of `dev` against `bm25`.
        default: Whether it may be called a default: it is not significantly below BM25.
        parity: Of the export.
        ndcg: What int8 costs (`precision.cost`); empty for a run that was finished before this was measured.
    """

    folder: Path
    hash: str
    history: dict[str, Any]
    bm25: float
    dev: float
    dev_float: float
    p: float
    default: bool
    parity: dict[str, float]
    ndcg: dict[str, Any]


def train(
    method: methods.Method,
    spec: str,
    settings: Mapping[str, Any],
    out: Path,
    *,
    resume: bool = False,
    say: Callable[[str], None] = lambda _: None,
    progress: Callable[..., None] = lambda *_, **__: None,
) -> Result:
    """Run.

    Args:
        method: Of `methods`.
        spec: DATASET.
        settings: All of them (`Method.settings`).
        out: Folder of the run and of the model.
        resume: Go on with a run that is there.
        say: Told what happens.
        progress: ``(done, total, stage)``, for a bar.

    Raises:
        UsageError: `out` holds another run, or one and `resume` is not set, or another process trains there.
        ModelError: The export's parity failed.
        KeyboardInterrupt: Ctrl-C; the run can be resumed, or, before its first checkpoint, begun otherwise.
    """
    place = out.absolute()
    place.parent.mkdir(parents=True, exist_ok=True)
    with locks.one_at_a_time(place.parent / f".{place.name}.lock", partial(_refuse, out)):
        made = not out.is_dir()
        _claim(out, method, spec, settings, resume=resume)
        if (out / MANIFEST).is_file() and "train" in ModelFolder.read(out, check=False).manifest.metrics:
            shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)  # killed between the last figure and this
            say(f"{out} is finished.")
            return _result(out)
        try:
            every = parts(method, spec, settings, out, say)
            learned = learn(method, every[0].settings, every, out / CHECKPOINTS, say=say, progress=progress)
        except BaseException:  # Ctrl-C, too: perhaps for a setting that was not meant
            _release(out, made=made)
            raise
        return _finish(method, every, settings, out, learned, say)


def _refuse(out: Path) -> None:
    raise UsageError(f"Another process trains in {out}.", "Wait for it, or name another folder with --out.")


def _claim(out: Path, method: methods.Method, spec: str, settings: Mapping[str, Any], *, resume: bool) -> None:
    """Make the run's folder this run's."""
    if holds(out, method, spec, settings, resume=resume):
        return
    asked = {"method": method.name, "dataset": _absolute(spec), "settings": dict(settings)}
    out.mkdir(parents=True, exist_ok=True)
    atomic.write(out / RUN, orjson.dumps(asked, option=orjson.OPT_INDENT_2))


def holds(out: Path, method: methods.Method, spec: str, settings: Mapping[str, Any], *, resume: bool) -> bool:
    """Whether the folder holds this run already; a new one can begin there otherwise.

    Raises:
        UsageError: It holds another run, this one and `resume` is not set, or what is no run.
        InputError: What says so is damaged.
    """
    file = out / RUN
    if not file.is_file():
        if out.is_dir() and not all(atomic.left_over(file, each) for each in out.iterdir()):  # of a run that was killed at once
            raise UsageError(f"{out} is not empty and holds no run.", "Name another folder with --out.")
        return False
    if not resume:
        raise UsageError(f"{out} holds a run already.", "Go on with it: --resume; or name another folder with --out.")
    try:
        there = orjson.loads(file.read_bytes())
        since = {each.name: each.default for each in method.every}  # a run of an earlier version knows not all of them
        old = {"method": there["method"], "dataset": there["dataset"], **since, **there["settings"]}
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{file} is damaged: it does not say what run this is.", "Begin anew with another --out.") from error
    new = {"method": method.name, "dataset": _absolute(spec), **settings}
    differs = [name for name in new if old.get(name) != new[name]]
    if differs:
        what = "; ".join(f"{name} was {old.get(name)!r}, is {new[name]!r}" for name in differs)
        raise UsageError(f"The run in {out} is another one: {what}.", "Give the settings it was begun with, or another --out.")
    return True


def _release(out: Path, *, made: bool) -> None:
    """Give the folder back after an end that left nothing to go on from: the command may be corrected and given again."""
    if latest(out / CHECKPOINTS) is not None:
        return
    for name in (CHECKPOINTS, SCRATCH):
        shutil.rmtree(out / name, ignore_errors=True)
    (out / RUN).unlink(missing_ok=True)
    if made and not any(out.iterdir()):
        out.rmdir()


def _absolute(spec: str) -> str:
    """The data set, the same from whatever folder a run is resumed."""
    base, _ = path_and_split(spec)
    return f"{Path(base).resolve()}{spec[len(base) :]}" if exists(base) else spec


def _finish(
    method: methods.Method,
    every: Sequence[Part],
    settings: Mapping[str, Any],
    out: Path,
    learned: Learned,
    say: Callable[[str], None],
) -> Result:
    """Save, export, and write down what was measured; the manifest's figures come last, so that a run without them is unfinished."""
    from termweave.encoders.export import export, ndcg_said  # noqa: PLC0415 - torch
    from termweave.training import precision  # noqa: PLC0415 - torch

    ahead, model, development, history = every[0].ahead, learned.model, learned.developments[0], learned.history
    bm25, dev, plain = development.bm25(), development.figures(model), development.figures(model, bits=0)
    p = float(randomisation_test(dev, bm25))
    table, described = (
        most_frequent(ahead.statistics, DEFAULT_TABLE),
        card.described(method, settings, learned.settings, every),
    )
    making.write(out.resolve().name, method, learned.settings, ahead, model, table, described, out)
    parity = export(out)
    say(f"exported: {parity}")
    manifest = ModelFolder.read(out, check=False).manifest
    figures = {
        "history": history.__dict__,
        "bm25": float(bm25.mean()),
        "dev": float(dev.mean()),
        "dev_float": float(plain.mean()),
        "p": p,
        "questions": len(dev),
        "documents": len(ahead.places),
        "default": not (dev.mean() < bm25.mean() and p < 0.05),
    }
    ndcg = precision.cost(out, manifest.outputs, development, ahead.texts, ahead.statistics)
    say(ndcg_said(ndcg))
    quantisation = {**manifest.quantisation, "ndcg": ndcg}
    manifest = replace(manifest, quantisation=quantisation, metrics={"train": figures})
    card.write(out, manifest, {})
    write_manifest(out, manifest)
    shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)
    return _result(out)


def _result(out: Path) -> Result:
    manifest = ModelFolder.read(out).manifest
    figures = manifest.metrics["train"]
    return Result(
        folder=out,
        hash=manifest.hash,
        **{name: figures[name] for name in ("history", "bm25", "dev", "dev_float", "p", "default")},
        parity=manifest.quantisation["parity"],
        ndcg=manifest.quantisation.get("ndcg", {}),
    )
