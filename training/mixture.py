"""Read the data sets of a run, and train one model on all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import orjson

from termweave.encoders.kinds import read_folder
from termweave.encoders.manifest import TOKENIZER, digest
from termweave.encoders.model_lookup import resolve
from termweave.errors import InputError, UsageError
from termweave.support import atomic_files
from termweave.training import backbone_model
from termweave.training.data import teacher_scores
from termweave.training.setup import RunSetup, apart, set_up

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from termweave.training.methods.base import Method, Say
    from termweave.training.methods.parameters import TrainingParameters
    from termweave.training.trainer.early_stopping import History

T = TypeVar("T")
#: Files beside the checkpoints: the development measure of each question before the first step, float64; a digest of the data; setting ->
#: digest of the models and files that it names.
_START, _DATA, _NAMED = "start.f64", "data.hash", "named.json"
_RESTORE = "Restore them, or start a new run in another folder with --out."
#: Settings that apply to DATASET alone, and their values for the additional data sets.
_OF_ONE: dict[str, Any] = {"pairs": "auto", "clicks": "", "beside": ()}


@dataclass(frozen=True)
class DataPart:
    """One data set of a run.

    Attributes:
        name: Name of the data set, as the user gave it.
        setup: The data, cut to size, with backbone and statistics.
        settings: The settings for preparing this part; the settings of the model are the same for all parts.
        share: How often batches are drawn from this part, relative to the other parts.
        shared: Results that the preparations of training inputs and of held-out questions share (`once`), kept until both are done.
    """

    name: str
    setup: RunSetup
    settings: Any
    share: float = 1.0
    shared: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def once(self, name: str, compute: Callable[[], T]) -> T:
        """Return the shared result of this name; the first call computes it."""
        if name not in self.shared:
            self.shared[name] = compute()
        result: T = self.shared[name]
        return result

    def described(self) -> dict[str, Any]:
        """Describe the data set for plans and cards."""
        return {
            "dataset": self.name,
            "origin": self.setup.examples.origin,
            "documents": len(self.setup.examples.corpus),
            "questions": len(self.setup.train),
            "trained": self.setup.trained_on,
        }


@dataclass(frozen=True)
class TrainedModel:
    """The result of training.

    Attributes:
        model: The model with its best parameters, on the CPU.
        start: The development measure of each question of the first part before the first step, float64 ``(questions,)``.
        developments: The development questions of each part, as the method prepared them.
        history: History of the mean development measure in the last fit.
        settings: All settings, with the values that were used for automatic ones.
    """

    model: Any
    start: NDArray[np.float64]
    developments: list[Any]
    history: History
    settings: TrainingParameters


def parts(spec: str, settings: Any, out: Path, say: Say) -> list[DataPart]:
    """Read DATASET and the additional data sets in the setting `beside`.

    Raises:
        UsageError: An additional data set has another kind of terms.
        TermweaveError: A data set cannot be read.
    """
    first = set_up(spec, settings, out, say)
    every = [DataPart(spec, first, settings.fitted(made=first.made))]
    for other in settings.beside:
        its_settings = replace(settings, **_OF_ONE, reading={"skip_bad": settings.reading.get("skip_bad", False)})
        teacher = its_settings.teacher
        if teacher not in (*teacher_scores.MADE, teacher_scores.NONE) and not teacher.startswith(teacher_scores.RANKER):
            its_settings = replace(its_settings, teacher="auto")
        setup = set_up(other, its_settings, out, _prefixed(other, say))
        if setup.analysis.id != first.analysis.id:
            raise UsageError(
                f"{other} is cut into other terms ({setup.analysis.id}) than {spec} ({first.analysis.id}), and a model has terms of one kind.",
                f"Remove {other} from beside, or set terms=piece.",
            )
        every.append(DataPart(other, setup, its_settings.fitted(made=setup.made)))
    if settings.beside:
        made, judged = ([each.setup.dev.questions for each in every if each.setup.made is kind] for kind in (True, False))
        for place, part in enumerate(every):
            held_out = chain(*judged, *([] if part.setup.made else made))
            train = apart(part.setup.train, held_out, _prefixed(part.name, say))
            every[place] = replace(part, setup=replace(part.setup, train=train))
    steps = settings.steps_of(len(every[0].setup.train), every[0].share / sum(part.share for part in every))
    every[0] = replace(every[0], settings=replace(every[0].settings, steps=steps))
    return every


def _check_same_data(data: Sequence[DataPart], home: Path) -> None:
    """Refuse to resume a run on changed data, because it may have trained on questions that are held out now; a new run stores a digest of the data.

    Raises:
        InputError: The data have changed.
    """
    state = blake2b(digest_size=16)
    for setup in (part.setup for part in data):
        state.update(setup.statistics.hash.encode())
        for text in setup.texts:  # one by one: a corpus may fill the memory
            state.update(repr(text).encode())
        for pairs in (setup.train, setup.dev):
            pairs.add_to(state)
    file, now = home / _DATA, state.hexdigest()
    if file.is_file() and file.read_text(encoding="utf-8") != now:
        raise InputError("The questions, answers or documents have changed since this run began.", _RESTORE)
    home.mkdir(parents=True, exist_ok=True)
    atomic_files.write(file, now.encode())


def _check_same_models(model: Any, setup: RunSetup, settings: Any, home: Path) -> None:
    """Refuse to resume a run if a model or file that it reads has changed under the same name; a new run stores digests of them.

    Raises:
        InputError: A model or file has changed.
    """
    files = [digest(setup.backbone / name) for name in (TOKENIZER, "config.json")]
    now = {"backbone or start": "".join([backbone_model.fingerprint(model), *files])}
    for name in ("teacher", "candidates_from", "scorer"):
        value = str(getattr(settings, name, ""))
        with suppress(UsageError):  # most values name no model
            if Path(value).is_file():
                now[name] = digest(Path(value))
            elif name == "scorer" or value.startswith(teacher_scores.RANKER):
                now[name] = read_folder(resolve(value.removeprefix(teacher_scores.RANKER))).manifest.hash
    file = home / _NAMED
    then = orjson.loads(file.read_bytes()) if file.is_file() else now
    if changed := [name for name in now if then.get(name) != now[name]]:
        raise InputError(f"The files of {', '.join(changed)} have changed since this run began.", _RESTORE)
    atomic_files.write(file, orjson.dumps(now))


def _prefixed(name: str, say: Say) -> Callable[[str], None]:
    return lambda line: say(f"{name}: {line}")


def learn(
    method: Method,
    settings: TrainingParameters,
    data: Sequence[DataPart],
    home: Path,
    *,
    say: Say = lambda _: None,
    progress: Callable[..., None] = lambda *_, **__: None,
) -> TrainedModel:
    """Train a model on one or several data sets.

    Args:
        method: The training method.
        settings: All settings of the method (`Method.settings`).
        data: The data sets, which share one backbone and one analysis.
        home: Folder for checkpoints. A run that was stopped there is resumed.
        say: Called with lines about the run.
        progress: Called with ``(done, total, stage)``.

    Raises:
        InputError: The run was begun with other data, models or files.
        KeyboardInterrupt: The user pressed Ctrl-C; a checkpoint was written first.
    """
    _check_same_data(data, home)
    import torch  # noqa: PLC0415 - takes seconds

    from termweave.training.trainer.trainer import Trainer  # noqa: PLC0415 - torch

    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    model = method.build(settings, data[0].setup.backbone)
    _check_same_models(model, data[0].setup, settings, home)
    settings = backbone_model.settled(model.backbone, settings, say)
    inputs, developments = [], []
    for part in data:
        inputs.append(method.inputs(part, model, say))
        developments.append(development := method.held_out(part, model, say))
        part.shared.clear()
        bm25 = development.bm25()
        where = f"{len(bm25)} held-out questions in {len(part.setup.places):,} documents"
        say(f"{part.name}: BM25 has {settings.measure} {bm25.mean():.4f} on {where}")

    file = home / _START
    start = [np.frombuffer(file.read_bytes())] if file.is_file() else []

    def measure() -> float:
        figures = [development.figures(model)[0] for development in developments]
        if not start:  # the first evaluation of the first fit is that of its step 0
            start.append(figures[0])
            atomic_files.write(file, figures[0].tobytes())
        return float(np.mean([each.mean() for each in figures]))

    trainer = Trainer(method, model, inputs, settings, measure, home, say, progress)
    method.fits(trainer)
    model.to("cpu").eval()
    return TrainedModel(model, start[0], developments, trainer.history, settings)
