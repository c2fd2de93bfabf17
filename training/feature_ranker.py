"""Train a feature ranker on the candidates that an index finds for judged questions. It needs LightGBM, and no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from termweave import corpora
from termweave import settings as machine_settings
from termweave.corpora.behaviour.click_model import rates
from termweave.corpora.index.ubi_indices import UbiLog
from termweave.encoders.manifest import Manifest, digest, write_manifest
from termweave.engine import connect
from termweave.errors import InputError, UsageError
from termweave.rerank import candidate_features, decision_trees
from termweave.rerank.feature_ranker import KIND, RATES, TREES
from termweave.search import Index, profiles
from termweave.support import atomic_files
from termweave.support.extras import install
from termweave.training.dev_measure import compared
from termweave.training.judged_candidates import MEASURE, JudgedCandidates, gather

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from termweave.signals.modes import Mode
    from termweave.training.methods.base import Say
    from termweave.training.methods.ltr import FeatureRankerParameters

#: Leaves of a tree; fewest rows in one; trees between two measures of a fold.
_LEAVES, _LEAST, _EVERY = 15, 50, 10
#: Value of `outputs` -> the file of features in the folder.
FEATURE_FILES = {"trees,letor": "letor.txt", "trees,csv": "features.csv"}


@dataclass(frozen=True)
class CrossValidated:
    """The figures of a feature ranker on questions that it was not trained on.

    Attributes:
        values: nDCG@10 of each question, by the model that the other folds trained.
        trees: The number of trees that is best over all folds.
        steps: Numbers of trees that were measured, 0 first.
        history: Mean nDCG@10 with each of these numbers of trees.
    """

    values: NDArray[np.float64]
    trees: int
    steps: tuple[int, ...]
    history: tuple[float, ...]


def cross_validate(judged: JudgedCandidates, settings: FeatureRankerParameters) -> CrossValidated:
    """Measure a feature ranker by cross-validation: each fold of the questions is measured with trees that the other folds trained."""
    folds = judged.folds(settings.seed)
    steps = [*range(_EVERY, settings.steps, _EVERY), settings.steps]
    scores: list[list[NDArray[np.float64]]] = [[np.zeros(len(rows)) for rows in judged.rows] for _ in steps]
    for held_out in sorted(set(folds)):
        seen = judged.with_rates(folds, held_out)
        booster = _fit(seen, [number for number, fold in enumerate(folds) if fold != held_out], settings, settings.steps)
        for number, rows in enumerate(seen.rows):
            if folds[number] == held_out and len(rows):
                for at, step in enumerate(steps):
                    scores[at][number] = booster.predict(rows, num_iteration=step, num_threads=1)
    figures = [judged.figures(each) for each in scores]
    best = int(np.argmax([each.mean() for each in figures]))
    history = (float(judged.figures().mean()), *(float(each.mean()) for each in figures))
    return CrossValidated(figures[best], steps[best], (0, *steps), history)


def _fit(judged: JudgedCandidates, questions: Sequence[int], settings: FeatureRankerParameters, trees: int) -> Any:
    """Train a LightGBM model. Questions whose candidates all have the same grade teach nothing and are left out."""
    import lightgbm  # noqa: PLC0415 - only training needs it

    graded = [(number, grades) for number in sorted(questions) if len(set((grades := judged.grades(number)).tolist())) > 1]
    if not graded:
        raise InputError("No question has relevant and other candidates.", "Name questions that were judged on this index.")
    rows = np.concatenate([judged.rows[number] for number, _ in graded])
    data = lightgbm.Dataset(
        rows, np.concatenate([grades for _, grades in graded]), group=[len(grades) for _, grades in graded], free_raw_data=True
    )
    highest = max(int(grades.max()) for _, grades in graded)
    parameters = {
        "objective": "lambdarank",
        "learning_rate": settings.rate,
        "num_leaves": _LEAVES,
        "min_data_in_leaf": min(_LEAST, max(1, len(rows) // 20)),
        "label_gain": [2**grade - 1 for grade in range(min(highest, 30) + 1)] if highest <= 30 else list(range(highest + 1)),
        "lambdarank_truncation_level": 20,
        "bagging_fraction": 0.8,
        "bagging_freq": 1,
        "feature_fraction": 0.8,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
        "seed": settings.seed,
        "verbose": -1,
    }
    if judged.behaviour:
        # More clicks never lower a score. Without this, trees may learn that a document which nobody was shown is best, because
        # documents that are found for one question alone lose all their clicks with that question's fold.
        parameters["monotone_constraints"] = [int(name in candidate_features.OF_BEHAVIOUR) for name in judged.features]
    return lightgbm.train(parameters, data, num_boost_round=trees)


def fit(judged: JudgedCandidates, settings: FeatureRankerParameters, trees: int) -> str:
    """Train trees on all questions, and return them as the text that LightGBM saves."""
    model: str = _fit(judged, range(len(judged.questions)), settings, trees).model_to_string()
    return model


def write(
    out: Path, trees: str, judged: JudgedCandidates, mode: Mode, about: Mapping[str, Any], figures: Mapping[str, Any], tried: int
) -> None:
    """Write a model folder.

    Args:
        out: The folder; it is made.
        trees: The trees as LightGBM saves them.
        judged: The candidates that the trees were trained on.
        mode: Mode of the first stage.
        about: How the trees were trained.
        figures: The figures of the run.
        tried: How many numbers of trees were tried on these questions.
    """
    out.mkdir(parents=True, exist_ok=True)
    atomic_files.write(out / TREES, trees.encode())
    gain = f"{MEASURE}: {figures['start']:.4f} before, {figures['dev']:.4f} after, of {len(judged.questions):,} questions"
    card = [f"# {out.resolve().name}", "", f"A feature ranker for `--rerank ltr@FOLDER`. {gain}.", ""]
    if tried > 1:
        chosen = f"These questions chose the best of {tried} numbers of trees, so their figure is a little too good"
        card += [f"{chosen}; a test split says more: `termweave evaluate`.", ""]
    card += ["Its features:", ""]
    atomic_files.write(out / "README.md", "\n".join([*card, *(f"* `{name}`" for name in judged.features), ""]).encode())
    table = b"" if judged.behaviour is None else orjson.dumps(rates(judged.behaviour))
    if table:
        atomic_files.write(out / RATES, table, private=True)  # of questions and their clicks
    manifest = Manifest(
        name=out.resolve().name,
        kind=KIND,
        outputs=("scores",),
        hash=blake2b(f"{trees}{judged.features}{dict(judged.types)}".encode() + table, digest_size=8).hexdigest(),
        max_length=0,
        settings={
            "features": list(judged.features),
            "types": dict(judged.types),
            "mode": {"weights": dict(mode.weights), "fusion": mode.fusion},
            **({"clicks_until": str(judged.behaviour.last)} if judged.behaviour else {}),
        },
        training=dict(about),
        metrics={"train": dict(figures)},
        files={name: digest(out / name) for name in (TREES, *([RATES] if table else []))},
    )
    write_manifest(out, manifest)


def train(spec: str, settings: FeatureRankerParameters, out: Path, say: Say, progress: Callable[..., None]) -> None:
    """Train a feature ranker and write its folder. Arguments as `training.run.train`.

    Raises:
        UsageError: No index is named, LightGBM is not installed, or the index has no such signal or entry.
        InputError: There are too few questions, or the file of trees cannot be used.
    """
    kind, _, name = settings.candidates_from.partition(":")
    if kind != "index" or not name:
        raise UsageError(
            "ltr reranks the search of an index, and no index is named.", "Name one: --set candidates_from=index:NAME."
        )
    if find_spec("lightgbm") is None and not settings.start:
        raise UsageError("Training a feature ranker needs lightgbm.", f"Install it: {install('ltr')}.")
    base, split = corpora.path_and_split(spec)
    dataset = corpora.open_dataset(f"{base}:train" if split is None and Path(base).is_dir() else spec)
    with connect(machine_settings.load()) as server:
        index = Index.pinned(server, name)
        mode, _ = index.choose(None, "none")
        rewrite = profiles.rewriting(index.lineage, None)
        judged = gather(index, dataset, mode, settings, lambda done, total: progress(done, total, "searching"), rewrite)
    say(f"{len(judged.questions):,} questions, {sum(map(len, judged.documents)):,} candidates, {len(judged.features)} features")
    if settings.start:
        content, measured = _foreign(Path(settings.start), judged)
    else:
        measured = cross_validate(judged, settings)
        content = fit(judged, settings, measured.trees)
    first = lexical = judged.figures()
    if "lexical.rank" in judged.features:  # else the order of the first stage stands for BM25
        column = judged.features.index("lexical.rank")
        lexical = judged.figures([-np.nan_to_num(rows[:, column], nan=np.inf) for rows in judged.rows])
    best = int(np.argmax(measured.history))
    history = {"steps": list(measured.steps), "values": list(measured.history), "losses": [], "best": best}
    figures = compared(MEASURE, history, measured.values, lexical, first, measured.values)
    about = {
        "index": name,
        "generation": index.generation,
        "mode": mode.name,
        "dataset": f"{dataset.name}:{dataset.split}",
        **({"clicks": UbiLog(settings.clicks).name} if settings.clicks else {}),
    }
    if (features_file := FEATURE_FILES.get(settings.outputs)) is not None:
        judged.write(out / features_file)
    write(out, content, judged, mode, about, figures, len(measured.steps) - 1)


def _foreign(file: Path, judged: JudgedCandidates) -> tuple[str, CrossValidated]:
    """Read the trees of a file that the user brings, and measure them on the questions.

    Raises:
        InputError: The trees cannot be read, or were trained on another number of features.
    """
    try:
        content = decision_trees.content_of(file)
        trees = decision_trees.read(content)
    except (OSError, ValueError) as error:
        raise InputError(f"{file} cannot be used: {error}.", "Name a model that LightGBM saved, or XGBoost as JSON.") from error
    if len(trees.features) != len(judged.features):
        raise InputError(
            f"The trees in {file} read {len(trees.features)} features, and this search has {len(judged.features)}.",
            "Train them on a letor.txt of the same index and settings (--set outputs=trees,letor).",
        )
    values = judged.figures([trees.scores(rows) if len(rows) else np.zeros(0) for rows in judged.rows])
    count, history = len(trees.trees), (float(judged.figures().mean()), float(values.mean()))
    return content, CrossValidated(values, count, (0, count), history)
