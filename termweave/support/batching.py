"""Split sequences into parts. `itertools.batched` needs Python 3.12, and turns strings and arrays into tuples."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

T = TypeVar("T")


def in_parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Split a sequence into slices of `size` items; the last one may be shorter. An empty sequence has no slices.

    Example:
        >>> list(in_parts("abcde", 2))
        ['ab', 'cd', 'e']
    """
    return (items[start : start + size] for start in range(0, len(items), size))
