"""The option `--rewrite`: ``operators``, ``spelling``, ``synonyms@FILE`` and ``pins@FILE``, separated by commas."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import orjson

from termweave.errors import UsageError
from termweave.search.rewriting import pins, synonyms
from termweave.search.rewriting.synonyms import Synonyms
from termweave.support.messages import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from termweave.search.rewriting.pins import QueryPins, Row

_FORM = "Write operators, spelling, synonyms@FILE or pins@FILE, separated by commas, or none."
_FILES = ("synonyms@", "pins@")


@dataclass(frozen=True)
class Rewriting:
    """How queries are rewritten before they are searched.

    Attributes:
        operators: Whether ``"a phrase"`` and ``-word`` are filters.
        spelling: Whether a word that no document holds is replaced by the nearest word that one does.
        synonyms: Rules of synonyms in Solr's format (`termweave.search.rewriting.synonyms`).
        pins: Rows of query, document and "pin" or "hide" (`termweave.search.rewriting.pins`).
    """

    operators: bool = False
    spelling: bool = False
    synonyms: tuple[str, ...] = ()
    pins: tuple[Row, ...] = ()

    @classmethod
    def stored(cls, parameters: Mapping[str, Any]) -> Rewriting:
        """Make the rewriting that a profile stores as JSON values.

        Raises:
            UsageError: The stored synonyms or pins cannot be read.
        """
        return _stored(orjson.dumps(parameters))

    def with_pins(self, others: tuple[Row, ...]) -> Rewriting:
        """Return this rewriting with other pins, such as a profile's, unless it has pins of its own or is "none"."""
        return self if self.pins or self == NOTHING else replace(self, pins=others)

    def check(self) -> None:
        """Read synonyms and pins, so that a mistake in them is reported before anything is searched.

        Raises:
            UsageError: The synonyms or the pins cannot be read.
        """
        _ = self.rules, self.of_queries

    def __str__(self) -> str:
        rules, pinned = len(self.synonyms), len(self.of_queries)
        steps = [
            ("operators", self.operators),
            ("spelling", self.spelling),
            (counted(rules, "rule") + " of synonyms", rules),
            ("pins of " + counted(pinned, "query", "queries"), pinned),
        ]
        return ", ".join(name for name, done in steps if done) or "none"

    @cached_property
    def rules(self) -> Synonyms:
        """The rules of the synonyms, ready to be applied.

        Raises:
            UsageError: A rule cannot be read.
        """
        return Synonyms.parse(self.synonyms)

    @cached_property
    def of_queries(self) -> Mapping[str, QueryPins]:
        """Normalised text of a query -> the pins of this query.

        Raises:
            UsageError: A row of the pins cannot be read.
        """
        return pins.parse(self.pins)


#: What `none` stands for.
NOTHING = Rewriting()


@lru_cache(8)
def _stored(content: bytes) -> Rewriting:
    """Do the work of `Rewriting.stored`, once for many searches, because a profile may have thousands of rules."""
    parameters = orjson.loads(content)
    lists = {"synonyms": tuple(parameters.get("synonyms", ())), "pins": tuple(map(tuple, parameters.get("pins", ())))}
    rewriting = Rewriting(**{**parameters, **lists})
    rewriting.check()
    return rewriting


def parse(value: object) -> Rewriting | None:
    """Read the value of `--rewrite`. None stays None, and means that the profile decides.

    Raises:
        UsageError: The value names something else, or a file cannot be read.

    Example:
        >>> parse("operators, spelling")
        Rewriting(operators=True, spelling=True, synonyms=(), pins=())
    """
    if value is None or isinstance(value, Rewriting):
        return value
    if not isinstance(value, str):
        raise UsageError(f"rewrite is a text, not {type(value).__name__}.", _FORM)
    names = [each.strip() for each in value.split(",")]
    if names == ["none"]:
        return NOTHING
    unknown = [each for each in names if each not in {"operators", "spelling"} and not each.startswith(_FILES)]
    files = {kind: [each.removeprefix(kind) for each in names if each.startswith(kind)] for kind in _FILES}
    if unknown or len(set(names)) < len(names):
        message = f"A query cannot be rewritten by {unknown[0]!r}." if unknown else f"{value!r} names something twice."
        raise UsageError(message, _FORM)
    rewriting = Rewriting(
        "operators" in names,
        "spelling" in names,
        tuple(line for each in files["synonyms@"] for line in synonyms.read(each)),
        tuple(row for each in files["pins@"] for row in pins.read(each)),
    )
    rewriting.check()
    return rewriting
