"""The questions to learn from: read from a data set, a click log, a log of user behaviour or a book, and split into three parts.

A split never has a question in its training part and a near duplicate of it in its test part (`groups`).
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from math import fsum, log
from pathlib import Path
from typing import TYPE_CHECKING

from termweave import corpora
from termweave.catalog.lineage import exists
from termweave.corpora import path_and_split
from termweave.corpora.index import ubi_indices
from termweave.errors import InputError, UsageError
from termweave.evaluation.book.reader import BookDataset, folded
from termweave.evaluation.book.store import JudgementBook
from termweave.records import Qrels, Query
from termweave.support.messages import counted

if TYPE_CHECKING:
    from termweave.engine import Engine


#: Fewest questions with an answer that train models as well as prove what training brings, and fewest that prove what the corpus teaches.
#: With fewer, no test can show a difference.
FEWEST, FEWEST_TO_PROVE = 40, 20
#: Share of the questions, and the most of them, that choose between models, and that confirm the choice.
_HELD_OUT, _TEST = (0.15, 300), (0.25, 500)
#: Share that chooses where the corpus trains; the others confirm.
_ONLY_HELD_OUT = 0.4
#: Fewest questions that train: with fewer, questions made of the documents do.
_FEWEST_TO_TRAIN = 10
_ENOUGH = f"From {FEWEST_TO_PROVE} on they prove what the corpus teaches, from {FEWEST} on they train as well."
#: The parts of a split.
PARTS = TRAIN, HELD_OUT, TEST = "train", "dev", "test"
#: Fewest questions that choose: a spread needs two. Fewest that confirm: p of a two-sided randomisation test is at least 2 / 2^n.
_FEWEST_OF_A_PART = {HELD_OUT: 2, TEST: 6}
#: Questions are near duplicates if they share at least this part of the weight of their words (Jaccard similarity weighted by idf).
ALIKE = 0.7
_WORD = re.compile(r"\w+")
#: Scripts that put no space between words are compared by pairs of characters.
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0e7f]+")


@dataclass(frozen=True)
class JudgedQuestions:
    """Questions with their judgements.

    Attributes:
        name: Name of the questions in messages.
        queries: The questions that have an answer.
        qrels: Their judgements.
        notes: Sentences for the user about questions that were left out, and why.
    """

    name: str
    queries: tuple[Query, ...]
    qrels: Qrels
    notes: tuple[str, ...] = ()

    @property
    def hash(self) -> str:
        """Return a hexadecimal hash of questions and judgements; their order does not count."""
        judged = ((query, *each) for query in self.queries for each in self.qrels[query.id].items())
        lines = sorted(f"{query.id}\t{query.text}\t{document}\t{grade}" for query, document, grade in judged)
        return blake2b("\n".join(lines).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@dataclass(frozen=True)
class QuestionSplit:
    """Questions in three parts without near duplicates between them.

    Attributes:
        parts: "train", "dev" (chooses between models) and "test" (confirms the choice) -> ids of questions.
        near_duplicates: Number of questions that have a near duplicate.
    """

    parts: dict[str, tuple[str, ...]]
    near_duplicates: int


def read(spec: str, documents: Collection[str]) -> JudgedQuestions:
    """Read questions.

    Args:
        spec: A data set ("FOLDER", "FOLDER:SPLIT", "book:NAME", "ubi:..."), or the file of a click log. Where no split is named, "train" is
            read; a book or a log of user behaviour is read whole; an ``ir:`` collection without "train" gives its only judgements.
        documents: Ids of the documents in the index.

    Raises:
        UsageError: There is no such data set, split or file.
        InputError: No question has an answer in the index.
    """
    return _answered(_dataset(spec), documents)


def stored(data: Path, part: str, name: str) -> JudgedQuestions:
    """Read the questions of one part from the data folder of an earlier run; `name` is the name that they had in that run."""
    dataset = corpora.open_dataset(f"{data}:{part}")
    return JudgedQuestions(name, tuple(dataset.queries()), dataset.qrels())


def read_any(server: Engine, name: str, spec: str | None, documents: Collection[str]) -> JudgedQuestions:
    """Read the questions that a user named; if none were named, those of the index's judgement book and of the server's log of user behaviour.

    Args:
        server: The server.
        name: Name of the index.
        spec: As for `read`; None: the user named no questions, so the book and the log are read.
        documents: Ids of the documents in the index.

    Raises:
        UsageError: Nothing was named, and there is neither a book nor a log.
        InputError: No question has an answer in the index.
    """
    if spec is not None:
        return read(spec, documents)
    parts: list[JudgedQuestions] = []
    unanswered: InputError | None = None
    if (book := JudgementBook(server, name)).qrels():
        try:
            parts.append(_answered(BookDataset(f"book:{name}", book), documents))
        except InputError as error:  # the log may have answers
            unanswered = error
    if all(exists(server, index) for index in (ubi_indices.QUERIES, ubi_indices.EVENTS)):
        with suppress(InputError):  # a log without clicks on documents of this index
            parts.append(read("ubi:opensearch", documents))
    if not parts:
        raise unanswered or UsageError(
            f"{name!r} has no judged questions, and the server has no log of clicks: no gain could be proved, so nothing was trained.",
            f"Name questions (a BEIR folder, a click log, ubi:FOLDER), or judge some ('termweave serve', page Judge). {_ENOUGH}",
        )
    return joined(parts)


def joined(parts: Sequence[JudgedQuestions]) -> JudgedQuestions:
    """Join the questions of several sources; a question that several have keeps the judgements of the first. An id in use gets a numbered suffix."""
    queries: dict[str, Query] = {}
    qrels: Qrels = {}
    for number, part in enumerate(parts):
        for query in part.queries:
            if query.text in queries:
                continue
            identity = query.id
            while identity in qrels:
                identity = f"{identity}~{number}"
            queries[query.text] = Query(identity, query.text)
            qrels[identity] = part.qrels[query.id]
    names = dict.fromkeys(name for part in parts for name in part.name.split(" and "))
    notes = tuple(note for part in parts for note in part.notes)
    return JudgedQuestions(" and ".join(names), tuple(queries.values()), qrels, notes)


def _dataset(spec: str) -> corpora.Dataset:
    """Open a data set at the split that `spec` names, else at its split "train".

    Raises:
        UsageError: There is no such data set, or it has no split "train": a split "test" is learned from only where it is named.
    """
    base, split = path_and_split(spec)
    if split is not None or base.startswith(("book:", "ubi:")) or Path(base).is_file():  # those are split by learning alone
        return corpora.open_dataset(spec)
    try:
        return corpora.open_dataset(f"{base}:{TRAIN}")
    except UsageError:
        whole = None
        with suppress(UsageError):
            whole = corpora.open_dataset(base)
        if whole is None:
            raise
    if whole.split in whole.splits():
        raise UsageError(
            f"{base} has no split {TRAIN!r}, and learning from the split {whole.split!r} would leave no questions to measure with.",
            f"Add judgements to learn from (qrels/{TRAIN}.tsv), or name the split to learn from it all the same: {base}:{whole.split}",
        )
    return whole


def _answered(dataset: corpora.Dataset, documents: Collection[str]) -> JudgedQuestions:
    """Keep the questions that have text and an answer in the index.

    Raises:
        InputError: No question is left.
    """
    queries, qrels, name, remarks = dataset.queries(), dataset.qrels(), f"{dataset.name}:{dataset.split}", list(dataset.notes)
    answered, judged, absent, unwritable = [], {}, 0, 0
    for query in queries:
        grades = {document: grade for document, grade in qrels[query.id].items() if document in documents}
        if not all(map(_is_writable, (query.id, *grades))):
            unwritable += 1
        elif query.text.strip() and any(grade > 0 for grade in grades.values()):
            answered.append(query)
            judged[query.id] = grades
        else:
            absent += 1
    if unwritable:
        remarks.append(
            f"{counted(unwritable, 'question')} left out: the id of the question or of a judged document holds a tab or a line end, or begins "
            "or ends with a blank."
        )
    if not answered:
        raise InputError(
            f"Not one of the {counted(len(queries), 'question')} of {name} has an answer in the index."
            f"{''.join(f' {remark}' for remark in remarks)}",
            "Name the questions that were judged on the documents of this index; the ids of the documents must be the same.",
        )
    grades_of: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for query in answered:
        for document, grade in judged[query.id].items():
            grades_of[query.text, document].add(grade)
    contradicted = {text for (text, _), different in grades_of.items() if len(different) > 1}
    if contradicted:
        remarks.append(f"{counted(len(contradicted), 'question')} left out: judged several times, and differently.")
    if absent:
        remarks.append(f"{counted(absent, 'question')} left out: without text, or without an answer in the index.")
    return JudgedQuestions(name, tuple(query for query in answered if query.text not in contradicted), judged, tuple(remarks))


def _is_writable(identity: str) -> bool:
    """Return whether an id stays the same when it is written to a file of judgements and read again."""
    return identity == identity.strip() and not set("\t\n\r") & set(identity)


def split(questions: JudgedQuestions, earlier: Mapping[str, str] | None = None) -> QuestionSplit:
    """Split questions into three parts, near duplicates into the same part. With fewer than `FEWEST` questions the training part is empty.

    Args:
        questions: The questions; their order does not change the parts.
        earlier: Text of a question of an earlier run -> its part then. The question stays in this part, and new near duplicates join
            it. A new question with near duplicates in several parts is left out, and so is the training part where it is too small.

    Raises:
        InputError: There are too few questions, or too few of them are in the held-out or the test part.
    """
    count, earlier = len(questions.queries), earlier or {}
    if count < FEWEST_TO_PROVE:
        raise InputError(
            f"{questions.name} has {counted(count, 'question')} with an answer, and no test can show a gain with so few: learning needs at "
            f"least {FEWEST_TO_PROVE}.{''.join(f' {note}' for note in questions.notes)}",
            f"Judge more questions ('termweave serve', page Judge), or collect clicks. {_ENOUGH}",
        )
    members: defaultdict[int, list[str]] = defaultdict(list)
    queries = sorted(questions.queries, key=lambda query: (query.text, query.id))
    for query, group in zip(queries, groups([query.text for query in queries]), strict=True):
        members[group].append(query.id)
    text = {query.id: query.text for query in queries}
    shuffled: list[list[str]] = []
    parts: dict[str, list[str]] = {TRAIN: [], HELD_OUT: [], TEST: []}
    for alike in members.values():
        earlier_parts = {earlier[text[query]] for query in alike if text[query] in earlier}
        if not earlier_parts:
            shuffled.append(alike)
        elif len(earlier_parts) == 1:
            parts[earlier_parts.pop()] += alike
        else:
            for identity in alike:
                if text[identity] in earlier:
                    parts[earlier[text[identity]]].append(identity)
    random.Random(0).shuffle(shuffled)  # noqa: S311 - a draw, not a secret
    _fill(parts, shuffled, count)
    if any(len(parts[part]) < fewest for part, fewest in _FEWEST_OF_A_PART.items()):
        choose, confirm = _FEWEST_OF_A_PART.values()
        raise InputError(
            f"Of {counted(len(questions.queries), 'question')} of {questions.name}, {len(parts[HELD_OUT])} can choose a search ({choose} needed) and "
            f"{len(parts[TEST])} can confirm it ({confirm} needed). The others are near duplicates"
            f"{', or the live models were trained on them' if earlier else ''}.",
            f"Name other questions{', or learn from these and those of the earlier run: --update' if earlier else ''}.",
        )
    near = sum(len(alike) for alike in members.values() if len(alike) > 1)
    return QuestionSplit({part: tuple(ids) for part, ids in parts.items()}, near)


def _fill(parts: dict[str, list[str]], groups: Sequence[list[str]], count: int) -> None:
    """Distribute groups of near duplicates over the parts, whose sizes follow from `count`; a training part that stays too small is emptied."""
    sizes = {part: min(most, round(share * count)) for part, (share, most) in {TEST: _TEST, HELD_OUT: _HELD_OUT}.items()}
    rest = TRAIN
    if count < FEWEST:
        sizes, rest = {HELD_OUT: round(_ONLY_HELD_OUT * (count - len(parts[TRAIN])))}, TEST
    for alike in groups:
        part = next((part for part, size in sizes.items() if len(parts[part]) + len(alike) <= size), rest)
        parts[part] += alike
    if count < FEWEST or len(parts[TRAIN]) < _FEWEST_TO_TRAIN:
        parts[TRAIN] = []


def more_to_confirm(needed: int, parts: Mapping[str, int]) -> int:
    """Return about how many more judged questions it takes until the test part has `needed` of them; 0: the test part never gets so large."""
    share, most = _TEST
    return 0 if max(needed, parts[TEST] + 1) > most else max(1, round(needed / share) - sum(parts.values()))


def groups(questions: Sequence[str]) -> list[int]:
    """Number the groups of near duplicates.

    Two questions are in one group if their words are alike, directly or through other questions. Rare words count more, as idf has
    it: "symptoms of asthma" is not "symptoms of anaemia". Pairs are found by prefix filtering (Bayardo et al., WWW 2007): sets with a
    weighted Jaccard similarity of at least t share one of the rarest words that hold a part of 1 - t of their weight.

    Args:
        questions: Texts of the questions.

    Returns:
        For each question the index of the first question of its group.

    Example:
        >>> groups(["How do I reset my password?", "how do i reset my password", "Where is my order?"])
        [0, 0, 2]
    """
    sets = [_words(question) for question in questions]
    frequency = Counter(word for words in sets for word in words)
    weight = {word: log(1 + len(sets) / count) for word, count in frequency.items()}
    total = [fsum(map(weight.__getitem__, words)) for words in sets]  # the same in whatever order a set has its words
    parent = list(range(len(sets)))  # of each question one in its group, at last the smallest (union-find)

    def first(place: int) -> int:
        while parent[place] != place:
            parent[place] = parent[parent[place]]
            place = parent[place]
        return place

    def join(one: int, other: int) -> None:
        low, high = sorted((first(one), first(other)))
        parent[high] = low

    same: dict[frozenset[str], int] = {}
    holders: defaultdict[str, list[int]] = defaultdict(list)
    for place, words in enumerate(sets):
        if (earlier := same.setdefault(words, place)) != place:
            join(place, earlier)
            continue
        prefix = _prefix(words, weight, (1 - ALIKE) * total[place])
        for other in {each for word in prefix for each in holders[word]}:
            shared = fsum(map(weight.__getitem__, words & sets[other]))
            if shared >= ALIKE * (total[place] + total[other] - shared):
                join(place, other)
        for word in prefix:
            holders[word].append(place)
    return [first(place) for place in range(len(sets))]


def _prefix(words: frozenset[str], weight: Mapping[str, float], least: float) -> list[str]:
    """Return the rarest words, rarest first: just enough of them to weigh more than `least` together."""
    prefix, total = [], 0.0
    for word in sorted(words, key=lambda word: (-weight[word], word)):
        prefix.append(word)
        total += weight[word]
        if total > least:
            break
    return prefix


def _words(text: str) -> frozenset[str]:
    """Return the words of a text without case and accents; a text without words counts as one word."""
    plain = folded(text)
    words = set(_WORD.findall(_UNSPACED.sub(" ", plain)))
    for part in _UNSPACED.findall(plain):
        words.update(part[place : place + 2] for place in range(max(1, len(part) - 1)))
    return frozenset(words or {plain.strip()})
