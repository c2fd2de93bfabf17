"""Words that messages share."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Half characters: Python holds bytes of a command line so that are no UTF-8, and Java halves of what was cut in two.
_SURROGATE = re.compile("[\ud800-\udfff]")


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


def sized(count: float) -> str:
    """A number of bytes as every message says it: decimal, so that a file has one size on the plan, in a folder and on disk.

    Example:
        >>> sized(512), sized(64e6), sized(1.9e9), sized(237_400_000)
        ('512 bytes', '64 MB', '1.9 GB', '237 MB')
    """
    units = ("bytes", "kB", "MB", "GB", "TB")
    size, place = float(count), 0
    while size >= 1000 and place < len(units) - 1:
        size, place = size / 1000, place + 1
    number = f"{size:,.0f}" if size >= 100 or not place else f"{size:.1f}".removesuffix(".0")
    return f"{number} {units[place]}"


def few(things: Sequence[str], most: int = 5, *, total: int = 0, between: str = ", ") -> str:
    """The first of several things, as a message names them.

    Args:
        things: In words; the first of them will do.
        most: How many are named.
        total: How many there are, where `things` are the first only.
        between: Stands between them.

    Example:
        >>> few(["a", "b"], 2), few(["a", "b", "c"], 2), few(["a", "b"], 2, total=9)
        ('a, b', 'a, b, ...', 'a, b, ...')
    """
    named = things[:most]
    return between.join([*named, "..."] if max(total, len(things)) > len(named) else named)


def paced(rate: float, thing: str) -> str:
    """How fast things go, in a number that says it: so many a second, or so long each.

    Args:
        rate: Of them a second.
        thing: One of them.

    Example:
        >>> paced(1.84, "step"), paced(0.02, "step")
        ('1.8 steps/s', '50.0 s a step')
    """
    return f"{rate:.1f} {thing}s/s" if rate >= 1 else f"{1 / rate:.1f} s a {thing}"


def clipped(text: str, most: int = 100) -> str:
    """A text that may be long, a whole mapping for one, as a message shows it.

    Example:
        >>> clipped("short"), clipped("a longer text", 8)
        ('short', 'a lon...')
    """
    return text if len(text) <= most else f"{text[: most - 3]}..."


def first_line(error: BaseException) -> str:
    r"""What an exception of somebody else's says, as a clause: its first line without a full stop, its kind where it says nothing.

    Example:
        >>> first_line(ValueError("no such model.\n  in file.cc")), first_line(TimeoutError())
        ('no such model', 'TimeoutError')
    """
    said = str(error).strip().partition("\n")[0].strip().rstrip(".")
    return said or type(error).__name__


def without_password(address: str) -> str:
    """An address as it may be shown, without the password that may stand in it, whatever characters that has.

    >>> without_password("https://me:p/ss@word@search:9200")
    'https://me:***@search:9200'
    """
    return re.sub(r"^((?:[^:/@]*://)?[^:/@]*):.*@", r"\1:***@", address)


def readable(text: str) -> str:
    r"""A text from outside, each character that no UTF-8 can say as U+FFFD.

    Example:
        >>> readable("caf\udce9 noir") == "caf\ufffd noir"
        True
    """
    return _SURROGATE.sub("\ufffd", text)
