"""The ledger: records which documents of the source the server has acknowledged, and with which digests. One SQLite file per generation.

It is written in two passes. The corpus pass enters every document of the source with a digest of its content. The sending pass adds
the digest of its encoding once the server has acknowledged the document. A document without that second digest still has to be
sent; a build that resumes needs no other information.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from termweave.catalog.layout import bucket_of, source_digest
from termweave.errors import TermweaveError
from termweave.support import private_files
from termweave.support.batching import in_parts

if TYPE_CHECKING:
    from termweave.records import Document

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS documents (
    id TEXT PRIMARY KEY,
    line INTEGER,
    bucket INTEGER NOT NULL,
    source INTEGER NOT NULL,
    encoding INTEGER,
    refused TEXT,
    parent TEXT
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS passages ON documents (parent) WHERE parent IS NOT NULL;
"""
#: Most ids in one SQL statement; SQLite's limit was 999 parameters before version 3.32.
_IDS_PER_STATEMENT = 500
#: SQL condition for the documents that the index should hold: all except those that were refused and have no earlier version stored.
_EXPECTED = "refused IS NULL OR encoding IS NOT NULL"
_DOCUMENTS = "SELECT count(*) - count(parent) + count(DISTINCT parent) FROM documents"


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A document whose id, or the id of one of its passages, was already taken by an earlier document.

    Attributes:
        id: Id of the later document.
        line: Line of the later document in the source.
        first: Id of the earlier document. It differs from `id` only if a passage of one has the same id as the other.
        first_line: Line of the earlier document.
        same: Whether both have the same content.
        key: The id under which both would be stored.
    """

    id: str
    line: int | None
    first: str
    first_line: int | None
    same: bool
    key: str


@dataclass(frozen=True, slots=True)
class BucketSum:
    """Expected content of one bucket: the number of documents and the sums of their digests."""

    count: int
    source: int
    encoding: int


class Ledger:
    """The ledger of one generation; safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._closed = False
        with readable_errors(path, "opened"), ExitStack() as on_error:
            private_files.make_folder(path.parent)  # private, because ids and reasons of refusals can contain text of the corpus
            private_files.make_file(path)  # SQLite gives its journals the file mode of the database
            self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            on_error.callback(self._db.close)
            self._db.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;" + _SCHEMA)
            on_error.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def closed_on_error(self) -> Iterator[Self]:
        """Close the ledger if the body of the `with` statement fails; otherwise leave it open for the next owner."""
        try:
            yield self
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file. The call waits for a statement of another thread, because SQLite crashes if a database is closed meanwhile."""
        with self._lock:
            self._closed = True
            self._db.close()

    def take_over(self, other: Path) -> None:
        """Copy all documents of another ledger, with their digests and refusals, into this one."""
        columns = "id, line, bucket, source, encoding, refused, parent"
        with self._lock, readable_errors(self.path, "written"):
            self._db.execute("ATTACH ? AS other", (str(other),))
            self._db.execute(f"INSERT OR IGNORE INTO documents ({columns}) SELECT {columns} FROM other.documents")  # noqa: S608
            self._db.execute("DETACH other")

    def put(self, key: str, value: Any) -> None:
        """Store a JSON value under a key."""
        self._write("INSERT OR REPLACE INTO meta VALUES (?, ?)", [(key, json.dumps(value))])

    def get(self, key: str) -> Any:
        """Return the value stored under a key; None: nothing is stored under it."""
        rows = self._all("SELECT value FROM meta WHERE key = ?", key)
        return json.loads(rows[0][0]) if rows else None

    def enter(self, documents: Sequence[Document]) -> dict[tuple[str, int | None], Duplicate]:
        """Enter documents of the source, each with all its passages and its line, except those whose id an earlier document has.

        The ids of documents are compared, and those of passages, too: two documents of one id share no passage id if only one of them is
        cut into passages, and share only some if they are cut into different numbers of passages.

        Returns:
            (id of the document, line) -> the duplicate, for each document that was not entered.
        """
        owned = [(each, each.passage.parent if each.passage else None) for each in documents]
        rows = [(each.id, each.line, bucket_of(each.id), source_digest(each), parent) for each, parent in owned]
        before = self._db.total_changes
        self._write("INSERT OR IGNORE INTO documents (id, line, bucket, source, parent) VALUES (?, ?, ?, ?, ?)", rows)
        cut = self._all("SELECT 1 FROM documents WHERE parent IS NOT NULL LIMIT 1")
        if not cut and self._db.total_changes - before == len(rows):
            return {}
        digests: dict[tuple[str, int | None], list[tuple[str, int]]] = {}
        for identity, line, _, digest, parent in rows:
            digests.setdefault((parent or identity, line), []).append((identity, digest))
        stored = {row[0]: row for row in self._where_in("id", [row[0] for row in rows])}
        of_document: dict[str, list[int]] = {}
        for column in ("id", "parent"):
            for _, place, _, owner in self._where_in(column, list({document for document, _ in digests})):
                of_document.setdefault(owner, []).append(place or 0)
        duplicates: dict[tuple[str, int | None], Duplicate] = {}
        for (document, line), parts in digests.items():
            # In a folder of texts every document is on line 1 of its file.
            taken = [(digest, row) for part, digest in parts if (row := stored[part])[1] != line or row[3] != document]
            earlier = [other for other in of_document.get(document, ()) if 0 < other < (line or 0)]
            if not (taken or earlier):
                continue
            alike = all(digest == other for digest, (_, _, other, _) in taken)
            same = alike and len(taken) == len(parts) and len(earlier) in {0, len(parts)}
            first_line = min(earlier) if earlier else taken[0][1][1]
            itself = (document, first_line, 0, document)
            # A passage of one may have the id of the other.
            key, other_line, _, other = next((row for _, row in taken if row[3] != document), itself)
            duplicates[document, line] = Duplicate(document, line, other, other_line, same, key)
        places = [(document, document, line) for document, line in duplicates]
        self._write("DELETE FROM documents WHERE (id = ? OR parent = ?) AND line IS ?", places)
        return duplicates

    def _where_in(self, column: str, values: Sequence[str]) -> Iterator[tuple[str, int | None, int, str]]:
        """Yield id, line, source digest and document id of the entries with one of these values in a column; `column` may begin with SQL conditions."""
        for part in in_parts(values, _IDS_PER_STATEMENT):
            marks = ",".join("?" * len(part))
            statement = f"SELECT id, line, source, coalesce(parent, id) FROM documents WHERE {column} IN ({marks})"  # noqa: S608 - marks only
            yield from self._all(statement, *part)

    def acknowledge(self, digests: Iterable[tuple[str, int]]) -> None:
        """Record that the server has stored documents, given as pairs (id, digest of the encoding)."""
        rows = [(digest, identity) for identity, digest in digests]
        self._write("UPDATE documents SET encoding = ?, refused = NULL WHERE id = ?", rows)

    def refuse(self, reasons: Iterable[tuple[str, str]]) -> None:
        """Record that the server refused documents, given as pairs (id, reason)."""
        self._write("UPDATE documents SET refused = ? WHERE id = ?", [(reason, identity) for identity, reason in reasons])

    def mark_unsent(self, identities: Iterable[str]) -> None:
        """Mark documents to be sent again, because the server has lost them or stores something else than was sent."""
        self._write("UPDATE documents SET encoding = NULL WHERE id = ?", [(identity,) for identity in identities])

    def pending(self, places: Sequence[tuple[str, int | None]]) -> set[tuple[str, int | None]]:
        """Return those of the given (id, line) that still have to be sent. The line excludes a later document with the same id."""
        unsent = self._where_in("encoding IS NULL AND id", [identity for identity, _ in places])
        return {(identity, line) for identity, line, _, _ in unsent}.intersection(places)

    def remove(self, identities: Iterable[str]) -> None:
        """Remove documents or passages by their own ids: the index should no longer hold them."""
        self._write("DELETE FROM documents WHERE id = ?", [(identity,) for identity in identities])

    def forget(self, documents: Iterable[str]) -> None:
        """Remove documents, with all their passages: the index should no longer hold them."""
        self._write("DELETE FROM documents WHERE id = ? OR parent = ?", [(identity, identity) for identity in documents])

    @property
    def total(self) -> int:
        """Number of entries; a document that is cut into passages has an entry for each passage."""
        return self._count("SELECT count(*) FROM documents")

    @property
    def entered(self) -> int:
        """Number of documents of the source; the passages of one document count as one."""
        return self._count(_DOCUMENTS)

    @property
    def documents(self) -> int:
        """Number of documents that the index should hold: all documents of the source except refused ones of which no earlier version is stored."""
        return self._count(f"{_DOCUMENTS} WHERE {_EXPECTED}")

    @property
    def most_passages(self) -> int:
        """Number of passages of the longest document; 0 if no document is cut."""
        counts = "SELECT count(*) AS passages FROM documents WHERE parent IS NOT NULL GROUP BY parent"
        return self._count(f"SELECT coalesce(max(passages), 0) FROM ({counts})")  # noqa: S608

    @property
    def acknowledged(self) -> int:
        """Number of documents and passages that the server has acknowledged."""
        return self._count("SELECT count(encoding) FROM documents")

    def sample(self, count: int) -> list[str]:
        """Return the ids of up to `count` documents and passages that the server has acknowledged, drawn at random."""
        rows = self._all("SELECT id FROM documents WHERE encoding IS NOT NULL ORDER BY random() LIMIT ?", count)
        return [identity for (identity,) in rows]

    def refused(self) -> list[tuple[str, int | None, str]]:
        """Return (id, line, reason) of the entries that the server refused; an earlier version of some may be stored."""
        return self._all("SELECT id, line, refused FROM documents WHERE refused IS NOT NULL ORDER BY line, id")

    def refused_documents(self) -> list[tuple[str, int | None, str]]:
        """Return (id, line, reason) of each document that was refused whole or in part; the reason is that of its first refused passage."""
        document = "coalesce(parent, id)"
        reasons = f"SELECT {document}, line, min(id), refused FROM documents WHERE refused IS NOT NULL GROUP BY {document} ORDER BY line, 1"  # noqa: S608
        return [(identity, line, reason) for identity, line, _, reason in self._all(reasons)]

    def buckets(self) -> dict[int, BucketSum]:
        """Return bucket -> number of documents and digest sums that the index should hold, for every non-empty bucket."""
        sums = "bucket, count(*), sum(source), sum(coalesce(encoding, 0))"
        rows = self._all(f"SELECT {sums} FROM documents WHERE {_EXPECTED} GROUP BY bucket")  # noqa: S608
        return {bucket: BucketSum(*each) for bucket, *each in rows}

    def in_bucket(self, bucket: int) -> dict[str, tuple[int, int]]:
        """Return id -> (source digest, encoding digest) for one bucket; 0 stands for a missing encoding digest."""
        statement = f"SELECT id, source, coalesce(encoding, 0) FROM documents WHERE bucket = ? AND ({_EXPECTED})"  # noqa: S608
        return {identity: (source, encoding) for identity, source, encoding in self._all(statement, bucket)}

    def _write(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        with self._lock, readable_errors(self.path, "written"):
            try:
                self._db.execute("BEGIN")
                self._db.executemany(statement, rows)
                self._db.execute("COMMIT")
            except BaseException:  # Ctrl-C, too
                if not self._closed and self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def _count(self, question: str) -> int:
        return int(self._all(question)[0][0])

    def _all(self, statement: str, *values: Any) -> list[Any]:
        with self._lock, readable_errors(self.path, "read"):
            return self._db.execute(statement, values).fetchall()


@contextmanager
def readable_errors(path: Path, action: str) -> Iterator[None]:
    """Turn an SQLite error into a message that says what to do.

    Args:
        path: File of the ledger.
        action: What is done with it, for the message: "opened", "read" or "written".

    Raises:
        TermweaveError: SQLite failed.
    """
    try:
        yield
    except sqlite3.Error as error:
        hint = (
            "Free some disk space or check the permissions of that folder, then run the command again: it resumes."
            if isinstance(error, sqlite3.OperationalError)  # from the system: no space, no permission
            else f"The file is damaged: remove {path}*. The index itself is not affected: 'termweave verify NAME SOURCE' compares it with its source, "
            "and 'termweave index SOURCE NAME --update' writes a new ledger. An unfinished build starts from the beginning."
        )
        raise TermweaveError(f"The ledger {path} cannot be {action}: {error}.", hint) from error


@contextmanager
def temporary_ledger() -> Iterator[Ledger]:
    """Open a ledger for a source that is only read; the ledger is deleted when the `with` statement ends."""
    with temporary_file() as path, Ledger(path) as ledger:
        yield ledger


@contextmanager
def temporary_file() -> Iterator[Path]:
    """Give the path for a temporary ledger, in a folder of its own that is deleted when the `with` statement ends."""
    with tempfile.TemporaryDirectory(dir=private_files.scratch()) as folder:
        yield Path(folder) / "source.sqlite"
