"""Write parts of messages: counts, sizes, shortened lists, and foreign text made safe for a terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: The hash of a model or of statistics, as termweave writes it.
_HASH = re.compile("[0-9a-f]{8,64}")
#: Halves of surrogate pairs. Python uses them for bytes of a command line that are not UTF-8; Java sends them where it cut a text.
_SURROGATE = re.compile("[\ud800-\udfff]")
#: Characters that control a terminal or change the order in which it shows text: control characters, separators of lines and
#: paragraphs, Unicode's bidirectional embeddings, overrides and isolates, and halves of surrogate pairs.
_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_BLANKS = str.maketrans("\t\n", "  ")


def is_hash(value: object) -> bool:
    """Whether a value has the form of a hash of a model or of statistics. Only such a value may become part of a file name.

    Example:
        >>> is_hash("0123456789abcdef"), is_hash("../../notes"), is_hash(7)
        (True, False, False)
    """
    return isinstance(value, str) and _HASH.fullmatch(value) is not None


def counted(count: int, thing: str, things: str = "") -> str:
    """A number with its noun: "1 entry", "1,200 entries".

    Args:
        count: The number.
        thing: The noun in the singular.
        things: The noun in the plural; default: the singular with an s.

    Example:
        >>> counted(1, "query", "queries"), counted(1200, "run")
        ('1 query', '1,200 runs')
    """
    return f"{count:,} {thing if count == 1 else things or f'{thing}s'}"


def sized(count: float) -> str:
    """A number of bytes for a message, in decimal units as in file managers.

    Example:
        >>> sized(999), sized(1000), sized(99_940_000), sized(237_400_000), sized(2.5e15)
        ('999 bytes', '1 kB', '99.9 MB', '237 MB', '2,500 TB')
    """
    units = ("bytes", "kB", "MB", "GB", "TB")
    size, unit = float(count), 0
    while size >= 1000 and unit < len(units) - 1:
        size, unit = size / 1000, unit + 1
    number = f"{size:,.0f}" if size >= 100 or not unit else f"{size:.1f}".removesuffix(".0")
    return f"{number} {units[unit]}"


def few(things: Sequence[str], most: int = 5, *, total: int = 0, between: str = ", ") -> str:
    """Join the first few of several names for a message; "..." stands for the rest.

    Args:
        things: Names of the things, or of the first ones.
        most: Number of things that are named.
        total: Number of all things, if `things` are only the first ones.
        between: Separator.

    Example:
        >>> few(["a", "b"], 2), few(["a", "b", "c"], 2), few(["a", "b"], 2, total=9)
        ('a, b', 'a, b, ...', 'a, b, ...')
    """
    first = things[:most]
    return between.join([*first, "..."] if max(total, len(things)) > len(first) else first)


def paced(rate: float, thing: str) -> str:
    """A speed for a message: things per second, or seconds for each thing if it is slow.

    Args:
        rate: Things per second.
        thing: The noun in the singular.

    Example:
        >>> paced(1.84, "step"), paced(0.02, "step")
        ('1.8 steps/s', '50.0 s a step')
    """
    return f"{rate:.1f} {thing}s/s" if rate >= 1 else f"{1 / rate:.1f} s a {thing}"


def duration(seconds: float) -> str:
    """A duration for a message: seconds, from 90 on minutes, from 90 minutes on hours, from 48 hours on days.

    Example:
        >>> duration(89), duration(90), duration(5400), duration(172_799), duration(172_800)
        ('89 s', '1.5 minutes', '1.5 hours', '48.0 hours', '2.0 days')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    for unit, length, end in (("minutes", 60, 90), ("hours", 3600, 48)):
        if seconds < end * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds / 86_400:,.1f} days"


def clipped(text: str, most: int = 100) -> str:
    """A text cut to `most` characters, for a message.

    Example:
        >>> clipped("short"), clipped("a longer text", 8)
        ('short', 'a lon...')
    """
    return text if len(text) <= most else f"{text[: most - 3]}..."


def first_line(error: BaseException) -> str:
    r"""The message of another library's exception as a clause: its first line without a full stop, or its class name if it is empty.

    Example:
        >>> first_line(ValueError("no such model.\n  in file.cc")), first_line(TimeoutError())
        ('no such model', 'TimeoutError')
    """
    line = str(error).strip().partition("\n")[0].strip().rstrip(".")
    return line or type(error).__name__


def without_password(address: str) -> str:
    """An address without the password in it, safe to show. The password may hold any characters.

    >>> without_password("https://me:p/ss@word@search:9200")
    'https://me:***@search:9200'
    """
    return re.sub(r"^((?:[^:/@]*://)?[^:/@]*):.*@", r"\1:***@", address)


def readable(text: str) -> str:
    r"""A foreign text with U+FFFD in place of each character that UTF-8 cannot encode.

    Example:
        >>> readable("caf\udce9 noir") == "caf\ufffd noir"
        True
    """
    return _SURROGATE.sub("\ufffd", text)


def escaped(json: str) -> str:
    r"""JSON that is safe to show on a terminal: the same data, with escapes for the characters that control a terminal.

    Example:
        >>> escaped('["\u202e"]') == '["\\u202e"]'
        True
    """
    return _COMMANDS.sub(lambda match: f"\\u{ord(match[0]):04x}", json)


def printable(text: str, *, lines: bool = False) -> str:
    r"""A foreign text that is safe to show on a terminal: of the same length, without characters that control a terminal.

    Args:
        text: A message, a name, an id, a document.
        lines: Keep line feeds and tabs; otherwise they become blanks, so that the text stays on one line.

    Example:
        >>> printable("id\nError: \x1b[2Jgone") == "id Error: \ufffd[2Jgone"
        True
    """
    safe = _COMMANDS.sub("\ufffd", text)
    return safe if lines else safe.translate(_BLANKS)
