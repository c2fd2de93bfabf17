"""Turn a query in the server's own language, as applications send it, into a query of learned search.

A search pipeline that `termweave connect` makes asks the model server to rewrite queries. Any application then searches learned weights and vectors
with the query that it sends already: the words of its ``match`` are encoded, and its filters are kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from termweave.errors import UsageError
from termweave.search.retrieval import execution
from termweave.search.retrieval.plan import Retrieval

if TYPE_CHECKING:
    from termweave.records import Encoding
    from termweave.search.opening import OpenGeneration

#: Queries of words, by their names.
_OF_WORDS = frozenset({"match", "multi_match", "combined_fields", "query_string", "simple_query_string"})
#: Queries without words whose keys are fields, one of which may be called "match".
_OF_FIELDS = frozenset({"term", "terms", "terms_set", "range", "prefix", "wildcard", "regexp", "fuzzy"})
_OF_FIELDS |= {"match_phrase", "match_phrase_prefix", "match_bool_prefix"}
#: Queries whose words may have a syntax -> what shows it. A mark that the server takes as text, as in "red!" or "c++", is not syntax.
_SYNTAX = {
    "query_string": re.compile(r'["*?~:()\[\]{}^\\/]|&&|\|\||![^\s!]|(?:^|\s)[+\-]\S|\b(?:AND|OR|NOT)\b'),
    "simple_query_string": re.compile(r'["*~()|\\+]|(?:^|\s)-\S'),
}


@dataclass(frozen=True, slots=True)
class ClientQuery:
    """An application's query, taken apart into its words and its filters.

    Attributes:
        words: The text that the user searches for.
        where: Clauses that every hit must pass.
    """

    words: str
    where: Sequence[Mapping[str, Any]] = ()


def read(query: Mapping[str, Any]) -> ClientQuery | None:
    """Take a query in the server's language apart into its words and its filters.

    Args:
        query: A query of words (`match`, `multi_match`, `combined_fields`, `query_string`, `simple_query_string`), or a `bool` with one of
            them and filters.

    Returns:
        The words and filters. None: the query has no words, as `match_all`, or also finds documents without its words, or is written in a syntax, as
        ``title:json AND year:2020``: it must find exactly what it asks for, and is not rewritten.

    Raises:
        UsageError: The query holds words in a place from which they cannot be taken, or a clause that is not an object.

    Example:
        >>> read({"bool": {"must": {"match": {"text": "parse json"}}, "filter": {"term": {"year": 2020}}}})
        ClientQuery(words='parse json', where=({'term': {'year': 2020}},))
    """
    if len(query) != 1:
        hint = 'For example {"match": {"text": "parse json"}}.'
        raise UsageError(f"A query has one name, and this one has {len(query)}.", hint)
    name, body = next(iter(query.items()))
    if name in _OF_WORDS:
        words = _words(name, body)
        return None if words is None or (name in _SYNTAX and _SYNTAX[name].search(words)) else ClientQuery(words)
    if name == "bool" and isinstance(body, dict):
        return _read_bool(body)
    if _has_words(query):
        hint = "Send a match, or a bool with one match in must and with filters."
        raise UsageError(f"The words of a query cannot be taken out of {name!r}.", hint)
    return None


def _read_bool(body: Mapping[str, Any]) -> ClientQuery | None:
    """Take a `bool` query apart; None: no clause has words, or documents without the words are found, too."""
    scoring = [(clause, read(clause)) for part in ("must", "should") for clause in _clauses(body, part)]
    worded = [query for _, query in scoring if query is not None]
    if not worded:
        return None
    others = [clause for clause, query in scoring if query is None]
    if len(worded) > 1 or (others and _clauses(body, "should")):
        hint = "Put the words into one match, and all other clauses into filter."
        raise UsageError(f"The bool query has {len(scoring)} clauses that score (must, should), and may have one.", hint)
    optional = str(body.get("minimum_should_match")) not in {"1", "100%"}
    if _clauses(body, "should") and _clauses(body, "filter") and optional:
        return None
    where = [*others, *_clauses(body, "filter")]
    if excluded := _clauses(body, "must_not"):
        where.append({"bool": {"must_not": excluded}})
    return ClientQuery(worded[0].words, (*worded[0].where, *where))


def _has_words(part: Any) -> bool:
    """Whether a query of words, such as `match`, is anywhere inside a part of a query."""
    if isinstance(part, list):
        return any(map(_has_words, part))
    if not isinstance(part, dict):
        return False
    return any(
        name not in _OF_FIELDS and ((name in _OF_WORDS and _words(name, body) is not None) or _has_words(body))
        for name, body in part.items()
    )


def _words(name: str, body: Any) -> str | None:
    """The text of a query of words, such as `match`; None: it has no text, or asks for phrases or prefixes."""
    if name == "match":
        body = next(iter(body.values()), None) if isinstance(body, dict) else None
    if isinstance(body, dict) and str(body.get("type", "")).startswith(("phrase", "bool_prefix")):
        return None  # a multi_match of phrases asks for exactly these words in this order, and one of prefixes for parts of words
    words = body.get("query") if isinstance(body, dict) else body if name == "match" else None
    return words if isinstance(words, str) and words.strip() else None  # `zero_terms_query` decides what no words find


def _clauses(body: Mapping[str, Any], part: str) -> list[Mapping[str, Any]]:
    """The clauses in one part of a `bool`, such as "must", which may hold one clause or a list."""
    value = body.get(part)
    clauses = [] if value is None else value if isinstance(value, list) else [value]
    if not all(isinstance(clause, dict) for clause in clauses):
        hint = 'For example {"match": {"text": "parse json"}}.'
        raise UsageError(f"A clause in the {part!r} of a bool is not an object.", hint)
    return clauses


def rewritten(
    generation: OpenGeneration, query: Encoding, signals: Sequence[str], where: Sequence[Mapping[str, Any]], depth: int
) -> dict[str, Any]:
    """Build the query of learned search in the server's language, with the same clauses as `termweave search` sends.

    Args:
        generation: The generation that encoded the query.
        query: The encoded words.
        signals: Names of the signals, in the order of the weights that the search pipeline has.
        where: Clauses that every hit must pass.
        depth: How many documents each signal returns.
    """
    (prepared,) = execution.prepare(generation, [query], Retrieval(signals, depth, where=where), None, joined=True)
    nothing: dict[str, Any] = {"match_none": {}}
    # One query for each weight of the pipeline: one that cannot match finds nothing.
    queries = [clause.query if (clause := prepared.clauses.get(name)) else nothing for name in signals]
    return queries[0] if len(queries) == 1 else {"hybrid": {"queries": queries, "pagination_depth": depth}}
