"""The ledger: which document of the source is acknowledged with which digest. One SQLite file a generation.

It is written in two passes. The survey enters every document of the source with the digest of what the source says; the
sending pass adds the digest of what the models said, once the engine has acknowledged the document. A document
without that second digest has still to be sent, which is all that resuming needs to know.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from termweave.errors import TermweaveError
from termweave.sequences import in_parts
from termweave.signals.layout import bucket_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

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
#: Ids in one question; SQLite's limit was 999 before 3.32.
_ASKED = 500
#: Documents that an index should hold: all but those refused of which no version was ever taken.
_EXPECTED = "refused IS NULL OR encoding IS NOT NULL"
_DOCUMENTS = "SELECT count(*) - count(parent) + count(DISTINCT parent) FROM documents"


@dataclass(frozen=True, slots=True)
class Entry:
    """A document or passage as the survey enters it.

    Attributes:
        id: Its id.
        line: Where it stands in the source.
        source: Digest of what the source says of it.
        parent: Of a passage, the id of its document.
    """

    id: str
    line: int | None
    source: int
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A document whose id, or that of one of its passages, is another one's.

    Attributes:
        id: Of the document.
        line: Where it stands in the source.
        first: Id of the document that had it first: another one only where a passage of one is called like the other.
        first_line: Where that stands.
        same: Both say the same.
        key: The id that both would be stored under.
    """

    id: str
    line: int | None
    first: str
    first_line: int | None
    same: bool
    key: str


@dataclass(frozen=True, slots=True)
class BucketSum:
    """What one bucket should hold: number of documents and the sums of their digests."""

    count: int
    source: int
    encoding: int


class Ledger:
    """One generation's ledger; safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._closed = False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        except sqlite3.Error as error:
            raise _trouble(path, "opened", error) from error
        try:
            columns = {row[1] for row in self._db.execute("PRAGMA table_info(documents)")}
            if columns and "parent" not in columns:  # written before there were passages
                self._db.execute("ALTER TABLE documents ADD COLUMN parent TEXT")
            self._db.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;" + _SCHEMA)
        except sqlite3.Error as error:
            self._db.close()
            raise _trouble(path, "opened", error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def handed_on(self) -> Iterator[Self]:
        """Around what is done before somebody else has the ledger, and closes it: if that fails nobody gets it, and it is closed here."""
        try:
            yield self
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file. Not under the hands of another thread, which SQLite answers with a crash."""
        with self._lock:
            self._closed = True
            self._db.close()

    def take_over(self, other: Path) -> None:
        """Enter the documents of another ledger, with what is known of them."""
        Ledger(other).close()  # one of an older version is given the columns it lacks
        columns = "id, line, bucket, source, encoding, refused, parent"
        with self._lock, in_words(self.path, "written"):
            self._db.execute("ATTACH ? AS other", (str(other),))
            self._db.execute(f"INSERT OR IGNORE INTO documents ({columns}) SELECT {columns} FROM other.documents")  # noqa: S608
            self._db.execute("DETACH other")

    def put(self, key: str, value: Any) -> None:
        """Keep a JSON value."""
        self._write("INSERT OR REPLACE INTO meta VALUES (?, ?)", [(key, json.dumps(value))])

    def get(self, key: str) -> Any:
        """A kept value, or None."""
        row = self._one("SELECT value FROM meta WHERE key = ?", (key,))
        return None if row is None else json.loads(row[0])

    def enter(self, entries: Sequence[Entry]) -> list[Duplicate]:
        """Enter documents of the source; the first of two with one id stays, the second is returned."""
        rows = [(entry.id, entry.line, bucket_of(entry.id), entry.source, entry.parent) for entry in entries]
        before = self._db.total_changes
        self._write("INSERT OR IGNORE INTO documents (id, line, bucket, source, parent) VALUES (?, ?, ?, ?, ?)", rows)
        if self._db.total_changes - before == len(rows):
            return []
        found = []
        for entry in entries:
            line, source, first = self._one("SELECT line, source, coalesce(parent, id) FROM documents WHERE id = ?", (entry.id,))
            if line != entry.line:
                found.append(Duplicate(entry.id, entry.line, first, line, source == entry.source, entry.id))
        return found

    def acknowledge(self, digests: Iterable[tuple[str, int]]) -> None:
        """The engine has these documents: (id, digest of the encoding)."""
        rows = [(digest, identity) for identity, digest in digests]
        self._write("UPDATE documents SET encoding = ?, refused = NULL WHERE id = ?", rows)

    def refuse(self, reasons: Iterable[tuple[str, str]]) -> None:
        """The engine will not take these documents: (id, reason)."""
        self._write("UPDATE documents SET refused = ? WHERE id = ?", [(reason, identity) for identity, reason in reasons])

    def again(self, identities: Iterable[str]) -> None:
        """The engine has these documents no more, or not as they were sent: they are to be sent again."""
        self._write("UPDATE documents SET encoding = NULL WHERE id = ?", [(identity,) for identity in identities])

    def pending(self, places: Sequence[tuple[str, int | None]]) -> set[tuple[str, int | None]]:
        """Which of these (id, line) have still to be sent. A second document with an id stands on another line: not it."""
        waiting = set()
        for part in in_parts(places, _ASKED):
            asked = {identity for identity, _ in part}
            marks = ",".join("?" * len(asked))
            statement = f"SELECT id, line FROM documents WHERE id IN ({marks}) AND encoding IS NULL"  # noqa: S608 - marks only
            waiting.update(self._all(statement, *asked))
        return waiting.intersection(places)

    def remove(self, identities: Iterable[str]) -> None:
        """These documents are to be in the index no longer."""
        self._write("DELETE FROM documents WHERE id = ?", [(identity,) for identity in identities])

    def forget(self, documents: Iterable[str]) -> None:
        """These documents, whole or in passages, are to be in the index no longer."""
        self._write("DELETE FROM documents WHERE id = ? OR parent = ?", [(identity, identity) for identity in documents])

    def withdraw(self, places: Iterable[tuple[str, int | None]]) -> None:
        """Take documents out again, with all their passages: (id of the document, line)."""
        rows = [(identity, identity, line) for identity, line in places]
        self._write("DELETE FROM documents WHERE (id = ? OR parent = ?) AND line IS ?", rows)

    def documents_again(
        self, entries: Sequence[Entry], duplicates: Sequence[Duplicate]
    ) -> dict[tuple[str, int | None], Duplicate]:
        """Which of the documents just entered, whole or in all their passages, have an id that was there before.

        Cut and whole, one id gives keys that do not collide; cut into more passages, some that do not.

        Returns:
            (id of the document, line) -> the duplicate.
        """
        keys: dict[tuple[str, int | None], list[Entry]] = {}
        for entry in entries:
            keys.setdefault((entry.parent or entry.id, entry.line), []).append(entry)
        by_key = {(each.id, each.line): each for each in duplicates}
        again = {}
        for (identity, line), parts in keys.items():
            clashes = [by_key[part.id, line] for part in parts if (part.id, line) in by_key]
            rows = self._all("SELECT line FROM documents WHERE (id = ? OR parent = ?) AND line < ?", identity, identity, line)
            if clashes or rows:
                other = next((clash for clash in clashes if clash.first != identity), None)
                same = len(clashes) == len(parts) == len(rows) and all(clash.same for clash in clashes)
                line_of_first = rows[0][0] if rows else clashes[0].first_line
                own = Duplicate(identity, line, identity, line_of_first, same, identity)
                again[identity, line] = replace(other, id=identity) if other else own
        return again

    @property
    def total(self) -> int:
        """Documents and passages entered."""
        return int(self._one("SELECT count(*) FROM documents", ())[0])

    @property
    def entered(self) -> int:
        """Documents of the source: the passages of one count once."""
        return int(self._one(_DOCUMENTS, ())[0])

    @property
    def documents(self) -> int:
        """Documents of the source, less those refused."""
        return int(self._one(f"{_DOCUMENTS} WHERE {_EXPECTED}", ())[0])

    @property
    def most_passages(self) -> int:
        """Passages of the longest document; 0 where none is cut."""
        row = self._one("SELECT count(*) FROM documents WHERE parent IS NOT NULL GROUP BY parent ORDER BY 1 DESC LIMIT 1", ())
        return int(row[0]) if row else 0

    @property
    def acknowledged(self) -> int:
        """Documents the engine has."""
        return int(self._one("SELECT count(*) FROM documents WHERE encoding IS NOT NULL", ())[0])

    @property
    def refusals(self) -> int:
        """Documents and passages refused and not sent since."""
        return int(self._one("SELECT count(refused) FROM documents", ())[0])

    def refused(self) -> list[tuple[str, int | None, str]]:
        """(id, line, reason) of the documents refused and not sent since; of some an earlier version is stored."""
        return self._all("SELECT id, line, refused FROM documents WHERE refused IS NOT NULL ORDER BY line, id")

    def refused_documents(self) -> list[tuple[str, int | None, str]]:
        """(id, line, reason of the first of its passages) of the documents of the source of which something was refused."""
        document = "coalesce(parent, id)"
        reasons = f"SELECT {document}, line, min(id), refused FROM documents WHERE refused IS NOT NULL GROUP BY {document} ORDER BY line, 1"  # noqa: S608
        return [(identity, line, reason) for identity, line, _, reason in self._all(reasons)]

    def buckets(self) -> dict[int, BucketSum]:
        """What every non-empty bucket should hold."""
        rows = self._all(
            f"SELECT bucket, count(*), sum(source), sum(coalesce(encoding, 0)) FROM documents WHERE {_EXPECTED} GROUP BY bucket"  # noqa: S608
        )
        return {bucket: BucketSum(count, source, encoding) for bucket, count, source, encoding in rows}

    def in_bucket(self, bucket: int) -> dict[str, tuple[int, int]]:
        """Id -> (source digest, encoding digest) of one bucket; 0 where nothing was encoded."""
        rows = self._all(
            f"SELECT id, source, coalesce(encoding, 0) FROM documents WHERE bucket = ? AND ({_EXPECTED})",  # noqa: S608
            bucket,
        )
        return {identity: (source, encoding) for identity, source, encoding in rows}

    def _write(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        with self._lock, in_words(self.path, "written"):
            try:
                self._db.execute("BEGIN")
                self._db.executemany(statement, rows)
                self._db.execute("COMMIT")
            except sqlite3.Error:
                if not self._closed and self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def _one(self, statement: str, values: tuple[Any, ...]) -> Any:
        rows = self._all(statement, *values)
        return rows[0] if rows else None

    def _all(self, statement: str, *values: Any) -> list[Any]:
        with self._lock, in_words(self.path, "read"):
            return self._db.execute(statement, values).fetchall()


@contextmanager
def in_words(path: Path, done: str) -> Iterator[None]:
    """Say in words what SQLite could not do with a ledger that is to be "read" or "written".

    Raises:
        TermweaveError: It could not.
    """
    try:
        yield
    except sqlite3.Error as error:
        raise _trouble(path, done, error) from error


def _trouble(path: Path, done: str, error: sqlite3.Error) -> TermweaveError:
    damaged = not isinstance(error, sqlite3.OperationalError)  # that one is of the system: no space, no permission
    return TermweaveError(
        f"The ledger {path} cannot be {done}: {error}.",
        f"It is damaged: remove {path}*. The index is not touched by that: 'termweave verify NAME SOURCE' compares it with its source, "
        "'termweave index SOURCE NAME --update' writes a new ledger; a build that was not finished begins anew."
        if damaged
        else "Free some disk space, or see who may write there, and run the command again: it resumes.",
    )
