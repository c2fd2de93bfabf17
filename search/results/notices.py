"""What somebody should know who sees an answer, in sentences: it is not wrong, but perhaps not what was meant."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from termweave.search import filters
from termweave.search.hits import flat
from termweave.words import clipped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from termweave.engine import Engine
    from termweave.records import Hit
    from termweave.search.candidates import Candidates
    from termweave.search.hits import Opened

#: Characters of a value that a remark shows.
_LONG = 40


def of(
    engine: Engine,
    opened: Opened,
    found: Candidates,
    shown: Sequence[Hit],
    *,
    empty: bool,
    fields: Sequence[str],
    where: Sequence[Mapping[str, Any]],
) -> tuple[str, ...]:
    """Remarks on an answer.

    Args:
        engine: Where the index is; asked only where nothing was found.
        opened: The generation that answered.
        found: What the signals found.
        shown: The hits of the page.
        empty: Nothing was found on any page.
        fields: Stored fields asked for.
        where: Filters of the query DSL.
    """
    remarks = []
    by_vector = {signal.name for signal in opened.layout.signals if signal.needs == "dense"}
    words = found.lists.keys() - by_vector
    if found.query.text.strip() and words and not empty and not any(found.lists[name].scores for name in words):
        remarks.append("No word of the query finds a document: these are the nearest by vectors alone.")
    encoded = found.liked is None  # else the vector is a mean of documents
    if encoded and by_vector & found.lists.keys() and (beyond := _unseen(opened, found.query.text)):
        remarks.append(f"The vector stands for the first {beyond[0]:,} word-pieces of the query; it has {beyond[1]:,}.")
    if shown and (nowhere := _unknown(opened, shown, fields)):
        remarks.append(
            f"Neither these hits nor the index's mapping have {_listed(nowhere)}. "
            "What the source says besides title and text is metadata, or metadata.NAME for one entry."
        )
    return (*remarks, *on_filters(engine, found.index, where, empty=empty))


def on_filters(engine: Engine, index: str, where: Sequence[Mapping[str, Any]], *, empty: bool) -> Iterator[str]:
    """Remarks on filters; where nothing was found also why they let nothing pass, as far as one of them does by itself."""
    if empty and where:
        missing, strange = filters.unmet(engine, index, where)
        if missing:
            yield f"No document has {_listed(missing)} to filter by."
        for each in strange:
            others = ", ".join(repr(clipped(other, _LONG)) for other in each.others)
            there = f"; there are {others} and perhaps others" if others else ""
            yield f"No document has {each.value!r} in {each.field!r}{there}. Filters compare letter by letter."
    if texts := filters.compared_as_texts(where):
        yield (
            f"Metadata are compared as texts, 10 before 9: the range of {', '.join(map(repr, texts))} may let others pass than were "
            "meant. A field that 'index --mapping' makes of it is compared as a number, or as a date."
        )


def _unseen(opened: Opened, query: str) -> tuple[int, int] | None:
    """How many word-pieces of a query the dense model sees, and how many it has, where that is more."""
    longest = opened.encoder.models["dense"].max_length
    if len(query) < longest:  # a piece is a character at least: ordinary queries are not cut in pieces once more
        return None
    (length,) = opened.encoder.lengths([query])
    return (longest, length) if length > longest else None


def _unknown(opened: Opened, shown: Sequence[Hit], fields: Sequence[str]) -> list[str]:
    """The fields asked for that no hit has and no mapping names."""
    unknown = [each for each in fields if each not in opened.layout.names]
    if not unknown:
        return []
    there = {name for hit in shown for name, _ in flat(hit.fields)}
    return [each for each in unknown if not any(_means(each, name) for name in there)]


def _means(asked: str, name: str) -> bool:
    """Whether a field asked for is, or holds, the one of that name; the engine takes patterns."""
    return name == asked or name.startswith(f"{asked}.") or fnmatchcase(name, asked)


def _listed(names: Sequence[str]) -> str:
    return f"{'a field' if len(names) == 1 else 'fields'} {', '.join(map(repr, names))}"
