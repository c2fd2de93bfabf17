"""The plan of an update: the source read beside the live generation, the changes it would make, and its refusal if it would delete too much.

If the source is an index, only its changed documents need be read (--since): deleted documents are found by the ids of all others.
"""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from termweave.catalog import generations
from termweave.catalog.application_fields import with_fields
from termweave.catalog.lineage import CHANGING, read_lineage, resolve_index
from termweave.corpora.index import changes
from termweave.errors import UsageError
from termweave.indexer import rebuild_options
from termweave.indexer.ledger import diff, storage
from termweave.indexer.ledger.ledger import Ledger, readable_errors, temporary_file
from termweave.indexer.options import BuildOptions, Window
from termweave.indexer.preparation.corpus_pass import BuildProgress, CorpusPass, blocks, read_corpus
from termweave.indexer.preparation.metadata_types import TypeInference
from termweave.indexer.preparation.passages import in_passages
from termweave.support import arguments
from termweave.support.messages import counted, few

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from termweave.corpora import OpenedSource, Source
    from termweave.encoders import TextEncoder
    from termweave.engine import Engine

#: An update that deletes a larger share of the documents needs the user's consent, and changes a copy, so that it can be undone.
LARGE_DELETION = 0.1
#: Whole numbers from here on are rounded in a double.
_EXACT = 2**53


@dataclass(frozen=True)
class UpdateMode:
    """Choices of an update: what it deletes, and whether it changes the live generation or a copy.

    Attributes:
        delete_missing: Delete documents that the source does not have; nothing is deleted if the source has entries that cannot be read.
        new: Change a copy of the live generation and publish that when it is verified: searches see the whole update or nothing of it.
        options: Names of the build options that the user gave. The update is refused if the generation was built with other values.
        allow_deletions: The share of the documents, 0 to 1, that may be deleted; an update that would delete more is refused. Above
            `LARGE_DELETION` the update changes a copy, as with `new`, so that `rollback` brings the documents back.
    """

    delete_missing: bool = False
    new: bool = False
    options: Collection[str] = ()
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
        deletions: How many documents the update would delete.
        documents: How many documents the live generation holds.
        allowed: `UpdateMode.allow_deletions`.

    Attributes:
        deletions: How many documents the update would delete.
        documents: How many documents the live generation holds.
        share: The smallest value of `UpdateMode.allow_deletions`, in whole hundredths, that allows the update.
        allowed: Whether the deletions are within the allowed share, so that the update is not refused.
    """

    def __init__(self, name: str, deletions: int, documents: int, allowed: float) -> None:
        self.deletions, self.documents = deletions, documents
        self.share = -(-100 * deletions // documents) / 100 if documents else 0.0
        self.allowed = deletions <= allowed * documents
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
        documents: How many documents the live generation holds.
        counts: How the source and the generation differ.
        deletions: How many documents would be deleted.
        share: The share of the documents that would be deleted, rounded up to whole hundredths.
        allowed: Whether `UpdateMode.allow_deletions` allows these deletions.
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
        options: Only `skip_bad` and the options named in `mode.options` matter.
        mode: How the update would change the index.
        progress: Called with (stage, done, total or None).

    Raises:
        UsageError: No generation is live, or an option that was given has another value in the live generation.
        TermweaveError: The source cannot be read, or the server cannot be reached.
    """
    arguments.check(engine=engine, source=source, options=options)
    live = live_to_update(engine, source, name, options, mode)
    source = in_passages(source, Window.from_lineage(live.lineage.passages))
    with temporary_file() as path:
        corpus = read_source(engine, live, source, path, None, options, progress)
        counts = compare(engine, live, path)
    admitted, deletion = admit(counts, mode, name, unreadable=bool(source.skipped))
    return UpdatePlan(
        name=name,
        index=live.index,
        documents=counts.stored,
        counts=counts,
        deletions=deletion.deletions,
        share=deletion.share,
        allowed=deletion.allowed,
        new=admitted.new,
        notes=tuple(corpus.notes),
        warnings=tuple(corpus.warnings),
    )


def changed_since(engine: Engine, name: str, source: OpenedSource, field: str) -> tuple[OpenedSource, list[str]]:
    """Return a source of those documents of an index that changed since `name` was built from that index or last updated.

    Args:
        engine: The server of `name`.
        name: The alias that is updated.
        source: The index.
        field: A field that grows with every change, or ``_seq_no``.

    Returns:
        The source to update from, and remarks. Where nothing says which documents were read before, it is the whole source.

    Raises:
        UsageError: The source is not an index, or the field is neither a time nor a number in `name`.
    """
    if (whole := source.index) is None:
        raise UsageError(f"--since reads what changed in an index, and {source.name} is not an index.", "Leave --since out.")
    index = resolve_index(engine, name)
    lineage = read_lineage(engine, index)
    if field == changes.SEQUENCE:
        marks = whole.marks_of(lineage.source.get("marks", ""))
        if not marks:
            return source, [
                f"The last build or update did not record how far it read {source.name}, so all of {source.name} is compared."
            ]
        return changes.ChangedDocuments(whole, None, marks), []
    layout = with_fields(engine, index, lineage)
    usable = [each for each, kind in layout.kinds.items() if kind in {"date", "long", "double"}]
    if (column := layout.column(field)) is None or field not in usable:
        hint = f"Name a field that grows with every change: {few([*usable, changes.SEQUENCE])}."
        raise UsageError(f"{name!r} has no metadata entry {field!r} of times or numbers.", hint)
    if lineage.fingerprint == CHANGING:  # the newest document of `name` may have come before older ones that it still lacks
        return source, [f"An earlier update of {name!r} was stopped: all of {source.name} is compared."]
    body = {"size": 0, "aggs": {"newest": {"max": {"field": column.field}}}}
    newest = engine.request("POST", f"/{index}/_search", body=body)["aggregations"]["newest"]
    if newest["value"] is None:
        return source, [f"No document of {name!r} has a value of {field!r}: all of {source.name} is compared."]
    value = newest["value_as_string"] if column.kind == "date" else newest["value"]
    if column.kind != "date" and abs(value) >= _EXACT:  # the server gives a double, perhaps rounded up
        value = math.nextafter(value, -math.inf)
    return changes.ChangedDocuments(whole, changes.since_value(field, column.kind, value), {}), []


def live_to_update(
    engine: Engine, source: Source, name: str, options: BuildOptions, mode: UpdateMode
) -> generations.LiveGeneration:
    """Return the live generation of a name, after a check that it can be updated from a source.

    Raises:
        UsageError: No generation is live; an option that was given has another value there; or the generation keeps the mapping of its
            source (--keep-mapping), and the source was read without all fields of its documents.
    """
    live = generations.find_live(engine, name)
    if live is None:
        raise UsageError(f"There is no index {name!r} to update.", f"Build {name} first: run the same command without --update.")
    rebuild_options.refuse_other(engine, live, options, mode.options)
    if "kept" in live.lineage.source and not (source.index and source.index.reading.index.whole):
        message = f"{name!r} was built with --keep-mapping, and documents without their old fields cannot be added to it."
        raise UsageError(message, f"Add --keep-mapping, and name as SOURCE the index that {name} was built from.")
    return live


def read_source(
    engine: Engine,
    live: generations.LiveGeneration,
    source: Source,
    path: Path,
    encoder: TextEncoder | None,
    options: BuildOptions,
    progress: BuildProgress,
) -> CorpusPass:
    """Read a source once and enter its documents in a ledger of their own.

    If the source gives only changed documents, the ledger lists all other documents as the live generation holds them.

    Args:
        engine: The server.
        live: The live generation.
        source: The corpus, or its passages.
        path: The file of the new ledger.
        encoder: The encoder whose analysis counts the statistics; None: no statistics are counted.
        options: With `skip_bad` the first of two documents with one id is kept.
        progress: Called with (stage, done, total or None).
    """
    forms = live.lineage.layout.forms
    if (identities := source.identities()) is None:
        with Ledger(path) as ledger:
            return read_corpus(source, encoder, ledger, skip_bad=options.skip_bad, progress=progress, types=forms)
    with storage.snapshot(engine, live.index, path) as ledger:
        diff.adopt(engine, live.index, ledger, live.lineage.layout)
        unknown, anything = _forget_missing(path, identities), False
        for block in blocks(source.documents()):
            changed = {document.source_id for document in block}
            ledger.forget(changed)
            unknown -= changed
            anything = True
        corpus = CorpusPass(None, [], [], [], TypeInference())
        if anything:
            corpus = read_corpus(source, None, ledger, skip_bad=options.skip_bad, progress=progress, types=forms)
        if (lacking := len(unknown) - source.skipped.count) > 0:
            corpus.warnings.append(
                f"{live.lineage.name} lacks {counted(lacking, 'document')} of {source.name} that did not change, so that --since does not read them. "
                "Update once without --since."
            )
        return corpus


def _forget_missing(path: Path, pages: Iterator[list[str]]) -> set[str]:
    """Remove from a ledger the documents that the source does not have; returns the ids of documents that the source has and the ledger does not."""
    with readable_errors(path, "written"), closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TEMP TABLE present (id TEXT PRIMARY KEY) WITHOUT ROWID")
        for page in pages:
            db.executemany("INSERT OR IGNORE INTO present VALUES (?)", [(identity,) for identity in page])
        db.execute("DELETE FROM documents WHERE coalesce(parent, id) NOT IN (SELECT id FROM present)")
        lacking = db.execute("SELECT id FROM present EXCEPT SELECT coalesce(parent, id) FROM documents")
        return {identity for (identity,) in lacking}


def compare(engine: Engine, live: generations.LiveGeneration, path: Path) -> diff.ChangeCounts:
    """Count the changes between the ledger of a source and what the live generation stores. The generation's own ledger stays as it is.

    Args:
        engine: The server.
        live: The live generation.
        path: The ledger of the source.
    """
    with storage.snapshot(engine, live.index, path.with_name("stored.sqlite")) as ledger:
        diff.adopt(engine, live.index, ledger, live.lineage.layout)
        with diff.LedgerDiff(ledger.path, path) as difference:
            return difference.counts


def admit(counts: diff.ChangeCounts, mode: UpdateMode, name: str, *, unreadable: bool) -> tuple[UpdateMode, LargeDeletion]:
    """Check whether an update deletes no more than it may. An update with a large deletion changes a copy of the live generation.

    Args:
        counts: How the source and the generation differ.
        mode: The mode that the user asked for.
        name: The alias.
        unreadable: Whether the source has entries that cannot be read: nothing is deleted then.

    Returns:
        The mode of the update, and the error with which to refuse the update unless the error's `allowed` is true.
    """
    deletions = counts.gone if mode.delete_missing and not unreadable else 0
    new = mode.new or deletions > LARGE_DELETION * counts.stored
    return replace(mode, new=new), LargeDeletion(name, deletions, counts.stored, mode.allow_deletions)
