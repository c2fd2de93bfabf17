"""From a data set to what ranker training reads: candidate lists of the training and the held-out questions; and what a run takes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.encoders import Ranker
from termweave.encoders.kinds.ranker import PairReader, RankerSettings
from termweave.encoders.kinds.sentence_layout import has_types
from termweave.encoders.manifest import Manifest, ModelFolder
from termweave.evaluation.measures import LEADING
from termweave.training import backbone_model
from termweave.training.data.sampler import TrainingInputs
from termweave.training.dev_measure import QUESTIONS, DevelopmentSet, ranking_measure
from termweave.training.methods.base import Cost
from termweave.training.ranker.first_stage import check, first_stage, lists_of
from termweave.training.ranker.model import read
from termweave.training.trainer.passes import parameter_bytes, pass_cost, sampled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from termweave.encoders.onnx.runtime import Precision
    from termweave.training.methods.cross_encoder import RankerParameters
    from termweave.training.mixture import DataPart
    from termweave.training.ranker.first_stage import CandidateLists, FirstStage
    from termweave.training.ranker.model import AnchoredRanker
    from termweave.training.setup import RunSetup

    #: (question, texts of documents, features of the first stage) -> scores.
    Scorer = Callable[[str, Sequence[str], NDArray[np.float32]], NDArray[np.floating]]


@dataclass(frozen=True)
class RankerInputs(TrainingInputs):
    """One data set that blocks are drawn from.

    Attributes:
        negatives: For each question the columns of `lists` that hold wrong documents, best first.
        lists: Candidates of each question; relevant documents that the first stage did not find stand in columns behind it.
        documents: Texts of the documents.
        reader: Turns pairs of texts into token ids.
    """

    negatives: list[NDArray[np.int64]]
    lists: CandidateLists
    documents: Sequence[str]
    reader: PairReader


@dataclass(frozen=True)
class Blocks:
    """The blocks of one step: questions, each with one right document and wrong ones.

    Attributes:
        questions: int64 ``(B,)``.
        documents: int64 ``(B, n)``: the right document first; `NOTHING` where there are too few wrong ones.
        features: float32 ``(B, n, F)``, of the first stage.
        keys: float32 ``(B, n)``, uniform random numbers for methods that select at random.
    """

    questions: NDArray[np.int64]
    documents: NDArray[np.int64]
    features: NDArray[np.float32]
    keys: NDArray[np.float32]


def reader_of(setup: RunSetup, model: AnchoredRanker, settings: RankerParameters, length: str = "training_length") -> PairReader:
    """Return the reader that turns pairs into token ids, as the written folder will (`sentence_layout`).

    Raises:
        ModelError: The tokeniser has no template for pairs.
    """
    tokens = backbone_model.length(model.backbone, getattr(settings, length))
    reading = RankerSettings(types=has_types(setup.backbone))
    manifest = Manifest(setup.backbone.name, "ranker", ("scores",), "", tokens, settings=asdict(reading))
    return PairReader(ModelFolder(setup.backbone, manifest, {}), reading)


def training_inputs(part: DataPart, model: AnchoredRanker, say: Callable[[str], None]) -> RankerInputs:
    """Rank the documents of the training questions by the first stage."""
    setup, settings = part.setup, part.settings
    lists = lists_of(_stage(part, say), setup.train, settings.candidates, with_relevant=True)
    return RankerInputs(
        share=part.share,
        pairs=setup.train,
        negatives=[_wrong(lists, row, known) for row, known in enumerate(setup.train.known)],
        lists=lists,
        documents=setup.texts,
        reader=reader_of(setup, model, settings),
    )


def held_out(part: DataPart, model: AnchoredRanker, say: Callable[[str], None]) -> RankerDevelopment:
    """Rank the documents of the held-out questions by the first stage."""
    setup, settings = part.setup, part.settings
    development = RankerDevelopment(
        setup,
        settings.measure,
        lists=lists_of(_stage(part, say), setup.dev, settings.reranked),
        reader=reader_of(setup, model, settings, "max_length"),
    )
    say(f"{part.name}: dev {settings.measure} of the first stage {development.first_stage().mean():.4f}")
    return development


def _stage(part: DataPart, say: Callable[[str], None]) -> FirstStage:
    """Return the first stage, made once for training and held-out questions, so that the documents are encoded once."""
    name = part.settings.candidates_from
    check(name)
    return part.once("first stage", lambda: first_stage(name, part.setup, lambda line: say(f"{part.name}: {line}")))


def _wrong(lists: CandidateLists, row: int, known: frozenset[int]) -> NDArray[np.int64]:
    """Return the columns of a question's candidate list that hold wrong documents, best first."""
    columns = [column for column, document in enumerate(lists.documents[row].tolist()) if document >= 0 and document not in known]
    return np.array(columns, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class RankerDevelopment(DevelopmentSet):
    """Held-out questions with the documents that the first stage found.

    Attributes:
        lists: Candidates of each question.
        reader: Turns pairs of texts into token ids.
    """

    lists: CandidateLists
    reader: PairReader

    def figures(self, model: AnchoredRanker, *, unrounded: bool = False) -> list[NDArray[np.float64]]:
        """Measure a model in training on each question; `unrounded`: the same figures twice, because an index rounds nothing of a ranker."""
        figures = self.reranked(lambda question, texts, features: model.rank(self.reader, question, texts, features))
        return [figures, figures] if unrounded else [figures]

    def first_stage(self) -> NDArray[np.float64]:
        """Compute the measure of each question in the order of the first stage."""
        return self.reranked(lambda question, texts, features: -np.arange(len(texts), dtype=np.float64))  # noqa: ARG005

    def reranked(self, score: Scorer, questions: int | None = None) -> NDArray[np.float64]:
        """Compute the measure of the first `questions` questions (None: of all), reranked by a scorer; ties keep the first stage's order."""
        rankings = []
        for row, question in enumerate(self.pairs.questions[:questions]):
            candidates = self.lists.documents[row]
            columns = np.flatnonzero(candidates >= 0)
            texts = [self.setup.texts[document] for document in candidates[columns].tolist()]
            scores = score(question, texts, self.lists.features[row, columns]) if texts else np.zeros(0)
            order = np.argsort(-scores, kind="stable")
            rankings.append((candidates[columns][order], -np.arange(len(order), dtype=np.float64)))
        return ranking_measure(rankings, self.gains()[:questions], self.measure)

    def int8_cost(self, folder: Path, outputs: Sequence[str]) -> dict[str, Any]:
        """Measure nDCG@10 of the fp32 and the int8 graph of an exported ranker on the first held-out questions.

        Returns:
            ``{"questions", "documents", "scores": {"fp32", "int8", "change"}}``; the documents are the candidates that are reranked.
        """
        del outputs
        count = min(QUESTIONS, len(self.pairs))
        figures: dict[str, float] = {}
        precisions: tuple[Precision, ...] = ("fp32", "int8")
        for precision in precisions:
            ranker = Ranker.load(folder, precision=precision)
            scores = partial(_anchored, ranker, list(ranker.anchor.values()))
            figures[precision] = float(replace(self, measure=LEADING).reranked(scores, count).mean())
        reranked = len({document for row in self.lists.documents[:count].tolist() for document in row if document >= 0})
        change = {**figures, "change": figures["int8"] - figures["fp32"]}
        return {"questions": count, "documents": reranked, "scores": change}


def _anchored(
    ranker: Ranker, weights: Sequence[float], question: str, texts: Sequence[str], features: NDArray[np.float32]
) -> NDArray[np.floating]:
    """Compute a ranker's logits of a question with each text, the anchor's share included."""
    logits = ranker.score(question, texts)
    return logits + features @ np.array(weights, dtype=np.float32) if weights else logits


def estimate(model: AnchoredRanker, settings: RankerParameters, setup: RunSetup) -> Cost:
    """Estimate what a run takes without its first stage, from a few real pairs.

    Memory is that of parameters, gradients, the optimiser's moments and the activations of one chunk.
    """
    pairs = read(reader_of(setup, model, settings), setup.train.questions[0], sampled(setup.texts))
    seconds, activations = pass_cost(model, lambda: model(pairs), len(pairs))
    scored, chunk = settings.scored(), settings.chunk
    again = 4 / 3 if chunk and scored > chunk else 1.0  # a cached chunk is computed forwards twice
    return Cost(
        step=again * scored * seconds,
        look=len(setup.dev) * settings.reranked * seconds / 3,  # forwards alone
        memory_bytes=round(parameter_bytes(model) + min(chunk or scored, scored) * activations),
    )
