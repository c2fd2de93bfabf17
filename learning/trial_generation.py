"""Build the trial generation: the live one with the new models, which nobody searches yet. Documents are encoded only where that is needed.

Where only the query encoder was trained (method `coder`), or no model at all, so that only the search itself changes, the server copies
the live generation, and the documents keep their vectors. Else all documents are encoded with the new models.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from termweave import encoders
from termweave.catalog.layout import signal_class
from termweave.encoders.kinds import read_folder
from termweave.encoders.manifest import MANIFEST, write_manifest
from termweave.evaluation import per_query, systems
from termweave.indexer import BuildOptions, UpdateMode, build, rebuild_options, update
from termweave.indexer.generations import listing
from termweave.learning.preparation import QUERY
from termweave.learning.questions import HELD_OUT
from termweave.search import Index
from termweave.support import atomic_files
from termweave.training.model_folder import MOST_LOST, remove_int8

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from termweave.learning.preparation import Learning
    from termweave.learning.training_rounds import Part, TrainedCandidate

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
