"""Changes: what a source says now against what a generation holds, by digest. Both sides are ledgers; SQLite compares them.

The generation's ledger is first made to say what is really stored (`adopt`): it may lie on another host, an update may have been
killed between sending and noting, somebody may have deleted a document. So an update needs no memory of an earlier one.
"""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

from termweave.indexer.ledger import in_words
from termweave.indexer.verification import otherwise_stored, sound
from termweave.signals.layout import bucket_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from termweave.engine import Engine
    from termweave.indexer.ledger import Ledger
    from termweave.indexer.verification import Stored
    from termweave.signals import DocumentLayout

#: Ids handed over at once.
_PAGE = 1000

_COMPARE = """
CREATE TEMP TABLE sent AS
    SELECT said.id, said.line, said.bucket, said.source, said.parent, coalesce(said.parent, said.id) AS document
    FROM said.documents AS said LEFT JOIN main.documents AS held ON held.id = said.id
    WHERE held.id IS NULL OR held.source <> said.source OR held.encoding IS NULL;
CREATE TEMP TABLE stale AS
    SELECT held.id, coalesce(held.parent, held.id) AS document
    FROM main.documents AS held LEFT JOIN said.documents AS said ON said.id = held.id
    WHERE said.id IS NULL;
CREATE TEMP TABLE gone AS
    SELECT DISTINCT document FROM stale WHERE NOT EXISTS
        (SELECT 1 FROM said.documents AS said WHERE said.id = document OR said.parent = document);
CREATE TEMP TABLE new AS
    SELECT DISTINCT document FROM sent WHERE NOT EXISTS
        (SELECT 1 FROM main.documents AS held WHERE held.id = document OR held.parent = document);
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
class Counts:
    """Documents of the source, each counted once however many passages it has.

    Attributes:
        new: The generation does not hold them.
        changed: It holds them with other content.
        unchanged: It holds them as they are.
        gone: It holds them and the source does not.
        refused: New or changed, and the engine did not take them: not among those two.
    """

    new: int
    changed: int
    unchanged: int
    gone: int
    refused: int = 0

    def __str__(self) -> str:
        refused = f"{self.refused:,} refused, " if self.refused else ""
        known = f"{self.new:,} new, {self.changed:,} changed, {refused}{self.unchanged:,} unchanged"
        return f"{known}, {self.gone:,} no longer in the source"


def adopt(engine: Engine, index: str, ledger: Ledger, layout: DocumentLayout) -> int:
    """Make a ledger say what its index holds; returns how many entries were other ones before. One scan of what differs.

    What is stored is believed where this ledger knows nothing at all. Else a document that is not as the ledger says is
    read back first; one whose content does not give its digests, or whose encoding alone became another, is damaged:
    it stays in the ledger, to be sent again. A stored document that no ledger entry and no digest of its own speaks for is
    not entered: to verification it is extra.
    """
    with in_words(ledger.path, "written"), closing(sqlite3.connect(ledger.path)) as db, db:  # what was refused may be taken now
        db.execute("DELETE FROM documents WHERE refused IS NOT NULL AND encoding IS NULL")
        db.execute("UPDATE documents SET refused = NULL WHERE refused IS NOT NULL")
    knows = bool(ledger.total)
    buckets, stored = otherwise_stored(engine, index, ledger)
    if not buckets:
        return 0
    where = f"bucket IN ({','.join(map(str, buckets))})"  # 1,024 are more than older versions take as parameters
    with in_words(ledger.path, "written"), closing(sqlite3.connect(ledger.path)) as db, db:
        db.execute(f"CREATE TEMP TABLE before AS SELECT id, line, source, encoding, parent FROM documents WHERE {where}")  # noqa: S608
        db.execute("CREATE UNIQUE INDEX temp.before_id ON before (id)")
        db.execute(f"DELETE FROM documents WHERE {where}")  # noqa: S608
        while page := list(islice(stored, _PAGE)):
            held = {each.id: db.execute("SELECT * FROM before WHERE id = ?", (each.id,)).fetchone() for each in page}
            own = [each for each in page if each.own and not (knows and _damaged(each, held[each.id]))]
            other = [each.id for each in own if (held[each.id] or (None,) * 4)[2:4] != (each.source, each.encoding)]
            good = {each.id for each in own} - set(other) | (sound(engine, index, layout, other) if knows else set(other))
            rows: list[tuple[Any, ...]] = [
                (each.id, bucket_of(each.id), None, each.source, each.encoding, each.parent) for each in own if each.id in good
            ]
            again = [row for identity, row in held.items() if row is not None and identity not in good]
            rows += [(identity, bucket_of(identity), line, source, None, parent) for identity, line, source, _, parent in again]
            db.executemany(
                "INSERT OR REPLACE INTO documents (id, bucket, line, source, encoding, parent) VALUES (?, ?, ?, ?, ?, ?)", rows
            )
        after = f"SELECT id, source, encoding FROM documents WHERE {where}"  # noqa: S608
        before = "SELECT id, source, encoding FROM before"
        question = f"SELECT count(DISTINCT id) FROM (SELECT * FROM ({before} EXCEPT {after}) UNION ALL SELECT * FROM ({after} EXCEPT {before}))"  # noqa: S608
        return int(db.execute(question).fetchone()[0])


def _damaged(stored: Stored, held: tuple[str, int | None, int, int | None, str | None] | None) -> bool:
    """Whether only the encoding is not what this ledger knows: no update of the same source text gives another one.

    One with words of neighbours may, from another host: that document is then sent once more.
    """
    return held is not None and held[3] is not None and held[2] == stored.source and held[3] != stored.encoding


class Changes:
    """The difference between a generation's ledger and one of what the source says.

    Args:
        held: The generation's, adopted.
        said: The source's, from a survey.
    """

    def __init__(self, held: Path, said: Path) -> None:
        self._path = held
        with in_words(held, "read"), ExitStack() as undo:
            self._db = sqlite3.connect(held)
            undo.callback(self._db.close)
            self._db.execute("ATTACH ? AS said", (str(said),))
            self._db.executescript(_COMPARE)
            documents = "SELECT count(*) - count(parent) + count(DISTINCT parent) FROM said.documents"
            new, gone, touched = (self._count(f"SELECT count(*) FROM {what}") for what in ("new", "gone", f"({_TOUCHED})"))  # noqa: S608
            self.counts = Counts(new, touched - new, self._count(documents) - touched, gone)
            undo.pop_all()  # all went well: it stays open

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def enter(self) -> None:
        """Write into the generation's ledger what is to be sent: pending until it is acknowledged."""
        with in_words(self._path, "written"), self._db:
            self._db.execute(_WERE)
            self._db.execute(_ENTER)

    def keep_refused(self) -> None:
        """Of a changed document that was refused the index has what it had: the ledger says that again, beside the refusal."""
        with in_words(self._path, "written"), self._db:
            self._db.execute(_KEEP)

    def settled(self) -> Counts:
        """The counts after sending: what was refused is neither new nor changed."""
        new = self._count(f"SELECT count(*) FROM new WHERE document IN ({_REFUSED})")  # noqa: S608
        both = self._count(f"SELECT count(*) FROM ({_TOUCHED}) WHERE document IN ({_REFUSED})")  # noqa: S608
        counts = self.counts
        return replace(counts, new=counts.new - new, changed=counts.changed - (both - new), refused=both)

    def stale(self, *, gone: bool) -> Iterator[list[str]]:
        """Ids stored that are no more: passages that changed documents have no longer; with `gone` instead those of whole documents.

        A changed document of which something was refused keeps what it had.
        """
        changed = f"document NOT IN (SELECT document FROM gone UNION {_REFUSED})"  # noqa: S608
        which = "document IN (SELECT document FROM gone)" if gone else changed
        with in_words(self._path, "read"):
            cursor = self._db.execute(f"SELECT id FROM stale WHERE {which}")  # noqa: S608
            while rows := cursor.fetchmany(_PAGE):
                yield [row[0] for row in rows]

    def _count(self, question: str) -> int:
        return int(self._db.execute(question).fetchone()[0])
