"""Set up a run before a model is loaded: read the data and cut it to size, find the backbone, choose the held-out questions' documents."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from termweave.declared_settings import LARGEST
from termweave.encoders.analysis.analyses import OF_LANGUAGE, ChineseWords, PieceTerms
from termweave.encoders.analysis.model_familiarity import familiarity, guess_of
from termweave.encoders.analysis.word_pieces import PieceTokenizer
from termweave.encoders.analysis.words import Analysis
from termweave.encoders.manifest import TOKENIZER
from termweave.encoders.term_weighting import BM25, Kind
from termweave.errors import InputError
from termweave.support.messages import counted
from termweave.support.normal_form import normalised
from termweave.training import backbone_model
from termweave.training.data import dataset
from termweave.training.data.bm25_index import SparseIndex, bm25_weights
from termweave.training.data.pairs import Pairs, count, sample

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from termweave.records import TermWeights
    from termweave.statistics import CorpusStatistics
    from termweave.training.data.dataset import Examples
    from termweave.training.methods.parameters import TrainingParameters

#: Number of documents in which held-out questions are searched; in a corpus of no more, they are searched everywhere.
MOST_SEARCHED = 50_000
#: Bytes of hidden states on disk, beyond which fewer documents are searched: half of what the cache keeps.
_MOST_STATES = 4 * 2**30
#: Number of documents, BM25's best for a development question, that are always searched in addition to the relevant ones.
_HARD = 10
#: Share of the documents searched in a larger corpus that BM25's best may take; the others are drawn at random.
_BM25_SHARE = 0.5
#: Largest number of documents from which BM25's best are chosen; a larger corpus is sampled.
_MOST = 200_000
#: Number of documents whose language is checked.
_SAMPLE = 256


@dataclass(frozen=True)
class RunSetup:
    """One data set as a run uses it, before a model is loaded.

    Attributes:
        examples: All data that was read.
        places: Indices into `examples.texts` of the documents that are encoded; the indices in `train` and `dev` point into this list.
        train: Pairs to train on. None of their questions is in `dev`, unless the questions were made from the corpus.
        dev: Held-out pairs.
        backbone: Folder of the backbone.
        tokenizer: Tokeniser of the backbone.
        analysis: The analysis that gives the terms, for BM25 and for the model.
        statistics: Statistics of the whole corpus.
    """

    examples: Examples
    places: list[int]
    train: Pairs
    dev: Pairs
    backbone: Path
    tokenizer: PieceTokenizer
    analysis: Analysis
    statistics: CorpusStatistics

    @property
    def made(self) -> bool:
        """Return whether the questions were made from the corpus."""
        return self.examples.origin == "corpus"

    @property
    def positions(self) -> dict[str, int]:
        """Return document id -> index among the documents that are encoded."""
        return {self.examples.ids[place]: index for index, place in enumerate(self.places)}

    @property
    def trained_on(self) -> int:
        """Return the number of documents that answer a training question."""
        return len({place for relevant in self.train.relevant for place in relevant})

    @cached_property
    def texts(self) -> list[str]:
        """Return the texts of the documents that are encoded."""
        return [self.examples.texts[place] for place in self.places]

    def bm25_weights(self, texts: Sequence[str], kind: Kind) -> list[TermWeights]:
        """Return BM25 impacts of the terms of documents, or occurrences of the terms of questions, at BM25's usual parameters."""
        return bm25_weights(texts, self.analysis, self.statistics, BM25(), kind)

    @cached_property
    def bm25_index(self) -> SparseIndex:
        """Return a BM25 index of the documents that are encoded."""
        return SparseIndex(self.bm25_weights(self.texts, "document"))

    def hard_negatives(self, depth: int) -> list[NDArray[np.int64]]:
        """Find hard negatives of each training question (`SparseIndex.negatives`); [] for a depth of 0."""
        return (
            self.bm25_index.negatives(self.bm25_weights(self.train.questions, "query"), self.train.known, depth) if depth else []
        )


def set_up(spec: str, settings: TrainingParameters, out: Path, say: Callable[[str], None]) -> RunSetup:
    """Read a data set, draw the part to train on, and find hard documents for the development questions.

    Args:
        spec: The data set.
        settings: Settings of the method.
        out: Folder of the run; a backbone from scratch is created there.
        say: Called with lines about the data.

    Raises:
        TermweaveError: The data or the backbone cannot be used.
    """
    examples = dataset.read(spec, settings)
    backbone = backbone_model.find(settings, examples.corpus, out)
    tokenizer = PieceTokenizer(backbone / TOKENIZER)
    analysis = analysis_of(settings.terms, examples.corpus, tokenizer)
    chosen, drawn = sample(examples.train, settings.documents, settings.questions, settings.seed)
    say(
        f"{len(examples.texts):,} documents, {len(examples.train):,} questions ({examples.origin}), {len(examples.dev):,} held out"
    )
    if examples.remark:
        say(examples.remark)
    # A title may name many texts of a corpus, each an answer.
    train = drawn if examples.origin == "corpus" else apart(drawn, examples.dev.questions, say)
    statistics = count([examples.corpus], analysis)
    if not settings.from_scratch:  # such a backbone has a vocabulary made from the corpus
        _warn_of_language(examples.corpus, tokenizer, analysis, say)
    most = _most_searched(examples.texts, tokenizer, backbone, settings)
    looked_at = searched(examples, analysis, statistics, set(chosen), most)
    places = sorted({*chosen, *looked_at})
    if len(places) < len(examples.texts):
        say(f"{len(places):,} of {len(examples.texts):,} documents are read: answers, BM25's best, and others at random")
    position = {place: index for index, place in enumerate(places)}
    train, dev = train.within(position), examples.dev.within(position)
    return RunSetup(examples, places, train, dev, backbone, tokenizer, analysis, statistics)


def apart(train: Pairs, held_out: Iterable[str], say: Callable[[str], None]) -> Pairs:
    """Remove training questions that are also held out (upper and lower case are equal): questions that decide when to stop must not be learned.

    Raises:
        InputError: No training question is left.
    """
    texts = set(map(normalised, held_out))
    others = [place for place, question in enumerate(train.questions) if normalised(question) not in texts]
    if not others:
        raise InputError("Every training question is also held out.", "Put others into the split dev, or remove that split.")
    if len(others) == len(train):
        return train
    lost = counted(len(train) - len(others), "training question")
    say(f"{lost} left out, because the same text is among the held-out questions")
    return train.part(others)


def analysis_of(terms: str, corpus: Sequence[str], tokenizer: PieceTokenizer) -> Analysis:
    """Choose the analysis; for "word" it is Chinese words if more than a tenth of the characters are ideographs, else the words of the language."""
    if terms == "piece":
        return PieceTerms(tokenizer.tokenizer)
    sample = " ".join(text[:200] for text in corpus[:: max(1, len(corpus) // 200)])
    ideographs = sum("\u3400" <= character <= "\u9fff" for character in sample)
    if ideographs > len(sample) / 10:
        return ChineseWords(tokenizer.tokenizer)
    language = guess_of(sample)
    chosen = OF_LANGUAGE[language] if language else Analysis
    return chosen(tokenizer.tokenizer)


def _warn_of_language(corpus: Sequence[str], tokenizer: PieceTokenizer, analysis: Analysis, say: Callable[[str], None]) -> None:
    """Warn if the backbone does not know the language of the corpus, because nothing can then be learned from its hidden states."""
    judgement = familiarity(corpus[:_SAMPLE], tokenizer.tokenizer, analysis.language)
    if judgement.verdict == "foreign":
        say(
            f"Warning: the backbone does not know the language of the corpus ({judgement.reason}). Set another backbone, or "
            "--set backbone=scratch for a new one (docs/training.md)."
        )
    elif judgement.verdict == "mixed":
        say(f"Warning: the backbone knows the language of the corpus only in part ({judgement.reason}).")


def _most_searched(texts: Sequence[str], tokenizer: PieceTokenizer, backbone: Path, settings: TrainingParameters) -> int:
    """Return how many documents can be searched: all if all are trained on, fewer if their hidden states are kept and take too much room."""
    if settings.top_layers != 0:
        return LARGEST if settings.documents == LARGEST else MOST_SEARCHED
    sample = tokenizer.encode(list(texts[:: max(1, len(texts) // 200)]), settings.training_length)
    pieces = sum(len(each.ids) for each in sample) / max(1, len(sample))
    width = int(orjson.loads((backbone / "config.json").read_bytes())["hidden_size"])
    return min(MOST_SEARCHED, int(_MOST_STATES / max(1.0, 4 * width * pieces)))  # two layers in half precision


def searched(examples: Examples, analysis: Analysis, statistics: CorpusStatistics, chosen: set[int], most: int) -> set[int]:
    """Choose the documents in which the development questions are searched: all, as far as `most` allows.

    In a part of the corpus a model does not meet the wrong answers that it newly ranks high, so its figure is too good. From a corpus
    larger than `most`, all relevant documents are chosen, then BM25's best documents, as deep as half of `most` allows, because a document
    can only rise for a question whose words it holds; the other documents are drawn at random. BM25 has its usual parameters here whatever
    the settings say, because results are compared with BM25.
    """
    if len(examples.texts) <= most:
        return set(range(len(examples.texts)))
    bm25 = BM25()
    chosen_for_dev = {place for relevant in examples.dev.relevant for place in relevant}
    drawn = random.Random(0).sample(range(len(examples.texts)), min(len(examples.texts), _MOST))  # noqa: S311 - a draw, not a secret
    among = sorted({*drawn, *chosen_for_dev, *chosen})
    index = SparseIndex(bm25_weights([examples.texts[place] for place in among], analysis, statistics, bm25, "document"))
    depth = max(_HARD, int(_BM25_SHARE * most / max(1, len(examples.dev))))
    for best, _ in index.rankings(bm25_weights(examples.dev.questions, analysis, statistics, bm25, "query"), depth):
        chosen_for_dev.update(among[place] for place in best.tolist())
    others = [place for place in drawn if place not in chosen_for_dev and place not in chosen]
    return chosen_for_dev | set(others[: max(0, most - len(chosen_for_dev | chosen))])
