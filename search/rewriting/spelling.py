"""Misspelt words: a word that no document holds is replaced by the nearest word that one does.

The server's term suggester finds similar terms of the index. An analyzer may have stemmed these terms, so that the full word is read from
documents with such a term. The word with the fewest edits is taken; of several such words the most frequent. At most two requests are sent.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from termweave.dialect import CLOSE, MARKED, OPEN
from termweave.engine.client.payloads import ALL_SHARDS
from termweave.engine.client.server_errors import EngineResponseError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from termweave.search.opening import OpenGeneration

#: Words of this many letters and more are corrected, by one edit; from the second number on by two.
SHORTEST, TWO_EDITS = 4, 6
#: Most letters of such a word. A text without spaces is longer, and the server makes a clause of each of its characters.
_LONGEST = 100
#: A part of a product code, such as XKART5500 or max_length, is not a word.
WORD = re.compile(rf"(?<!\w)[^\W\d_]{{{SHORTEST},{_LONGEST}}}(?:'[^\W\d_]{{1,{_LONGEST}}})?(?!\w)")
#: Similar terms that are looked at, and documents that are asked for the word of each.
_TERMS, _DOCUMENTS = 5, 5


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
