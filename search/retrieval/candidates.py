"""Candidates: the best documents of each signal for each query. One `_msearch` holds a search for each signal and query."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from termweave.catalog.layout import DocumentLayout, stored_content
from termweave.catalog.source_fields import text_at
from termweave.catalog.typed_fields import INSTANT, convert
from termweave.engine import EngineResponseError
from termweave.engine.client.payloads import ALL_SHARDS
from termweave.engine.client.server_errors import hint_for
from termweave.errors import EngineError
from termweave.records import Capabilities, Encoding, Passage, SignalScore
from termweave.rerank.rerankers import METADATA, WORDS, IndexTerms, Need
from termweave.signals.dense import VECTOR_FIELD, from_half, from_halves
from termweave.signals.fusion import FusedList, Ranked

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from termweave.catalog.columns import Column
    from termweave.contracts.signal import Clause, Signal
    from termweave.engine import Engine

_NO_FIELDS: dict[str, Any] = {}
#: The layout of an index that termweave built, without metadata.
_LAYOUT = DocumentLayout(())
#: Part of the server's reason if a shard has no living copy -> what to do.
_MISSING = "Search rejected due to missing shards"
MISSING_HINT = "Start the nodes that are down; 'GET /_cluster/health?level=indices' shows which indices are red."
#: The server groups passages by document id, and fails at a document with two ids without naming it.
_SEVERAL_IDS = (
    "Another program wrote a document with a list as its id into the index. 'termweave verify NAME' names the document, and "
    "'termweave index SOURCE NAME --update --delete-missing' deletes it."
)


@dataclass(frozen=True)
class SignalRequests:
    """The searches of one query, one for each signal, ready to be sent.

    Attributes:
        query: The encoded query.
        layout: The signals and fields of the index.
        clauses: Signal name -> the signal's clause; a signal that cannot match anything of the query has no entry.
        bodies: Signal name -> request body.
        entries: Metadata entry that a reranker reads, or "words.NAME" for a field of short texts -> the column from which the values are read.
        words: "words.NAME" for any other field of texts -> the paths in a document's `_source` where its texts are.
        numbers: Metadata entry of numbers that only a document's `_source` holds -> the field from which the values are read.
    """

    query: Encoding
    layout: DocumentLayout
    clauses: Mapping[str, Clause]
    bodies: Mapping[str, dict[str, Any]]
    entries: Mapping[str, Column] = field(default_factory=dict)
    words: Mapping[str, Sequence[str]] = field(default_factory=dict)
    numbers: Mapping[str, Column] = field(default_factory=dict)


def signal_requests(
    query: Encoding,
    signals: Sequence[Signal],
    capabilities: Capabilities,
    *,
    depth: int,
    where: Sequence[Mapping[str, Any]] = (),
    needs: Collection[Need] = (),
    reach: int | None = None,
    layout: DocumentLayout = _LAYOUT,
) -> SignalRequests:
    """Build the searches of one query, which ask for ids and scores, and for the data that a reranker needs.

    Args:
        query: The encoded query.
        signals: The signals to search with.
        capabilities: The features and limits of the server.
        depth: How many documents each signal returns.
        where: Filters of the query DSL; all must match.
        needs: "vectors" asks for the documents' vectors (as doc values), "texts" for titles and texts, "metadata.NAME" for an
            entry, "words.NAME" for the text of a field.
        reach: The number of passages that k-NN searches look for, if documents are stored as passages; the server then returns the best passage of
            each document. None: documents are not cut into passages.
        layout: Names the fields of the server that hold title, text and metadata.
    """
    clauses = {}
    for signal in signals:
        clause = signal.query_clause(query, size=reach or depth, where=where, capabilities=capabilities)
        if clause is not None:
            clauses[signal.name] = clause
    columns: list[Any] = [f"{layout.prefix}{VECTOR_FIELD}"] if "vectors" in needs else []
    names = [need.removeprefix(METADATA) for need in sorted(needs) if need.startswith(METADATA)]
    read = {name: column for name in names if (column := layout.column(name))}
    numbers = {name: column for name, column in read.items() if column.number}
    read = {name: column for name, column in read.items() if name not in numbers}
    words = {need: layout.paths(need.removeprefix(WORDS)) for need in sorted(needs) if need.startswith(WORDS)}
    # Short texts are read as columns: the `_source` of 300 hits took 9 ms of 19 (3.6.0).
    typed = {need: column for need in words if (column := layout.short_texts(need.removeprefix(WORDS)))}
    words = {need: paths for need, paths in words.items() if need not in typed}
    read |= typed
    # An application may store dates in a format of its own.
    columns += [
        {"field": each.field, "format": INSTANT} if each.kind == "date" else each.field for each in dict.fromkeys(read.values())
    ]
    # Without texts not even `_id` is asked for: opening the stored fields of 100 hits cost 0.6 ms of 2.2 a search (3.6.0). A document that
    # an application has just written has no other id.
    of_source = [*(layout.text_fields if "texts" in needs else ()), *(path for paths in words.values() for path in paths)]
    of_source += [column.field for column in numbers.values()]
    unread: dict[str, Any] = {"stored_fields": "_none_"} if layout.application is None else {"_source": False}
    stored = {"_source": of_source} if of_source else unread
    bodies: dict[str, dict[str, Any]] = {
        name: {
            "query": clause.query,
            "size": depth,
            # Equal scores are common with integer impacts. Sorting them by id makes the cut independent of the order of sending.
            # The answer repeats the sort values, so that the id and the `_score` come from there. `track_scores` would have the
            # server score the best documents a second time, which takes an eighth of its time (docs/latency.md).
            "sort": ["_score", {layout.id_field: "asc"}],
            **stored,
            "docvalue_fields": columns,
            "track_total_hits": False,
        }
        for name, clause in clauses.items()
    }
    if reach is not None:
        for name, clause in clauses.items():
            bodies[name] |= {**grouped([*columns, "passage"]), "track_total_hits": clause.reach is not None}
    return SignalRequests(query, layout, clauses, bodies, read, words, numbers)


def grouped(columns: Sequence[Any]) -> dict[str, Any]:
    """The part of a request that groups passages by document: only the best passage of each is returned, and the first of equal ones."""
    return {
        "collapse": {"field": "id"},
        "sort": ["_score", {"id": "asc"}, {"passage": {"order": "asc", "unmapped_type": "integer"}}],
        "docvalue_fields": list(columns),
    }


class HalfVectors(Mapping[str, "NDArray[np.float32]"]):
    """Document vectors, stored as base64, that are decoded only when they are read.

    A hybrid search has about 200 candidates, of which a reranker reads 60.
    """

    def __init__(self, encoded: dict[str, str]) -> None:
        self._encoded = encoded

    def __getitem__(self, document: str) -> NDArray[np.float32]:
        return from_half(self._encoded[document])

    def __iter__(self) -> Iterator[str]:
        return iter(self._encoded)

    def __len__(self) -> int:
        return len(self._encoded)

    def stacked(self, documents: Sequence[str], dimension: int) -> NDArray[np.float32]:
        """Decode the vectors of documents, float32 ``(len(documents), dimension)``; a row of zeros for a document without a vector."""
        return from_halves([self._encoded.get(document) for document in documents], dimension)


@dataclass(frozen=True)
class Candidates:
    """The documents that the signals returned for one query.

    Attributes:
        query: The encoded query.
        lists: Signal name -> the signal's ranked documents; empty for a signal that cannot match anything of the query.
        clauses: Signal name -> the clause that was sent.
        vectors: Key -> float32 ``(d,)``, if vectors were requested. The key is `Passage.key` of the passage that a signal returned, which is the
            document's id where documents are not cut into passages.
        index: Name of the generation that answered, from which stored fields are read, even if the alias has moved meanwhile.
        short: Whether a list has too few documents because its k-NN search looked at too few passages.
        texts: Key as in `vectors` -> title and text, if texts were requested.
        metadata: Key as in `vectors` -> requested metadata entry -> its values, and "words.NAME" -> the texts of the field NAME.
        beside: Signal name -> ranked documents, for signals that a reranker reads and the mode does not have.
        pinned: Ids of the pinned documents, which come first.
        index_terms: How the index cuts texts into terms and weighs them; None: the index does not have the signal weights.
    """

    query: Encoding
    lists: Mapping[str, Ranked]
    clauses: Mapping[str, Clause]
    vectors: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    index: str = ""
    short: bool = False
    texts: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Mapping[str, Sequence[Any]]] = field(default_factory=dict)
    beside: Mapping[str, Ranked] = field(default_factory=dict)
    pinned: Sequence[str] = ()
    index_terms: IndexTerms | None = None

    @property
    def documents(self) -> set[str]:
        """The ids of all documents in the lists."""
        return {document for ranked in self.lists.values() for document in ranked.scores}

    def passage(self, document: str, signals: Mapping[str, SignalScore]) -> int | None:
        """Number of the passage that a hit shows: the passage of the signal with the largest share in the score.

        None: that signal's search returned a whole document, or no signal returned the document.
        """
        for name in sorted(signals, key=lambda name: -signals[name].share):
            ranked = self.lists.get(name)
            if ranked is not None and document in ranked.scores:
                return ranked.passages.get(document)
        return None

    def keys(self, documents: Sequence[str], signals: Collection[str], first: str = "") -> Sequence[str]:
        """The keys under which `texts`, `vectors` and `metadata` hold the data of documents.

        In an index of passages, each signal may have returned another passage of a document. The passage that ranks best stands for the document.

        Args:
            documents: Ids of documents.
            signals: The signals of the mode: passages that only other signals returned do not count.
            first: A signal whose passage is taken before all others, if it is among `signals` and returned the document; "": none.
        """
        lists = [self.lists[name] for name in signals if self.lists[name].passages]
        if not lists:
            return documents
        sought, best = set(documents), dict[str, tuple[int, int | None]]()
        for ranked in lists:
            before = -len(ranked.scores) if ranked is self.lists.get(first) else 0
            for rank, document in enumerate(ranked.scores, before):
                if document in sought and (document not in best or rank < best[document][0]):
                    best[document] = rank, ranked.passages.get(document)
        return [Passage.key(document, best[document][1]) if document in best else document for document in documents]

    def matrix(self, keys: Sequence[str]) -> NDArray[np.float32]:
        """The vectors under these keys, float32 ``(len(keys), d)``; a row of zeros for a document without a vector.

        A document without text has no vector. The query must have a vector.
        """
        import numpy as np  # noqa: PLC0415 - `--help` does not rank

        assert self.query.vector is not None
        if isinstance(self.vectors, HalfVectors):
            return self.vectors.stacked(keys, len(self.query.vector))
        zeros = np.zeros_like(self.query.vector)
        return np.stack([self.vectors.get(key, zeros) for key in keys])


def gather(
    engine: Engine,
    target: str,
    prepared: Sequence[SignalRequests],
    signals: Sequence[Signal | FusedList],
    window: int | None = None,
) -> tuple[list[Candidates], set[str]]:
    """Send the searches of several queries as one `_msearch`, and return the candidates.

    Args:
        engine: The server.
        target: Alias or concrete index.
        prepared: The searches of each query.
        signals: The signals that the searches were built from.
        window: How many documents of each list count in the fusion; None: all.

    Returns:
        The candidates of each query, and the concrete indices that answered.

    Raises:
        SearchFailed: A search failed, or only some of the shards answered, so that the ranking would be wrong.
        EngineError: Documents of two indices have the same id.
    """
    searches = [each for requests in prepared for each in requests.bodies.items()]
    remaining = iter(answers_to(engine, target, searches))
    seen: set[str] = set()
    gathered = []
    for requests in prepared:
        answered = [(name, clause, next(remaining)) for name, clause in requests.clauses.items()]
        gathered.append(_candidates(requests, answered, {signal.name: signal for signal in signals}, window, seen))
    return gathered, seen


def answers_to(engine: Engine, target: str, searches: Sequence[tuple[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Send searches as one `_msearch`, and send them again if a shard was missing.

    A node that ended a moment ago is replaced by the copies of its shards on other nodes.

    Args:
        engine: The server.
        target: Alias or concrete index.
        searches: The signal and the body of each search.

    Returns:
        The answer to each search.

    Raises:
        SearchFailed: A search failed, or only some of the shards answered.
    """
    if not searches:
        return []
    lines = [line for _, body in searches for line in (ALL_SHARDS, body)]

    def send() -> list[dict[str, Any]]:
        answers: list[dict[str, Any]] = engine.request("POST", f"/{target}/_msearch", body=lines, retry=False)["responses"]
        for (name, _), answer in zip(searches, answers, strict=True):
            hits_of(answer, name)
        return answers

    return engine.repeat(send)


def _candidates(
    prepared: SignalRequests,
    answered: Sequence[tuple[str, Clause, Mapping[str, Any]]],
    signals: Mapping[str, Signal | FusedList],
    window: int | None,
    seen: set[str],
) -> Candidates:
    """Collect the candidates of one query from the server's answers.

    Args:
        prepared: The searches that were sent.
        answered: Name, clause and server's answer of each signal.
        signals: Name -> signal.
        window: How many documents of each list count in the fusion; None: all.
        seen: A set to which the function adds the concrete indices that answered.
    """
    lists = {name: Ranked.from_scores([]) for name in signals}
    vectors: dict[str, str] = {}
    texts: dict[str, str] = {}
    metadata: dict[str, dict[str, Any]] = {}
    short, reads = False, bool(prepared.entries or prepared.words or prepared.numbers)
    homes: dict[str, str] = {}
    layout, vector_field = prepared.layout, f"{prepared.layout.prefix}{VECTOR_FIELD}"
    for name, clause, answer in answered:
        signal = signals[name]
        pairs: list[tuple[str, float]] = []
        passages: dict[str, int] = {}
        for hit in hits_of(answer, name):
            fields = hit.get("fields", _NO_FIELDS)
            identity = hit["sort"][1] if "sort" in hit and layout.application is None else layout.id_of(hit)
            seen.add(hit["_index"])
            if identity is None:  # another program wrote this document; `verify` names it
                continue
            if homes.setdefault(identity, hit["_index"]) != hit["_index"] and layout.application is not None:
                raise EngineError(
                    f"{identity!r} is the _id of a document in {homes[identity]!r} and of another one in {hit['_index']!r}, "
                    "and termweave tells documents apart by their _id.",
                    "Search each index by its own name.",
                )
            pairs.append((identity, signal.score(hit["_score"], clause)))
            key = identity
            if "passage" in fields and layout.application is None:
                passages[identity] = fields["passage"][0]
                key = Passage.key(identity, passages[identity])
            if vector_field in fields:
                vectors[key] = fields[vector_field][0]
            if reads and key not in metadata:
                metadata[key] = _metadata(hit, prepared)
            if "_source" in hit and key not in texts:
                texts[key] = stored_content(layout.with_text(hit["_source"]))
        lists[name] = Ranked.from_scores(pairs, window, signal, passages, clause.full_match_score)
        short = short or _is_short(answer["hits"], clause, prepared.bodies[name])
    return Candidates(prepared.query, lists, prepared.clauses, HalfVectors(vectors), short=short, texts=texts, metadata=metadata)


def _metadata(hit: Mapping[str, Any], prepared: SignalRequests) -> dict[str, Any]:
    """The metadata of a hit that rerankers read: entry -> its values, read from columns or from the document's `_source`."""
    fields, source = hit.get("fields", _NO_FIELDS), hit.get("_source", _NO_FIELDS)
    values_of = {
        entry: column.shown(fields[column.field]) for entry, column in prepared.entries.items() if column.field in fields
    }
    for need, paths in prepared.words.items():
        values_of[need] = [text for path in paths if (text := text_at(source, path))]
    for entry, column in prepared.numbers.items():
        values = text_at(source, column.field).split("\n")
        values_of[entry] = [number for each in values if (number := convert(column.number, each)) is not None]
    return values_of


def _is_short(hits: Mapping[str, Any], clause: Clause, body: Mapping[str, Any]) -> bool:
    """Whether a search with a larger `reach` could return more documents, because the passages that were found belong to too few documents."""
    if clause.reach is None or "collapse" not in body or len(hits["hits"]) >= body["size"]:
        return False
    total: int = hits["total"]["value"]
    return total >= clause.reach


class SearchFailed(EngineResponseError):
    """Raised if the search of one signal failed, though the server answered the `_msearch` with all searches."""

    def __init__(self, status: int, message: str, hint: str, answer: Mapping[str, Any]) -> None:
        super().__init__(status, message, answer, hint=hint)
        self.message = message


def hits_of(answer: Mapping[str, Any], signal: str) -> list[dict[str, Any]]:
    """Return the hits in the answer to one signal's search, after a check that the search was complete.

    Raises:
        SearchFailed: The search failed, or only some of the shards answered. The status is 503 if it may succeed later.
    """
    if "error" in answer:
        error = answer["error"]
        causes = error.get("root_cause") or [error.get("caused_by") or error]
        reason = str(causes[0].get("reason") or error).rstrip(".")
        hint = _SEVERAL_IDS if "must be single valued" in reason else hint_for(answer.get("status", 0), error)
        if _MISSING in reason:
            reason, hint = "some of its shards are on no living node", MISSING_HINT
        message = f"The server could not search the signal {signal!r}: {reason}."
        raise SearchFailed(answer.get("status", 0), message, hint, answer)
    shards = answer["_shards"]
    absent = shards["total"] - shards["successful"]
    if absent or answer.get("timed_out"):
        cause = f"{absent} of {shards['total']} shards failed" if absent else "the search timed out"
        message = f"The server searched only a part of the signal {signal!r}: {cause}. The ranking would be wrong."
        hint = "Search again. If the error persists, look for the cause in the server's log ('termweave node logs')."
        raise SearchFailed(HTTPStatus.SERVICE_UNAVAILABLE if absent else HTTPStatus.OK, message, hint, answer)
    hits: list[dict[str, Any]] = answer["hits"]["hits"]
    return hits
