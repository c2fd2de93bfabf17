"""The list of hits that Python users get: with a short repr, a table for notebooks, and a DataFrame."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

from termweave.errors import TermweaveError, UsageError
from termweave.records import Hit
from termweave.search.results.hits import flat
from termweave.search.results.pictures import passage, shade
from termweave.support.messages import clipped

if TYPE_CHECKING:
    import pandas as pd

#: Hits that a notebook shows, characters of the passage, and characters of a title.
_ROWS, _PASSAGE, _TITLE = 20, 300, 60
_CELL = "text-align:left;vertical-align:top;white-space:normal"


class Hits(list[Hit]):
    """The hits of a search, best first: a list that notebooks show as a table with shaded passages.

    Attributes:
        remarks: Remarks of `Index.search`, for example which filter leaves no document, or how many terms of the query a signal left out.
    """

    remarks: tuple[str, ...] = ()

    def __repr__(self) -> str:
        if not self:
            return "\n".join(["<no hits>", *self.remarks])
        lines = [f"{hit.rank:>3}  {hit.score:.4f}  {hit.id}  {clipped(_title(hit), _TITLE)}".rstrip() for hit in self[:_ROWS]]
        further = len(self) - len(lines)
        return "\n".join([*lines, *([f"... and {further:,} more"] if further else []), *self.remarks])

    @overload
    def __getitem__(self, index: SupportsIndex) -> Hit: ...

    @overload
    def __getitem__(self, index: slice) -> Hits: ...

    def __getitem__(self, index: SupportsIndex | slice) -> Hit | Hits:
        """Return one hit by its place, or for a slice several hits as another `Hits`."""
        return Hits(super().__getitem__(index)) if isinstance(index, slice) else super().__getitem__(index)

    def _repr_html_(self) -> str:
        """The HTML table that a notebook shows; words are shaded by their share of the score."""
        remarks = "".join(f"<p>{escape(each)}</p>" for each in self.remarks)
        if not self:
            return f"<p>Nothing found.</p>{remarks}"
        head = "".join(f'<th style="{_CELL}">{name}</th>' for name in ("", "score", "document", "passage"))
        rows = "".join(_row(hit) for hit in self[:_ROWS])
        further = len(self) - _ROWS
        below = f"<p>... and {further:,} more</p>" if further > 0 else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{below}{remarks}"

    def to_pandas(self) -> pd.DataFrame:
        """Return the hits as a DataFrame: rank, id, score, the stored fields (metadata.NAME), and the share of each signal.

        Raises:
            UsageError: pandas is not installed.
        """
        try:
            import pandas as pd  # noqa: PLC0415 - not a dependency
        except ImportError:
            raise UsageError("pandas is not installed.", "Install it with 'pip install pandas'.") from None
        rows: list[dict[str, Any]] = []
        for hit in self:
            shares = {f"share.{name}": signal.share for name, signal in hit.signals.items()}
            rows.append({"rank": hit.rank, "id": hit.id, "score": hit.score, **dict(flat(hit.fields)), **shares})
        return pd.DataFrame(rows)


def _title(hit: Hit) -> str:
    title = str(hit.fields.get("title") or "")
    return "" if title == hit.id else title


def _row(hit: Hit) -> str:
    cells = (
        str(hit.rank),
        f"{hit.score:.4f}",
        f"<b>{escape(clipped(_title(hit) or hit.id, _TITLE))}</b>"
        + (f"<br><small>{escape(hit.id)}</small>" if _title(hit) else ""),
        _passage(hit),
    )
    return "<tr>" + "".join(f'<td style="{_CELL}">{cell}</td>' for cell in cells) + "</tr>"


def _passage(hit: Hit) -> str:
    """The HTML of the part of a hit's text that adds most to the score, with shaded words.

    If the hit cannot be explained any more, the beginning of the text is returned.
    """
    try:
        explained = hit.explain()
    except TermweaveError:  # the document was deleted, or the server is gone: a table is still shown
        explained = {}
    if not explained.get("words"):
        return escape(clipped(str(hit.fields.get("text", "")), _PASSAGE))
    return "".join(
        f'<span style="background:{shade(share)}">{escape(piece)}</span>' if share > 0 else escape(piece)
        for piece, _, share in passage("", explained, _PASSAGE).runs()
    )
