"""Names of systems and numbers of queries, as tables and messages print them."""

from __future__ import annotations

from termweave.support.messages import counted

#: The name of the lexical signal in tables: the engine scores it by BM25.
BM25 = "BM25"


def queries(number: int, which: str = "") -> str:
    """Return a number of queries as text.

    Example:
        >>> queries(1), queries(2, "held-out")
        ('1 query', '2 held-out queries')
    """
    return counted(number, *(f"{which} {noun}".strip() for noun in ("query", "queries")))


def label(mode: str) -> str:
    """Return the name of a mode or signal in tables: "lexical" is printed as BM25."""
    return BM25 if mode == "lexical" else mode
