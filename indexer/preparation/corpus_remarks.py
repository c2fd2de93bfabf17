"""Notes and warnings about a corpus: documents left out, repeated, unusual or longer than a model reads, and drift from the stored statistics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from termweave.catalog import statistics_store
from termweave.catalog.layout import filterable
from termweave.encoders.analysis.words import LONGEST_TERM
from termweave.indexer.options import Window
from termweave.support.messages import counted, few

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from termweave.catalog.generations import LiveGeneration
    from termweave.corpora import Source
    from termweave.corpora.sources import Skips
    from termweave.encoders import TextEncoder
    from termweave.engine import Engine
    from termweave.indexer.build_plan import BuildPlan
    from termweave.indexer.ledger.ledger import Duplicate
    from termweave.records import Document
    from termweave.statistics import CorpusStatistics

    #: A live generation, and the statistics that were counted when it was built, on which its weights are based.
    LiveStatistics = tuple[LiveGeneration, CorpusStatistics]

#: What a model gives -> what becomes of it behind the last word-piece that the model reads.
_COSTS = {"dense": "their vectors stand for the beginning alone", "weights": "words further on get no learned weight"}
#: The share of texts longer than a model reads from which that is said.
_WORTH_A_WARNING = 0.005
#: What is counted -> what it is counted in, and what is said of it.
_NOTES = {
    "repeated": ("document", "left out, with the id and content of an earlier document."),
    "textless": ("document", "without any text: only filters and ids find them, no query does."),
    "garbled": ("document", "with U+FFFD, which stands for bytes that could not be read: see which encoding the source has."),
    "unfilterable": ("document", "with a metadata value of more than 30,000 bytes: it is stored, but filters cannot use it."),
    "too_long": ("word", f"of more than {LONGEST_TERM} characters left out of the term weights."),
}
#: Number of entries that a message names; the others are counted.
_NAMED = 5
#: A term's idf is known to .5 if this many documents of a sample hold it: its standard error is about 1 / sqrt(16).
_KNOWN = 16


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
    return [f"The corpus has drifted: {drift} A new build, without --update, counts again."]


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
            f"This compares its first {first:,} documents, in terms that {_KNOWN} of them hold; if the source is sorted by subject, "
            "they say little about the rest. "
        )
    return [f"{sentence}Build anew, which counts again; --update would weigh by the old ones."]
