"""What an update may do and would do: its mode, its plan, and its refusal if it would delete too much.

If the source is an index, only its changed documents need be read (--since): deleted documents are found by the ids of all others.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from termweave.catalog.lineage import CHANGING, layout_with_fields, read_lineage, resolve_index
from termweave.corpora.index.source import SEQUENCE, ChangedDocuments, since_value
from termweave.errors import UsageError
from termweave.support.messages import counted, few

if TYPE_CHECKING:
    from termweave.corpora import OpenedSource
    from termweave.engine import Engine
    from termweave.indexer.ledger.diff import ChangeCounts

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
    counts: ChangeCounts
    deletions: int
    share: float
    allowed: bool
    new: bool
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


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
    if field == SEQUENCE:
        marks = whole.marks_of(lineage.source.get("marks", ""))
        if not marks:
            why = f"The last build or update did not record how far it read {source.name}, so all of {source.name} is compared."
            return source, [why]
        return ChangedDocuments(whole, None, marks), []
    layout = layout_with_fields(engine, index, lineage)
    usable = [each for each, kind in layout.kinds.items() if kind in {"date", "long", "double"}]
    if (column := layout.column(field)) is None or field not in usable:
        hint = f"Name a field that grows with every change: {few([*usable, SEQUENCE])}."
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
    return ChangedDocuments(whole, since_value(field, column.kind, value), {}), []
