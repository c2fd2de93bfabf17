"""The term weights that LE-BS compares pairs by: those of BERT-Scorer, or tf-idf (Eq. 1)."""

from __future__ import annotations

import math
from hashlib import blake2b
from typing import TYPE_CHECKING

import orjson

from termweave.encoders import load
from termweave.encoders.model_lookup import resolve
from termweave.support import paths
from termweave.training.methods import base
from termweave.training.methods.parameters import DATA

if TYPE_CHECKING:
    from pathlib import Path

    from termweave.training.dense.preparation import TargetContext

    #: Term -> weight, of each text.
    Weights = list[dict[str, float]]


def tfidf_weights(context: TargetContext) -> tuple[Weights, Weights]:
    """Static weights of every text: Eq. 1 of the text at itself, ``(n_w / |y|) log(|Y| / (df_w + 1))``."""
    setup = context.setup
    found = []
    for texts in (setup.train.questions, setup.texts):
        weights = []
        for terms in setup.analysis.terms(texts):
            length, counts = len(terms), dict[str, int]()
            for term in terms:
                counts[term] = counts.get(term, 0) + 1
            weights.append({term: count / length * _idf(term, context) for term, count in counts.items()})
        found.append(weights)
    return found[0], found[1]


def _idf(term: str, context: TargetContext) -> float:
    statistics = context.setup.statistics
    return math.log(statistics.documents / (statistics.document_frequency.get(term, 0) + 1))


def scorer_weights(context: TargetContext) -> tuple[Weights, Weights]:
    """Contextual weights of every text by BERT-Scorer; negative ones are dropped by the model."""
    setup = context.setup
    encoder = load(weights=_scorer(context), dense="")
    context.say(f"{context.part.name}: weighing the terms of {len(setup.train):,} questions and {len(setup.texts):,} documents")
    queries = encoder.encode(setup.train.questions, kind="query", statistics=setup.statistics)
    documents = encoder.encode(setup.texts, kind="document", statistics=setup.statistics)
    weights = [[each.weights.as_dict() for each in side if each.weights is not None] for side in (queries, documents)]
    return weights[0], weights[1]


def _scorer(context: TargetContext) -> Path:
    """The folder of the scorer: the one that the settings name, or one that is trained now and kept in the cache."""
    from termweave.training import run  # noqa: PLC0415 - a run prepares its data with this module

    settings = context.settings
    if settings["scorer"]:
        return resolve(str(settings["scorer"]))
    method = base.get("bert-scorer")
    common = {each.name for group in (DATA,) for each in group.parameters} | {"backbone", "seed"}
    own = method.settings({"preset": settings["scorer_preset"], **{name: settings[name] for name in common}})
    wanted = orjson.dumps([context.part.name, own, context.setup.statistics.hash], option=orjson.OPT_SORT_KEYS)
    folder = paths.cache() / "scorers" / blake2b(wanted, digest_size=8).hexdigest()
    context.say(f"training BERT-Scorer in {folder}")
    return run.train(method, context.part.name, own, folder, resume=(folder / run.RUN).is_file(), say=context.say).folder
