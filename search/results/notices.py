"""Remarks on an answer: sentences that warn the user if the answer is probably not what was meant."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from termweave.search.filters.filter_option import listed_fields
from termweave.search.results import enrichment_lag
from termweave.search.results.hits import flat
from termweave.support.messages import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from termweave.records import Hit
    from termweave.search.feature import Report
    from termweave.search.opening import OpenGeneration
    from termweave.search.options import SearchOptions


def collect(opened: OpenGeneration, report: Report, asked: SearchOptions, fields: Sequence[str]) -> tuple[str, ...]:
    """Remarks on an answer.

    Args:
        opened: The generation that answered.
        report: What the search did.
        asked: The options of the search.
        fields: The requested stored fields, as `hits.stored_names`.
    """
    shown, found = report.shown, report.found
    candidates, remarks = report.last.candidates, list(opened.name.remarks)
    if lag := enrichment_lag.of_hits(opened, [hit.id for hit in shown]):
        remarks.append(str(lag))
    if found and not shown:
        remarks.append(f"The search ranks {counted(found, 'document')}, and this page begins after {asked.start:,} of them.")
    liked = candidates.query.liked is not None  # then the vector is a mean of document vectors
    if not found and not liked and not candidates.query.text.strip():
        remarks.append("The query is empty. Give it some words.")
    by_vector = {signal.name for signal in opened.layout.signals if signal.needs == "dense"}
    words, finding = candidates.lists.keys() - by_vector, {name for name, ranked in candidates.lists.items() if ranked.scores}
    if candidates.query.text.strip() and words and shown and finding and finding <= by_vector and not lag:
        which = "No document that passes the filters" if asked.where else "No document"
        which += "" if opened.layout.application is None else ", as it was enriched,"
        remarks.append(f"{which} contains a word of the query. These hits were found by vectors alone.")
    if not liked and by_vector & candidates.lists.keys() and (beyond := _unseen(opened, candidates.query.text)):
        remarks.append(
            f"The dense model reads only the first {beyond[0]:,} of the {beyond[1]:,} word-pieces of the query. Shorten the query."
        )
    if shown and (unknown := _unknown(opened, shown, fields)):
        remarks.append(
            f"Neither these hits nor the index's mapping have {listed_fields(unknown)}."
            + " The source's other fields are in metadata: metadata.NAME requests one of them."
            * (opened.layout.application is None)
        )
    return tuple(remarks)


def _unseen(opened: OpenGeneration, query: str) -> tuple[int, int] | None:
    """The number of word-pieces that the dense model reads, and the number in the query, if the query has more."""
    models = opened.encoder.models
    longest = models.get("dense_query", models["dense"]).max_length
    # An ASCII character is at most one word-piece, so ordinary queries need not be tokenised again.
    if query.isascii() and len(query) < longest // 2:
        return None
    (length,) = opened.encoder.lengths([query])
    return (longest, length) if length > longest else None


def _unknown(opened: OpenGeneration, shown: Sequence[Hit], fields: Sequence[str]) -> list[str]:
    """The requested fields that neither a hit nor the mapping has."""
    known = opened.layout.names | (opened.layout.application.columns.keys() if opened.layout.application else set())
    unknown = [field for field in fields if field not in known]
    if not unknown:
        return []
    names = {name for hit in shown for name, _ in flat(hit.fields)}
    return [field for field in unknown if not any(_covers(field, name) for name in names)]


def _covers(requested: str, name: str) -> bool:
    """Whether a requested field is the field of that name, contains it, or is a pattern that matches it."""
    return name == requested or name.startswith(f"{requested}.") or fnmatchcase(name, requested)
