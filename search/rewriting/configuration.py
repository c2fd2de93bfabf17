"""What `--rewrite` names: ``operators``, ``spelling`` and ``synonyms@FILE``, separated by commas."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from termweave.errors import UsageError
from termweave.search.rewriting.synonyms import Synonyms, read
from termweave.support.messages import counted

_FORM = "Write operators, spelling or synonyms@FILE, separated by commas, or none."


@dataclass(frozen=True)
class Rewriting:
    """How a query is rewritten before it is searched.

    Attributes:
        operators: Whether ``"a phrase"`` and ``-word`` are filters.
        spelling: Whether a word that no document holds is replaced by the nearest word that one does.
        synonyms: Rules in Solr's format (`termweave.search.rewriting.synonyms`).
    """

    operators: bool = False
    spelling: bool = False
    synonyms: tuple[str, ...] = ()

    def __str__(self) -> str:
        count = len(self.synonyms)
        named = [("operators", self.operators), ("spelling", self.spelling), (counted(count, "rule") + " of synonyms", count)]
        return ", ".join(name for name, done in named if done) or "none"

    @cached_property
    def rules(self) -> Synonyms:
        """The rules of the synonyms.

        Raises:
            UsageError: One of them cannot be read.
        """
        return Synonyms.parse(self.synonyms)


#: What `none` stands for.
NOTHING = Rewriting()


def parse(value: object) -> Rewriting | None:
    """Read what `--rewrite` names; None stays None, which stands for what the profile says.

    Raises:
        UsageError: It names something else, or the file of synonyms cannot be read.

    Example:
        >>> parse("operators, spelling")
        Rewriting(operators=True, spelling=True, synonyms=())
    """
    if value is None or isinstance(value, Rewriting):
        return value
    if not isinstance(value, str):
        raise UsageError(f"rewrite is a text, not {type(value).__name__}.", _FORM)
    names = [each.strip() for each in value.split(",")]
    if names == ["none"]:
        return NOTHING
    unknown = [each for each in names if each not in {"operators", "spelling"} and not each.startswith("synonyms@")]
    files = [each.removeprefix("synonyms@") for each in names if each.startswith("synonyms@")]
    if unknown or len(set(names)) < len(names):
        what = f"A query cannot be rewritten by {unknown[0]!r}." if unknown else f"{value!r} names something twice."
        raise UsageError(what, _FORM)
    rewriting = Rewriting("operators" in names, "spelling" in names, tuple(line for each in files for line in read(each)))
    assert rewriting.rules is not None  # each rule is read now, so that a mistake is said before anything is searched
    return rewriting
