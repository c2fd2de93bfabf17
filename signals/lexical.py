"""The lexical signal: the words of title and text, scored by the engine's own BM25.

Title and text are fields of their own for applications; what is searched here is `content`, both of them in one
field (`copy_to`), so that a word's frequency and the length are those of the document and "BM25" in a table means one thing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from termweave.signals.base import Clause, Fitting, Signal, TermShare, clause_budget, filtered
from termweave.signals.engine_explanation import term_shares

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from termweave.records import Capabilities, Document, Encoding

#: At least as many pieces as an analyzer makes tokens: words, and single characters of scripts without spaces.
_PIECE = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ua4cf\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]|[^\W_]+|\S"
)


@dataclass(frozen=True)
class Lexical(Signal):
    """Text analysed by OpenSearch, scored by BM25 (k1 1.2, b .75, Lucene).

    Attributes:
        analyzer: An analyzer of the server: "english" by default, "cjk" for Chinese, Japanese and Korean.
    """

    name: ClassVar[str] = "lexical"
    analyzer: str = "english"

    @classmethod
    def fit(cls, fitting: Fitting) -> Self:
        """Take the analyzer asked for."""
        return cls(analyzer=fitting.analyzer)

    def properties(self) -> dict[str, Any]:
        """`title` and `text`, and `content` that holds both."""
        text = {"type": "text", "analyzer": self.analyzer}
        return {"title": text | {"copy_to": "content"}, "text": text | {"copy_to": "content"}, "content": text}

    def fields(self, document: Document, encoding: Encoding) -> dict[str, Any]:
        """Title and text as they are; `content` fills itself."""
        del encoding
        return {"title": document.title, "text": document.text}

    def clause(
        self, query: Encoding, *, size: int, where: Sequence[Mapping[str, Any]], capabilities: Capabilities
    ) -> Clause | None:
        """A `match` on `content`; a query of more words than the server allows clauses loses repetitions, then its last words.

        (`search.clause_limit` sees to it that the last words are those that contribute least.)

        More clauses than allowed are an error of the engine, not a shorter list.
        """
        del size
        if not (count := pieces(query.text)):
            return None
        limit = clause_budget(capabilities, where)
        text, dropped = _shortened(query.text, limit) if count > limit else (query.text, ())
        return Clause(filtered({"match": {"content": {"query": text}}}, where), dropped=dropped)

    def explain(
        self, query: Encoding, clause: Clause, stored: Mapping[str, Any], engine_explanation: Mapping[str, Any] | None
    ) -> list[TermShare]:
        """The engine's own explanation, term by term."""
        del query, clause, stored
        return term_shares(engine_explanation, "content")


def pieces(text: str) -> int:
    """How many tokens an analyzer makes of a text, at most."""
    return sum(1 for _ in _PIECE.finditer(text))


def _shortened(text: str, limit: int) -> tuple[str, tuple[str, ...]]:
    """The words of a text, each once and as it is written, up to `limit` pieces; and the words left out.

    A word without spaces that is too long by itself (Chinese, Thai) is cut where the room ends.
    """
    kept: list[str] = []
    dropped: list[str] = []
    room = limit
    for word in dict.fromkeys(text.split()):
        found = list(_PIECE.finditer(word))
        if len(found) <= room:
            kept.append(word)
            room -= len(found)
        elif room == limit:
            kept.append(word[: found[room].start()])
            dropped.append(word[found[room].start() :])
            room = 0
        else:
            dropped.append(word)
    return " ".join(kept), tuple(dropped)
