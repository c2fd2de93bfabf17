"""Words that messages share."""

from __future__ import annotations


def counted(count: int, thing: str, things: str = "") -> str:
    """A number with its noun: "1 entry", "1,200 entries".

    Args:
        count: How many.
        thing: One of them.
        things: Several of them; by default with an s.

    Example:
        >>> counted(1, "query", "queries"), counted(1200, "run")
        ('1 query', '1,200 runs')
    """
    return f"{count:,} {thing if count == 1 else things or f'{thing}s'}"


def clipped(text: str, most: int = 100) -> str:
    """A text that may be long, a whole mapping for one, as a message shows it.

    Example:
        >>> clipped("short"), clipped("a longer text", 8)
        ('short', 'a lon...')
    """
    return text if len(text) <= most else f"{text[: most - 3]}..."
