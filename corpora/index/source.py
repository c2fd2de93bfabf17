"""An existing index as a source: the reader behind ``opensearch:NAME``, ``elasticsearch:NAME`` and ``https://host:9200/NAME``.

`ChangedDocuments` reads the documents that changed since an index was last read, and the ids of all its documents.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cached_property
from hashlib import blake2b
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar

import orjson

from termweave.catalog.lineage import parsed_fields, predecessor
from termweave.corpora.file_source import EntrySource
from termweave.corpora.formats import addresses
from termweave.corpora.formats.fields import BadLine, Mapper, described
from termweave.corpora.index import entries
from termweave.corpora.index.pages import READERS, Pace, Page, PageReader, Slice, Spool, changed_since, slices_of, snapshots
from termweave.corpora.index.point_in_time import PointInTime, ShardView, open_views, uuid_of
from termweave.corpora.sources import NotAnIndex, Progress, Reader, Reading, Skips
from termweave.engine.client.connection import Engine, connect, quote
from termweave.engine.client.resolved_name import DefaultPipeline, shared_pipeline
from termweave.engine.client.server_errors import EngineResponseError, NotOpenSearch
from termweave.errors import EngineError, TermweaveError, UsageError
from termweave.support.messages import few

if TYPE_CHECKING:
    from termweave.catalog.source_fields import Fields
    from termweave.records import Document

#: Documents whose size is measured, and whose fields are known beside those of the mapping.
_SAMPLE = 100
#: The names of generations and their statistics, which are not offered as sources.
_OWN = re.compile(r"-\d{14}-[0-9a-f]{8}(\.stats|\.write)?$")
#: Ids of documents in one response.
_IDS = 5000
#: The field whose values are sequence numbers, which every index has.
SEQUENCE = "_seq_no"
#: So many sequence numbers below the highest one are read again: a write with a lower number may become visible after one with a higher.
_MARGIN = 1000
#: Seconds for which a server that is overloaded or away is waited for.
_PATIENCE = 120.0


class IndexSource(EntrySource, Reader):
    """An index as it was when it was first read: a `Source`, and the reader that recognises it."""

    LABEL: ClassVar[str] = "`opensearch:INDEX` or `https://HOST:9200/INDEX`"
    MAPPED: ClassVar[bool] = True
    KIND: ClassVar[str] = "index/1"
    ENTRY = "document"
    #: The address of the index, without user name and password.
    name = ""

    def __init__(self, place: addresses.IndexAddress, engine: Engine, reading: Reading) -> None:
        super().__init__(reading)
        self.address, self.engine, self.name = place, engine, place.shown
        self.mappings = _mappings(engine, place)
        pipeline = DefaultPipeline() if reading.index.hidden else shared_pipeline(engine, self.mappings)
        if pipeline.filters:
            clauses = [*pipeline.filters, *filter(None, [reading.index.query])]
            self.reading = reading = replace(reading, index=replace(reading.index, query={"bool": {"filter": clauses}}))
        if not reading.fields.named():
            self.reading = reading = replace(reading, fields=self._enriched_fields() or reading.fields)
        self.sample = _sample(engine, place, reading)
        merged: dict[str, str] = {}
        self._written: set[str] = set()
        for index, mapping in self.mappings.items():
            self._written |= set(_enriched(mapping, index, place))
            if reading.index.texts:
                entries.check_stored(mapping, index, reading.fields)
            merged |= entries.fields_of(mapping)
        vectors = {name for name, kind in merged.items() if kind in entries.VECTORS}
        theirs = (name for name in sorted(vectors) if name.partition(".")[0] not in self._written)
        self._vectors = [f"{name} ({merged[name]})" for name in theirs]
        self.excluded = sorted(self._written | vectors)
        types = {name: kind for name, kind in merged.items() if not {name, name.partition(".")[0]} & {*self.excluded}}
        sources = [hit["_source"] for hit in self.sample if hit["_source"]]
        for source in sources:
            types = dict.fromkeys((name for name in source if name not in self.excluded), "not in the mapping") | types
        self._types = types
        self._remarks: list[str] = []
        if reading.index.texts:
            entries.check_named(types, place.shown, reading.fields)
            self._remarks = entries.check_held(sources, list(self.mappings.values()), place.shown, reading.fields)
        if pipeline.filters:
            self._remarks.append(f"{place.shown}: what its default search pipeline {pipeline.name!r} hides is not read.")
        self._remarks += pipeline.remarks

    @classmethod
    def recognises(cls, spec: str) -> bool:
        """Whether the spec is the address of an index."""
        return addresses.is_index(spec)

    @classmethod
    def open(cls, spec: str, reading: Reading) -> IndexSource:
        """Connect to the server, and check that index and fields exist.

        Raises:
            UsageError: The index or a named field does not exist.
            EngineError: The server does not answer, or this user may not read the index.
        """
        place = addresses.parse_index(spec)
        settings = reading.index.settings_for(place.url)
        try:
            return cls(place, connect(settings, pool_maxsize=READERS + 2).patient(_PATIENCE), reading)
        except TermweaveError as error:
            if settings.origin("url") == "SOURCE":
                from termweave.settings import hint_of_source  # noqa: PLC0415 - loaded already where a source has settings of its own

                error.hint = hint_of_source(error.hint)
            raise

    @property
    def index(self) -> IndexSource:
        """This source itself."""
        return self

    def of_index(self, index: str) -> IndexSource:
        """Return a copy of this source with mappings and first documents of `index` alone: one of its indices, or an alias as it stands now.

        Raises:
            UsageError: The index does not exist, was made by termweave, or its documents cannot be read back.
        """
        other, place = copy(self), replace(self.address, index=index)
        other.mappings, other.skipped = _mappings(self.engine, place), Skips()
        for mapping in other.mappings.values():
            _enriched(mapping, index, place)
            entries.check_stored(mapping, index, self.reading.fields)
        other.sample = _sample(self.engine, place, self.reading)
        return other

    def _enriched_fields(self) -> Fields | None:
        """Return the fields that `termweave enrich` read as title and text of these indices, else of the index that the name stood for when enriched.

        None: no such index was enriched, or several were, with different fields.
        """
        stored = {str(meta.get("source", {}).get("fields", "")) for meta in map(_meta, self.mappings.values()) if meta}
        if not stored and self.reading.index.hidden and (first := predecessor(self.engine, self.address.index)):
            stored = {first[1].source.get("fields", "")}
        return parsed_fields(stored.pop()) if len(stored) == 1 else None

    @property
    def query(self) -> Mapping[str, Any] | None:
        """The query clause that the documents to read match; None: all documents are read."""
        return self.reading.index.query

    @property
    def ids_agree(self) -> bool:
        """Whether the field `id` of the first documents is their `_id`, where they have this field."""
        return all((hit["_source"] or {}).get("id", hit["_id"]) == hit["_id"] for hit in self.sample)

    @property
    def marks(self) -> str:
        """The highest sequence number of each shard that was read, as text for the lineage."""
        return " ".join(f"{view.key}={view.last}" for view in self._views if view.uuid)

    @property
    def origin(self) -> dict[str, str]:
        """What the lineage records about this source: name, fingerprint, how far the index was read, and whether its mapping was taken over."""
        further = {"marks": self.marks, "kept": "mapping" * self.reading.index.whole}
        return {**super().origin, **{name: value for name, value in further.items() if value}}

    def marks_of(self, stored: str) -> dict[str, int]:
        """Parse stored `marks` into shard -> sequence number; {}: they are not the marks of exactly the indices that are read now."""
        pairs = (mark.rpartition("=") for mark in stored.split())
        marks = {key: int(number) for key, _, number in pairs if number.lstrip("-").isdigit()}
        uuids = {uuid_of(self.engine, index) for index in self.mappings}
        return marks if uuids == {key.partition("/")[0] for key in marks} else {}

    @property
    def fingerprint(self) -> str:
        """Hash of the state of all shards, the query and the named fields: it changes with every write to the documents that are read."""
        # Not stored with the snapshot: a command with other fields reads the same pages as other documents.
        options = [self.KIND, repr(self.reading.fields), str(self.reading.index.whole), str(self.query)]
        return blake2b(orjson.dumps([*options, *(view.state for view in self._views)]), digest_size=16).hexdigest()

    @property
    def total(self) -> int:
        """Number of documents that match the query at the point in time."""
        return self._total if self._total is not None else sum(view.documents for view in self._views)

    @property
    def size(self) -> int:
        """Estimated size of all documents in bytes, from the mean of the first ones."""
        return self._mean * sum(view.documents for view in self._views)

    @property
    def remarks(self) -> list[str]:
        """Sentences about the fields that are read, and about fields that are left out; an enrichment reads title and text alone."""
        names = dict.fromkeys(["_id", *(name.partition(".")[0] for name in self._types), *self.reading.fields.named()])
        read, _, metadata = described(names, self.reading.fields).partition("; metadata = ")
        read += f"; metadata = {metadata}" if metadata and not self.reading.index.hidden else ""
        sentences = [f"{self.name}: {read}."] if self.reading.index.texts else []
        sentences += self._remarks
        if self._vectors and not self.reading.index.hidden:
            sentences.append(f"{self.name}: fields of vectors are not read: {', '.join(self._vectors)}.")
        if self.resumed:
            later = "later changes of the index are not in it (--fresh takes a new one, --update brings an index up to date)"
            sentences.append(f"{self.name}: reading goes on in the snapshot that a command began at {self.resumed}; {later}.")
        return sentences

    def entries(self, progress: Progress | None) -> Iterator[tuple[int | None, Document | BadLine]]:
        """Read all documents; the first pass reads the server, the following ones the snapshot on disk."""
        mapper, number = Mapper(self.reading.fields), 0
        for page in self.pages():
            for hit in page.hits:
                number += 1
                try:
                    yield number, mapper.document(entries.entry_of(hit, self.reading), number)
                except BadLine as bad:
                    bad.file = f"{self.name}, document {hit['_id']!r}"
                    yield None, bad
            if progress:
                progress(number * self._mean)
        mapper.finish()

    def release(self) -> None:
        """Delete the snapshot and close the point in time; the next pass over the documents begins anew."""
        if "_point_in_time" in self.__dict__:
            self._point_in_time.close()
        if self.reading.index.build or "_spool" in self.__dict__:
            self._spool.discard()
        for name in ("_spool", "_state", "_views", "_point_in_time"):
            self.__dict__.pop(name, None)

    def pages(self) -> Iterator[Page]:
        """Yield the pages on disk, then read and store the pages that are missing."""
        starts: dict[int, int] = {}
        complete = self._state["complete"]
        for page in self._spool.pages():
            starts[page.slice] = page.next
            yield page
        if complete:
            return
        pace = Pace(self.reading.index.rate)
        slices = [Slice(**each) for each in self._state["slices"]]
        for page in PageReader(self._point_in_time, slices, starts, self.excluded, pace):
            if (views := [asdict(view) for view in self._views]) != self._state["views"]:
                # A point in time was opened again: a resumed command must look for later changes, too.
                self._state["views"] = views
                self._spool.put(self._state)
            self._spool.append(page)
            yield page
        if any(view.renewed for view in self._views):
            yield from self._changed(pace)
        self._state["complete"] = True
        self._spool.put(self._state)
        self._point_in_time.close()

    def _changed(self, pace: Pace) -> Iterator[Page]:
        """Yield pages of the documents that the snapshot lacks because they were changed after the point in time was lost."""
        for hits in changed_since(self._point_in_time, pace, self.excluded):
            missing = {hit["_id"]: hit for hit in hits}
            for page in self._spool.pages():
                for hit in page.hits:
                    missing.pop(hit["_id"], None)
            page = Page(-1, 0, list(missing.values()))
            self._spool.append(page)
            yield page

    @property
    def resumed(self) -> str:
        """Time at which an earlier command began the snapshot that is read on (ISO 8601); "": this command takes a snapshot of its own."""
        state = self._spool.get() if self.reading.index.build and "_state" not in self.__dict__ else None
        return state["begun"] if state else ""

    @cached_property
    def _spool(self) -> Spool:
        build = self.reading.index.build
        if not build:
            spool = Spool()
            weakref.finalize(self, spool.discard)
            return spool
        key = orjson.dumps([build, self.engine.url, self.address.index, self.reading.index.query, self.excluded])
        return Spool(snapshots() / blake2b(key, digest_size=8).hexdigest())

    @cached_property
    def _state(self) -> dict[str, Any]:
        """The stored state of the snapshot, which this process holds from now on. If no state is stored, a new point in time is opened.

        Raises:
            TermweaveError: Another process holds the snapshot.
        """
        self._spool.hold()
        if (stored := self._spool.get()) is not None:
            return stored
        views = self._open()
        begun = datetime.now(UTC).isoformat(timespec="seconds")
        parts = {"views": [asdict(view) for view in views], "slices": [asdict(each) for each in slices_of(views)]}
        state = {"complete": False, "build": self.reading.index.build, "begun": begun, **parts}
        self._spool.put(state)
        return state

    def _open(self) -> list[ShardView]:
        return open_views(self.engine, self.address.index, self.mappings, self.query)

    @cached_property
    def _views(self) -> list[ShardView]:
        return [ShardView(**view) for view in self._state["views"]]

    @cached_property
    def _point_in_time(self) -> PointInTime:
        point = PointInTime(self.engine, self.query, [] if self._state["complete"] else self._views)
        # A build that is stopped goes on in the same point in time, if the server still has it.
        weakref.finalize(self, point.close, delete=not self._spool.lasting)
        return point

    @cached_property
    def _mean(self) -> int:
        return max(1, len(orjson.dumps(self.sample)) // max(1, len(self.sample)))


class ChangedDocuments(IndexSource):
    """A source of the documents of an index that changed. `identities` gives the ids of all documents, so that deleted ones are found.

    Args:
        whole: The source that reads the whole index.
        clause: Query clause that the changed documents match; None: `marks` alone tell what changed.
        marks: Shard -> its highest sequence number when the index was last read; {}: no numbers are known.
    """

    def __init__(self, whole: IndexSource, clause: Mapping[str, Any] | None, marks: Mapping[str, int]) -> None:
        self._clause, self._before = clause, marks
        # Its query has the filters of the default search pipeline already.
        reading = replace(whole.reading, index=replace(whole.reading.index, build="", hidden=True))
        super().__init__(whole.address, whole.engine, reading)

    def identities(self) -> Iterator[list[str]]:
        """Yield the ids of all documents of the index, page by page, from the point in time of the changed documents."""
        field = self.reading.fields.id
        path = field if field and field != "_id" else None
        body = {"_source": [path] if path else False}
        pace = Pace(self.reading.index.rate)
        point = PointInTime(self.engine, self.reading.index.query, self._views)
        try:
            for view in point.views:
                for hits, _ in point.pages(view, 0, None, body, lambda: pace.turn(_IDS)):
                    ids = (entries.taken_id(dict(hit["_source"]), path) if path else hit["_id"] for hit in hits)
                    yield [str(identity) for identity in ids if identity is not None]
        finally:
            point.close(delete=False)

    @property
    def query(self) -> dict[str, Any] | None:
        """The query clause that the changed documents match; None: there is no condition."""
        clauses = [each for each in (self.reading.index.query, self._clause) if each]
        return {"bool": {"filter": clauses}} if clauses else None

    @property
    def marks(self) -> str:
        """The highest sequence number of each shard that is known now, as text; "": changes were found by another field."""
        if not self._before:
            return ""
        return " ".join(f"{view.key}={max(view.last, self._before.get(view.key, -1))}" for view in self._views)

    def _open(self) -> list[ShardView]:
        after = {key: mark - _MARGIN for key, mark in self._before.items()}
        return open_views(self.engine, self.address.index, self.mappings, self.query, after)


def since_value(field: str, kind: str, value: Any) -> dict[str, Any]:
    """Make the query clause for documents whose field is not below a value, or that lack the field."""
    limits: dict[str, Any] = {"gte": value}
    if kind == "date":
        limits["format"] = "strict_date_optional_time"
    changed = [{"range": {field: limits}}, {"bool": {"must_not": [{"exists": {"field": field}}]}}]
    return {"bool": {"should": changed, "minimum_should_match": 1}}


def _mappings(engine: Engine, place: addresses.IndexAddress) -> dict[str, dict[str, Any]]:
    """Fetch the mapping of each concrete index behind the name of an index or alias.

    Raises:
        UsageError: There is no such index.
    """
    try:
        answer = engine.of_indices(f"/{quote(place.index)}/_mapping", "mappings")
    except EngineError as error:
        # No search engine answered, but a page, a redirect, or something that is not JSON.
        status = error.status if isinstance(error, EngineResponseError) else 0
        redirects = HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST
        foreign = isinstance(error, NotOpenSearch) or redirects or type(error) is EngineError
        if place.url is not None and foreign:
            raise NotAnIndex(f"{place.shown} is not an index.", "Name an index or a file.") from error
        if isinstance(error, NotOpenSearch) or status != HTTPStatus.NOT_FOUND:
            raise
        raise UsageError(f"There is no index {place.index!r} at {engine.url}.", _names(engine)) from None
    return {index: each["mappings"] for index, each in answer.items()}


def _enriched(mapping: Mapping[str, Any], index: str, place: addresses.IndexAddress) -> list[str]:
    """Return the fields that `termweave enrich` wrote into the index of an application; [] if the index was not enriched.

    Raises:
        UsageError: termweave made the whole index.
    """
    meta = _meta(mapping)
    if meta and "enriched" not in meta.get("source", {}):
        message = f"{place.shown} was made by termweave ({index}): its documents are not those of its source."
        raise UsageError(message, "Name the source that this index was made from.")
    return str(meta["source"]["enriched"]).split() if meta else []


def _meta(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts that termweave stored in the mapping of an index; {}: termweave never wrote to the index."""
    return (mapping.get("_meta") or {}).get("termweave") or {}


def _names(engine: Engine) -> str:
    """Make the hint for an index that does not exist: the names of indices that exist, as far as this user may list them."""
    try:
        rows = engine.request("GET", "/_cat/indices", params={"format": "json", "h": "index"})
    except EngineResponseError:
        return "Check the name and the address."
    names = sorted(row["index"] for row in rows if not row["index"].startswith(".") and not _OWN.search(row["index"]))
    return f"There are: {few(names, 20)}." if names else "The server has no index that can be a source."


def _sample(engine: Engine, place: addresses.IndexAddress, reading: Reading) -> list[dict[str, Any]]:
    """Fetch the first documents that the query of the source finds.

    Raises:
        UsageError: The server does not understand the query.
    """
    query = reading.index.query
    body = {"size": _SAMPLE, "track_total_hits": False, **({"query": query} if query else {})}
    try:
        hits = engine.search(quote(place.index), body)["hits"]["hits"]
    except EngineResponseError as error:
        if query and error.status == HTTPStatus.BAD_REQUEST:
            raise UsageError(f"The server refuses the query of the source: {error.reason}.", "Correct --source-query.") from error
        raise
    return [{"_id": hit["_id"], "_source": hit.get("_source")} for hit in hits]
