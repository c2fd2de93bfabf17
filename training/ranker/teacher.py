"""A trained ranker as teacher of term weights and vectors: its scores of training questions with chosen documents, computed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.encoders import Ranker, hub
from termweave.encoders.kinds import read_folder
from termweave.encoders.kinds.ranker import anchor_of
from termweave.encoders.model_lookup import DEFAULT, resolve
from termweave.support import paths, private_files
from termweave.training.data.teacher_scores import RANKER, Written, write_array
from termweave.training.ranker import first_stage

if TYPE_CHECKING:
    from termweave.encoders.manifest import ModelFolder
    from termweave.training.methods.base import Say
    from termweave.training.setup import RunSetup

#: Documents of the first stage whose features are known; further ones get the lowest.
_DEPTH = 100
#: Questions between two lines about progress.
_SAY_EVERY = 200


def check(spec: str) -> None:
    """Open a teacher, to see whether it can be used.

    Raises:
        UsageError: There is no such model, or the run file that its anchor reads is not there.
        ModelError: The model is no ranker.
    """
    if spec.startswith(RANKER) and not hub.is_hub_name(spec.removeprefix(RANKER)):
        ranker = Ranker.load(spec.removeprefix(RANKER))
        if ranker.anchor:
            first_stage.check(_stage(read_folder(ranker.info.local_folder)))


def teach(spec: str, setup: RunSetup, pairs: Sequence[Sequence[int]], say: Say) -> Written:
    """Score pairs of training questions and documents; the scores of a model and data set are kept in the cache.

    Args:
        spec: "ranker:FOLDER", or "ranker:hf:OWNER/NAME".
        setup: The data set.
        pairs: Documents of each training question.
        say: Called with lines about the progress.

    Raises:
        UsageError: There is no such model, or the index that its anchor reads has none of the documents.
        ModelError: The model is not a ranker, or gives a score that is not a number.
    """
    name = spec.removeprefix(RANKER)
    folder = read_folder(resolve(name))
    file = paths.cache() / "teachers" / f"{_key(folder, setup, pairs)}.npy"
    lasting = not anchor_of(folder.manifest) or _stage(folder) in ("hybrid", "bm25")  # an index or a run file may change
    if lasting and file.is_file():
        return _unpacked(np.load(file), pairs)
    ranker = Ranker.load(name)
    anchored = _anchor(ranker.anchor, folder, setup, say)
    say(f"scoring {sum(map(len, pairs)):,} pairs with the ranker {name}")
    rows = []
    for number, (question, documents) in enumerate(zip(setup.train.questions, pairs, strict=True), 1):
        logits = ranker.score(question, [setup.texts[document] for document in documents]).astype(np.float64)
        rows.append(logits + [anchored(number - 1, document) for document in documents])
        if number % _SAY_EVERY == 0:
            say(f"scored {number:,} of {len(pairs):,} questions")
    flat = np.concatenate(rows) if rows else np.zeros(0)
    if lasting:
        private_files.make_folder(file.parent)
        write_array(file, flat, private=True)
    return _unpacked(flat, pairs)


def _stage(folder: ModelFolder) -> str:
    """Return the name of the first stage that a ranker was trained on, whose features the ranker's anchor reads."""
    return str(folder.manifest.training.get("options", {}).get("candidates_from", "hybrid"))


def _anchor(weights: Mapping[str, float], folder: ModelFolder, setup: RunSetup, say: Say) -> Callable[[int, int], float]:
    """Return a function that gives, for a question and a document, the share of the ranker's anchor in the logit."""
    if not weights:
        return lambda question, document: 0.0  # noqa: ARG005 - the names are the contract
    stage = first_stage.first_stage(_stage(folder), setup, say)
    rows = stage.rank(setup.train.questions, setup.train.spared, _DEPTH)
    factors = [weights.get(name, 0.0) for name in stage.names]

    def added(question: int, document: int) -> float:
        row = rows[question]
        features = row.get(document) or (tuple(np.min([*row.values()], axis=0)) if row else (0.0,) * len(factors))
        return float(sum(factor * feature for factor, feature in zip(factors, features, strict=True)))

    return added


def _key(folder: ModelFolder, setup: RunSetup, pairs: Sequence[Sequence[int]]) -> str:
    """Return a digest of the model and its first stage, the questions, the documents and the pairs, which names the file in the cache."""
    models = [folder.manifest.hash, str(folder.graph("int8") is not None)]
    if anchor_of(folder.manifest):
        shipped = read_folder(resolve(DEFAULT)).manifest.hash if _stage(folder) == "hybrid" else ""
        models += [_stage(folder), shipped, setup.statistics.hash, *(repr(sorted(each)) for each in setup.train.spared)]
    state = blake2b(repr(models).encode(), digest_size=16)
    for part in (setup.train.questions, setup.texts, [list(map(int, each)) for each in pairs]):
        state.update(repr(part).encode())
    return state.hexdigest()


def _unpacked(flat: Any, pairs: Sequence[Sequence[int]]) -> Written:
    ends = np.cumsum([len(documents) for documents in pairs])[:-1]
    parts = np.split(flat, ends) if len(pairs) else []
    return Written([dict(zip(map(int, each), scores.tolist(), strict=True)) for each, scores in zip(pairs, parts, strict=True)])
