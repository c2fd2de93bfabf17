"""Whether a search finds what is stored: each signal is asked for a few documents with what it has stored of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from termweave.catalog.layout import engine_id, stored_content
from termweave.dialect import dialect_of
from termweave.engine import EngineResponseError
from termweave.errors import EngineError, VerificationFailed
from termweave.indexer.preparation import created_index
from termweave.records import Encoding
from termweave.signals.dense import VECTOR_FIELD, from_half
from termweave.signals.weights import WeightedTerms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from termweave.catalog.layout import DocumentLayout
    from termweave.contracts.signal import Signal
    from termweave.engine import Engine

#: Documents that each signal is asked for, and characters of their texts that are sent.
_DOCUMENTS, _CHARACTERS = 5, 100


def check(engine: Engine, index: str, layout: DocumentLayout, identities: Sequence[str]) -> None:
    """Search for documents by their own content.

    Args:
        engine: The server.
        index: The generation, refreshed.
        layout: How its documents are stored.
        identities: Ids of documents and passages that are stored; the first few are searched for.

    Raises:
        VerificationFailed: A signal finds none of those for which it has something to search.
    """
    query = {"ids": {"values": [engine_id(identity) for identity in identities[:_DOCUMENTS]]}}
    body = {"size": _DOCUMENTS, "query": query, "_source": dialect_of(engine.capabilities).source()}
    stored = engine.search(index, body)["hits"]["hits"]
    for signal in layout.signals:
        lost = ""
        for hit in stored:
            where = [{"ids": {"values": [hit["_id"]]}}]
            clause = signal.clause(_query(signal, hit["_source"]), size=1, where=where, capabilities=engine.capabilities)
            if clause is None:
                continue
            search = {"size": 1, "_source": False, "query": clause.query}
            try:
                hits = engine.search(index, search)["hits"]["hits"]
            except EngineResponseError as error:
                if signal.text_field is not None:  # the user's analyzer may make more tokens of a text than a query may have
                    continue
                raise VerificationFailed(
                    f"{engine.product} could not search {signal.name}: {error.message}", error.hint
                ) from error
            if hits:
                lost = ""
                break
            if _has_words(engine, index, signal, hit["_source"]):
                lost = lost or hit["_source"]["id"]
        if lost:
            raise VerificationFailed(
                f"{index} holds what was sent, but a search of {signal.name} does not find it (document {lost!r}).",
                created_index.advice(engine, index) or f"Compare GET /{index} with what 'termweave index' sets.",
            )


def _query(signal: Signal, stored: Mapping[str, Any]) -> Encoding:
    """A stored document as a query."""
    weights = signal.impacts_of(stored) if isinstance(signal, WeightedTerms) else None
    vector = from_half(stored[VECTOR_FIELD]) if VECTOR_FIELD in stored else None
    return Encoding(_text(stored), weights if weights is not None and len(weights) else None, vector)


def _text(stored: Mapping[str, Any]) -> str:
    return stored_content(stored)[:_CHARACTERS]


def _has_words(engine: Engine, index: str, signal: Signal, stored: Mapping[str, Any]) -> bool:
    """Whether the server's analyzer finds several words in a text, so that a search must find one. False where a role may not ask.

    A text may be of stop words alone, and an analyzer may keep title and text whole, each as one token.
    """
    if signal.text_field is None:
        return True
    body = {"field": signal.text_field[0], "text": _text(stored)}
    try:
        return len(engine.request("POST", f"/{index}/_analyze", body=body)["tokens"]) > 1
    except EngineError:
        return False
