"""Phrases and exclusions in a query: ``"machine learning" python -java``.

A phrase in quotes must occur word by word, and a word or phrase after ``-`` must not occur. Both are filters: the words of a phrase count in the
scores as they do without quotes, and excluded words are not searched. A single quote mark and a ``-`` inside a word are characters.
Where documents are cut into passages, one more request finds the documents that hold the phrases and excluded words in any passage.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from termweave.errors import UsageError
from termweave.search.filters.clauses import any_of
from termweave.search.retrieval.candidates import answers_to
from termweave.support.messages import clipped
from termweave.support.normal_form import forms

if TYPE_CHECKING:
    from termweave.catalog.layout import DocumentLayout
    from termweave.engine import Engine

#: Phrases and exclusions of a query: each is a clause, and a server allows 1,024 or so.
_MOST = 100
#: Documents in passages that an operator may find.
MOST_DOCUMENTS = 10_000
#: A sign before it if any, and a phrase in straight or curly quotes; or an excluded word.
_OPERATOR = re.compile(
    r'(?:(?<=\s)|^)(-?)["\u201c\u201d]([^"\u201c\u201d\w]*+\w[^"\u201c\u201d]*+)["\u201c\u201d](?=\s|[.,;:?!]|$)|(?:(?<=\s)|^)-(\w\S*)'
)


@dataclass(frozen=True, slots=True)
class Operators:
    """A query, taken apart into its text, phrases and exclusions.

    Attributes:
        text: The text that is searched, without excluded words and without quotes.
        phrases: Phrases that must occur word by word.
        excluded: Words and phrases that must not occur.
        typed: The phrases and exclusions as the user typed them.
        quoted: Start and end of each phrase in `text`. Phrases keep the words and the spelling that were typed.
        refusal: Why the query cannot be searched; None: it can.
        corrected: Misspelt word as typed -> word that `text` has instead.
    """

    text: str
    phrases: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    typed: tuple[str, ...] = ()
    quoted: tuple[tuple[int, int], ...] = ()
    refusal: UsageError | None = None
    corrected: Mapping[str, str] = field(default_factory=dict)

    def clauses(self, fields: Sequence[str]) -> list[dict[str, Any]]:
        """The clause of each phrase, followed by the clause of each exclusion."""
        required = [phrase_clause(each, fields, nothing_matches="all") for each in self.phrases]
        return required + [phrase_clause(each, fields) for each in self.excluded]

    def where(self, clauses: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
        """The filters that every hit must pass, made of the clauses that `clauses` returned (or wider ones, in the same order)."""
        required, excluded = clauses[: len(self.phrases)], clauses[len(self.phrases) :]
        return (*required, *([{"bool": {"must_not": list(excluded)}}] if excluded else []))


def parse(query: str) -> Operators:
    """Take a query apart into text, phrases and exclusions.

    A query that has nothing but exclusions, or more than 100 phrases and exclusions, is refused: the result has no text and a `refusal`.

    Example:
        >>> parse('"machine learning" books -java').text
        'machine learning books '
    """
    text, phrases, excluded, typed, quoted, at = "", [], [], [], [], 0
    for match in _OPERATOR.finditer(query):
        text += query[at : match.start()]
        at = match.end()
        typed.append(match[0].strip())
        sign, phrase, word = match.groups()
        if word is not None or sign:
            excluded.append(word if word is not None else phrase)
            continue
        quoted.append((len(text), len(text) + len(phrase)))
        text += phrase
        phrases.append(phrase)
    text += query[at:]
    if len(typed) > _MOST:
        message = f"The query {clipped(query)!r} has {len(typed):,} phrases and exclusions."
        return Operators("", refusal=UsageError(message, f"Give at most {_MOST}, or use a filter."))
    if excluded and not text.strip():
        refusal = UsageError(f"The query {clipped(query)!r} only excludes words.", "Add some words to search for.")
        return Operators("", excluded=tuple(excluded), typed=tuple(typed), refusal=refusal)
    return Operators(text, tuple(phrases), tuple(excluded), tuple(typed), tuple(quoted))


def word_fields(layout: DocumentLayout) -> list[str]:
    """Names of the fields in which words and phrases are looked up.

    They are the fields of signals that search the source's texts (lexical), or an application's text fields.
    """
    if fields := list(dict.fromkeys(name for signal in layout.signals for name in signal.source_fields)):
        return fields
    columns = layout.columns
    return [
        name for name in layout.text_fields if (column := columns.get(name)) and (column.kind == "text" or column.field != name)
    ]


def of_documents(engine: Engine, index: str, clauses: Sequence[dict[str, Any]]) -> list[dict[str, Any] | None]:
    """Widen each clause from passages to documents: all passages of the documents of which any passage matches.

    None in place of a clause: more than 10,000 documents match.
    """
    aggregation = {"documents": {"terms": {"field": "id", "size": MOST_DOCUMENTS + 1}}}
    bodies = [{"size": 0, "track_total_hits": False, "query": clause, "aggs": aggregation} for clause in clauses]
    answers = answers_to(engine, index, [("operators", body) for body in bodies])
    documents = [[each["key"] for each in answer["aggregations"]["documents"]["buckets"]] for answer in answers]
    return [{"terms": {"id": ids}} if len(ids) <= MOST_DOCUMENTS else None for ids in documents]


def phrase_clause(text: str, fields: Sequence[str], nothing_matches: str = "none") -> dict[str, Any]:
    """The clause for documents of which one of the fields holds a phrase word by word.

    Args:
        text: The phrase.
        fields: Names of the fields.
        nothing_matches: What a phrase of stop words alone matches: "none" or "all" documents.
    """
    # An application's text may be decomposed.
    phrases = [{"query": each, "zero_terms_query": nothing_matches} for each in forms(text)]
    if len(fields) == 1:
        return any_of([{"match_phrase": {fields[0]: each}} for each in phrases])
    return any_of([{"multi_match": {**each, "type": "phrase", "fields": list(fields)}} for each in phrases])
