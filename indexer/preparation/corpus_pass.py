"""The corpus pass: reads a source once to count statistics, enter every document in the ledger and draw a sample.

What a user should know of the corpus becomes notes and warnings: documents left out, repeated, unusual or longer than a model reads, and drift
from the stored statistics.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from termweave.catalog import statistics_store
from termweave.catalog.layout import filterable
from termweave.corpora.sources import ITEM, Skips, Source
from termweave.encoders.analysis.words import LONGEST_TERM
from termweave.errors import InputError
from termweave.indexer.options import Window
from termweave.indexer.preparation.metadata_types import TypeInference
from termweave.statistics import CorpusStatistics, StatisticsCounter
from termweave.support.messages import counted, few

if TYPE_CHECKING:
    from termweave.catalog.generations import LiveGeneration
    from termweave.encoders import TextEncoder
    from termweave.engine import Engine
    from termweave.indexer.build_plan import BuildPlan
    from termweave.indexer.ledger.ledger import Duplicate, Ledger
    from termweave.records import Document

    #: A live generation, and the statistics that were counted when it was built, on which its weights are based.
    LiveStatistics = tuple[LiveGeneration, CorpusStatistics]

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


#: What a model gives -> what becomes of it behind the last word-piece that the model reads.
_COSTS = {"dense": "their vectors stand for the beginning alone", "weights": "words further on get no learned weight"}
#: The share of texts longer than a model reads from which that is said.
_WORTH_A_WARNING = 0.005
#: What is counted -> what it is counted in, and what is said of it.
_NOTES = {
    "repeated": ("document", "left out, with the id and content of an earlier document."),
    "textless": ("document", "without any text: only filters and ids find them, no query does."),
    "garbled": ("document", "with U+FFFD, which stands for bytes that could not be read: check the encoding of the source."),
    "unfilterable": ("document", "with a metadata value of more than 30,000 bytes: it is stored, but filters cannot use it."),
    "too_long": ("word", f"of more than {LONGEST_TERM} characters left out of the term weights."),
}
#: Number of entries that a message names; the others are counted.
_NAMED = 5
#: A term's idf is known to .5 if this many documents of a sample hold it: its standard error is about 1 / sqrt(16).
_KNOWN = 16


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


@dataclass
class CorpusRemarks:
    """Counts what a user should know about the documents of a corpus, and words it as notes and warnings."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def count(self, documents: Sequence[Document], duplicates: Collection[Duplicate], entry: str) -> None:
        """Count the documents of a block: those that are kept, and those that are left out because an earlier document has the same id."""
        different = [each for each in duplicates if not each.same]
        self.counts["repeated"] += len(duplicates) - len(different)
        self.counts["clashes"] += len(different)
        further = different[: _NAMED - len(self.examples)]
        self.examples += [f"{each.id!r} ({entry} {each.line}; {entry} {each.first_line} is kept)" for each in further]
        for document in documents:
            if document.passage is not None and document.passage.number > 1:
                continue  # the document was counted with its first passage
            self.counts["texts"] += bool(document.text)
            self.counts["textless"] += not document.content
            self.counts["garbled"] += "\ufffd" in document.content
            self.counts["unfilterable"] += any(not filterable(key, value) for key, value in document.metadata.items())

    def notes(self, source: Source) -> list[str]:
        """Return the notes: sentences that a user should know."""
        notes = [f"{counted(self.counts[key], noun)} {remark}" for key, (noun, remark) in _NOTES.items() if self.counts[key]]
        return notes + unreadable(source.skipped)

    def warnings(self, source: Source) -> list[str]:
        """Return the warnings: sentences that a user should not miss."""
        if not (clashes := self.counts["clashes"]):
            return []
        left_out = f"{counted(clashes, 'document')} of {source.name} left out"
        return [
            f"{left_out}, because an earlier document with other content has the same id: {few(self.examples, total=clashes)}."
        ]


def unreadable(skipped: Skips) -> list[str]:
    """Describe the entries that passes over a source skipped because they could not be read; [] if there are none."""
    if not skipped:
        return []
    entries = few([str(each) for each in skipped], total=skipped.count, between="; ")
    return [f"{counted(skipped.count, 'entry', 'entries')} could not be read and left out ({entries})."]


def length_warnings(encoder: TextEncoder, texts: Sequence[str], *, passages: bool, cut: bool = True) -> list[str]:
    """Warn about a sample of texts, if half a per cent or more of them are longer than the model reads.

    Args:
        encoder: The models.
        texts: The sample.
        passages: Whether the texts are passages of documents.
        cut: Whether the build can cut documents into passages; with --keep-mapping it cannot.
    """
    limits = {output: model.max_length for output, model in encoder.models.items() if output != "dense_query"}
    longest = min(limits.values(), default=0)
    share = sum(length > longest for length in encoder.lengths(texts)) / len(texts) if longest else 0
    if share < _WORTH_A_WARNING:
        return []
    noun, advice = ("passages", "a smaller --passage-size") if passages else ("documents", "--passage-size 160")
    cost = ", and ".join(cost for output, cost in _COSTS.items() if limits.get(output) == longest)
    hint = f"Use {advice} to cover the whole text." if cut else "A build without --keep-mapping can cut documents into passages."
    return [f"{share:.0%} of the {noun} are longer than the {longest} word-pieces that the model reads: {cost}. {hint}"]


def live_statistics(engine: Engine, live: LiveGeneration | None) -> LiveStatistics | None:
    """Load the collection statistics of the live generation, and return both; None: no generation is live, or it has no term weights.

    Raises:
        TermweaveError: The statistics cannot be read.
    """
    if live is None or (statistics := statistics_store.load(engine, live.index, live.lineage)) is None:
        return None
    return live, statistics


def drift_after_update(stored: CorpusStatistics | None, now: CorpusStatistics | None) -> list[str]:
    """Warn, after an update, that the corpus has drifted from the stored statistics, which updates keep (docs/impacts.md); []: they fit, or there are none."""
    if stored is None or now is None or not (drift := stored.drift(now)).large:
        return []
    return [f"The corpus has drifted: {drift} A new build, without --update, counts the statistics again."]


def drift_before_build(
    live: LiveStatistics | None, planned: BuildPlan, now: CorpusStatistics | None, first: int | None
) -> list[str]:
    """Warn, in the plan of a build, that the corpus has drifted, because a user might prefer an update to the build; []: no such warning is due.

    No warning is due if an update is not possible because the build has another model or cuts passages otherwise than the live generation.

    Args:
        live: The live generation and its statistics; None: there are no statistics.
        planned: The plan: its models, and how it cuts texts.
        now: Statistics of the source, or of its first documents.
        first: How many documents were counted for `now`; None: all. A part of the source says too little about rare terms.
    """
    if live is None or now is None:
        return []
    generation, statistics = live
    same = generation.lineage.models["weights"].hash == planned.encoder.models["weights"].hash
    if not same or Window.from_lineage(generation.lineage.passages) != planned.options.passages:
        return []
    drift = statistics.drift(now, least=1 if first is None else _KNOWN)
    if not drift.large:
        return []
    sentence = f"The corpus has drifted from the statistics that weigh {generation.index}: {drift} "
    if first is not None:
        sentence += (
            f"Only its first {first:,} documents were compared, in terms that {_KNOWN} or more of them hold: if the source is sorted by "
            "subject, they say little about the rest. "
        )
    return [f"{sentence}A new build counts the statistics again; --update weighs documents by the old ones."]
