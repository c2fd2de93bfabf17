"""The lexical signal: the words of title and text, scored by the server's BM25, and the server's explanations of such scores.

Title and text are stored as separate fields for applications. The signal searches `content`, one field with both of them
(`copy_to`), so that term frequencies and the length are those of the whole document, as BM25 expects.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

from termweave.contracts.signal import Clause, Fitting, Signal, TermShare, clause_budget, filtered
from termweave.dialect import OPENSEARCH, ServerDialect

if TYPE_CHECKING:
    from termweave.records import Capabilities, Document, Encoding
    from termweave.statistics import CorpusStatistics

#: Words, and single characters of scripts without spaces. No analyzer makes more tokens of a text than it has such pieces.
PIECE = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ua4cf\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]|[^\W_]+|\S"
)
#: Beginning of the description of a filter, which scores nothing, and of a node that counts the best of its children.
_FILTER, _BEST = "match on required clause", "max of:"
#: Description of an explanation's node for one term.
_TERM_NODE = re.compile(r"weight\((Synonym\((?P<synonyms>.*)\)|(?P<terms>.*)) in \d+\)", re.DOTALL)


class MatchSignal(Signal):
    """The base class of signals whose words are in text fields, where a `match` query finds them."""

    def clause(
        self, query: Encoding, *, size: int, where: Sequence[Mapping[str, Any]], capabilities: Capabilities
    ) -> Clause | None:
        """The `match` query of a text, which any client could send; None: the text has no words."""
        return match_clause(self.text_fields, query.text, where, capabilities)

    def explain(
        self, query: Encoding, clause: Clause, stored: Mapping[str, Any], engine_explanation: Mapping[str, Any] | None
    ) -> list[TermShare]:
        """The share of each term in the score, read from the server's explanation, because only the server knows the shard's statistics."""
        return term_shares(engine_explanation, self.text_fields)


@dataclass(frozen=True)
class Lexical(MatchSignal):
    """The signal `lexical`: text analysed by OpenSearch, scored by BM25 (k1 1.2, b .75, Lucene).

    Attributes:
        analyzer: Name of the server's analyzer: "english" by default, "cjk" for Chinese, Japanese and Korean.
        of_application: In an index that belongs to an application: the application's text fields, which keep their analyzers -> their weights. The
            score of a document is the weighted sum of its BM25 scores in these fields. {}: termweave stores title and text, and searches both
            together.
    """

    name: ClassVar[str] = "lexical"
    text_field: ClassVar[tuple[str, str]] = ("content", "")
    analyzer: str = "english"
    of_application: Mapping[str, float] = field(default_factory=dict, hash=False)

    @property
    def text_fields(self) -> Mapping[str, float]:
        """The fields that are searched, with their weights: an application's own text fields, or `content`."""
        return self.of_application or super().text_fields

    def parameters(self) -> dict[str, Any]:
        """The parameters that the lineage stores: the analyzer, or an application's fields, which have analyzers of their own."""
        without = "analyzer" if self.of_application else "of_application"
        return {name: value for name, value in super().parameters().items() if name != without}

    @classmethod
    def fit(cls, fitting: Fitting) -> Self:
        """Make the signal for an index, with the analyzer that the build options name."""
        return cls(analyzer=fitting.analyzer)

    def properties(self, dialect: ServerDialect = OPENSEARCH) -> dict[str, Any]:
        """The mapping of `title`, `text`, and `content`, which holds both; {} in an index of an application."""
        if self.of_application:
            return {}
        text = {"type": "text", "analyzer": self.analyzer}
        return {"title": text | {"copy_to": "content"}, "text": text | {"copy_to": "content"}, "content": text}

    def fields(self, document: Document, encoding: Encoding, statistics: CorpusStatistics | None = None) -> dict[str, Any]:
        """Title and text of a document, as the index stores them; the server fills `content` from both."""
        if self.of_application:
            return {}
        return {"title": document.title, "text": document.text}


def match_clause(
    fields: str | Mapping[str, float], text: str, where: Sequence[Mapping[str, Any]], capabilities: Capabilities
) -> Clause | None:
    """A `match` query on one text field, or on several whose weighted scores are added; None: the text has no words.

    The server refuses a query with more clauses than its limit. A query with too many words loses repeated words first, then its last
    words. (`search.retrieval.clause_limit` puts the words that contribute least last.)
    """
    if not (count := pieces(text)):
        return None
    fields = {fields: 1.0} if isinstance(fields, str) else fields
    limit = max(1, clause_budget(capabilities, where) // len(fields))
    text, dropped = _shortened(text, limit) if count > limit else (text, ())
    if [*fields.values()] == [1.0]:
        return Clause(filtered({"match": {next(iter(fields)): {"query": text}}}, where), dropped=dropped)
    weighted = [f"{name}^{weight}" for name, weight in fields.items()]
    return Clause(filtered({"multi_match": {"query": text, "type": "most_fields", "fields": weighted}}, where), dropped=dropped)


def pieces(text: str) -> int:
    """An upper bound for the number of tokens that an analyzer makes of a text."""
    return sum(1 for _ in PIECE.finditer(text))


def _shortened(text: str, limit: int) -> tuple[str, tuple[str, ...]]:
    """The unique words of a text that fit into `limit` pieces (possible tokens), and the words that were left out.

    A first word that is longer than the limit, such as a Chinese or Thai text without spaces, is cut.
    """
    words: list[str] = []
    dropped: list[str] = []
    room = limit
    for word in dict.fromkeys(text.split()):
        matches = list(PIECE.finditer(word))
        if len(matches) <= room:
            words.append(word)
            room -= len(matches)
        elif room == limit:
            words.append(word[: matches[room].start()])
            dropped.append(word[matches[room].start() :])
            room = 0
        else:
            dropped.append(word)
    return " ".join(words), tuple(dropped)


def term_shares(explanation: Mapping[str, Any] | None, fields: str | Collection[str]) -> list[TermShare]:
    """The share of each indexed term in the score of a hit, heaviest first.

    Args:
        explanation: The server's `_explanation` of the hit; None: there is none.
        fields: The text field, or fields, that were searched.
    """
    shares: dict[str, float] = {}
    prefixes = tuple(f"{name}:" for name in ([fields] if isinstance(fields, str) else fields))
    for term, value in _scores(explanation or {}, prefixes):
        shares[term] = shares.get(term, 0.0) + value
    return [TermShare(term, value) for term, value in sorted(shares.items(), key=lambda pair: (-pair[1], pair[0]))]


def _scores(node: Mapping[str, Any], prefixes: tuple[str, ...]) -> Iterator[tuple[str, float]]:
    """Term and score of each node of an explanation that stands for one term."""
    description = str(node.get("description", ""))
    if description.startswith(_FILTER):
        return
    if match := _TERM_NODE.match(description):
        terms = match["synonyms"] or match["terms"]
        prefix = next(filter(terms.startswith, prefixes), "")
        # A query term with synonyms: each is prefixed with the field.
        yield terms.removeprefix(prefix).replace(f" {prefix}", " ") if prefix else terms, float(node["value"])
        return
    children = node.get("details", ())
    for child in sorted(children, key=lambda each: -each["value"])[:1] if description == _BEST else children:
        yield from _scores(child, prefixes)
