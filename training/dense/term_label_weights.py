"""The term weights by which LE-BS measures how much of a query a document answers: by BERT-Scorer, or by tf-idf (Eq. 1)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import orjson

from termweave.declared_settings import settings_of
from termweave.encoders.analysis.analyses import ChineseWords
from termweave.encoders.kinds import kind_of, read_folder
from termweave.encoders.manifest import ModelFolder, digest, weight_files
from termweave.encoders.model_lookup import resolve
from termweave.errors import UsageError
from termweave.support import paths
from termweave.training.data.pairs import count
from termweave.training.methods import base
from termweave.training.methods.parameters import DataParameters
from termweave.training.setup import RunSetup, analysis_of

if TYPE_CHECKING:
    from termweave.encoders.kinds.anchored import AnchoredModel
    from termweave.training.dense.model import TargetContext
    from termweave.training.methods.base import Method
    from termweave.training.mixture import DataPart

    #: Term -> weight, of each text.
    Weights = list[dict[str, float]]

#: The preset whose terms labels=tfidf weighs where a trained scorer is named.
_DEFAULT_PRESET = "paper-frozen"


def tfidf_weights(context: TargetContext) -> tuple[Weights, Weights]:
    """Weigh the terms of each question and document by its own tf-idf, Eq. 1: ``(n_w / |y|) log(|Y| / (df_w + 1))``; terms are BERT-Scorer's."""
    setup = context.setup
    _, scorer = scorer_settings(context.settings)
    analysis = analysis_of(scorer.terms, setup.examples.corpus, setup.tokenizer)
    statistics = setup.statistics if analysis.id == setup.analysis.id else count([setup.examples.corpus], analysis)

    def weighed(terms: Sequence[str]) -> dict[str, float]:
        times = ((term, number, statistics.document_frequency.get(term, 0)) for term, number in Counter(terms).items())
        return {term: number / len(terms) * math.log(statistics.documents / (df + 1)) for term, number, df in times}

    questions, documents = ([weighed(terms) for terms in analysis.terms(texts)] for texts in (setup.train.questions, setup.texts))
    return questions, documents


def scorer_weights(context: TargetContext) -> tuple[Weights, Weights]:
    """Weigh the terms of questions and documents in context, by BERT-Scorer's fp32 graph: the best occurrence counts, negative weights do not."""
    setup = context.setup
    scorer = context.settings.scorer
    folder = read_folder(_trained(context)) if scorer in base.get("bert-scorer").presets else scorer_folder(scorer, setup)
    model = cast("AnchoredModel", kind_of(folder.manifest)(folder, None, "fp32"))
    assert model.analysis is not None
    statistics = setup.statistics
    if model.analysis.id != statistics.analysis:
        statistics = count([setup.examples.corpus], model.analysis)
    context.say(f"{context.part.name}: weighing the terms of {len(setup.train):,} questions and {len(setup.texts):,} documents")
    queries = [type_weights(*text) for text in model.weigh_occurrences(setup.train.questions, statistics)]
    documents, _ = model.weigh(setup.texts, "document", statistics, vectors=False)
    positive = [{term: weight for term, weight in text.items() if weight > 0} for text in queries]
    return positive, [text.as_dict() for text in documents]


def type_weights(terms: Iterable[str], weights: Iterable[float]) -> dict[str, float]:
    """Reduce the weights of occurrences to one weight of each term: the largest."""
    largest: dict[str, float] = {}
    for term, weight in zip(terms, weights, strict=True):
        largest[term] = max(weight, largest.get(term, -math.inf))
    return largest


def scorer_folder(name: str, setup: RunSetup) -> ModelFolder:
    """Open the folder of a BERT-Scorer that the user named.

    Raises:
        UsageError: The folder holds another kind of model, or one that reads texts with another vocabulary than the backbone.
        ModelError: The folder is incomplete.
    """
    folder = read_folder(resolve(name))
    hint = "Name one that `termweave train bert-scorer` trained on the same backbone, or a preset that trains one: scorer=paper-frozen."
    if folder.manifest.kind != "anchored" or "weights" not in folder.manifest.outputs:
        raise UsageError(f"{name} is not a BERT-Scorer: its kind is {folder.manifest.kind!r}.", hint)
    model = kind_of(folder.manifest)(folder, None, "fp32")
    if model.vocabulary.get_vocab() != setup.tokenizer.tokenizer.get_vocab():
        raise UsageError(f"The scorer {name} has another vocabulary than the backbone {setup.backbone.name}.", hint)
    return folder


def scorer_settings(settings: Any) -> tuple[Method, Any]:
    """Return the method BERT-Scorer, and the settings with which LE-BS trains it on its own data."""
    method = base.get("bert-scorer")
    common = {name: getattr(settings, name) for name in (*settings_of(DataParameters), "backbone", "seed")}
    preset = settings.scorer if settings.scorer in method.presets else _DEFAULT_PRESET
    return method, method.settings({"preset": preset, **common}, settings.reading)


def scorer_to_train(part: DataPart) -> tuple[Method, Any, Path] | None:
    """Return the method BERT-Scorer, its settings and its folder in the cache (`Method.before`); None: LE-BS trains no scorer.

    Raises:
        UsageError: The scorer that the settings name cannot be used.
    """
    setup, settings = part.setup, part.settings
    if settings.labels != "scorer":
        return None
    method, of_scorer = scorer_settings(settings)
    if settings.scorer not in method.presets:
        scorer_folder(settings.scorer, setup)
        return None
    # A scorer of other questions may have learned those that are held out now.
    weights = [digest(file) for file in weight_files(setup.backbone)]
    key = orjson.dumps([part.name, asdict(of_scorer), setup.statistics.hash, weights], option=orjson.OPT_SORT_KEYS)
    state = blake2b(key, digest_size=8)
    for pairs in (setup.examples.train, setup.examples.dev):
        pairs.add_to(state)
    return method, of_scorer, paths.cache() / "scorers" / state.hexdigest()


def _trained(context: TargetContext) -> Path:
    """Return the folder of a scorer in the cache; a scorer that is not there yet is trained first."""
    from termweave.training import run  # noqa: PLC0415 - a run prepares its data with this module

    to_train = scorer_to_train(context.part)
    assert to_train is not None
    method, settings, folder = to_train
    if run.is_finished(folder):
        context.say(f"BERT-Scorer is read from the cache: {folder}")
        return folder
    if context.settings.scorer == "paper" and isinstance(context.setup.analysis, ChineseWords):
        context.say("the texts are Chinese: scorer=paper weighs characters, scorer=paper-chinese words, as section 3.2.1 does")
    context.say(f"training BERT-Scorer in {folder}")
    return run.train(method, context.part.name, settings, folder, resume=(folder / run.RUN).is_file(), say=context.say).folder
