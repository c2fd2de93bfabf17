"""The corpus pass: reads a source once to count statistics, enter every document in the ledger and draw a sample."""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from termweave.corpora.sources import ITEM, Source
from termweave.errors import InputError
from termweave.indexer.preparation.corpus_remarks import CorpusRemarks
from termweave.indexer.preparation.metadata_types import TypeInference
from termweave.statistics import CorpusStatistics, StatisticsCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from termweave.encoders import TextEncoder
    from termweave.indexer.ledger.ledger import Duplicate, Ledger
    from termweave.records import Document

#: The name of the stage that reads the source; every later one begins when the source was read to its end.
READING = "Reading"
#: Largest block, which is encoded at once: enough texts for batches of similar length, few enough to need little memory.
_BLOCK_DOCUMENTS, _BLOCK_CHARACTERS = 512, 4_000_000
#: Number of blocks of a small corpus and the least size of a block: the stages of the pipeline overlap only if there are several blocks.
_PARTS, _FEWEST = 16, 32
#: Number of sampled documents; the scale of the stored weights is derived from them.
_SAMPLE = 512
#: Characters of each sampled document that are kept, to bound memory.
_SAMPLE_CHARACTERS = 20_000


class BuildProgress(Protocol):
    """A function that is called with the progress of a build."""

    def __call__(self, stage: str, done: int, total: int | None, detail: str = "", /) -> None:
        """Report progress.

        Args:
            stage: Name of the stage.
            done: Number of documents that have passed the stage.
            total: Number of documents that will; None if unknown.
            detail: More information as text, or "".
        """


@dataclass(frozen=True)
class CorpusPass:
    """The result of one pass over a source.

    Attributes:
        statistics: Statistics of the whole source; None without a weights model.
        sample: The first 20,000 characters of up to 512 random documents.
        notes: Sentences about documents that were skipped, repeated or unusual.
        warnings: Sentences about documents that were left out because an earlier document with other content has their id.
        metadata: The types of the metadata.
    """

    statistics: CorpusStatistics | None
    sample: list[Document]
    notes: list[str]
    warnings: list[str]
    metadata: TypeInference


def read_corpus(
    source: Source,
    encoder: TextEncoder | None,
    ledger: Ledger,
    *,
    skip_bad: bool,
    progress: BuildProgress,
    keep: Callable[[list[Document]], None] = lambda _: None,
    types: Mapping[str, str] | None = None,
) -> CorpusPass:
    """Read a source once: count its statistics, enter its documents in the ledger, draw a sample.

    Args:
        source: The documents, or their passages.
        encoder: The encoder whose analysis counts the statistics; None if the statistics exist already.
        ledger: The ledger in which every document is entered.
        skip_bad: Keep the first of two documents with the same id instead of raising an error.
        progress: Called with (stage, done, total or None).
        keep: Called with the documents of each block that are not left out.
        types: Metadata entry -> type or notation, for entries whose type is decided already; None: no type is decided.

    Raises:
        InputError: An entry cannot be read, two documents have the same id and different content, or the source is empty.
    """
    counter = StatisticsCounter(encoder.analysis) if encoder is not None and encoder.analysis else None
    # A reservoir sample: every document has the same chance to be in it, however many there are. Equal numbers give equal places.
    sample: list[Document] = []
    seen, chance = 0, random.Random(0)  # noqa: S311 - a sample, not a secret
    remarks, metadata = CorpusRemarks(), TypeInference(types, commas=source.decimal_commas)
    before = encoder.too_long if encoder is not None else 0
    size, positions = source.size, deque([0], maxlen=1)
    for block in blocks(source.documents(positions.append)):
        duplicates = _enter(source, block, ledger, skip_bad=skip_bad)
        documents = [document for document in block if (document.source_id, document.line) not in duplicates]
        remarks.count(documents, duplicates.values(), source.ENTRY)
        keep(documents)
        texts = [document.content for document in documents]
        if counter is not None and encoder is not None:
            for terms in encoder.analyse(texts):
                counter.add(terms)
            remarks.counts["too_long"] = encoder.too_long - before
        for document in documents:
            place = seen if seen < _SAMPLE else chance.randrange(seen + 1)
            if place < _SAMPLE:
                title, text = document.title[:_SAMPLE_CHARACTERS], document.text[:_SAMPLE_CHARACTERS]
                sample[place : place + 1] = [replace(document, title=title, text=text)]
            seen += 1
            if document.passage is None or document.passage.number == 1:
                metadata.count(document.metadata)
        # The total is known only at the end; until then it is estimated from the share of the bytes that was read.
        progress(READING, seen, source.total or (seen * size // positions[0] if positions[0] and size else None))
    if not seen:
        reason = f" that can be read: {next(iter(source.skipped))}" if source.skipped else ""
        hint = "Pass at least one document; an iterator that was read before gives none."
        if source.ENTRY != ITEM:
            hint = "Correct the file, or name another source: `termweave index --help` lists the formats and the options that name fields."
        raise InputError(f"{source.name} contains no documents{reason}.", hint)
    notes = remarks.notes(source) + ([] if remarks.counts["texts"] else _titles_alone(source, sample))
    return CorpusPass(counter.result() if counter else None, sample, notes, remarks.warnings(source), metadata)


def blocks(documents: Iterator[Document], count: int | None = None) -> Iterator[list[Document]]:
    """Group documents into blocks of bounded number and size. The passages of one document stay in one block.

    Args:
        documents: The documents.
        count: Total number of documents: a small corpus is then divided into several blocks, so that pipeline stages overlap.
    """
    most = _BLOCK_DOCUMENTS if count is None else min(_BLOCK_DOCUMENTS, max(_FEWEST, count // _PARTS))
    block: list[Document] = []
    size = 0
    for number, original in enumerate(documents, 1):
        # The line distinguishes two documents with the same id.
        document = original if original.line is not None else replace(original, line=number)
        full = len(block) >= most or size >= _BLOCK_CHARACTERS
        if full and (document.passage is None or document.passage.number == 1):
            yield block
            block, size = [], 0
        block.append(document)
        size += len(document.text) + len(document.title)
    if block:
        yield block


def _enter(
    source: Source, documents: Sequence[Document], ledger: Ledger, *, skip_bad: bool
) -> dict[tuple[str, int | None], Duplicate]:
    """Enter a block in the ledger, except the documents whose id an earlier document has.

    Returns:
        (id, line) -> the duplicate, for each document that was not entered.

    Raises:
        InputError: Two documents would be stored under one id, or have one id and different content without `skip_bad`.
    """
    duplicates, entry = ledger.enter(documents), source.ENTRY
    if (clash := next((each for each in duplicates.values() if each.first != each.id), None)) is not None:
        raise InputError(  # --skip-bad does not apply: neither document is bad
            f"{source.name}: the documents {clash.first!r} ({entry} {clash.first_line}) and {clash.id!r} ({entry} {clash.line}) would "
            f"both be stored as {clash.key!r}, because the id of a passage is DOCUMENT#NUMBER.",
            "Change the id of one of them, or use another --passage-size.",
        )
    different = next((each for each in duplicates.values() if not each.same), None)
    if different is not None and not skip_bad:
        message = f"{source.name}: {entry} {different.line} has the id {different.first!r} of {entry} {different.first_line}, with other content."
        raise InputError(message, "Give every document its own id, or keep the first of each with --skip-bad.")
    return duplicates


def _titles_alone(source: Source, sample: Sequence[Document]) -> list[str]:
    """Return a note that no document has a text, which names the longest metadata field as the probable text."""
    lengths = Counter({"": sum(len(document.title) for document in sample)})
    for document in sample:
        lengths.update({key: len(value) for key, value in document.metadata.items() if isinstance(value, str)})
    longest = max(lengths, key=lengths.__getitem__)
    if not longest:
        return []
    titles = f"No document of {source.name} has a text: only titles are indexed."
    return [f"{titles} If the longest metadata field, {longest!r}, is the text, add --text-field {longest}."]
