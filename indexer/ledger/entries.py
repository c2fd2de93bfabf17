"""Records of the ledger: entries, duplicates, sums of buckets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A document or passage as the corpus pass enters it.

    Attributes:
        id: Id of the document or passage.
        line: Line of the document in the source.
        source: Digest of its content in the source.
        parent: For a passage, the id of its document; else None.
    """

    id: str
    line: int | None
    source: int
    parent: str | None = None


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
