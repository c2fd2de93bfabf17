"""Read the server's explanation of a hit: the share of each term of a text field in the score."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from termweave.contracts.signal import TermShare

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Beginning of the description of a filter, which scores nothing, and of a node that counts the best of its children.
_FILTER, _BEST = "match on required clause", "max of:"
#: Description of an explanation's node for one term.
_TERM_NODE = re.compile(r"weight\((?P<terms>.*) in \d+\)", re.DOTALL)


def term_shares(explanation: Mapping[str, Any] | None, field: str) -> list[TermShare]:
    """The share of each indexed term in the score, heaviest first.

    Args:
        explanation: `_explanation` of a hit.
        field: The text field that was searched.
    """
    shares: dict[str, float] = {}
    for term, value in _scores(explanation or {}, f"{field}:"):
        shares[term] = shares.get(term, 0.0) + value
    return [TermShare(term, value) for term, value in sorted(shares.items(), key=lambda pair: (-pair[1], pair[0]))]


def _scores(node: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, float]]:
    """Term and score of each node that stands for one term."""
    description = str(node.get("description", ""))
    if description.startswith(_FILTER):
        return
    match = _TERM_NODE.match(description)
    if match:
        terms = match["terms"]
        if terms.startswith(prefix):
            terms = terms.removeprefix(prefix)
        else:  # a query term with synonyms; each is prefixed with the field
            terms = terms.removeprefix("Synonym(").removesuffix(")").removeprefix(prefix).replace(f" {prefix}", " ")
        yield terms, float(node["value"])
        return
    children = node.get("details", ())
    for child in sorted(children, key=lambda each: -each["value"])[:1] if description == _BEST else children:
        yield from _scores(child, prefix)
