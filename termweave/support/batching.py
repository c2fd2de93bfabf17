"""Sequences in parts of a size; `itertools.batched` is Python 3.12's, and makes tuples of strings and arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

T = TypeVar("T")


def in_parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Slices of `size` items, the last one of what is left; none of an empty sequence.

    Example:
        >>> list(in_parts("abcde", 2))
        ['ab', 'cd', 'e']
    """
    return (items[start : start + size] for start in range(0, len(items), size))
