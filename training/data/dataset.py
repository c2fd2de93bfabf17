"""The data of a run: documents, questions with the documents that answer them, and a held-out part of the questions.

Questions come from judgements (BEIR's qrels), from a click log, or are made of the corpus itself (`pseudo_queries`). A click log says which
documents people opened after which query, and how often. It is a file (`corpora.behaviour.clicks`), or ``ubi:FOLDER``, ``ubi:opensearch``: a
log of user behaviour, whose clicks are corrected for the positions at which documents stood (`corpora.behaviour`).
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from termweave.corpora import open_dataset, open_source, path_and_split
from termweave.corpora.behaviour.clicks import ClickLog
from termweave.corpora.index import ubi_indices
from termweave.errors import InputError, UsageError
from termweave.support.messages import counted
from termweave.training.data import pseudo_queries
from termweave.training.data.pairs import Pairs

if TYPE_CHECKING:
    from termweave.records import Document
    from termweave.training.methods.parameters import TrainingParameters

_LEAST = 10


@dataclass(frozen=True)
class Examples:
    """A corpus with questions.

    Attributes:
        origin: "qrels", "clicks" or "corpus".
        ids: The ids of `texts`.
        texts: The documents that answer the questions, or their parts that remain when a question is taken out.
        corpus: Every document as an index would hold it, for statistics and for display.
        train: Pairs to train on; indices into `texts`.
        dev: Held-out pairs; `train` may have one of their questions under another id (`setup.set_up` removes it there).
        queries: Id -> question, of the training and the held-out questions; a question of a click log is its own id.
        remark: A text about data that were left out; "": nothing was left out.
    """

    origin: str
    ids: list[str]
    texts: list[str]
    corpus: list[str]
    train: Pairs
    dev: Pairs
    queries: Mapping[str, str]
    remark: str = ""


def read(spec: str, settings: TrainingParameters) -> Examples:
    """Read the data set.

    Raises:
        UsageError: There is no data set of this name, or it lacks what the settings ask for.
        InputError: The data are damaged, or far too few.
    """
    origin = _origin(spec, settings)
    base, split = _judged_split(spec) if origin == "qrels" else (spec, "")
    documents, repeated = documents_of(base, settings.reading)
    if origin == "corpus":
        examples = _made_questions(documents, settings)
    else:
        ids, texts = [document.id for document in documents], [document.content for document in documents]
        place = {name: index for index, name in enumerate(ids)}
        pairs = _judged(base, split, documents, settings) if origin == "qrels" else _clicked(place, settings)
        examples = Examples(origin, ids, texts, texts, *pairs)
    if len(examples.train) < _LEAST or len(examples.dev) < 1:
        raise InputError(
            f"{spec} gives {len(examples.train)} training questions and {len(examples.dev)} held-out questions ({origin}); that is too few."
            + "".join(f" {line[:1].upper()}{line[1:].rstrip('.')}." for line in examples.remark.splitlines()),
            "Use another source with --set pairs=qrels|clicks|corpus, or a larger corpus.",
        )
    return replace(examples, remark="\n".join(each for each in (repeated, examples.remark) if each))


def documents_of(spec: str, reading: Mapping[str, Any]) -> tuple[list[Document], str]:
    """Return the documents of a corpus that have a text, the first one of each id, and a remark on the documents that were left out.

    Args:
        spec: The corpus.
        reading: Keyword arguments of `corpora.open_source`.

    Raises:
        InputError: Two documents of one id say different things, and `skip_bad` is not among `reading`.
    """
    source = open_source(spec, **reading)
    by_id: dict[str, Document] = {}
    again = 0
    documents: Iterable[Document] = source.documents()
    if source.index is not None:  # it is read in another order each time, and questions are drawn by their places
        documents = sorted(documents, key=lambda each: (each.id, each.title, each.text))
    for document in documents:
        first = by_id.setdefault(document.id, document)
        if first is document:
            continue
        again += 1
        if not reading.get("skip_bad") and first.content != document.content:
            raise InputError(
                f"{source.name} has two documents {document.id!r} that say different things ({_place(first)} and {_place(document)}).",
                "Give each an id of its own, or train on the first of each with --skip-bad.",
            )
    remarks = list(source.remarks)
    if again:
        remarks.append(f"{counted(again, 'document')} left out, because an earlier document has the same id")
    if skipped := source.skipped.count:
        remarks.append(f"{counted(skipped, 'entry', 'entries')} that cannot be read left out")
    return [each for each in by_id.values() if each.content.strip()], "\n".join(remarks)


def _place(document: Document) -> str:
    return f"line {document.line}" if document.line is not None else "no line"


def _origin(spec: str, settings: TrainingParameters) -> str:
    if settings.pairs == "clicks" and not settings.clicks:
        raise UsageError("pairs=clicks needs a click log.", "Name one: --set clicks=FILE.")
    if settings.pairs != "auto":
        return settings.pairs
    if settings.clicks:
        return "clicks"
    with suppress(UsageError):
        _judged_split(spec)
        return "qrels"
    return "corpus"


def _judged_split(spec: str) -> tuple[str, str]:
    """Return a data set and the split to train on: the named split; else "train"; else the only judgements of an ``ir:`` collection.

    Raises:
        UsageError: None of these splits exists; a split "test" is trained on only where it is named.
    """
    base, split = path_and_split(spec)
    try:
        return base, open_dataset(f"{base}:{'train' if split is None else split}").split
    except UsageError:
        with suppress(UsageError):
            if split is None and (collection := open_dataset(base)).split not in collection.splits():
                return base, collection.split
        raise


def _judged(
    base: str, split: str, documents: Sequence[Document], settings: TrainingParameters
) -> tuple[Pairs, Pairs, Mapping[str, str], str]:
    """Read training pairs, held-out pairs, questions by id, and a remark. Held-out questions come from the split "dev", else from `split` itself."""
    remarks: list[str] = []
    place = {document.id: number for number, document in enumerate(documents)}

    def pairs(name: str) -> tuple[list[str], Pairs]:
        dataset = open_dataset(f"{base}:{name}")
        qrels = dataset.qrels()
        judged = {document for grades in qrels.values() for document, grade in grades.items() if grade > 0}
        if lost := len(judged - place.keys()):
            remarks.append(f"the corpus lacks {lost:,} of the {counted(len(judged), 'relevant document')} of {name!r}")
        names, questions, relevant, spared = list[str](), list[str](), list[frozenset[int]](), list[frozenset[int]]()
        for query in dataset.queries():
            right = frozenset(place[each] for each, grade in qrels[query.id].items() if grade > 0 and each in place)
            if right and query.text.strip():
                names.append(query.id)
                questions.append(query.text)
                relevant.append(right)
                itself = {place[query.id]} if query.id in place and query.is_document(documents[place[query.id]]) else set[int]()
                spared.append(frozenset(itself - right))  # neither a right answer nor a wrong one
        return names, Pairs(questions, relevant, spared=spared)

    names, train = pairs(split)
    queries = dict(zip(names, train.questions, strict=True))
    dev = None
    with suppress(UsageError):  # there is no such split
        if split != "dev":
            names, dev = pairs("dev")
            queries |= zip(names, dev.questions, strict=True)
            dev = dev.part(_drawn(len(dev), settings.dev, settings.seed + 1))
    if dev is None:
        train, dev = _held_out(train, settings)
    return train, dev, queries, "\n".join(remarks)


def _clicked(place: Mapping[str, int], settings: TrainingParameters) -> tuple[Pairs, Pairs, Mapping[str, str], str]:
    """Make questions of the queries of a click log: training pairs, held-out pairs, questions by id, and a remark."""
    clicked = clicks_of(settings.clicks, place)
    every = clicked.pairs()
    return *_held_out(every, settings), {each: each for each in every.questions}, clicked.remark


@dataclass
class Clicks:
    """The clicks of a log on the documents of a corpus.

    Attributes:
        counts: Query -> document -> clicks, summed over the lines.
        unknown: Number of lines that name a document which the corpus does not hold.
        empty: Number of lines without a query, or with a count of 0 or less.
        notes: Further sentences about the log.
    """

    counts: dict[str, dict[int, float]] = field(default_factory=dict)
    unknown: int = 0
    empty: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def remark(self) -> str:
        """Return a sentence about the lines that were left out; "": no line was left out."""
        parts = [(self.unknown, "about a document that the corpus lacks"), (self.empty, "without a query or without a click")]
        reasons = " and ".join(f"{counted(count, 'line')} {what}" for count, what in parts if count)
        return "\n".join([*([f"click log: {reasons} left out"] if reasons else []), *self.notes])

    def pairs(self) -> Pairs:
        """Return questions with their clicked documents; a question is drawn in proportion to log(1 + its clicks)."""
        shares = np.array([math.log1p(sum(of.values())) for of in self.counts.values()])
        return Pairs(list(self.counts), [frozenset(of) for of in self.counts.values()], shares / shares.sum())


def clicks_of(log: Path | str, place: Mapping[str, int]) -> Clicks:
    """Read a click log.

    Args:
        log: The file, or the address of a log of user behaviour.
        place: Index of each document of the corpus.

    Raises:
        UsageError: There is no such file.
        InputError: Most lines are no clicks, or none names a document of the corpus.
    """
    clicks, lines = Clicks(), ClickLog(Path(log))
    rows: Iterator[tuple[str, str, float]]
    if str(log).startswith(ubi_indices.PREFIX):
        behaviour = ubi_indices.UbiLog(str(log), "corrected")
        rows = ((query, document, count) for query, of in behaviour.counts().items() for document, count in of.items())
        clicks.notes += behaviour.notes
    else:
        rows = lines.clicks()
    for query, document, count in rows:
        if not query or count <= 0:
            clicks.empty += 1
        elif document not in place:
            clicks.unknown += 1
        else:
            of = clicks.counts.setdefault(query, {})
            of[place[document]] = of.get(place[document], 0.0) + count
    clicks.notes += lines.remarks
    if not clicks.counts:
        raise InputError(
            f"No line of {log} is a click on a document of the corpus: {clicks.unknown:,} lines name an unknown document, "
            f"{clicks.empty:,} have no query or a count that is not positive.",
            "Check the document ids and the counts.",
        )
    return clicks


class _MadeQuestion(NamedTuple):
    """A question made of a document, and the text that answers it: the document without the question, or one part of the document."""

    id: str
    question: str
    text: str
    document: str
    is_part: bool


def _made_questions(documents: Sequence[Document], settings: TrainingParameters) -> Examples:
    """Make questions of the documents of a corpus.

    Most questions of a document are answered by its whole text without the question, and the texts for its other questions hold that
    question word for word. So these other texts count neither as wrong answers nor as right ones, from which nothing could be learned.
    """
    generator = random.Random(settings.seed)  # noqa: S311 - a draw, not a secret
    examples: list[_MadeQuestion] = []
    for document in documents:
        pairs = [(view, *pair) for view in settings.views for pair in pseudo_queries.questions_of(document, (view,), generator)]
        for number, (view, question, rest) in enumerate(pairs):
            text = replace(document, title="", text=rest).content
            is_part = view in pseudo_queries.PARTS
            examples.append(_MadeQuestion(f"{document.id}#{number}", question, text, document.id, is_part))
    generator.shuffle(examples)
    examples = examples[: settings.questions + settings.dev]
    wholes, every_text = defaultdict[str, set[int]](set), defaultdict[str, set[int]](set)
    for place, each in enumerate(examples):
        every_text[each.document].add(place)
        if not each.is_part:
            wholes[each.document].add(place)
    spared = [frozenset((wholes if each.is_part else every_text)[each.document] - {at}) for at, each in enumerate(examples)]
    relevant = [frozenset({place}) for place in range(len(examples))]
    train, dev = _held_out(Pairs([each.question for each in examples], relevant, spared=spared), settings)
    texts, queries = [each.text for each in examples], {each.id: each.question for each in examples}
    return Examples("corpus", [*queries], texts, [document.content for document in documents], train, dev, queries)


def _held_out(every: Pairs, settings: TrainingParameters) -> tuple[Pairs, Pairs]:
    """Split questions into training questions and held-out questions, which are a tenth at most."""
    held_out = set(_drawn(len(every), min(settings.dev, max(1, len(every) // 10)), settings.seed + 1))
    others = [place for place in range(len(every)) if place not in held_out]
    return every.part(others), every.part(sorted(held_out))


def _drawn(size: int, count: int, seed: int) -> list[int]:
    return sorted(random.Random(seed).sample(range(size), min(count, size)))  # noqa: S311
