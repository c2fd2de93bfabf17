"""The plan of an update: the changes that it would make, and its refusal if it would delete too much."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from termweave.catalog import generations
from termweave.errors import UsageError
from termweave.indexer import rebuild_options
from termweave.indexer.ledger import diff, storage
from termweave.indexer.ledger.ledger import Ledger
from termweave.indexer.preparation import incremental
from termweave.indexer.preparation.corpus_pass import BuildProgress, CorpusPass, read_corpus
from termweave.indexer.preparation.passages import Window, in_passages
from termweave.support import arguments, private_files
from termweave.support.messages import counted

if TYPE_CHECKING:
    from collections.abc import Collection

    from termweave.catalog.generations import LiveGeneration
    from termweave.corpora import Source
    from termweave.encoders import TextEncoder
    from termweave.engine import Engine
    from termweave.indexer.options import BuildOptions

#: An update that deletes a larger share of the documents needs the user's consent, and changes a copy, so that it can be undone.
LARGE_DELETION = 0.1


@dataclass(frozen=True)
class UpdateMode:
    """How an update changes the index.

    Attributes:
        delete_missing: Delete documents that the source does not have; nothing is deleted if the source has entries that cannot be read.
        new: Change a copy of the live generation and publish that when it is verified: searches see the whole update or nothing of it.
        given: Names of the build options that the user gave. The update is refused if the generation was built with other values.
        allow_deletions: The share of the documents, 0 to 1, that may be deleted; an update that would delete more is refused. Above
            `LARGE_DELETION` the update changes a copy, as with `new`, so that `rollback` brings the documents back.
    """

    delete_missing: bool = False
    new: bool = False
    given: Collection[str] = ()
    allow_deletions: float = LARGE_DELETION

    def __post_init__(self) -> None:
        """Raise `UsageError` for a share outside 0 to 1."""
        if not 0 <= self.allow_deletions <= 1:
            raise UsageError(f"allow_deletions must be a share from 0 to 1, not {self.allow_deletions}.")


#: Nothing is deleted, and the live generation is changed in place.
DEFAULT_MODE = UpdateMode()


class LargeDeletion(UsageError):
    """An update would delete a larger share of the documents than is allowed. Nothing was changed.

    Args:
        name: The alias.
        deletions: How many documents it would delete.
        documents: How many the live generation holds.
        allowed: `UpdateMode.allow_deletions`.

    Attributes:
        deletions: How many documents it would delete.
        documents: How many the live generation holds.
        share: The smallest value of `UpdateMode.allow_deletions`, in whole hundredths, that allows it.
    """

    def __init__(self, name: str, deletions: int, documents: int, allowed: float) -> None:
        self.deletions, self.documents = deletions, documents
        self.share = hundredths(deletions, documents)
        super().__init__(
            f"This update would delete {deletions:,} of {counted(documents, 'document')} of {name!r}, and {100 * allowed:g}% may be deleted. "
            "Nothing was changed.",
            "Check that the source is complete; `termweave index --update --delete-missing --plan` reports what would change. "
            f"If the documents are to go, add `--yes` (in Python UpdateMode(allow_deletions={self.share:g})).",
        )


@dataclass(frozen=True)
class UpdatePlan:
    """The changes that an update would make.

    Attributes:
        name: The alias.
        index: The live generation.
        documents: How many documents it holds.
        counts: How the source and the generation differ.
        deletions: How many documents would be deleted.
        share: Their share of the documents, rounded up to whole hundredths.
        allowed: Whether `UpdateMode.allow_deletions` allows that.
        new: Whether the update would change a copy.
        notes: What a user should know.
        warnings: What a user should not miss.
    """

    name: str
    index: str
    documents: int
    counts: diff.ChangeCounts
    deletions: int
    share: float
    allowed: bool
    new: bool
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


def plan_update(
    engine: Engine,
    source: Source,
    name: str,
    options: BuildOptions,
    mode: UpdateMode = DEFAULT_MODE,
    progress: BuildProgress = lambda *_: None,
) -> UpdatePlan:
    """Compare a source with the live generation of `name`, as an update does, and change nothing. No model is loaded.

    Args:
        engine: The server.
        source: The corpus.
        name: The alias.
        options: Only `skip_bad` and the options named in `mode.given` matter.
        mode: How the update would change the index.
        progress: Called with (stage, done, total or None).

    Raises:
        UsageError: There is nothing to update, or a flag that was given has another value there.
        TermweaveError: The source cannot be read, or the server cannot be reached.
    """
    arguments.check(engine=engine, source=source, options=options)
    live = live_to_update(engine, source, name, options, mode)
    source = in_passages(source, Window.from_lineage(live.lineage.passages))
    with tempfile.TemporaryDirectory(dir=private_files.scratch()) as work:
        path = Path(work) / "source.sqlite"
        corpus = read_source(engine, live, source, path, None, skip_bad=options.skip_bad, progress=progress)
        counts = compare(engine, live, path)
    admitted, large = admit(counts, mode, name, unreadable=bool(source.skipped))
    deletions = counts.gone if mode.delete_missing and not source.skipped else 0
    return UpdatePlan(
        name=name,
        index=live.index,
        documents=counts.stored,
        counts=counts,
        deletions=deletions,
        share=hundredths(deletions, counts.stored),
        allowed=large is None,
        new=admitted.new,
        notes=tuple(corpus.notes),
        warnings=tuple(corpus.warnings),
    )


def hundredths(part: int, whole: int) -> float:
    """A share, rounded up to whole hundredths."""
    return -(-100 * part // whole) / 100 if whole else 0.0


def live_to_update(engine: Engine, source: Source, name: str, options: BuildOptions, mode: UpdateMode) -> LiveGeneration:
    """The live generation of a name, if it can be updated from a source.

    Raises:
        UsageError: There is none; a flag that was given has another value there; or it took a mapping over, and the source was not read
            whole, so that its documents lack fields of it.
    """
    live = generations.find_live(engine, name)
    if live is None:
        raise UsageError(f"There is no index {name!r} to update.", "Build it: the same command without --update.")
    rebuild_options.refuse_other(engine, live, options, mode.given)
    if "kept" in live.lineage.source and not (source.index and source.index.reading.index.whole):
        raise UsageError(
            f"{name!r} was made with --keep-mapping, and documents without their old fields cannot be added to it.",
            "Add --keep-mapping, and name the index that it was made from.",
        )
    return live


def read_source(
    engine: Engine,
    live: LiveGeneration,
    source: Source,
    path: Path,
    encoder: TextEncoder | None,
    *,
    skip_bad: bool,
    progress: BuildProgress,
) -> CorpusPass:
    """Read a source once and enter its documents in a ledger of their own.

    Args:
        engine: The server.
        live: The live generation, which holds the documents that a source of changes does not give.
        source: The corpus, or its passages.
        path: The file of that ledger.
        encoder: Counts the statistics; None: they are not counted.
        skip_bad: Keep the first of two documents with one id.
        progress: Called with (stage, done, total or None).
    """
    if (identities := source.identities()) is not None:
        return incremental.read_changes(engine, live, source, identities, path, skip_bad=skip_bad, progress=progress)
    with Ledger(path) as ledger:
        return read_corpus(source, encoder, ledger, skip_bad=skip_bad, progress=progress)


def compare(engine: Engine, live: LiveGeneration, path: Path) -> diff.ChangeCounts:
    """Compare the ledger of a source with what the live generation stores. The generation's own ledger stays as it is.

    Args:
        engine: The server.
        live: The live generation.
        path: The ledger of the source.
    """
    with storage.snapshot(engine, live.index, path.with_name("stored.sqlite")) as ledger:
        diff.adopt(engine, live.index, ledger, live.lineage.layout)
        with diff.LedgerDiff(ledger.path, path) as difference:
            return difference.counts


def admit(counts: diff.ChangeCounts, mode: UpdateMode, name: str, *, unreadable: bool) -> tuple[UpdateMode, LargeDeletion | None]:
    """Look whether an update deletes no more than it may. A large deletion changes a copy.

    Args:
        counts: How the source and the generation differ.
        mode: The mode that the user asked for.
        name: The alias.
        unreadable: Whether the source has entries that cannot be read: nothing is deleted then.

    Returns:
        The mode of the update, and its refusal; None: it may delete so much.
    """
    deletions = counts.gone if mode.delete_missing and not unreadable else 0
    refused = LargeDeletion(name, deletions, counts.stored, mode.allow_deletions)
    too_many = deletions > mode.allow_deletions * counts.stored
    new = mode.new or deletions > LARGE_DELETION * counts.stored
    return replace(mode, new=new), refused if too_many else None
