"""How tables and sentences name things."""

from __future__ import annotations

from termweave.words import counted

#: The lexical signal, as the engine scores it.
BM25 = "BM25"


def queries(number: int, which: str = "") -> str:
    """So many queries, of a kind where one is named.

    Example:
        >>> queries(1), queries(2, "held-out")
        ('1 query', '2 held-out queries')
    """
    return counted(number, *(f"{which} {noun}".strip() for noun in ("query", "queries")))


def label(mode: str) -> str:
    """A mode, or a signal, as tables name it: the lexical one is BM25."""
    return BM25 if mode == "lexical" else mode
