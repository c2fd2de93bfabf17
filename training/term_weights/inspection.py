"""What a trained model does to real text: sample passages word by word, and the terms that gained and lost against BM25."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from termweave.corpora import path_and_split
from termweave.encoders import load
from termweave.encoders.analyses import analysis_of
from termweave.encoders.anchor import BM25
from termweave.encoders.folder import TOKENIZER, ModelFolder
from termweave.encoders.pieces import PieceTokenizer
from termweave.training.examples import documents_of
from termweave.training.pairs import count
from termweave.training.sparse import bm25_weights

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from termweave.records import TermWeights, WordWeight

#: Documents looked at for gains and losses, passages shown, terms listed.
_SAMPLE, _SHOWN, _LISTED = 400, 10, 12
_LONGEST = 600


@dataclass(frozen=True)
class Sample:
    """A text as the model weighs it.

    Attributes:
        id: Of the document.
        text: Its beginning.
        words: Where they stand and what they weigh.
    """

    id: str
    text: str
    words: list[WordWeight]


@dataclass(frozen=True)
class Change:
    """What became of a term.

    Attributes:
        term: The term.
        ratio: Its summed impact against BM25's, both relative to their sums over all terms.
        documents: Of the sample that hold it.
    """

    term: str
    ratio: float
    documents: int


@dataclass(frozen=True)
class Inspection:
    """See the module.

    Attributes:
        passages: Ten of them.
        gained: Most gained first.
        lost: Most lost first.
    """

    passages: list[Sample]
    gained: list[Change]
    lost: list[Change]


def inspect(folder: Path, spec: str, settings: Mapping[str, Any]) -> Inspection:
    """Look at a model with the corpus it was trained on.

    Args:
        folder: Of the model.
        spec: DATASET.
        settings: It was trained with.
    """
    documents, _ = documents_of(path_and_split(spec)[0], settings, skip_bad=True)  # training has said what is bad
    encoder = load(str(folder), "")
    manifest = ModelFolder.read(folder, check=False).manifest
    analysis = analysis_of(manifest.analysis, PieceTokenizer(folder / TOKENIZER).tokenizer, model=manifest.name)
    bm25 = BM25(manifest.anchor["k1"], manifest.anchor["b"])
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
    gained = [change for change in changes if round(change.ratio, 2) > 1]  # as it is shown: nobody learns from "x1.00"
    lost = [change for change in reversed(changes) if round(change.ratio, 2) < 1]
    return Inspection(passages, gained[:_LISTED], lost[:_LISTED])


def compared(learned: Sequence[TermWeights], plain: Sequence[TermWeights]) -> list[Change]:
    """Every term that enough documents hold, most gained first."""
    totals: list[dict[str, float]] = []
    frequency: dict[str, int] = {}
    for side in (learned, plain):
        total: dict[str, float] = {}
        for document in side:
            for term, weight in zip(document.terms, document.weights.tolist(), strict=True):
                total[term] = total.get(term, 0.0) + weight
        totals.append(total)
    for document in plain:
        for term in document.terms:
            frequency[term] = frequency.get(term, 0) + 1
    by_model, by_bm25 = totals
    scale = (sum(by_bm25.values()) or 1.0) / (sum(by_model.values()) or 1.0)
    least = max(3, len(plain) // 100)
    changes = [
        Change(term, round(scale * by_model.get(term, 0.0) / worth, 4), frequency[term])
        for term, worth in by_bm25.items()
        if frequency[term] >= least and worth > 0
    ]
    return sorted(changes, key=lambda change: (-change.ratio, change.term))
