"""Inspect a trained model on its corpus: weigh sample passages, and find the terms that gained and lost most against BM25."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from termweave.corpora import path_and_split
from termweave.encoders import load
from termweave.encoders.analysis.analyses import analysis_of
from termweave.encoders.analysis.word_pieces import PieceTokenizer
from termweave.encoders.kinds import read_folder
from termweave.encoders.manifest import TOKENIZER
from termweave.encoders.term_weighting import BM25
from termweave.training.data.bm25_index import bm25_weights
from termweave.training.data.dataset import documents_of
from termweave.training.data.pairs import count

if TYPE_CHECKING:
    from termweave.records import TermWeights, WordWeight
    from termweave.training.methods.parameters import TrainingParameters

#: Number of documents in which gains and losses are counted, of passages shown, and of terms listed.
_SAMPLE, _SHOWN, _LISTED = 400, 10, 12
#: Most characters of a passage that are shown.
_LONGEST = 600


@dataclass(frozen=True)
class Sample:
    """A passage with the weights of its words.

    Attributes:
        id: Id of the document.
        text: Beginning of the document.
        words: Positions and weights of the words.
    """

    id: str
    text: str
    words: list[WordWeight]


@dataclass(frozen=True)
class Change:
    """The change of a term's weight against BM25.

    Attributes:
        term: The term.
        ratio: The model's share of all impacts that falls on the term, divided by BM25's share.
        documents: Number of documents in the sample that contain the term.
    """

    term: str
    ratio: float
    documents: int


@dataclass(frozen=True)
class Inspection:
    """Sample passages, and the terms that changed most.

    Attributes:
        passages: Up to ten passages.
        gained: Terms that gained weight, largest gain first.
        lost: Terms that lost weight, largest loss first.
    """

    passages: list[Sample]
    gained: list[Change]
    lost: list[Change]


def inspect(folder: Path, spec: str, settings: TrainingParameters) -> Inspection:
    """Weigh a sample of the corpus that a model was trained on.

    Args:
        folder: Folder of the model.
        spec: The data set.
        settings: The settings of the training.
    """
    reading = {**settings.reading, "skip_bad": True}  # training has reported the bad entries
    documents, _ = documents_of(path_and_split(spec)[0], reading)
    encoder = load(folder, "")
    manifest = read_folder(folder, check=False).manifest
    analysis = analysis_of(manifest.analysis, PieceTokenizer(folder / TOKENIZER).tokenizer, model=manifest.name)
    bm25 = BM25.from_anchor(manifest.anchor)
    statistics = count([[document.content for document in documents]], analysis)
    sample = documents[:: max(1, len(documents) // _SAMPLE)][:_SAMPLE]
    texts = [document.content for document in sample]
    learned = [each.weights for each in encoder.encode(texts, kind="document", statistics=statistics) if each.weights is not None]
    changes = compared(learned, bm25_weights(texts, analysis, statistics, bm25, "document"))
    shown = sample[:: max(1, len(sample) // _SHOWN)][:_SHOWN]
    passages = []
    for document in shown:
        text = document.content
        text = text if len(text) <= _LONGEST else text[:_LONGEST].rpartition(" ")[0] or text[:_LONGEST]
        passages.append(Sample(document.id, text, encoder.shade(text, statistics=statistics)))
    gained = [change for change in changes if round(change.ratio, 2) > 1]  # a term that would be shown as "x1.00" is left out
    lost = [change for change in reversed(changes) if round(change.ratio, 2) < 1]
    return Inspection(passages, gained[:_LISTED], lost[:_LISTED])


def compared(learned: Sequence[TermWeights], plain: Sequence[TermWeights]) -> list[Change]:
    """Compare each term's impacts by the model with its impacts by BM25, for terms in enough documents; the largest gain comes first."""
    by_model, by_bm25 = defaultdict[str, float](float), defaultdict[str, float](float)
    for total, side in ((by_model, learned), (by_bm25, plain)):
        for document in side:
            for term, weight in zip(document.terms, document.weights.tolist(), strict=True):
                total[term] += weight
    frequency = Counter(term for document in plain for term in document.terms)
    scale = (sum(by_bm25.values()) or 1.0) / (sum(by_model.values()) or 1.0)
    least = max(3, len(plain) // 100)
    changes = [
        Change(term, round(scale * by_model[term] / worth, 4), frequency[term])
        for term, worth in by_bm25.items()
        if frequency[term] >= least and worth > 0
    ]
    return sorted(changes, key=lambda change: (-change.ratio, change.term))
