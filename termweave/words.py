"""Words that messages share."""

from __future__ import annotations


def counted(count: int, thing: str, things: str = "") -> str:
    """A number with its noun: "1 entry", "1,200 entries".

    Args:
        count: How many.
        thing: One of them.
        things: Several of them; by default with an s.
    """
    return f"{count:,} {thing if count == 1 else things or f'{thing}s'}"
