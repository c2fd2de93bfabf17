r"""Read filters as a user writes them: ``year>=2020 AND (kind=class OR kind=function) AND NOT exists(deprecated)``.

    filter     = all { "OR" all }
    all        = one { "AND" one }
    one        = "NOT" one | "(" filter ")" | "exists(" FIELD ")" | FIELD operator VALUE | FIELD "IN (" VALUE { "," VALUE } ")"
    operator   = "=" | "!=" | "<" | "<=" | ">" | ">="

FIELD is an entry of the metadata, or ``id``. VALUE ends before ``AND``, ``OR`` or a closing bracket; in double quotes it may contain
anything (``\"`` is a quote). Outside of quotes ``*`` stands for any characters, and a date may be relative to now: ``day>=now-7d``. The
types that the index has for its fields decide how values are compared: numbers as numbers, dates as dates.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from termweave.dialect import OPENSEARCH, ServerDialect
from termweave.errors import UsageError
from termweave.search.filters import clauses as filter_clauses
from termweave.support.normal_form import normal

if TYPE_CHECKING:
    from termweave.catalog.layout import DocumentLayout

    Clause = dict[str, Any]

HELP = "Write FIELD=VALUE, for example 'kind=function'; compare with = != < <= > >=, and join with AND, OR, NOT, exists(FIELD), FIELD IN (A, B) and brackets."
_OPERATOR = re.compile(r"!=|<=|>=|=|<|>")
# Anybody can send a filter, so that these patterns and `_Reader` pass over each run of blanks a few times at most.
_JOINT = re.compile(r"\s+(?:AND|OR)(?=[\s(]|\Z)|\s*\Z")
_CLOSING = re.compile(r"\s*\)")
_PIECE = re.compile(r"\s+|[^\s()]+|[()]")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_EXISTS = re.compile(r"exists\s*\(([^()]*)\)", re.IGNORECASE)
_IN = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^"=!<>()]+?)(?<!\s))\s+IN\s*\(')
_LISTED = re.compile(r'\s*+(?:"((?:[^"\\]|\\.)*)"\s*+|([^,()"]*+))([,)])')
#: A joining word in small letters before what looks like another comparison, inside a value or before a name.
_SMALL = re.compile(r"\s(and|or)\s+(?:not\s+)?(?:exists\s*\(|[^\s=<>!]+\s*(?:=|!=|<|>|\sIN\s))", re.ASCII)
#: Brackets and NOTs inside one another, and levels of objects that are looked at.
_DEEPEST, _LEVELS = 50, 20


@dataclass(frozen=True)
class Comparison:
    """A comparison in a filter: FIELD operator VALUE.

    Attributes:
        name: Name of the field.
        operator: "=", "!=", "<", "<=", ">" or ">=".
        value: The value, without quotes.
        pattern: Whether ``*`` in the value stands for any characters.
    """

    name: str
    operator: str
    value: str
    pattern: bool = False

    def clause(self, layout: DocumentLayout) -> Clause:
        """Translate the comparison into a clause of the query DSL."""
        name = layout.spelled(self.name)
        if self.operator not in {"=", "!="}:
            return filter_clauses.in_range(name, self.operator, normal(self.value), layout)
        clause = (filter_clauses.matching if self.pattern else filter_clauses.equal)(name, self.value, layout)
        return clause if self.operator == "=" else filter_clauses.none_of(clause)


@dataclass(frozen=True)
class Exists:
    """The part exists(FIELD) of a filter."""

    name: str

    def clause(self, layout: DocumentLayout) -> Clause:
        """Translate exists(FIELD) into a clause of the query DSL."""
        return filter_clauses.exists(layout.spelled(self.name), layout)


@dataclass(frozen=True)
class Not:
    """A part of a filter behind NOT."""

    part: Node

    def clause(self, layout: DocumentLayout) -> Clause:
        """Translate the negated part into a clause of the query DSL."""
        return filter_clauses.none_of(self.part.clause(layout))


@dataclass(frozen=True)
class Junction:
    """Parts of a filter that are joined by AND or by OR."""

    word: str
    parts: tuple[Node, ...]

    def clause(self, layout: DocumentLayout) -> Clause:
        """Translate the joined parts into one clause of the query DSL."""
        clauses = [part.clause(layout) for part in self.parts]
        return (
            {"bool": {"filter": filter_clauses.of_same_objects(clauses)}}
            if self.word == "AND"
            else filter_clauses.any_of(clauses)
        )


Node = Comparison | Exists | Not | Junction


@dataclass(frozen=True)
class FilterExpression:
    """A filter expression that was read from a text.

    Attributes:
        text: The filter as the user wrote it.
        root: The outermost part of the filter, which holds the others.
    """

    text: str
    root: Node

    def __str__(self) -> str:
        return self.text

    def fields(self, kind: type[Comparison | Exists]) -> dict[str, str]:
        """The fields that all comparisons, or all exists(), name: name as written -> name of the field that stores it as text."""
        return {name: filter_clauses.stored_field(name) for name in _names(self.root, kind)}


def _names(node: Node, kind: type[Comparison | Exists]) -> list[str]:
    """The names, as written, of the fields in all parts of one kind (comparisons, or exists())."""
    if isinstance(node, Junction):
        return [name for part in node.parts for name in _names(part, kind)]
    return _names(node.part, kind) if isinstance(node, Not) else [node.name] * isinstance(node, kind)


def objects(expressions: Sequence[FilterExpression]) -> set[str]:
    """The objects about which expressions make several comparisons that a document must pass together.

    An example is "variants" in "variants.color=red AND variants.size=L".
    """
    return _objects(Junction("AND", tuple(each.root for each in expressions)))[1]


def _objects(node: Node) -> tuple[set[str], set[str]]:
    """The objects whose values a part of a filter compares, and the objects about which it makes several comparisons joined by AND."""
    if isinstance(node, Not):
        return _objects(node.part)
    if not isinstance(node, Junction):
        parts = node.name.split(".")[:_LEVELS]
        return {".".join(parts[:end]) for end in range(1, len(parts))}, set()
    compared, together = set[str](), set[str]()
    for others, inner in map(_objects, node.parts):
        together |= inner | (compared & others if node.word == "AND" else set())
        compared |= others
    return compared, together


def parse(text: str) -> FilterExpression:
    """Read a filter expression.

    Raises:
        UsageError: The text is not a filter expression.

    Example:
        >>> parse("year>=2020 AND NOT kind=draft").root.word
        'AND'
    """
    reader = _Reader(text)
    root = reader.filter(0)
    if reader.rest:
        raise reader.error(f"{reader.rest!r} is left over")
    return FilterExpression(text, root)


class _Reader:
    """Reads a filter expression from left to right."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    @property
    def rest(self) -> str:
        """The part of the text that is not read yet."""
        return self._text[self._at :].strip()

    def error(self, cause: str) -> UsageError:
        """Make the error for a filter that cannot be read; `cause` says why."""
        return UsageError(f"The filter {self._text!r} cannot be read: {cause}.", HELP)

    def filter(self, depth: int) -> Node:
        return self._joined("OR", lambda: self._joined("AND", lambda: self._one(depth)))

    def _joined(self, word: str, part: Any) -> Node:
        parts = [part()]
        while self._take(rf"{word}(?=[\s(])"):
            parts.append(part())
        return parts[0] if len(parts) == 1 else Junction(word, tuple(parts))

    def _one(self, depth: int) -> Node:
        if depth > _DEEPEST:
            raise self.error(f"more than {_DEEPEST} brackets and NOTs inside one another")
        if self._take(r"NOT(?=[\s(])"):
            return Not(self._one(depth + 1))
        if self._take(r"\("):
            inner = self.filter(depth + 1)
            if not self._take(r"\)"):
                raise self.error("a closing bracket is missing")
            return inner
        self._take("")
        if match := _EXISTS.match(self._text, self._at):
            self._at = match.end()
            return Exists(self._field(match[1]))
        if match := _IN.match(self._text, self._at):
            self._at = match.end()
            return self._listed(self._field(_unquoted(match[1]) if match[1] is not None else match[2]))
        return self._comparison()

    def _listed(self, name: str) -> Node:
        """Read the values of an IN up to its closing bracket; return a comparison for each value, joined by OR."""
        parts: list[Node] = []
        while True:
            match = _LISTED.match(self._text, self._at)
            if match is None or not (match[1] or match[2]):
                raise self.error("after IN, values in brackets are expected, separated by commas")
            self._at = match.end()
            quoted = match[1] is not None
            value = _unquoted(match[1]) if quoted else match[2].rstrip()
            parts.append(Comparison(name, "=", value, pattern=not quoted and "*" in value))
            if match[3] == ")":
                return parts[0] if len(parts) == 1 else Junction("OR", tuple(parts))

    def _comparison(self) -> Comparison:
        if quoted := _QUOTED.match(self._text, self._at):
            name, self._at = _unquoted(quoted[1]), quoted.end()
            self._take("")
            operator = _OPERATOR.match(self._text, self._at)
        else:
            operator = _OPERATOR.search(self._text, self._at)
            name = self._text[self._at : operator.start()] if operator else self._text[self._at :]
        if operator is None:
            raise self.error(f"{self._text[self._at :].strip()!r} is not FIELD=VALUE" if self.rest else "a comparison is missing")
        self._at = operator.end()
        field = self._field(name)
        value, in_quotes = self._value()
        if not in_quotes and (small := _SMALL.search(value)):
            hint = f"Write {small[1].upper()}, or put the value in double quotes."
            raise UsageError(f"The filter {self._text!r} has {small[1]!r} in small letters inside the value {value!r}.", hint)
        return Comparison(field, operator[0], value, pattern=not in_quotes and "*" in value)

    def _field(self, text: str) -> str:
        name = text.strip()
        if name != "metadata.id":  # `id` alone is the id of the document
            name = name.removeprefix("metadata.")
        if not name or re.search(r"\s(AND|OR)\s", name):
            raise self.error(f"{text.strip()!r} is not the name of a field" if name else "the name of a field is missing")
        if name.startswith("not "):
            hint = "Write NOT, or put the name in double quotes."
            raise UsageError(f"The filter {self._text!r} has 'not' in small letters.", hint)
        return name

    def _value(self) -> tuple[str, bool]:
        """Read the value that comes next; return it, and whether it stands in quotes."""
        self._take("")
        if quoted := _QUOTED.match(self._text, self._at):
            end = quoted.end()
            if _JOINT.match(self._text, end) or _CLOSING.match(self._text, end):
                self._at = end
                return _unquoted(quoted[1]), True
        begin, open_brackets = self._at, 0
        while not _JOINT.match(self._text, self._at):
            piece = _PIECE.match(self._text, self._at)
            assert piece is not None
            open_brackets += (piece[0] == "(") - (piece[0] == ")")
            if open_brackets < 0:  # it closes a bracket of the filter
                break
            self._at = piece.end()
        return self._text[begin : self._at].strip(), False

    def _take(self, pattern: str) -> bool:
        """Skip white space and then the pattern, if the pattern comes next; return whether it does."""
        match = re.compile(rf"\s*(?:{pattern})").match(self._text, self._at)
        if match:
            self._at = match.end()
        return match is not None


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


def clauses(where: Any, layout: DocumentLayout, dialect: ServerDialect = OPENSEARCH) -> list[Clause]:
    """Translate filters into clauses for an index with this layout; clauses of the query DSL stay as they are.

    Raises:
        UsageError: A value does not have the type of its field.
    """
    expressions = [each.root.clause(layout) for each in where if isinstance(each, FilterExpression)]
    of_server = [each for each in where if not isinstance(each, FilterExpression)]
    return dialect.filters([*filter_clauses.of_same_objects(expressions), *of_server], layout.types)
