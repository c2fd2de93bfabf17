r"""Synonyms in Solr's format, applied to queries.

    # a comment
    tv, television, telly          each of them stands for all of them
    ipod, i-pod => ipod            a query with one of the left is searched with those of the right instead

Words are compared without regard to case, and whole. The longest rule that fits is applied, from left to right and once: what a rule puts in is
not looked up again, so that rules cannot run in a circle. ``\,`` and ``\=`` stand for the characters themselves.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from termweave.errors import UsageError
from termweave.signals.lexical import PIECE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

#: Characters of all rules together: a profile keeps them in the state of the cluster.
MOST = 200_000
_COMMA = re.compile(r"(?<!\\),")
_ARROW = re.compile(r"(?<!\\)=>")
_FORM = "Write 'tv, television' or 'telly => television', one rule per line."


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a query that a rule fits.

    Attributes:
        start: Offset of the first character in the query.
        end: Offset behind the last.
        keeps: Whether what was typed is searched, too.
        others: What is searched besides, or instead.
    """

    start: int
    end: int
    keeps: bool
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Synonyms:
    """Rules, ready to be applied.

    Attributes:
        rules: Words as typed, in small letters -> whether they are kept, and what else is searched.
        longest: Number of words of the longest rule.
    """

    rules: Mapping[tuple[str, ...], tuple[bool, tuple[str, ...]]]
    longest: int

    @classmethod
    def parse(cls, lines: Iterable[str]) -> Synonyms:
        """Read rules. Rules for the same words are joined.

        Raises:
            UsageError: A line is not a rule, or there are too many.
        """
        rules: dict[tuple[str, ...], tuple[bool, tuple[str, ...]]] = {}
        given = 0
        for number, line in enumerate(lines, 1):
            given += len(line)
            for typed, keeps, others in _rule(line, number):
                kept, before = rules.get(_words(typed), (False, ()))
                rules[_words(typed)] = kept or keeps, tuple(dict.fromkeys((*before, *others)))
        if given > MOST:
            raise UsageError(f"The synonyms have {given:,} characters.", f"At most {MOST:,} are read: leave rules out.")
        return cls(rules, max(map(len, rules), default=0))

    def spans(self, text: str) -> list[Span]:
        """The parts of a text that rules fit, from left to right.

        Example:
            >>> Synonyms.parse(["tv, television"]).spans("a TV set")
            [Span(start=2, end=4, keeps=True, others=('television',))]
        """
        pieces = list(PIECE.finditer(text))
        words = [piece[0].casefold() for piece in pieces]
        spans, at = [], 0
        while at < len(words):
            for length in range(min(self.longest, len(words) - at), 0, -1):
                if (rule := self.rules.get(tuple(words[at : at + length]))) is not None:
                    spans.append(Span(pieces[at].start(), pieces[at + length - 1].end(), *rule))
                    at += length
                    break
            else:
                at += 1
        return spans


def read(path: str) -> list[str]:
    """The lines of a file of synonyms.

    Raises:
        UsageError: The file cannot be read, or holds no rule.
    """
    lines = read_text(path, "synonyms").splitlines()
    try:
        rules = Synonyms.parse(lines).rules
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", error.hint) from None
    if not rules:
        raise UsageError(f"The file of synonyms {path!r} holds no rule.", _FORM)
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def read_text(path: str, what: str) -> str:
    """The content of a file of synonyms or pins.

    Raises:
        UsageError: The file cannot be read.
    """
    try:
        return Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"The file of {what} {path!r} is not UTF-8.", "Save it as UTF-8.") from None
    except (OSError, ValueError) as error:  # ValueError: its name holds a zero byte
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"The file of {what} {path!r} cannot be read: {why}.", "Check its name.") from None


def _rule(line: str, number: int) -> Iterator[tuple[str, bool, tuple[str, ...]]]:
    """What a line says of each of its terms: whether it is kept, and what else is searched; nothing for an empty line or a comment.

    Raises:
        UsageError: The line is not a rule.
    """
    if not line.strip() or line.lstrip().startswith("#"):
        return
    left, *right = (_terms(side) for side in _ARROW.split(line))
    if len(right) > 1 or not left or (right and not right[0]) or (not right and len(left) < 2):
        raise UsageError(f"Line {number} of the synonyms, {line.strip()!r}, is not a rule.", _FORM)
    for term in left:
        others = tuple(other for other in (right[0] if right else left) if _words(other) != _words(term))
        keeps = not right or len(others) < len(right[0])
        if others:
            yield term, keeps, others


def _terms(side: str) -> list[str]:
    terms = [re.sub(r"\\(.)", r"\1", each).strip() for each in _COMMA.split(side)]
    return [each for each in terms if _words(each)]


def _words(text: str) -> tuple[str, ...]:
    return tuple(piece[0].casefold() for piece in PIECE.finditer(text))
