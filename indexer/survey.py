"""The survey: one streaming pass that counts, enters every document in the ledger and draws a sample."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from termweave.errors import InputError
from termweave.indexer.ledger import Entry, Ledger
from termweave.signals.layout import filterable, source_digest
from termweave.statistics import CorpusStatistics, StatisticsCounter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from termweave.corpora import Source
    from termweave.encoders import TextEncoder
    from termweave.records import Document

    class Progress(Protocol):
        """Told how far a build is."""

        def __call__(self, stage: str, done: int, total: int | None, detail: str = "", /) -> None:
            """A stage, documents through it, of how many, and what these two numbers do not say."""


#: A block is encoded at once: enough texts to fill length buckets, few enough to stay small in memory.
_BLOCK_DOCUMENTS, _BLOCK_CHARACTERS = 512, 4_000_000
#: Texts whose impacts fix the scale of the weights.
_SAMPLE = 512
#: Of each of them so much; 512 texts of a megabyte would be held in memory.
_SAMPLE_CHARACTERS = 20_000
#: Entries named in a message; the rest is counted.
_NAMED = 5


@dataclass(frozen=True)
class Survey:
    """What one pass over a source found.

    Attributes:
        statistics: Of the whole source; None without a weights model.
        sample: Contents of up to 512 documents, drawn evenly.
        notes: What was skipped or repeated.
    """

    statistics: CorpusStatistics | None
    sample: list[str]
    notes: list[str]


def survey(source: Source, encoder: TextEncoder, ledger: Ledger, *, skip_bad: bool, progress: Progress) -> Survey:
    """Read a source once.

    Raises:
        InputError: An entry cannot be read, two documents have one id and different content, or there is none at all.
    """
    counter = StatisticsCounter(encoder.analysis) if encoder.analysis else None
    sample = _Sample(_SAMPLE)
    seen = _Seen()
    for block in blocks(source.documents()):
        again = _enter(source.name, block, ledger, skip_bad=skip_bad)
        kept = [document for document in block if (document.id, document.line) not in again]
        seen.count(kept, repeated=len(again))
        texts = [document.content for document in kept]
        if counter is not None:
            for terms in encoder.analyse(texts):
                counter.add(terms)
        for text in texts:
            sample.add(text[:_SAMPLE_CHARACTERS])
        progress("Reading", sample.seen, source.total)
    if not sample.seen:
        raise InputError(f"{source.name} holds no documents.", "Name a corpus.jsonl, a folder that holds one, or 'demo'.")
    return Survey(counter.result() if counter else None, sample.texts, seen.notes(source))


def blocks(documents: Iterator[Document]) -> Iterator[list[Document]]:
    """Documents in blocks that are bounded by number and by size."""
    block: list[Document] = []
    size = 0
    for number, each in enumerate(documents, 1):
        document = each if each.line is not None else replace(each, line=number)  # what tells two of one id apart
        block.append(document)
        size += len(document.text) + len(document.title)
        if len(block) >= _BLOCK_DOCUMENTS or size >= _BLOCK_CHARACTERS:
            yield block
            block, size = [], 0
    if block:
        yield block


def _enter(name: str, block: list[Document], ledger: Ledger, *, skip_bad: bool) -> set[tuple[str, int | None]]:
    """Enter a block; returns (id, line) of documents whose id was there before."""
    duplicates = ledger.enter([Entry(document.id, document.line, source_digest(document)) for document in block])
    different = [duplicate for duplicate in duplicates if not duplicate.same]
    if different and not skip_bad:
        first = different[0]
        raise InputError(
            f"{name}: the id {first.id!r} stands on line {first.first_line} and, with other content, on line {first.line}.",
            "Give every document an id of its own, or keep the first of each with --skip-bad.",
        )
    return {(duplicate.id, duplicate.line) for duplicate in duplicates}


@dataclass
class _Seen:
    """What a user should know of a corpus, counted on the way."""

    repeated: int = 0
    textless: int = 0
    unfilterable: int = 0

    def count(self, documents: list[Document], *, repeated: int) -> None:
        self.repeated += repeated
        for document in documents:
            self.textless += not document.content
            self.unfilterable += any(not filterable(key, value) for key, value in document.metadata.items())

    def notes(self, source: Source) -> list[str]:
        notes = []
        if self.repeated:
            notes.append(f"{_documents(self.repeated)} repeated an id that was there before; the first of each was kept.")
        if self.textless:
            notes.append(f"{_documents(self.textless)} without any text: no search finds them, filters and ids do.")
        if self.unfilterable:
            notes.append(
                f"{_documents(self.unfilterable)} with metadata of more than 30,000 bytes: stored, but not to be filtered on."
            )
        if source.skipped:
            count = source.skipped.count
            named = "; ".join(str(each) for each in source.skipped.kept[:_NAMED])
            entries = "1 entry" if count == 1 else f"{count:,} entries"
            notes.append(f"{entries} could not be read and left out ({named}{'; ...' if count > _NAMED else ''}).")
        return notes


def _documents(count: int) -> str:
    return "1 document" if count == 1 else f"{count:,} documents"


class _Sample:
    """A reservoir: every text has the same chance to be in it, however many come."""

    def __init__(self, size: int) -> None:
        self.texts: list[str] = []
        self.seen = 0
        self._size = size
        self._chance = random.Random(0)  # noqa: S311 - a sample, not a secret

    def add(self, text: str) -> None:
        self.seen += 1
        if len(self.texts) < self._size:
            self.texts.append(text)
        elif (place := self._chance.randrange(self.seen)) < self._size:
            self.texts[place] = text
