"""The survey: one streaming pass that counts, enters every document in the ledger and draws a sample."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from termweave.encoders.analysis import LONGEST_TERM
from termweave.errors import InputError
from termweave.indexer.ledger import Duplicate, Entry, Ledger
from termweave.indexer.passages import Passages
from termweave.signals.layout import filterable, source_digest
from termweave.statistics import CorpusStatistics, StatisticsCounter
from termweave.words import counted, few

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from termweave.corpora import Source
    from termweave.encoders import TextEncoder
    from termweave.records import Document

    class Progress(Protocol):
        """Told how far a build is."""

        def __call__(self, stage: str, done: int, total: int | None, detail: str = "", /) -> None:
            """A stage, documents through it, of how many, and what these two numbers do not say."""


#: A block is encoded at once: enough texts to fill length buckets, few enough to stay small in memory.
_BLOCK_DOCUMENTS, _BLOCK_CHARACTERS = 512, 4_000_000
#: A small corpus is cut into so many blocks, of no fewer documents than that: stages overlap only where there are several.
_PARTS, _FEWEST = 16, 32
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
        sample: Up to 512 documents, drawn evenly, of each the first 20,000 characters.
        notes: What was skipped or repeated.
        warnings: How many documents were left out because another one with other content has their id; the first by id and line.
    """

    statistics: CorpusStatistics | None
    sample: list[Document]
    notes: list[str]
    warnings: list[str]


def survey(source: Source, encoder: TextEncoder | None, ledger: Ledger, *, skip_bad: bool, progress: Progress) -> Survey:
    """Read a source once.

    Args:
        source: The documents, or their passages.
        encoder: Counts the statistics; None where there are some to keep.
        ledger: Where every document is entered.
        skip_bad: Keep the first of two documents with one id.
        progress: Told (stage, done, total or None).

    Raises:
        InputError: An entry cannot be read, two documents have one id and different content, or there is none at all.
    """
    counter = StatisticsCounter(encoder.analysis) if encoder is not None and encoder.analysis else None
    sample = _Sample(_SAMPLE)
    seen = _Seen()
    before = encoder.too_long if encoder is not None else 0
    size, position = source.size, 0

    def at(consumed: int) -> None:
        nonlocal position
        position = consumed

    for block in blocks(source.documents(at)):
        again = _enter(source, block, ledger, skip_bad=skip_bad)
        kept = [document for document in block if (document.source_id, document.line) not in again]
        seen.count(kept, again.values())
        texts = [document.content for document in kept]
        if counter is not None and encoder is not None:
            for terms in encoder.analyse(texts):
                counter.add(terms)
            seen.too_long = encoder.too_long - before
        for document in kept:
            sample.add(document)
        # How many there are is known at the end; until then by the share of the bytes that is read.
        progress("Reading", sample.seen, source.total or (sample.seen * size // position if position and size else None))
    if not sample.seen:
        left = f" that can be read: {next(iter(source.skipped))}" if source.skipped else ""
        hint = "Mend it, or name a source that does: `termweave index --help` lists the kinds, and options that name fields."
        raise InputError(f"{source.name} holds no documents{left}.", hint)
    notes = seen.notes(source) + ([] if seen.texts else _titles_alone(source, sample.documents))
    return Survey(counter.result() if counter else None, sample.documents, notes, seen.warnings(source))


def blocks(documents: Iterator[Document], count: int | None = None) -> Iterator[list[Document]]:
    """Documents in blocks that are bounded by number and by size; the passages of one document are never parted.

    Args:
        documents: The documents.
        count: How many there will be, where stages are to overlap.
    """
    most = _BLOCK_DOCUMENTS if count is None else min(_BLOCK_DOCUMENTS, max(_FEWEST, count // _PARTS))
    block: list[Document] = []
    size = 0
    for number, each in enumerate(documents, 1):
        document = each if each.line is not None else replace(each, line=number)  # what tells two of one id apart
        full = len(block) >= most or size >= _BLOCK_CHARACTERS
        if full and (document.passage is None or document.passage.number == 1):
            yield block
            block, size = [], 0
        block.append(document)
        size += len(document.text) + len(document.title)
    if block:
        yield block


def _enter(source: Source, block: list[Document], ledger: Ledger, *, skip_bad: bool) -> dict[tuple[str, int | None], Duplicate]:
    """Enter a block; returns (id, line) -> what is known of documents whose id was there before; nothing of them is kept."""
    entries = [
        Entry(document.id, document.line, source_digest(document), document.passage.parent if document.passage else None)
        for document in block
    ]
    duplicates = ledger.enter(entries)
    if not isinstance(source, Passages):
        again = {(each.id, each.line): each for each in duplicates}
    else:
        again = ledger.documents_again(entries, duplicates)
        ledger.withdraw(again)
    if (called := next((each for each in again.values() if each.first != each.id), None)) is not None:
        raise InputError(  # neither is a bad one to be skipped
            f"{source.name}: the documents {called.first!r} (line {called.first_line}) and {called.id!r} (line {called.line}) would "
            f"both be stored as {called.key!r}: passages are called DOCUMENT#NUMBER.",
            "Give one of them another id, or another --passage-size.",
        )
    different = [each for each in again.values() if not each.same]
    if different and not skip_bad:
        first = different[0]
        raise InputError(
            f"{source.name}: the id {first.id!r} stands on line {first.first_line} and, with other content, on line {first.line}.",
            "Give every document an id of its own, or keep the first of each with --skip-bad.",
        )
    return again


@dataclass
class _Seen:
    """What a user should know of a corpus, counted on the way."""

    repeated: int = 0
    clashes: int = 0
    named: list[str] = field(default_factory=list)
    texts: int = 0
    textless: int = 0
    unfilterable: int = 0
    too_long: int = 0

    def count(self, documents: list[Document], again: Collection[Duplicate]) -> None:
        other = [each for each in again if not each.same]
        self.repeated += len(again) - len(other)
        self.clashes += len(other)
        self.named += [
            f"{each.id!r} (line {each.line}; line {each.first_line} is kept)" for each in other[: _NAMED - len(self.named)]
        ]
        for document in documents:
            if document.passage is not None and document.passage.number > 1:
                continue  # its document is counted
            self.texts += bool(document.text)
            self.textless += not document.content
            self.unfilterable += any(not filterable(key, value) for key, value in document.metadata.items())

    def notes(self, source: Source) -> list[str]:
        notes = []
        if self.repeated:
            notes.append(
                f"{counted(self.repeated, 'document')} repeated another one, id and content; the first of each was kept."
            )
        if self.textless:
            notes.append(f"{counted(self.textless, 'document')} without any text: no search finds them, filters and ids do.")
        if self.unfilterable:
            notes.append(
                f"{counted(self.unfilterable, 'document')} with metadata of more than 30,000 bytes: stored, but not to be filtered on."
            )
        if self.too_long:
            notes.append(f"{counted(self.too_long, 'word')} of more than {LONGEST_TERM} characters left out of the term weights.")
        return notes + unreadable(source)

    def warnings(self, source: Source) -> list[str]:
        if not self.clashes:
            return []
        named = few(self.named, total=self.clashes)
        documents = counted(self.clashes, "document")
        return [f"{documents} of {source.name} left out, for an id that an earlier document with other content has: {named}."]


def unreadable(source: Source) -> list[str]:
    """How many entries the last pass over a source left out because they could not be read, and the first of them."""
    if not source.skipped:
        return []
    count = source.skipped.count
    named = few([str(each) for each in source.skipped], total=count, between="; ")
    return [f"{counted(count, 'entry', 'entries')} could not be read and left out ({named})."]


def _titles_alone(source: Source, sample: Sequence[Document]) -> list[str]:
    """What is said where no document has a text, though an entry of the metadata may be one under another name."""
    lengths = Counter({"": sum(len(document.title) for document in sample)})
    for document in sample:
        lengths.update({key: len(value) for key, value in document.metadata.items() if isinstance(value, str)})
    longest = max(lengths, key=lengths.__getitem__)
    if not longest:
        return []
    titles = f"No document of {source.name} has a text: titles alone are indexed."
    return [f"{titles} Where {longest!r}, the longest of the metadata, is the text, say so: --text-field {longest}."]


class _Sample:
    """A reservoir: every document has the same chance to be in it, however many come."""

    def __init__(self, size: int) -> None:
        self.documents: list[Document] = []
        self.seen = 0
        self._size = size
        self._chance = random.Random(0)  # noqa: S311 - a sample, not a secret

    def add(self, document: Document) -> None:
        self.seen += 1
        if len(self.documents) < self._size:
            self.documents.append(_beginning(document))
        elif (place := self._chance.randrange(self.seen)) < self._size:
            self.documents[place] = _beginning(document)


def _beginning(document: Document) -> Document:
    title, text = document.title[:_SAMPLE_CHARACTERS], document.text[:_SAMPLE_CHARACTERS]
    return replace(document, title=title, text=text)
