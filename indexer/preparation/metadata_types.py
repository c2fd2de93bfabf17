"""Infer the types of metadata from all documents of a source, and say which values count as missing and which types are doubtful."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from termweave.catalog.typed_fields import LONGEST_KEYWORD, NOTATIONS, RIVALS, TYPES, as_text, convert, entries, kind_of, usable
from termweave.support.messages import clipped, counted, few

#: Entries that become typed fields, at most; OpenSearch allows 1,000 fields in an index.
MOST = 200
#: Names that are counted at most: a source may use ids as names.
_NAMES = 2000
#: A text field with fewer numbers or dates than this share is simply text: nothing to mention. Texts up to this share can be missing values.
_FEW = 0.1
#: Fields that a message names, and odd values of a field that are counted one by one.
_NAMED, _ODD = 5, 20
#: Characters of an example in a message, and of a number or date with marks in it, at most.
_EXAMPLE = 40
#: Texts that people and programs write where there is no value.
_MISSING = re.compile(
    r"[-\u2013\u2014.\u2026?\s]*|n[/. ]{0,2}[ad]\.?|<na>|nan|nat|nil|none|[(<]?null[)>]?|\\n|undefined|(un|not )known|not (available|applicable)|no data|"
    r"missing|tb[acd]|k\. ?a\.|keine angabe|unbekannt|inconnu|desconocido|sconosciuto|#(n/a|nv|[a-z/0]+[!?])|0000-00-00( 00:00:00)?",
    re.IGNORECASE,
)
#: Whole numbers from here to about twice as much are probably times of 2001 to 2036.
_TIMES = {"epoch-seconds": 10**9, "epoch-milliseconds": 10**12}


@dataclass
class _Values:
    """The types, notations and oddities among the values of one metadata entry.

    Attributes:
        declared: The type or notation that is decided already; "": the values decide.
        kinds: Type -> how many values have this type by the way they are written.
        read: Notation -> how many values can be read in this notation.
        alone: Notation -> how many values can be read in this notation and not in its rival.
        marked: Text -> number of values, for some texts that can be read in a notation.
        odd: Text -> number of values, for some texts that have no type and no notation, or not the declared one.
        unread: How many values do not have the declared type; if none is declared, how many are texts.
        missing: How many texts say that there is no value.
        words: How many other texts have no digit.
        grouped: Whether a number has marks between its thousands and a decimal comma, as no list of two numbers has.
        longest: Characters of the longest text.
        bounds: The lowest and the highest whole number.
    """

    declared: str = ""
    kinds: Counter[str] = field(default_factory=Counter)
    read: Counter[str] = field(default_factory=Counter)
    alone: Counter[str] = field(default_factory=Counter)
    marked: Counter[str] = field(default_factory=Counter)
    odd: Counter[str] = field(default_factory=Counter)
    unread: int = 0
    missing: int = 0
    words: int = 0
    grouped: bool = False
    longest: int = 0
    bounds: tuple[int, int] = (2**63, 0)

    def count(self, value: Any) -> None:
        kind, text = kind_of(value), as_text(value)
        self.kinds[kind] += 1
        if kind == "long":
            self.bounds = min(self.bounds[0], int(value)), max(self.bounds[1], int(value))
        readings = {each for each in RIVALS if NOTATIONS[each] == ("double" if kind == "long" else kind)}
        if kind == "keyword":
            self.longest = max(self.longest, len(text))
            digits = any(map(str.isdigit, text))
            self.missing += (absent := _MISSING.fullmatch(text.strip()) is not None)
            self.words += not (digits or absent)
        if isinstance(value, str) and (kind == "double" or (kind == "keyword" and digits and len(text) <= _EXAMPLE)):
            readings = {each for each in RIVALS if convert(each, text) is not None}
            self.alone.update(each for each in readings if RIVALS[each] not in readings)
            self.grouped |= "decimal-comma" in readings and "," in text and not text.strip(" +-").replace(",", "").isdecimal()
        self.read.update(readings)
        unread = convert(self.declared, value) is None if self.declared else kind == "keyword"
        self.unread += unread
        texts, shown = self.marked if readings else self.odd, clipped(text, _EXAMPLE)
        if unread and text.strip() and (shown in texts or len(texts) < _ODD):
            texts[shown] += 1

    @property
    def total(self) -> int:
        """The number of values, without texts that say that there is no value."""
        return self.kinds.total() - self.missing

    def form(self, *, commas: bool) -> str:
        """Return the type or notation of the values; "keyword" if they have several types, or if the type is doubtful.

        Args:
            commas: Whether 12,50 is one number in this source, and no list of two numbers.
        """
        if self.declared:
            return self.declared
        texts = self.kinds["keyword"] - self.missing
        odd = texts <= _FEW * self.total
        if numbers := self.kinds["long"] + self.kinds["double"]:
            # Words among whole numbers may be names among the numbers of articles, rooms or sizes.
            odd = not texts or (odd and texts == self.words and self.kinds["double"] > 0)
            if odd and numbers + texts == self.total:
                return "double" if self.kinds["double"] else "long"
        elif self.kinds["boolean"] == self.kinds.total():
            return "boolean"
        proved = (each for each in self.possible() if self.alone[each] and not self.alone[RIVALS[each]])
        if notation := next((each for each in proved if each != "decimal-comma" or commas or self.grouped), ""):
            return notation
        return "date" if odd and (dates := self.kinds["date"]) and dates + texts == self.total else "keyword"

    def left_out(self, form: str) -> list[str]:
        """Return some texts that cannot be read as a type or in a notation, each with the number of values that have it."""
        texts = {**self.odd, **{text: count for text, count in self.marked.items() if convert(form, text) is None}}
        return [f"{text!r} ({count:,})" for text, count in texts.items()]

    def possible(self) -> list[str]:
        """Return the notations in which all values but a few words can be read; if values prove some of them against their rivals, only those."""
        unread = {each: self.total - self.read[each] for each in RIVALS if self.marked and self.read[each]}
        fitting = [each for each, count in unread.items() if count <= min(self.words, _FEW * self.total)]
        return [each for each in fitting if self.alone[each] and not self.alone[RIVALS[each]]] or fitting

    def doubt(self) -> str:
        """Describe the types and notations that values which are compared as texts might have; "": the values are simply texts."""
        options = self.possible()
        if not options and self.kinds.total() - self.kinds["keyword"] >= _FEW * self.kinds.total():
            numbers = self.kinds["long"] + self.kinds["double"]
            options = ["date"] if self.kinds["date"] > numbers else ["number"] if numbers else []
        elif not options:
            return ""
        parts = " and ".join(f"{TYPES[kind]} ({count:,})" for kind, count in self.kinds.most_common())
        example = next((f", for example {text!r}" for text in (*self.marked, *self.odd) if not _MISSING.fullmatch(text)), "")
        return parts + example + (f" (perhaps {' or '.join(options)})" if options else "")


class TypeInference:
    """Collects the metadata of all documents and decides on a type, or a notation, for each entry.

    Whole and other numbers together are numbers. Texts that say that there is no value count as missing. So do words, up to a tenth of the
    values, among numbers with a fraction, and other texts among dates. All else that does not agree is text, and doubtful. Texts of more
    than 256 characters get no typed field.

    Args:
        declared: Entry -> the type or notation that it has whatever the values are: what the user says, or what the index has.
        commas: Whether 12,50 is a number in this source.
    """

    def __init__(self, declared: Mapping[str, str] | None = None, *, commas: bool = False) -> None:
        self._declared, self._commas = declared or {}, commas
        self._seen: dict[str, _Values] = {}

    def count(self, metadata: Mapping[str, Any]) -> None:
        """Count the values of one document."""
        for name, value in entries(metadata):
            seen = self._seen.get(name)
            if seen is None:
                if (len(self._seen) >= _NAMES and name not in self._declared) or not usable(name):
                    continue
                seen = self._seen[name] = _Values(self._declared.get(name, ""))
            seen.count(value)

    def types(self, taken: Iterable[str] = ()) -> dict[str, str]:
        """Return metadata entry -> type or notation, for the entries that become typed fields.

        Args:
            taken: Entries that the user's mapping makes fields of their own.
        """
        taken = set(taken)
        chosen: dict[str, str] = {}
        objects = {name[:dot] for name in self._seen for dot in range(len(name)) if name[dot] == "."}
        for name in sorted(self._seen, key=lambda name: (not self._seen[name].declared, -self._seen[name].kinds.total(), name)):
            values = self._seen[name]
            form = values.form(commas=self._commas)
            # An entry that is a value in one document and an object in another cannot be both in a mapping.
            possible = name not in taken and name not in objects and (form != "keyword" or values.longest <= LONGEST_KEYWORD)
            if possible and len(chosen) < MOST:
                chosen[name] = form
        return dict(sorted(chosen.items()))

    def notes(self, taken: Iterable[str] = ()) -> list[str]:
        """Return sentences about values that count as missing, about notations, and about entries whose type is doubtful; `taken` as in `types`."""
        missing, read, doubtful, times = [], [], [], []
        for name, values in sorted(self._seen.items()):
            form, (lowest, highest) = values.form(commas=self._commas), values.bounds
            if form == "keyword":
                doubtful += [f"{name!r} has {doubt}" for doubt in [values.doubt()] if doubt and not values.declared]
            elif left_out := values.left_out(form):
                missing.append(f"{name!r} has {TYPES[NOTATIONS.get(form, form)]}, and {few(left_out)}")
            unproved = form == "double" and self._commas and values.read["decimal-comma"] == values.total  # 1.299 and 2.450 alone
            if (form in NOTATIONS or unproved) and not values.declared:
                read.append(f"{name!r} as {'decimal-point' if unproved else form}")
            possible = [each for each, first in _TIMES.items() if first <= lowest <= highest < 2.2 * first]
            times += [f"{name}={each}" for each in possible if form == "long"]
        groups = {
            "with values that count as missing, which comparisons, --facet and --sort do not see": missing,
            "whose numbers or dates are read in one notation": read,
            "compared as text, because the values are of several types or can be read in several ways": doubtful,
        }
        notes = [
            f"{counted(len(fields), 'metadata field')} {remark}: {few(fields, between='; ')}."
            for remark, fields in groups.items()
            if fields
        ]
        if notes:
            notes[-1] += " `--types FIELD=TYPE` decides otherwise."
        if times:
            notes.append(f"Whole numbers that may be times: to compare them as dates, add `--types {few(times, between=',')}`.")
        if lost := sorted(self._declared.keys() - self._seen.keys() | self._declared.keys() & {*taken}):
            notes.append(f"--types has no effect on {few(lost)}: no document has this metadata, or --mapping declares it.")
        return notes

    def against(self, types: Mapping[str, str], declared: Collection[str] = ()) -> list[str]:
        """Return sentences for an update: values that do not fit the types of the index, and entries that have no type there.

        Args:
            types: Entry -> type in the index, as given to this object as `declared`; empty for an index that was built before metadata had types.
            declared: Entries that the user's mapping makes fields of their own: the server checks their values.
        """
        if not types:
            return []
        notes = []
        unread = {name: values.unread for name, values in sorted(self._seen.items()) if types.get(name, "keyword") != "keyword"}
        if misfits := [f"{name!r} ({count:,}, not {TYPES[types[name]]})" for name, count in unread.items() if count]:
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
