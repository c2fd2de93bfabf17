"""A table that leaves out the columns for which a terminal has no room."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from rich.table import Table


def fitted_table(
    columns: Mapping[str, Sequence[str]], width: int, *, kept: Collection[str] = (), right: Collection[str] = ()
) -> Table:
    """Make a table of as many columns as fit, in their order. The first column is never left out or cut: it is folded.

    Args:
        columns: Heading -> the cells of the column.
        width: Characters of a line.
        kept: Headings of columns that are shown even if they do not fit.
        right: Headings of columns that are aligned to the right.
    """
    from rich import box
    from rich.cells import cell_len
    from rich.table import Table

    (first, names), *others = columns.items()
    table = Table(box=box.SIMPLE_HEAD, padding=0)
    table.add_column(first, overflow="fold")
    left = width - 2 - max(map(cell_len, (first, *names)))
    rows = [[name] for name in names]
    for heading, cells in others:
        wide = max(map(cell_len, (heading, *cells))) + 1
        if wide > left and heading not in kept:
            continue
        left -= wide
        table.add_column(heading, justify="right" if heading in right else "left", no_wrap=True)
        for row, cell in zip(rows, cells, strict=True):
            row.append(cell)
    for row in rows:
        table.add_row(*row)
    return table
