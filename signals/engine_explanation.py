"""Reading the engine's own explanation of a hit: which term of a text field gave how much."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from termweave.signals.base import TermShare

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: The node of an explanation that stands for one term.
_TERM_OF = re.compile(r"weight\((?P<terms>.*) in \d+\)", re.DOTALL)


def term_shares(explanation: Mapping[str, Any] | None, field: str) -> list[TermShare]:
    """What each term, as it stands in the index, contributed; heaviest first.

    Args:
        explanation: `_explanation` of a hit.
        field: The text field that was searched.
    """
    shares: dict[str, float] = {}
    for term, value in _scores(explanation or {}, f"{field}:"):
        shares[term] = shares.get(term, 0.0) + value
    return [TermShare(term, value) for term, value in sorted(shares.items(), key=lambda pair: (-pair[1], pair[0]))]


def _scores(node: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, float]]:
    found = _TERM_OF.match(str(node.get("description", "")))
    if found:
        named = found["terms"]
        if named.startswith(prefix):
            named = named.removeprefix(prefix)
        else:  # a term of the query with synonyms: each carries the field
            named = named.removeprefix("Synonym(").removesuffix(")").removeprefix(prefix).replace(f" {prefix}", " ")
        yield named, float(node["value"])
        return
    for child in node.get("details", ()):
        yield from _scores(child, prefix)
