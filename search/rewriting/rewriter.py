"""Rewrite queries and encode them: operators first, then spelling, then synonyms. Phrases in quotes stay as they were typed.

Pins belong to a query as it was typed, before it is rewritten.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate, chain, islice
from typing import TYPE_CHECKING, Any

from termweave.errors import UsageError
from termweave.records import Encoding, RewrittenQuery, TermWeights
from termweave.search import profiles
from termweave.search.rewriting import operators, spelling
from termweave.search.rewriting.configuration import NOTHING
from termweave.search.rewriting.operators import Operators, of_documents, phrase_clause, word_fields
from termweave.search.rewriting.pins import QueryPins
from termweave.search.rewriting.synonyms import MOST_SYNONYMS
from termweave.support.normal_form import in_all_forms, normalised

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from termweave.catalog.layout import DocumentLayout
    from termweave.encoders import TextEncoder
    from termweave.search.feature import Encode
    from termweave.search.opening import OpenGeneration
    from termweave.search.rewriting.configuration import Rewriting
    from termweave.search.rewriting.synonyms import Span


#: Words of a query that are looked up: the server takes 10 to 30 ms for each.
_MOST_WORDS = 100


@dataclass(frozen=True, slots=True)
class _Text:
    """A query while it is rewritten.

    Attributes:
        typed: The query as the user typed it.
        read: The query's phrases and exclusions, and the text that is left.
        corrected: Misspelt word as typed -> word that is searched instead.
    """

    typed: str
    read: Operators
    corrected: Mapping[str, str]


def encode(
    generation: OpenGeneration, texts: Sequence[str], rewriting: Rewriting | None, inner: Encode | None = None
) -> list[Encoding]:
    """Rewrite queries as `rewriting` says, and encode them.

    Args:
        generation: The generation that is searched; spelling asks its server for similar words.
        texts: The queries as they were typed.
        rewriting: How queries are rewritten; None: not at all.
        inner: Encodes the rewritten texts; None: the models of the generation do.

    Raises:
        UsageError: The index has no field in which words can be looked up.
    """
    inner = inner or generation.encode
    if rewriting is None or rewriting == NOTHING:
        return inner(texts)
    lineage, fields = generation.lineage, word_fields(generation.layout)
    if not fields:
        check_fields(lineage.name, generation.layout, rewriting, profile=profiles.with_rewriting(lineage, rewriting))
    read = [operators.parse(text) if rewriting.operators else Operators(text) for text in texts]
    queries = [_Text(typed, each, {}) for typed, each in zip(texts, read, strict=True)]
    if rewriting.spelling:
        words = {word for each in queries for _, _, word in _words(each.read)}
        corrections = spelling.corrections(generation, words, fields)
        queries = [_correct(each, corrections) for each in queries]
    encoded = inner([each.read.text for each in queries])
    filters = _filters(generation, [each.read for each in queries], fields)
    return [
        _finished(each, query, kept_to, generation, rewriting, fields)
        for each, query, kept_to in zip(queries, encoded, filters, strict=True)
    ]


def check_fields(name: str, layout: DocumentLayout, rewriting: Rewriting, *, profile: str = "") -> None:
    """Check that an index has fields in which words can be looked up, as operators and spelling need them.

    Args:
        name: Name of the index.
        layout: Signals and fields of the index.
        rewriting: How queries are rewritten.
        profile: Name of the stored profile that asks for the rewriting; "": the user asks for it.

    Raises:
        UsageError: The index has no field in which words can be looked up.
    """
    if word_fields(layout) or not (rewriting.operators or rewriting.spelling):
        return
    advice = f"--rewrite none searches without them, 'termweave profiles {name} --drop {profile}' deletes the profile"
    raise UsageError(
        f"The index {name!r} has no field in which words can be looked up, as operators and spelling need it"
        + (f", which the profile {profile!r} asks for." if profile else "."),
        f"{advice if profile else 'Leave them out of --rewrite'}, or index with the signal lexical.",
    )


def _words(read: Operators) -> list[tuple[int, int, str]]:
    """Start, end and text of the words in a query that may be corrected: those outside phrases, at most 100."""
    words = ((match.start(), match.end(), match[0]) for match in spelling.WORD.finditer(read.text))
    return list(islice((each for each in words if not _inside(each[0], each[1], read)), _MOST_WORDS))


def _inside(start: int, end: int, read: Operators) -> bool:
    """Whether the span from start to end overlaps a phrase of the query."""
    return any(start < last and first < end for first, last in read.quoted)


def _correct(query: _Text, corrections: Mapping[str, str]) -> _Text:
    """Replace the misspelt words of a query, and move its phrases to their new offsets."""
    text, at, quoted = "", 0, list(query.read.quoted)
    corrected = {}
    for start, end, word in _words(query.read):
        if (new := corrections.get(word)) is None:
            continue
        text += query.read.text[at:start] + new
        at, corrected[word] = end, new
        longer = len(new) - (end - start)
        behind = [first >= end for first, _ in query.read.quoted]
        quoted = [(a + longer * moves, b + longer * moves) for (a, b), moves in zip(quoted, behind, strict=True)]
    read = replace(query.read, text=text + query.read.text[at:], quoted=tuple(quoted))
    return _Text(query.typed, read, corrected)


def _filters(
    generation: OpenGeneration, queries: Sequence[Operators], fields: Sequence[str]
) -> list[tuple[tuple[dict[str, Any], ...], tuple[str, ...]]]:
    """For each query, the filters that every hit must pass, and the operators that could only be applied to single passages.

    Where documents are cut into passages, one request finds the documents that hold the phrases and exclusions of all queries.
    """
    narrow = [each.clauses(fields) for each in queries]
    if not generation.lineage.passages:
        return [(each.where(clauses), ()) for each, clauses in zip(queries, narrow, strict=True)]
    clauses_of_documents = iter(of_documents(generation.engine, generation.index, list(chain.from_iterable(narrow))))
    filters = []
    for each, clauses in zip(queries, narrow, strict=True):
        whole = list(islice(clauses_of_documents, len(clauses)))
        frequent = tuple(text for text, wide in zip((*each.phrases, *each.excluded), whole, strict=True) if wide is None)
        filters.append((each.where([wide or clause for wide, clause in zip(whole, clauses, strict=True)]), frequent))
    return filters


def _finished(
    query: _Text,
    encoded: Encoding,
    kept_to: tuple[tuple[dict[str, Any], ...], tuple[str, ...]],
    generation: OpenGeneration,
    rewriting: Rewriting,
    fields: Sequence[str],
) -> Encoding:
    """Add to an encoded query its filters, synonyms and pins, and notes on the rewriting; `kept_to` is the query's entry of `_filters`."""
    text = query.read.text
    spans = [span for span in rewriting.rules.spans(text) if not _inside(span.start, span.end, query.read)]
    reached = list(accumulate(len(span.others) for span in spans))
    searched = spans[: sum(count <= MOST_SYNONYMS for count in reached)]
    parts = _parts(encoded, searched, generation, fields) if searched else ()
    ignored = tuple(dict.fromkeys(text[span.start : span.end] for span in spans[len(searched) :]))
    read, (filters, frequent) = query.read, kept_to
    pins = rewriting.of_queries.get(normalised(query.typed), QueryPins())
    hidden = generation.layout.with_ids(in_all_forms(pins.hidden))
    where = (*filters, *([{"bool": {"must_not": hidden}}] if pins.hidden else []))
    first = () if read.refusal else pins.first
    rewritten = RewrittenQuery(query.typed, where, read.typed, query.corrected, parts, ignored, first, read.refusal, frequent)
    return replace(encoded, rewritten=rewritten)


def _parts(
    encoded: Encoding, spans: Sequence[Span], generation: OpenGeneration, fields: Sequence[str]
) -> tuple[tuple[Encoding, ...], ...]:
    """The parts of a query with synonyms: one for each span that a rule replaces, and one for the words around these spans.

    A typed word has the weight that the model gives it in the whole query. A synonym has the weight that the model gives it in the query in
    which it takes the place of the typed words.
    """
    text, encoder = encoded.text, generation.encoder
    rest = " ".join(
        text[a:b] for a, b in zip([0, *(each.end for each in spans)], [*(each.start for each in spans), None], strict=True)
    )
    inside = _terms(encoder, [text[each.start : each.end] for each in spans])
    (around,) = _terms(encoder, [rest])
    parts = []
    if rest.strip():
        parts.append((Encoding(rest, _only(encoded.weights, set().union(*inside) - around, keep=False)),))
    replaced = [(span, other) for span in spans for other in span.others]
    texts = [f"{text[: span.start]}{other}{text[span.end :]}" for span, other in replaced]
    heard = encoder.only(("weights",)).encode(texts, kind="query", statistics=generation.statistics) if encoder.analysis else []
    weights = [each.weights for each in heard] or [None] * len(texts)
    terms_of_others = _terms(encoder, [other for _, other in replaced])
    others: dict[Span, list[Encoding]] = {span: [] for span in spans}
    for (span, other), weighed, terms in zip(replaced, weights, terms_of_others, strict=True):
        phrase = RewrittenQuery(other, (phrase_clause(other, fields),)) if fields and " " in other else None
        others[span].append(Encoding(other, _only(weighed, terms), rewritten=phrase))
    for span, terms in zip(spans, inside, strict=True):
        typed = Encoding(text[span.start : span.end], _only(encoded.weights, terms))
        parts.append((*((typed,) if span.keeps else ()), *others[span]))
    return tuple(parts)


def _terms(encoder: TextEncoder, texts: Sequence[str]) -> list[set[str]]:
    """The set of terms of each text; empty sets without a model of term weights."""
    return [set(terms) for terms in encoder.analyse(texts)] if encoder.analysis else [set() for _ in texts]


def _only(weights: TermWeights | None, terms: set[str], *, keep: bool = True) -> TermWeights | None:
    """Keep only the weights of these terms, or, without `keep`, only the weights of all other terms."""
    if weights is None:
        return None
    return weights.part([place for place, term in enumerate(weights.terms) if (term in terms) is keep])
