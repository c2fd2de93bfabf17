"""Remarks on an answer: sentences that warn the user if the answer is probably not what was meant."""

from __future__ import annotations

import re
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import orjson

from termweave.dialect import dialect_of
from termweave.search import profiles
from termweave.search.results import enrichment_lag
from termweave.search.results.hits import flat
from termweave.search.retrieval import filter_grammar, filters
from termweave.search.rewriting import configuration
from termweave.search.rewriting import operators as query_operators
from termweave.support.messages import clipped, counted, few

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from termweave.catalog.layout import DocumentLayout
    from termweave.engine import Engine
    from termweave.records import Encoding, Hit
    from termweave.search.feature import Report
    from termweave.search.opening import OpenGeneration
    from termweave.search.options import SearchOptions

#: What looks like an operator of another search engine: words in quotes, +word, -word; not the inches of a 5" or 27" screen.
_OPERATORS = re.compile(r'(?:(?<=\s)|^)(?:[+-]?"[^"\s][^"]*"|[+-][^\W\d]\w*)')
#: The most characters of a value that a remark shows.
_LONG = 40


def collect(
    engine: Engine,
    opened: OpenGeneration,
    report: Report,
    asked: SearchOptions,
    fields: Sequence[str],
) -> tuple[str, ...]:
    """Remarks on an answer.

    Args:
        engine: The server. A request is sent only if the search found nothing, and for an enriched index.
        opened: The generation that answered.
        report: What the search did.
        asked: The options of the search.
        fields: The requested stored fields, as `hits.stored_names`.
    """
    shown, found, ranked = report.shown, report.found, report.last.ranked
    candidates, remarks = report.last.candidates, list(opened.name.remarks)
    if lag := enrichment_lag.of_hits(opened, [hit.id for hit in shown]):
        remarks.append(str(lag))
    if found and not shown:
        remarks.append(f"The search ranks {counted(found, 'document')}, and this page begins after {asked.start:,} of them.")
    if not found and not asked.like and not candidates.query.text.strip():
        remarks.append("The query is empty. Give it some words.")
    by_vector = {signal.name for signal in opened.layout.signals if signal.needs == "dense"}
    words, finding = candidates.lists.keys() - by_vector, {name for name, ranked in candidates.lists.items() if ranked.scores}
    if candidates.query.text.strip() and words and shown and finding and finding <= by_vector and not lag:
        which = "No document that passes the filters" if asked.where else "No document"
        which += "" if opened.layout.application is None else ", as it was enriched,"
        remarks.append(f"{which} contains a word of the query. These hits were found by vectors alone.")
    remarks += _on_rewriting(candidates.query, asked.like, found=bool(found or ranked))
    if not asked.like and (operators := _OPERATORS.findall(candidates.query.text)):
        advice = "" if _reads_operators(opened, asked) else 'With --rewrite operators (rewrite="operators") '
        remarks.append(
            f"Read as plain words: {few([each.strip() for each in operators], 3)}. {advice}"
            '"a phrase" must occur and -word must not, where blanks are around them; + has no meaning.'
        )
    encoded = not asked.like  # else the vector is a mean of document vectors
    if encoded and by_vector & candidates.lists.keys() and (beyond := _unseen(opened, candidates.query.text)):
        remarks.append(
            f"The dense model reads only the first {beyond[0]:,} of the {beyond[1]:,} word-pieces of the query. Shorten the query."
        )
    if shown and (unknown := _unknown(opened, shown, fields)):
        remarks.append(
            f"Neither these hits nor the index's mapping have {_listed(unknown)}."
            + " The source's other fields are in metadata: metadata.NAME requests one of them."
            * (opened.layout.application is None)
        )
    return (*remarks, *on_filters(engine, candidates.index, opened.layout, asked.where, empty=not found and not ranked))


def _reads_operators(opened: OpenGeneration, asked: SearchOptions) -> bool:
    rewriting = profiles.rewriting(opened.lineage, asked.mode, configuration.parse(asked.rewrite))
    return rewriting is not None and rewriting.operators


def _on_rewriting(query: Encoding, like: Sequence[str], *, found: bool) -> Iterator[str]:
    """Remarks on how a query was rewritten: what was searched instead, and whether its phrases and exclusions leave nothing."""
    if query.rewritten is None:
        return
    if words := query.rewritten.corrected:
        text = " ".join(words.values()) if like else query.text.strip()  # with `like` it holds texts of documents, too
        yield (
            f"Searched for {clipped(text)!r} instead of {clipped(query.rewritten.typed)!r}: no document holds "
            f"{few([repr(word) for word in words], 3)}."
        )
    if ignored := query.rewritten.ignored:
        yield f"The query has too many synonyms: those of {few([repr(word) for word in ignored], 3)} are not all searched."
    if frequent := query.rewritten.frequent:
        yield (
            f"More than {query_operators.MOST_DOCUMENTS:,} documents hold {few([repr(each) for each in frequent], 3)}: single passages keep to it, "
            "and other passages of their documents may not."
        )
    if query.rewritten.operators and not found:
        yield f"No document that the query finds keeps to {few(query.rewritten.operators, 3)}. Leave some of them out."


def on_filters(engine: Engine, index: str, layout: DocumentLayout, where: Any, *, empty: bool) -> Iterator[str]:
    """Remarks on filters. If the search found nothing, they say which filter leaves nothing, and why."""
    clauses = filter_grammar.clauses(where, layout, dialect_of(engine.capabilities))
    expressions = [each for each in where if isinstance(each, filter_grammar.FilterExpression)]
    plain = len(expressions) == len(where)  # a clause of the query DSL names metadata.FIELD, and so do remarks on it
    unknown = _unknown_to_filters(engine, index, layout, expressions)
    yield from (_nowhere(name, layout) for name in unknown.values())
    missing = list(unknown)
    if empty and where:
        nowhere, unmatched = filters.unmet(engine, index, clauses)
        if new := [name for name in nowhere if name not in missing]:
            yield f"The filter matches nothing: no document has {_listed(new)}."
        for value in unmatched:
            others = ", ".join(repr(clipped(other, _LONG)) for other in value.others)
            examples = f"; other documents have {others}" if others else ""
            field = _short(value.field) if plain else value.field
            yield f"No document has {value.value!r} in {field!r}{examples}. Filters match only the exact value."
        missing += nowhere
        if not missing and not unmatched and (counts := filters.passing(engine, index, clauses)):
            yield _left([_label(each) for each in where], *counts)
    if texts := [name for name in filters.compared_as_texts(clauses) if name not in unknown]:
        shown = ", ".join(repr(_short(name) if plain else name) for name in texts)
        why = (
            "Values of other types are among them; 'termweave index' names such fields."
            if plain
            else "To compare by the field's type, write the filter as FIELD>=VALUE, or name typed.FIELD in its JSON; a "
            "field whose values are not all numbers or dates has no type but text."
        )
        yield (
            f"Metadata are compared as text, so that 10 comes before 9: the range filter on {shown} may match "
            f"other documents than you meant. {why}"
        )


def _unknown_to_filters(
    engine: Engine, index: str, layout: DocumentLayout, expressions: Sequence[filter_grammar.FilterExpression]
) -> dict[str, str]:
    """The fields of filter expressions that no document has: stored name -> name as written. Typed fields need no request."""
    if layout.application is not None:  # its mapping was asked already
        return {}
    doubtful = {
        stored: name
        for expression in expressions
        for name, stored in expression.fields().items()
        if _short(stored) not in layout.types and name != "id" and name not in layout.extra
    }
    return {stored: doubtful[stored] for stored in filters.absent(engine, index, list(doubtful))} if doubtful else {}


def _nowhere(name: str, layout: DocumentLayout) -> str:
    """Say that no document has a field, with the fields that it may be."""
    if name in {"title", "text"}:
        return f"Filters read the metadata and the id, not the {name}. Search its words with the query."
    near = get_close_matches(name, layout.types, n=1)
    if near:
        return f"No document has a field {name!r}. Did you mean {near[0]!r}?"
    known = f" There are: {few(sorted(layout.types), 10)}." if layout.types else ""
    return f"No document has a field {name!r}.{known}"


def _short(name: str) -> str:
    """A metadata field as filter expressions name it; an entry called "id" keeps its prefix, because "id" is the document's."""
    inner = name.removeprefix("metadata.")
    return name if inner == "id" else inner


def _left(labels: Sequence[str], counts: Sequence[int], together: int) -> str:
    """What the filters leave: which of them leaves nothing, whether they exclude each other, or that only the query finds nothing."""
    if nothing := [label for label, count in zip(labels, counts, strict=True) if not count]:
        return f"No document passes the filter {few(nothing, between=' nor ')}."
    if not together:
        alone = "; ".join(f"{label}: {count:,}" for label, count in zip(labels, counts, strict=True))
        return f"No document passes all filters together. Documents that pass each one alone: {alone}."
    return f"{counted(together, 'document')} pass the filter, and the query finds none of them."


def _label(given: Any) -> str:
    """A filter as the user wrote it."""
    return clipped(
        str(given) if isinstance(given, filter_grammar.FilterExpression) else orjson.dumps(given, default=str).decode()
    )


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


def _listed(names: Sequence[str]) -> str:
    """Names of fields for a sentence: "a field 'a'" or "fields 'a', 'b'"."""
    return f"{'a field' if len(names) == 1 else 'fields'} {', '.join(map(repr, names))}"
