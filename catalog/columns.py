"""The fields of the server that count, sort and group documents by an entry of their metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from termweave.catalog.typed_fields import TYPES
from termweave.errors import UsageError
from termweave.support.messages import few

if TYPE_CHECKING:
    from collections.abc import Sequence

    from termweave.catalog.layout import Column, DocumentLayout


def sortable(name: str, layout: DocumentLayout) -> Column:
    """The field of the server that counts and sorts an entry.

    Raises:
        UsageError: The index has no such typed field.
    """
    column = layout.column(name)
    if column is not None and column.kind in TYPES and column.doc_values:
        return column
    if layout.application is not None:
        hint = f"Its mapping has {few(layout.sortable, 10) or 'none'}; a text needs a subfield of type keyword, and every field its doc_values."
    elif layout.types:
        hint = f"These can be counted and sorted: {few(sorted(layout.types), 10)}. Texts of more than 256 characters cannot."
    else:
        hint = (
            "The index has no typed metadata: its source has none, or it was built by an earlier version and must be built again."
        )
    raise UsageError(f"The index has no field {name!r} that can be counted or sorted.", hint)


def first_passages(layout: DocumentLayout) -> dict[str, Any]:
    """The clause for whole documents, and for the first passage of those that are cut into passages."""
    if layout.application is not None:  # its documents are whole, and a field `passage` is its own
        return {"match_all": {}}
    whole = {"bool": {"must_not": [{"exists": {"field": "passage"}}]}}
    return {"bool": {"should": [{"term": {"passage": 1}}, whole], "minimum_should_match": 1}}


def among(documents: Sequence[str], layout: DocumentLayout) -> dict[str, Any]:
    """The query for documents; a document in passages counts once, with its first passage."""
    return {"bool": {"filter": [{"terms": {"id": list(documents)}}, first_passages(layout)]}}
