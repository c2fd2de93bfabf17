"""The hits of a search: made of ranked documents and their stored fields, explained, and shown to Python users as text, table or DataFrame."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from html import escape
from http import HTTPStatus
from itertools import chain
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

from termweave.catalog.layout import DocumentLayout, as_written, engine_id, stored_metadata, stored_passage, stored_text
from termweave.engine.client.payloads import ALL_SHARDS
from termweave.engine.client.server_errors import hint_for
from termweave.errors import EngineError, TermweaveError, UsageError
from termweave.records import Hit, Passage
from termweave.search.feature import Ranking, of_part
from termweave.search.results import explanation
from termweave.search.results.pictures import passage, shade
from termweave.search.retrieval.candidates import MISSING_HINT, Candidates, SearchFailed
from termweave.search.retrieval.plan import unexplained
from termweave.signals.fusion import FusedList
from termweave.support.messages import clipped

if TYPE_CHECKING:
    import pandas as pd

    from termweave.rerank.rerankers import CutShort
    from termweave.search.features.facets import FacetValue
    from termweave.search.features.totals import Totals
    from termweave.search.opening import OpenGeneration
    from termweave.search.ranking.order import Place

#: Errors of a document whose shard has no living copy (OpenSearch 3.6.0).
_UNAVAILABLE = frozenset({"no_shard_available_action_exception", "unavailable_shards_exception"})
#: The fields whose words an explanation shades.
_SHADED = ("title", "text")
#: Stored fields that every hit is made of; none of them is shown because a pattern matches its name.
_ALWAYS = ("id", "passage", "passage_start", "passage_end")
#: A title that ends with one of these gets no full stop; the last five are full-width characters and the ellipsis.
_ENDS = tuple(".?!:\u3002\uff1f\uff01\uff1a\u2026")

#: Hits that a notebook shows, characters of the passage, and characters of a title.
_ROWS, _PASSAGE, _TITLE = 20, 300, 60
_CELL = "text-align:left;vertical-align:top;white-space:normal"


class Hits(list[Hit]):
    """The hits of a search, best first: a list that notebooks show as a table with shaded passages.

    Attributes:
        remarks: Remarks of `Index.search`, for example which filter leaves no document, or how many terms of the query a signal left out.
    """

    remarks: tuple[str, ...] = ()

    def __repr__(self) -> str:
        if not self:
            return "\n".join(["<no hits>", *self.remarks])
        lines = [f"{hit.rank:>3}  {hit.score:.4f}  {hit.id}  {clipped(_title(hit), _TITLE)}".rstrip() for hit in self[:_ROWS]]
        further = len(self) - len(lines)
        return "\n".join([*lines, *([f"... and {further:,} more"] if further else []), *self.remarks])

    @overload
    def __getitem__(self, index: SupportsIndex) -> Hit: ...

    @overload
    def __getitem__(self, index: slice) -> Hits: ...

    def __getitem__(self, index: SupportsIndex | slice) -> Hit | Hits:
        """Return one hit by its place, or for a slice several hits as another `Hits`."""
        return Hits(super().__getitem__(index)) if isinstance(index, slice) else super().__getitem__(index)

    def _repr_html_(self) -> str:
        """The HTML table that a notebook shows; words are shaded by their share of the score."""
        remarks = "".join(f"<p>{escape(each)}</p>" for each in self.remarks)
        if not self:
            return f"<p>Nothing found.</p>{remarks}"
        head = "".join(f'<th style="{_CELL}">{name}</th>' for name in ("", "score", "document", "passage"))
        rows = "".join(_row(hit) for hit in self[:_ROWS])
        further = len(self) - _ROWS
        below = f"<p>... and {further:,} more</p>" if further > 0 else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{below}{remarks}"

    def to_pandas(self) -> pd.DataFrame:
        """Return the hits as a DataFrame: rank, id, score, the stored fields (metadata.NAME), and the share of each signal.

        Raises:
            UsageError: pandas is not installed.
        """
        try:
            import pandas as pd  # noqa: PLC0415 - not a dependency
        except ImportError:
            raise UsageError("pandas is not installed.", "Install it with 'pip install pandas'.") from None
        rows: list[dict[str, Any]] = []
        for hit in self:
            shares = {f"share.{name}": signal.share for name, signal in hit.signals.items()}
            rows.append({"rank": hit.rank, "id": hit.id, "score": hit.score, **dict(flat(hit.fields)), **shares})
        return pd.DataFrame(rows)


class DocumentGone(EngineError):
    """Raised if a hit was deleted after the search found it and before its fields were read."""


@dataclass(frozen=True)
class Answer:
    """The answer to a query: hits, and remarks for the user.

    Attributes:
        hits: The hits, best first.
        dropped: Signal name -> query terms left out because the server allows no more clauses, heaviest first.
        remarks: Sentences for the user, for example that no word of the query occurs in a document, or that a requested field does not exist.
        cut_short: The rerankers whose time budget ended before they had scored their candidates.
        parts: Parts that features add, by name: "facets", "totals", and those of other packages' features.
    """

    hits: Hits
    dropped: Mapping[str, tuple[str, ...]]
    remarks: tuple[str, ...] = ()
    cut_short: tuple[CutShort, ...] = ()
    parts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def facets(self) -> Mapping[str, tuple[FacetValue, ...]]:
        """Field -> its counted values among the listed documents; {} if no facets were asked for."""
        counted: Mapping[str, tuple[FacetValue, ...]] = self.parts.get("facets", {})
        return counted

    @property
    def totals(self) -> Totals | None:
        """How many documents are listed, pass the filters, and contain a word of the query; None: totals were not asked for."""
        return self.parts.get("totals")

    def __repr__(self) -> str:
        return "\n".join([repr(self.hits), *self.lines, *self.all_remarks])

    def _repr_html_(self) -> str:
        """The HTML that a notebook shows: the hits, with facets and remarks below."""
        return self.hits._repr_html_() + "".join(f"<p>{escape(line)}</p>" for line in (*self.lines, *self.all_remarks))

    @property
    def lines(self) -> list[str]:
        """The parts that features add, such as facets, as lines of text."""
        return [line for name, part in self.parts.items() for line in of_part(name).lines(part)]

    @property
    def all_remarks(self) -> tuple[str, ...]:
        """The remarks, with a sentence for each signal that left out terms, and for each reranker whose time budget ended early."""
        dropped = [
            f"{signal} left out {len(terms):,} terms of the query: the server allows no more."
            for signal, terms in self.dropped.items()
        ]
        return (*self.remarks, *dropped, *(f"{cut}." for cut in self.cut_short))

    def to_pandas(self) -> pd.DataFrame:
        """Return the hits as a DataFrame, as `Hits.to_pandas` does."""
        return self.hits.to_pandas()


def _title(hit: Hit) -> str:
    title = str(hit.fields.get("title") or "")
    return "" if title == hit.id else title


def _row(hit: Hit) -> str:
    cells = (
        str(hit.rank),
        f"{hit.score:.4f}",
        f"<b>{escape(clipped(_title(hit) or hit.id, _TITLE))}</b>"
        + (f"<br><small>{escape(hit.id)}</small>" if _title(hit) else ""),
        _passage(hit),
    )
    return "<tr>" + "".join(f'<td style="{_CELL}">{cell}</td>' for cell in cells) + "</tr>"


def _passage(hit: Hit) -> str:
    """The HTML of the part of a hit's text that adds most to the score, with shaded words.

    If the hit cannot be explained any more, the beginning of the text is returned.
    """
    try:
        explained = hit.explain()
    except TermweaveError:  # the document was deleted, or the server is gone: a table is still shown
        explained = {}
    if not explained.get("words"):
        return escape(clipped(str(hit.fields.get("text", "")), _PASSAGE))
    return "".join(
        f'<span style="background:{shade(share)}">{escape(piece)}</span>' if share > 0 else escape(piece)
        for piece, _, share in passage("", explained, _PASSAGE).runs()
    )


def make(
    generation: OpenGeneration, ranking: Ranking, places: Sequence[Place], *, first: int, fields: Sequence[str]
) -> tuple[list[Hit], Ranking]:
    """Make hits of ranked documents: read their stored fields. An explanation is requested only when `Hit.explain` is called.

    Args:
        generation: The generation that was searched.
        ranking: The round of the search that found the documents.
        places: The documents, best first.
        first: Rank of the first document.
        fields: Names of the stored fields that the hits get.

    Returns:
        The hits, and the round with the stored fields that were read.

    Raises:
        UsageError: The index does not hold one of the documents.
        DocumentGone: A document was deleted after the search.
    """
    candidates = ranking.candidates
    stored = _stored(generation, candidates, places, (*fields, *ranking.plan.stored)) if places else {}
    hidden = set(_hidden(generation))
    if generation.layout.application is None:
        hidden |= {*_ALWAYS, "metadata_long"}
    elif not generation.layout.prefix:
        hidden.add("id")
    hits = [
        Hit(
            id=place.id,
            score=place.score,
            rank=rank,
            fields=_fields(stored[place.id], fields, hidden),
            signals=place.signals,
            explainer=partial(_explain_later, generation, candidates, place),
            passage=None if generation.layout.application else stored_passage(stored[place.id]),
            reranked=sum((part.share for part in place.reranked), 0.0),
        )
        for rank, place in enumerate(places, first)
    ]
    return hits, replace(ranking, shown=places, stored=stored)


def stored_names(fields: Sequence[str], layout: DocumentLayout) -> tuple[str, ...]:
    """The full names of stored fields as users name them in the option `fields`.

    A metadata entry may be named without "metadata.", as in a filter; an alias of a field stands for its field.
    """
    stored = {name: f"metadata.{name}" for name in layout.types.keys() - layout.names}
    stored |= {name: column.path for name, column in layout.mapped.items()}

    def placed(name: str) -> str:
        whole = layout.application is not None or "*" in name or name.partition(".")[0] in layout.names
        return stored.get(name) or (name if whole else f"metadata.{name}")

    return tuple(map(placed, fields))


def source_parameters(fields: Sequence[str], generation: OpenGeneration) -> dict[str, str]:
    """The parameters of a request that reads the stored fields of hits.

    The request reads the named fields, long metadata, and id and position of the passage. A name with `*` is a pattern for fields of the
    source; fields that signals and digests add to a document are read only if they are named without a pattern.
    """
    fields = stored_names(fields, generation.layout)
    if generation.layout.application is not None and not {*fields}.isdisjoint(_SHADED):
        fields = (*fields, *generation.layout.text_fields)
    long = [name.replace("metadata", "metadata_long", 1) for name in fields if name.partition(".")[0] == "metadata"]
    parameters = {"_source_includes": ",".join(sorted({*fields, *long, *_ALWAYS}))}
    if any("*" in name for name in fields) and (left := _hidden(generation) - {name.partition(".")[0] for name in fields}):
        parameters["_source_excludes"] = ",".join(sorted(left))
    return parameters


def reading(ids: Sequence[str], layout: DocumentLayout) -> tuple[str, dict[str, Any]]:
    """The server's operation that reads documents by their ids ("_mget" or "_search"), and the body of the request.

    `_mget` asks only the shard to which the `_id` leads. An application may have routed a document to another shard, so that its documents are
    read by a search of all shards.
    """
    if layout.application is None:
        return "_mget", {"ids": list(ids)}
    return "_search", {"query": layout.with_ids(ids), "size": len(ids)}


def _hidden(generation: OpenGeneration) -> frozenset[str]:
    """Names of the fields that neither the source nor the application wrote: those of the signals, and digests."""
    enriched = generation.lineage.source.get("enriched")  # there all others are the application's
    written = generation.layout.names if enriched is None else frozenset(enriched.split())
    return written - {*generation.layout.extra, *_SHADED, *_ALWAYS, "metadata", "metadata_long"}


def _check_read(entries: Sequence[Mapping[str, Any]]) -> None:
    """Check that every document could be read: `_mget` answers with status 200 even if it reports errors of single documents.

    Raises:
        EngineError: The user's role may not read the documents.
        SearchFailed: A shard is on no living node. The status is 503, because another attempt may succeed.
    """
    for error in (entry["error"] for entry in entries if "error" in entry):
        if error.get("type") == "security_exception":
            hint = hint_for(HTTPStatus.FORBIDDEN, error)
            raise EngineError(f"The server does not let this user read the documents that were found: {error['reason']}.", hint)
        if error.get("type") in _UNAVAILABLE:
            message = "The server could not read the documents that were found: some of their shards are on no living node."
            raise SearchFailed(HTTPStatus.SERVICE_UNAVAILABLE, message, MISSING_HINT, error)


def _stored(generation: OpenGeneration, candidates: Candidates, places: Sequence[Place], fields: Sequence[str]) -> dict[str, Any]:
    """Read the stored fields of ranked documents: document id -> fields.

    Of a document that is cut into passages, the passage that was found is read, or else the first passage.
    """
    keys: dict[str, str] = {}
    for place in places:
        number = candidates.passage(place.id, place.signals) if generation.lineage.passages else None
        keys[engine_id(Passage.key(place.id, number))] = place.id
        if not place.signals and generation.lineage.passages:
            keys[engine_id(Passage.key(place.id, 1))] = place.id
    stored = read_stored(generation, candidates.index, keys, fields)
    name, missing = generation.lineage.name, [place for place in places if place.id not in stored]
    if gone := [place.id for place in missing if place.signals]:
        hint = "Search again. If the error persists, run 'termweave verify', which lists damaged documents."
        raise DocumentGone(f"The search found {gone[0]!r}, which {name!r} does not hold: it was deleted, or is damaged.", hint)
    if missing:
        hint = "Give an id of the source, as 'termweave search' shows it."
        if generation.layout.application is not None:
            hint = f"Give the document's _id. A new document needs 'termweave enrich {name}' first."
        raise UsageError(f"The index {name!r} has no document {missing[0].id!r}.", hint)
    return stored


def read_stored(generation: OpenGeneration, index: str, keys: Mapping[str, str], fields: Sequence[str]) -> dict[str, Any]:
    """Read the stored fields of documents: document id -> fields; documents that the index does not hold are left out.

    Args:
        generation: The generation.
        index: The concrete index.
        keys: `_id` of a document or passage -> id of the document.
        fields: Names of the stored fields.
    """
    with_text = generation.layout.with_text if not {*_SHADED}.isdisjoint(fields) else dict
    params, engine = source_parameters(fields, generation), generation.engine

    def documents_read() -> list[tuple[str, dict[str, Any]]]:
        sources: dict[str, dict[str, Any]] = {}
        while left := [key for key in keys if key not in sources]:
            operation, body = reading(left, generation.layout)
            # Not in real time, so that the fields are from the same refresh as the search.
            whole = {"realtime": False} if operation == "_mget" else ALL_SHARDS
            answer = engine.request("POST", f"/{index}/{operation}", params={**params, **whole}, body=body, retry=False)
            if operation == "_mget":
                _check_read(answer["docs"])
                documents = [(keys[each["_id"]], each["_source"]) for each in answer["docs"] if each.get("found")]
                return [(key, source) for key, source in documents if source.get("id") == key]  # the key of a passage is not one
            sources |= {hit["_id"]: hit["_source"] for hit in answer["hits"]["hits"]}
            if len(answer["hits"]["hits"]) < len(left):  # else two documents may have one `_id`, by their routing
                break
        return [*sources.items()]

    return {document: with_text(as_written(source, generation.layout)) for document, source in engine.repeat(documents_read)}


def explained(
    generation: OpenGeneration, candidates: Candidates, places: Sequence[Place], stored: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Explain the scores of ranked documents, with the text of each document and its shaded words.

    Args:
        generation: The generation that was searched.
        candidates: The candidates that were ranked.
        places: The documents to explain.
        stored: Id of a document -> its stored fields, with title and text.

    Returns:
        Id of a document -> its explanation, with "text" and "words".
    """
    query = candidates.query
    alternatives = chain.from_iterable(query.rewritten.parts if query.rewritten else ())
    words = {term: word for each in (*alternatives, query) for term, word in _words(generation, each.text).items()}
    explanations = explanation.explain(generation, candidates, places, words=words)
    for document, entry in explanations.items():
        source = stored[document]
        entry["text"] = _joined(stored_text(source, "title"), stored_text(source, "text"))
        entry["words"] = explanation.shade(entry["text"], entry["parts"], generation)
    return explanations


def _joined(title: str, text: str) -> str:
    """Join title and text for readers, with a full stop between them only if the title needs one.

    `Document.content`, which models read, always has a full stop there.
    """
    if not (title.strip() and text.strip()):
        return title if title.strip() else text
    return f"{title}{' ' if title.rstrip().endswith(_ENDS) else '. '}{text}"


def _explain_later(generation: OpenGeneration, candidates: Candidates, place: Place) -> Mapping[str, Any]:
    """Explain the score of one hit, when `Hit.explain` is called.

    Raises:
        UsageError: The server fused the signals, so that scores cannot be explained.
    """
    if FusedList.name in candidates.lists:
        raise unexplained()
    stored = _stored(generation, candidates, [place], _SHADED)
    entry: Mapping[str, Any] = explained(generation, candidates, [place], stored)[place.id]
    return entry


def _words(generation: OpenGeneration, query: str) -> dict[str, str]:
    """Term -> the word of the query from which the term was made, so that readers see "delay" and not the stem "delai"."""
    if generation.encoder.analysis is None:
        return {}
    shaded = generation.encoder.shade(query, statistics=generation.statistics, kind="query")
    return {word.term: query[word.start : word.end] for word in shaded}


def _fields(stored: Mapping[str, Any], names: Sequence[str], hidden: Collection[str]) -> dict[str, Any]:
    """The fields of a hit that have one of the names, or match a pattern among them; long metadata are merged into the other metadata."""
    roots = {name.partition(".")[0] for name in names}
    patterns = [root for root in roots if "*" in root]

    def shown(name: str) -> bool:
        return name in roots or (name not in hidden and any(fnmatchcase(name, pattern) for pattern in patterns))

    fields = {name: value for name, value in stored.items() if shown(name)}
    if "metadata_long" in hidden and shown("metadata") and (metadata := stored_metadata(stored)):
        fields["metadata"] = metadata
    return fields


def flat(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Flatten the fields of a hit to pairs of name and value; a metadata entry is named "metadata.NAME", as in the option `fields`.

    Example:
        >>> dict(flat({"title": "Timer", "metadata": {"kind": "class"}}))
        {'title': 'Timer', 'metadata.kind': 'class'}
    """
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
