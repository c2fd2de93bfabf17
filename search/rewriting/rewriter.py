"""Rewrite queries and encode them: operators first, then spelling, then synonyms. Phrases in quotes stay as they were typed.

A misspelt word, which no document holds, is replaced by the nearest word that one does. The server's term suggester finds similar terms of the index.
An analyzer may have stemmed these terms, so that the full word is read from documents with such a term. The word with the fewest edits is taken;
of several such words the most frequent. At most two requests are sent.

Pins belong to a query as it was typed, before it is rewritten.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain, islice
from typing import TYPE_CHECKING, Any

from termweave.dialect import CLOSE, MARKED, OPEN
from termweave.engine.client.payloads import ALL_SHARDS
from termweave.engine.client.server_errors import EngineResponseError
from termweave.errors import UsageError
from termweave.records import Encoding, RewrittenQuery, TermWeights
from termweave.search import profiles
from termweave.search.rewriting import operators
from termweave.search.rewriting.configuration import NOTHING, QueryPins, Rewriting
from termweave.search.rewriting.operators import Operators, of_documents, phrase_clause, word_fields
from termweave.search.rewriting.synonyms import MOST_SYNONYMS, Span
from termweave.support.normal_form import in_all_forms, normalised

if TYPE_CHECKING:
    from termweave.catalog.layout import DocumentLayout
    from termweave.encoders import TextEncoder
    from termweave.search.feature import Encode
    from termweave.search.opening import OpenGeneration

#: Words of a query that are looked up: the server takes 10 to 30 ms for each.
_MOST_WORDS = 100
#: Words of this many letters and more are corrected, by one edit; from the second number on by two.
SHORTEST, TWO_EDITS = 4, 6
#: Most letters of such a word. A text without spaces is longer, and the server makes a clause of each of its characters.
_LONGEST = 100
#: A part of a product code, such as XKART5500 or max_length, is not a word.
_WORD = re.compile(rf"(?<!\w)[^\W\d_]{{{SHORTEST},{_LONGEST}}}(?:'[^\W\d_]{{1,{_LONGEST}}})?(?!\w)")
#: Similar terms that are looked at, and documents that are asked for the word of each.
_TERMS, _DOCUMENTS = 5, 5


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
    if rewriting.spelling:
        corrected = corrections(generation, {word for each in read for _, _, word in _words(each)}, fields)
        read = [_correct(each, corrected) for each in read]
    encoded = inner([each.text for each in read])
    filters = _filters(generation, read, fields)
    return [_finished(*each, generation, rewriting, fields) for each in zip(texts, read, encoded, filters, strict=True)]


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
    asks, advice = "--rewrite", "Leave operators and spelling out of --rewrite"
    if profile:
        asks = f"The profile {profile!r}"
        advice = f"--rewrite none searches without them, 'termweave profiles {name} --drop {profile}' deletes the profile"
    message = f"{asks} asks for operators or spelling, but the index {name!r} has no field in which words can be looked up."
    raise UsageError(message, f"{advice}, or index with the signal lexical.")


def _words(read: Operators) -> list[tuple[int, int, str]]:
    """Start, end and text of the words in a query that may be corrected: those outside phrases, at most 100."""
    words = ((match.start(), match.end(), match[0]) for match in _WORD.finditer(read.text))
    return list(islice((each for each in words if not _inside(each[0], each[1], read)), _MOST_WORDS))


def _inside(start: int, end: int, read: Operators) -> bool:
    """Whether the span from start to end overlaps a phrase of the query."""
    return any(start < last and first < end for first, last in read.quoted)


def _correct(query: Operators, corrected: Mapping[str, str]) -> Operators:
    """Replace the misspelt words of a query, and move its phrases to their new offsets."""
    text, at, quoted, replaced = "", 0, query.quoted, {}
    for start, end, word in _words(query):
        if (new := corrected.get(word)) is None:
            continue
        text += query.text[at:start] + new
        at, replaced[word] = end, new
        longer = len(new) - (end - start)
        behind = [longer * (first >= end) for first, _ in query.quoted]
        quoted = tuple((a + moved, b + moved) for (a, b), moved in zip(quoted, behind, strict=True))
    return replace(query, text=text + query.text[at:], quoted=quoted, corrected=replaced)


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
    typed: str,
    read: Operators,
    encoded: Encoding,
    kept_to: tuple[tuple[dict[str, Any], ...], tuple[str, ...]],
    generation: OpenGeneration,
    rewriting: Rewriting,
    fields: Sequence[str],
) -> Encoding:
    """Add to an encoded query its filters, synonyms and pins, and notes on the rewriting; `kept_to` is the query's entry of `_filters`."""
    text = read.text
    spans = [span for span in rewriting.rules.spans(text) if not _inside(span.start, span.end, read)]
    reached = list(accumulate(len(span.others) for span in spans))
    searched = spans[: sum(count <= MOST_SYNONYMS for count in reached)]
    parts = _parts(encoded, searched, generation, fields) if searched else ()
    ignored = tuple(dict.fromkeys(text[span.start : span.end] for span in spans[len(searched) :]))
    filters, frequent = kept_to
    pins = rewriting.of_queries.get(normalised(typed), QueryPins())
    hidden = generation.layout.with_ids(in_all_forms(pins.hidden))
    where = (*filters, *([{"bool": {"must_not": hidden}}] if pins.hidden else []))
    first = () if read.refusal else pins.first
    rewritten = RewrittenQuery(typed, where, read.typed, read.corrected, parts, ignored, first, read.refusal, frequent)
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


def corrections(generation: OpenGeneration, words: Collection[str], fields: Sequence[str]) -> dict[str, str]:
    """Find corrections: word that no document holds -> word to search for instead; a word without a similar word has no entry.

    Args:
        generation: The generation that is searched.
        words: Words of queries, as typed.
        fields: Text fields in which words are looked up.
    """
    listed = sorted(words)
    if not listed:
        return {}
    similar = _similar_terms(generation, listed, fields)
    if not similar:
        return {}
    surfaces = _surfaces(generation, similar, fields)
    corrected = {}
    for word, terms in similar.items():
        most = 2 if len(word) >= TWO_EDITS else 1
        near = [
            (edits, -frequency, surface)
            for term, frequency in terms.items()
            for surface in surfaces.get(term, ())
            if (edits := distance(word.casefold(), surface.casefold())) <= most
        ]
        if near:
            best = min(near)[2]
            corrected[word] = best.capitalize() if word[0].isupper() else best
    return corrected


def _similar_terms(
    generation: OpenGeneration, words: Sequence[str], fields: Sequence[str]
) -> dict[str, dict[tuple[str, str], int]]:
    """Words that no document holds, with similar terms: word -> (field, similar term) -> number of documents that hold the term."""
    counted: dict[str, Any] = {}
    suggest: dict[str, Any] = {}
    for at, word in enumerate(words):
        matches = [{"match": {field: word}} for field in fields]
        counted[str(at)] = {"filter": {"bool": {"should": matches, "minimum_should_match": 1}}}
        for field in fields:
            near = {"field": field, "size": _TERMS, "suggest_mode": "always", "min_word_length": SHORTEST - 1, "prefix_length": 0}
            near |= {"max_inspections": 20, "string_distance": "damerau_levenshtein"}
            suggest[f"{at} {field}"] = {"text": word, "term": near}
    body, engine = {"size": 0, "aggs": counted, "suggest": suggest}, generation.engine
    try:
        answer = engine.search(generation.index, body)
    except EngineResponseError as error:
        if not generation.name.several or "no mapping found" not in error.reason:
            raise
        # A new index lacks a field until the application writes its first document.
        answer = engine.search(generation.name.indices[0], body)
    similar: dict[str, dict[tuple[str, str], int]] = {}
    for at, word in enumerate(words):
        if answer["aggregations"][str(at)]["doc_count"]:
            continue
        for field in fields:
            for entry in answer["suggest"][f"{at} {field}"]:
                for option in entry["options"]:
                    similar.setdefault(word, {})[field, option["text"]] = option["freq"]
    return similar


def _surfaces(
    generation: OpenGeneration, similar: Mapping[str, Mapping[tuple[str, str], int]], fields: Sequence[str]
) -> dict[tuple[str, str], list[str]]:
    """(field, term) -> the words of documents from which the term was made, in small letters, most frequent first."""
    terms = list(dict.fromkeys(term for each in similar.values() for term in each))
    shown: dict[str, Any] = {name: {} for name in (*generation.layout.text_fields, *fields)}
    mark = {"type": "unified", "pre_tags": [OPEN], "post_tags": [CLOSE], "number_of_fragments": 3, "fragment_size": 60}
    lines: list[dict[str, Any]] = []
    for field, term in terms:
        body = {"query": {"term": {field: term}}, "size": _DOCUMENTS, "_source": False}
        lines += [ALL_SHARDS, {**body, "highlight": {**mark, "require_field_match": False, "fields": shown}}]
    answers = generation.engine.request("POST", f"/{generation.index}/_msearch", body=lines)["responses"]
    surfaces: dict[tuple[str, str], list[str]] = {}
    for key, answer in zip(terms, answers, strict=True):
        fragments = [hit.get("highlight", {}).values() for hit in answer.get("hits", {}).get("hits", ())]
        counts = Counter(word.lower() for each in fragments for texts in each for text in texts for word in MARKED.findall(text))
        surfaces[key] = [word for word, _ in counts.most_common()]
    return surfaces


def distance(one: str, other: str) -> int:
    """Number of edits between two words: letters that are added, left out, replaced, or swapped with the next letter (Damerau 1964).

    Example:
        >>> distance("thraed", "thread"), distance("functon", "function")
        (1, 1)
    """
    before: list[int] = []
    row = list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        new = [at]
        for place, target in enumerate(other, 1):
            best = min(row[place] + 1, new[-1] + 1, row[place - 1] + (letter != target))
            if at > 1 and place > 1 and letter == other[place - 2] and one[at - 2] == target:
                best = min(best, before[place - 2] + 1)
            new.append(best)
        before, row = row, new
    return row[-1]
