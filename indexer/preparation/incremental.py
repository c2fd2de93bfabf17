"""Incremental updates: only what changed in a source index is read, and deleted documents are found by the ids of the others."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from termweave.catalog import lineage
from termweave.catalog.typed_fields import FIELD
from termweave.corpora.index import changes
from termweave.errors import UsageError
from termweave.indexer.ledger import diff, storage
from termweave.indexer.ledger.ledger import readable_errors
from termweave.indexer.preparation.corpus_pass import BuildProgress, CorpusPass, blocks, read_corpus
from termweave.indexer.preparation.metadata_types import TypeInference
from termweave.support.messages import counted, few

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from termweave.catalog.generations import LiveGeneration
    from termweave.corpora import OpenedSource, Source
    from termweave.engine import Engine


def changed_since(engine: Engine, name: str, source: OpenedSource, field: str) -> tuple[OpenedSource, list[str]]:
    """The documents of an index that changed since `name` was built from it or updated.

    Args:
        engine: The server of `name`.
        name: The alias that is updated.
        source: The index.
        field: A field that grows with every change, or ``_seq_no``.

    Returns:
        The source to update from, and remarks: the whole source where nothing says what was read before.

    Raises:
        UsageError: The source is not an index, or the field is neither a time nor a number in `name`.
    """
    if (whole := source.index) is None:
        raise UsageError(f"--since reads what changed in an index, and {source.name} is not an index.", "Leave --since out.")
    index = lineage.resolve(engine, name)
    made = lineage.read(engine, index)
    if field == changes.SEQUENCE:
        marks = whole.marks_of(made.source.get("marks", ""))
        if not marks:
            return source, [f"Nothing says up to which sequence numbers {source.name} was read: all of it is compared."]
        return changes.ChangedDocuments(whole, None, marks), []
    kind = made.types.get(field, "")
    if kind not in {"date", "long", "double"}:
        usable = sorted(each for each, type_ in made.types.items() if type_ in {"date", "long", "double"})
        raise UsageError(
            f"{name!r} has no metadata entry {field!r} of times or numbers.",
            f"Name a field that grows with every change: {few([*usable, changes.SEQUENCE])}.",
        )
    if made.fingerprint == lineage.CHANGING:  # the newest document of `name` may have come before older ones that it still lacks
        return source, [f"An earlier update of {name!r} was stopped: all of {source.name} is compared."]
    newest = engine.request(
        "POST", f"/{index}/_search", body={"size": 0, "aggs": {"newest": {"max": {"field": f"{FIELD}.{field}"}}}}
    )["aggregations"]["newest"]
    if newest["value"] is None:
        return source, [f"No document of {name!r} has a value of {field!r}: all of {source.name} is compared."]
    value = newest["value_as_string"] if kind == "date" else _not_above(newest["value"])
    return changes.ChangedDocuments(whole, changes.since_value(field, kind, value), {}), []


def _not_above(newest: float) -> float:
    """A number that is not above the newest value: the server gives a double, which rounds whole numbers from 2^53 on, perhaps up."""
    return math.nextafter(newest, -math.inf) if abs(newest) >= 2**53 else newest


def read_changes(
    engine: Engine,
    live: LiveGeneration,
    source: Source,
    identities: Iterator[list[str]],
    path: Path,
    *,
    skip_bad: bool,
    progress: BuildProgress,
) -> CorpusPass:
    """Write the ledger of a source of which only the changed documents are read: the others are as the generation holds them.

    Args:
        engine: The server.
        live: The generation.
        source: The changed documents, or their passages.
        identities: The ids of all documents of the index.
        path: The file of the ledger.
        skip_bad: As in `read_corpus`.
        progress: Called with (stage, done, total or None).
    """
    with storage.snapshot(engine, live.index, path) as ledger:
        diff.adopt(engine, live.index, ledger, live.lineage.layout)
        unknown = _forget_missing(path, identities)
        corpus = CorpusPass(None, [], [], [], TypeInference())
        anything = False
        for block in blocks(source.documents()):
            changed = {document.source_id for document in block}
            ledger.forget(changed)
            unknown -= changed
            anything = True
        if anything:
            corpus = read_corpus(source, None, ledger, skip_bad=skip_bad, progress=progress)
        if (lacking := len(unknown) - source.skipped.count) > 0:
            corpus.warnings.append(
                f"Not read, because unchanged, and not in the index: {counted(lacking, 'document')} of {source.name}. Update once without --since."
            )
        return corpus


def _forget_missing(path: Path, pages: Iterator[list[str]]) -> set[str]:
    """Remove the documents from a ledger that the source does not have; return those of the source that the ledger does not have."""
    with readable_errors(path, "written"), closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TEMP TABLE present (id TEXT PRIMARY KEY) WITHOUT ROWID")
        for page in pages:
            db.executemany("INSERT OR IGNORE INTO present VALUES (?)", [(identity,) for identity in page])
        db.execute("DELETE FROM documents WHERE coalesce(parent, id) NOT IN (SELECT id FROM present)")
        lacking = db.execute("SELECT id FROM present EXCEPT SELECT coalesce(parent, id) FROM documents")
        return {identity for (identity,) in lacking}
