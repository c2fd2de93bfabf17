r"""Synonyms in Solr's format, applied to queries.

    # a comment
    tv, television, telly          a query with one of these words is searched with all of them
    ipod, i-pod => ipod            a query with a term on the left is searched with the terms on the right instead

Words are compared without regard to case, and whole. The longest rule that fits is applied, from left to right and once: terms that a rule
adds are not looked up again, so that rules cannot run in a circle. ``\,`` and ``\=`` stand for the characters themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from termweave.errors import UsageError
from termweave.signals.lexical import PIECE
from termweave.support.messages import clipped
from termweave.support.normal_form import normal

#: Characters of all rules together: a profile keeps them in the state of the cluster.
MOST = 200_000
#: Synonyms of a query: the model reads the query once for each. A rule with more is never searched.
MOST_SYNONYMS = 100
#: Bytes of a file, with its comments and the columns that are not read.
_MOST_BYTES = 10_000_000
_COMMA = re.compile(r"(?<!\\),")
_ARROW = re.compile(r"(?<!\\)=>")
_FORM = "Write 'tv, television' or 'telly => television', one rule per line."


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a query that a rule of synonyms applies to.

    Attributes:
        start: Offset of the first character in the query.
        end: Offset behind the last character.
        keeps: Whether the typed words are searched, too.
        others: The synonyms that are searched besides the typed words, or instead of them; cut after `MOST_SYNONYMS` + 1.
    """

    start: int
    end: int
    keeps: bool
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Synonyms:
    """Rules of synonyms, ready to be applied.

    Attributes:
        rules: Words that a rule applies to, in small letters -> whether they are searched, too, and the synonyms to search (`Span.others`).
        lengths: The numbers of words that rules apply to, highest first.
    """

    rules: Mapping[tuple[str, ...], tuple[bool, tuple[str, ...]]]
    lengths: tuple[int, ...]

    @classmethod
    def parse(cls, lines: Iterable[str]) -> Synonyms:
        """Read rules from lines. Several rules for the same words are joined.

        Raises:
            UsageError: A line is not a rule, or the rules have too many characters.
        """
        rules: dict[tuple[str, ...], tuple[bool, tuple[str, ...]]] = {}
        lines = [normal(line) for line in lines]
        if (size := sum(map(len, lines))) > MOST:
            raise UsageError(f"The synonyms have {size:,} characters.", f"At most {MOST:,} are read: leave rules out.")
        for number, line in enumerate(lines, 1):
            for words, keeps, others in _rule(line, number):
                stays, before = rules.get(words, (False, ()))
                both = tuple(dict.fromkeys((*before, *others)))[: MOST_SYNONYMS + 1] if before else others
                rules[words] = stays or keeps, both
        return cls(rules, tuple(sorted({len(words) for words in rules}, reverse=True)))

    def spans(self, text: str) -> list[Span]:
        """Find the parts of a text that rules apply to, from left to right.

        Example:
            >>> Synonyms.parse(["tv, television"]).spans("a TV set")
            [Span(start=2, end=4, keeps=True, others=('television',))]
        """
        pieces = list(PIECE.finditer(text))
        words = [piece[0].casefold() for piece in pieces]
        spans, at = [], 0
        while at < len(words):
            for length in self.lengths:
                if at + length <= len(words) and (rule := self.rules.get(tuple(words[at : at + length]))) is not None:
                    spans.append(Span(pieces[at].start(), pieces[at + length - 1].end(), *rule))
                    at += length
                    break
            else:
                at += 1
        return spans


def read(path: str) -> list[str]:
    """Read the rules of a file of synonyms, one per line.

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


def read_text(path: str, content: str) -> str:
    """Read the text of a file in UTF-8.

    Args:
        path: Path of the file.
        content: Name of the content for messages: "synonyms" or "pins".

    Raises:
        UsageError: The file cannot be read, is too large, or is not UTF-8.
    """
    try:
        with Path(path).open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise UsageError(f"The file of {content} {path!r} has more than {_MOST_BYTES:,} bytes.", "Leave some of it out.")
        return text.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"The file of {content} {path!r} is not UTF-8.", "Save it as UTF-8.") from None
    except (OSError, ValueError) as error:  # ValueError: its name holds a zero byte
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"The file of {content} {path!r} cannot be read: {why}.", "Check its name.") from None


def _rule(line: str, number: int) -> Iterator[tuple[tuple[str, ...], bool, tuple[str, ...]]]:
    """Read a line: for each term that the rule applies to, its words, whether they are searched, too, and the synonyms to search.

    An empty line and a comment give nothing.

    Raises:
        UsageError: The line is not a rule.
    """
    if not line.strip() or line.lstrip().startswith("#"):
        return
    left, *right = (_terms(side) for side in _ARROW.split(line))
    if len(right) > 1 or not left or (right and not right[0]) or (not right and len(left) < 2):
        raise UsageError(f"Line {number} of the synonyms, {clipped(line.strip())!r}, is not a rule.", _FORM)
    by_words: dict[tuple[str, ...], dict[str, None]] = {}
    for words, term in right[0] if right else left:
        by_words.setdefault(words, {})[term] = None
    terms = [term for same in by_words.values() for term in same]
    too_many = tuple(terms[: MOST_SYNONYMS + 1])
    for words in dict.fromkeys(words for words, _ in left):
        same = by_words.get(words, {})
        if (count := len(terms) - len(same)) > MOST_SYNONYMS:
            yield words, not right or bool(same), too_many
        elif count:
            yield words, not right or bool(same), tuple(term for term in terms if term not in same)


def _terms(side: str) -> list[tuple[tuple[str, ...], str]]:
    """The terms on one side of a rule, each as a pair of its words in small letters and the term as written."""
    terms = (re.sub(r"\\(.)", r"\1", each).strip() for each in _COMMA.split(side))
    return [(words, term) for term in terms if (words := _words(term))]


def _words(text: str) -> tuple[str, ...]:
    return tuple(piece[0].casefold() for piece in PIECE.finditer(text))
