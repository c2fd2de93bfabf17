"""The difference between a source and a generation, by digests. Each side has a ledger; SQLite compares the two.

First, `adopt` corrects the generation's ledger to match what the index really stores: the ledger may be on another host, an update
may have been killed after it sent a document and before it recorded that, or somebody may have deleted a document. So an update
does not depend on what earlier updates recorded.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from termweave.catalog.layout import DocumentLayout, bucket_of
from termweave.indexer.ledger.ledger import Ledger, readable_errors
from termweave.indexer.stored_documents import StoredDocument, undamaged
from termweave.indexer.verification import differing_buckets

if TYPE_CHECKING:
    from termweave.engine import Engine

#: Number of ids processed at once.
_PAGE = 1000

_COMPARE = """
CREATE TEMP TABLE sent AS
    SELECT corpus.id, corpus.line, corpus.bucket, corpus.source, corpus.parent, coalesce(corpus.parent, corpus.id) AS document
    FROM corpus.documents AS corpus LEFT JOIN main.documents AS kept ON kept.id = corpus.id
    WHERE kept.id IS NULL OR kept.source <> corpus.source OR kept.encoding IS NULL;
CREATE TEMP TABLE stale AS
    SELECT kept.id, coalesce(kept.parent, kept.id) AS document
    FROM main.documents AS kept LEFT JOIN corpus.documents AS corpus ON corpus.id = kept.id
    WHERE corpus.id IS NULL;
CREATE TEMP TABLE gone AS
    SELECT DISTINCT document FROM stale WHERE NOT EXISTS
        (SELECT 1 FROM corpus.documents AS corpus WHERE corpus.id = document OR corpus.parent = document);
CREATE TEMP TABLE new AS
    SELECT DISTINCT document FROM sent WHERE NOT EXISTS
        (SELECT 1 FROM main.documents AS kept WHERE kept.id = document OR kept.parent = document);
"""
_TOUCHED = "SELECT document FROM sent UNION SELECT document FROM stale WHERE document NOT IN (SELECT document FROM gone)"
_REFUSED = "SELECT coalesce(parent, id) FROM main.documents WHERE refused IS NOT NULL"
_ENTER = """
INSERT INTO main.documents (id, line, bucket, source, parent) SELECT id, line, bucket, source, parent FROM sent WHERE true
    ON CONFLICT (id) DO UPDATE SET line = excluded.line, bucket = excluded.bucket, source = excluded.source,
        parent = excluded.parent, encoding = NULL, refused = NULL
"""
_WERE = """
CREATE TEMP TABLE were AS SELECT id, source, encoding FROM main.documents
    WHERE encoding IS NOT NULL AND id IN (SELECT id FROM sent)
"""
_KEEP = """
UPDATE main.documents SET (source, encoding) = (SELECT source, encoding FROM were WHERE were.id = documents.id)
    WHERE refused IS NOT NULL AND encoding IS NULL AND id IN (SELECT id FROM were)
"""


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """Numbers of documents by what an update does with them; a document counts once, however many passages it has.

    Attributes:
        new: Documents that the generation does not hold.
        changed: Documents that the generation holds with other content.
        unchanged: Documents that the generation holds with the same content.
        gone: Documents that the generation holds and the source no longer has.
        refused: New or changed documents that the server refused; they are not counted as new or changed.
    """

    new: int
    changed: int
    unchanged: int
    gone: int
    refused: int = 0

    @property
    def stored(self) -> int:
        """The number of documents in the generation when it was compared."""
        return self.changed + self.unchanged + self.gone

    def __str__(self) -> str:
        refused = f"{self.refused:,} refused, " if self.refused else ""
        present = f"{self.new:,} new, {self.changed:,} changed, {refused}{self.unchanged:,} unchanged"
        return f"{present}, {self.gone:,} no longer in the source"


def adopt(engine: Engine, index: str, ledger: Ledger, layout: DocumentLayout) -> int:
    """Correct a ledger to match what its index holds. Only the buckets that differ are read.

    An empty ledger takes over whatever is stored. Otherwise a document that differs from its ledger entry is read back first. It is
    damaged if its content does not match its digests, or if its encoding changed and its source did not; a damaged document keeps
    its entry, marked to be sent again. A stored document without digests of its own that the ledger does not know either is not
    entered: verification reports it as extra.

    Returns:
        The number of entries that were corrected.
    """
    with readable_errors(ledger.path, "written"), closing(sqlite3.connect(ledger.path)) as db, db:
        # Forget the refusals: the server may accept these documents now.
        db.execute("DELETE FROM documents WHERE refused IS NOT NULL AND encoding IS NULL")
        db.execute("UPDATE documents SET refused = NULL WHERE refused IS NOT NULL")
    has_entries = bool(ledger.total)
    buckets, stored = differing_buckets(engine, index, ledger)
    if not buckets:
        return 0
    # Written out: there can be 1,024, and older SQLite takes fewer parameters.
    where = f"bucket IN ({','.join(map(str, buckets))})"
    with readable_errors(ledger.path, "written"), closing(sqlite3.connect(ledger.path)) as db, db:
        db.execute(f"CREATE TEMP TABLE before AS SELECT id, line, source, encoding, parent FROM documents WHERE {where}")  # noqa: S608
        db.execute("CREATE UNIQUE INDEX temp.before_id ON before (id)")
        db.execute(f"DELETE FROM documents WHERE {where}")  # noqa: S608
        while page := list(islice(stored, _PAGE)):
            entries = {each.id: db.execute("SELECT * FROM before WHERE id = ?", (each.id,)).fetchone() for each in page}
            sound = [each for each in page if each.sound and not (has_entries and _damaged(each, entries[each.id]))]
            different = [each.id for each in sound if (entries[each.id] or (None,) * 4)[2:4] != (each.source, each.encoding)]
            confirmed = undamaged(engine, index, layout, different) if has_entries else set(different)
            good = {each.id for each in sound} - set(different) | confirmed
            rows: list[tuple[Any, ...]] = [
                (each.id, bucket_of(each.id), None, each.source, each.encoding, each.parent) for each in sound if each.id in good
            ]
            unsent = [row for identity, row in entries.items() if row is not None and identity not in good]
            rows += [(identity, bucket_of(identity), line, source, None, parent) for identity, line, source, _, parent in unsent]
            statement = "INSERT OR REPLACE INTO documents (id, bucket, line, source, encoding, parent) VALUES (?, ?, ?, ?, ?, ?)"
            db.executemany(statement, rows)
        after = f"SELECT id, source, encoding FROM documents WHERE {where}"  # noqa: S608
        before = "SELECT id, source, encoding FROM before"
        question = f"SELECT count(DISTINCT id) FROM (SELECT * FROM ({before} EXCEPT {after}) UNION ALL SELECT * FROM ({after} EXCEPT {before}))"  # noqa: S608
        return int(db.execute(question).fetchone()[0])


def _damaged(stored: StoredDocument, entry: tuple[str, int | None, int, int | None, str | None] | None) -> bool:
    """Whether a stored document has the source digest of its ledger entry, but another encoding digest.

    The same text always gives the same encoding. The exception are words of neighbours, which an update from another host may have
    changed; such a document is sent once more without need.
    """
    return entry is not None and entry[3] is not None and entry[2] == stored.source and entry[3] != stored.encoding


class LedgerDiff:
    """The difference between the ledger of a generation and a ledger of the source.

    Args:
        stored: File of the generation's ledger, corrected by `adopt`.
        source: File of the source's ledger, written by a corpus pass.
    """

    def __init__(self, stored: Path, source: Path) -> None:
        self._path = stored
        with readable_errors(stored, "read"), ExitStack() as undo:
            self._db = sqlite3.connect(stored)
            undo.callback(self._db.close)
            self._db.execute("ATTACH ? AS corpus", (str(source),))
            self._db.executescript(_COMPARE)
            documents = "SELECT count(*) - count(parent) + count(DISTINCT parent) FROM corpus.documents"
            new, gone, touched = (self._count(f"SELECT count(*) FROM {table}") for table in ("new", "gone", f"({_TOUCHED})"))  # noqa: S608
            self.counts = ChangeCounts(new, touched - new, self._count(documents) - touched, gone)
            undo.pop_all()  # no error: the database stays open

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def enter(self) -> None:
        """Enter the new and changed documents into the generation's ledger; they are pending until the server acknowledges them."""
        with readable_errors(self._path, "written"), self._db:
            self._db.execute(_WERE)
            self._db.execute(_ENTER)

    def sample(self, count: int) -> list[str]:
        """Return the ids of up to `count` new and changed documents that the server has acknowledged, drawn at random."""
        accepted = "SELECT id FROM main.documents WHERE encoding IS NOT NULL AND refused IS NULL AND id IN (SELECT id FROM sent)"
        with readable_errors(self._path, "read"):
            return [row[0] for row in self._db.execute(f"{accepted} ORDER BY random() LIMIT ?", (count,))]

    def keep_refused(self) -> None:
        """Restore the former digests of changed documents that were refused: the index still holds their earlier version."""
        with readable_errors(self._path, "written"), self._db:
            self._db.execute(_KEEP)

    def settled(self) -> ChangeCounts:
        """Return the counts after sending: refused documents no longer count as new or changed."""
        new = self._count(f"SELECT count(*) FROM new WHERE document IN ({_REFUSED})")  # noqa: S608
        refused = self._count(f"SELECT count(*) FROM ({_TOUCHED}) WHERE document IN ({_REFUSED})")  # noqa: S608
        counts = self.counts
        return replace(counts, new=counts.new - new, changed=counts.changed - (refused - new), refused=refused)

    def stale(self, *, gone: bool) -> Iterator[list[str]]:
        """Iterate over pages of stored ids that the source no longer has.

        Args:
            gone: Return the ids of documents that are gone as a whole. Otherwise return the ids of passages that changed documents no
                longer have; a changed document that was refused, even in part, keeps all its stored passages.
        """
        changed = f"document NOT IN (SELECT document FROM gone UNION {_REFUSED})"  # noqa: S608
        which = "document IN (SELECT document FROM gone)" if gone else changed
        with readable_errors(self._path, "read"):
            cursor = self._db.execute(f"SELECT id FROM stale WHERE {which}")  # noqa: S608
            while rows := cursor.fetchmany(_PAGE):
                yield [row[0] for row in rows]

    def _count(self, question: str) -> int:
        return int(self._db.execute(question).fetchone()[0])
