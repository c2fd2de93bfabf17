"""Infer the types of metadata from all documents of a source, and say where they conflict."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from termweave.catalog.typed_fields import LONGEST_KEYWORD, TYPES, as_text, entries, kind_of, usable
from termweave.support.messages import clipped, counted, few

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

#: Entries that become typed fields, at most; OpenSearch allows 1,000 fields in an index.
MOST = 200
#: Names that are counted at most: a source may use ids as names.
_NAMES = 2000
#: A text field with fewer numbers or dates than this share is simply text: nothing to mention.
_CONFLICT = 0.1
#: Characters of an example in a message, and fields that a message names.
_EXAMPLE, _NAMED = 30, 5


@dataclass
class _Values:
    """The types and the longest text among the values of one metadata entry."""

    kinds: Counter[str] = field(default_factory=Counter)
    example: str = ""
    longest: int = 0

    def count(self, value: Any) -> None:
        kind = kind_of(value)
        self.kinds[kind] += 1
        if kind == "keyword":
            text = as_text(value)
            self.example = self.example or text
            self.longest = max(self.longest, len(text))

    @property
    def kind(self) -> str:
        """The type of all values: their common one, else texts."""
        if len(self.kinds) == 1:
            return next(iter(self.kinds))
        return "double" if self.kinds.keys() == {"long", "double"} else "keyword"


class TypeInference:
    """Collects the metadata of all documents and infers a type for each entry.

    A type needs the agreement of all values: whole and other numbers together are numbers; anything else together is text. Texts of
    more than 256 characters get no typed field.
    """

    def __init__(self) -> None:
        self._seen: dict[str, _Values] = {}

    def count(self, metadata: Mapping[str, Any]) -> None:
        """Count the values of one document."""
        for name, value in entries(metadata):
            seen = self._seen.get(name)
            if seen is None:
                if len(self._seen) >= _NAMES or not usable(name):
                    continue
                seen = self._seen[name] = _Values()
            seen.count(value)

    def types(self, taken: Iterable[str] = ()) -> dict[str, str]:
        """Name of an entry -> its type.

        Args:
            taken: Entries that the user's mapping makes fields of their own.
        """
        taken = set(taken)
        usual = sorted(self._seen.items(), key=lambda item: (-item[1].kinds.total(), item[0]))
        chosen: dict[str, str] = {}
        objects = {name[:dot] for name in self._seen for dot in range(len(name)) if name[dot] == "."}
        for name, values in usual:
            # An entry that is a value in one document and an object in another cannot be both in a mapping.
            possible = name not in taken and name not in objects and values.longest <= LONGEST_KEYWORD
            if possible and len(chosen) < MOST:
                chosen[name] = values.kind
        return dict(sorted(chosen.items()))

    def notes(self) -> list[str]:
        """A sentence for the entries whose values are of several types."""
        conflicts = []
        for name, values in sorted(self._seen.items()):
            total = values.kinds.total()
            if values.kind == "keyword" and 1 - values.kinds["keyword"] / total >= _CONFLICT:
                parts = " and ".join(f"{TYPES[kind]} ({count:,})" for kind, count in values.kinds.most_common())
                example = f", for example {clipped(values.example, _EXAMPLE)!r}" if values.example else ""
                conflicts.append(f"{name!r} has {parts}{example}")
        if not conflicts:
            return []
        fields = counted(len(conflicts), "metadata field")
        named = few(conflicts[:_NAMED], total=len(conflicts))
        return [f"{fields} compared as text, because the values are of several types: {named}."]

    def against(self, types: Mapping[str, str], declared: Collection[str] = ()) -> list[str]:
        """Sentences for an update: values that do not fit the types of the index, and entries that have no type there.

        Args:
            types: The types of the index; empty for an index that was built before metadata had types.
            declared: Entries that the user's mapping makes fields of their own: the server checks their values.
        """
        if not types:
            return []
        notes = []
        kinds = {name: values.kinds.items() for name, values in sorted(self._seen.items()) if name in types}
        unfit = {name: sum(count for kind, count in each if not _fits(kind, types[name])) for name, each in kinds.items()}
        if misfits := [f"{name!r} ({count:,}, not {TYPES[types[name]]})" for name, count in unfit.items() if count]:
            notes.append(
                f"Metadata values that do not have the type of their field in this index: {few(misfits, _NAMED)}. They are stored; "
                "comparisons, --facet and --sort do not see them."
            )
        untyped = sorted(name for name in self._seen.keys() - types.keys() if name.partition(".")[0] not in declared)
        if new := [repr(name) for name in untyped if self._seen[name].longest <= LONGEST_KEYWORD]:
            notes.append(
                f"Metadata that this index has no type for: {few(new, _NAMED)}. They are compared as text until the index is built again."
            )
        return notes


def _fits(kind: str, wanted: str) -> bool:
    return wanted in {kind, "keyword"} or (kind == "long" and wanted == "double")
