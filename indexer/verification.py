"""Verification: what is stored against what was sent, and against the source.

Every stored document carries a digest of its source, a digest of its encoding and a bucket number. One aggregation compares count
and digest sums of all buckets with the ledger; only a bucket that differs is read id by id. With `deep` the stored text,
weights and vectors, of all documents or of a sample, are read back and the digests computed again, so that one flipped weight in
one document is found.
"""

from __future__ import annotations

import secrets
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from termweave import doors
from termweave.indexer.ledger import BucketSum, Ledger
from termweave.indexer.passages import Window, in_passages
from termweave.indexer.survey import survey
from termweave.records import Passage
from termweave.search import lineage, stored_statistics
from termweave.signals.layout import BUCKETS, bucket_of, engine_id, source_digest, stored_document
from termweave.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from termweave.corpora import Source
    from termweave.engine import Engine
    from termweave.search.lineage import Lineage
    from termweave.signals import DocumentLayout

_PAGE = 1000
_DEEP_PAGE = 200
#: A part of the shards proves nothing.
_WHOLE = {"allow_partial_search_results": False}


@dataclass
class Difference:
    """What verification found.

    Attributes:
        counted: Documents in the index; a passage counts as one.
        expected: Documents there should be, counted likewise.
        documents: Documents of the source in the index: the passages of one count once.
        missing: Ids that should be there and are not.
        extra: Ids that should not be there.
        altered: Ids whose content is not what was sent.
        inside: Of those the ones that only reading back tells: their digests are as they were.
        read: Documents whose content was read back.
        lost: Name of the index with the statistics that its weights stand on, where that is gone. A host that keeps a copy does not
            notice otherwise.
    """

    counted: int
    expected: int
    missing: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    altered: list[str] = field(default_factory=list)
    inside: list[str] = field(default_factory=list)
    documents: int = 0
    read: int = 0
    lost: str = ""

    def __str__(self) -> str:
        holds = (
            f"holds {counted(self.counted, 'document or passage', 'documents and passages')} and should hold {self.expected:,}"
        )
        lost = f"; {self.lost}, its statistics, is gone" if self.lost else ""
        return f"{holds}: {len(self.missing):,} missing, {len(self.extra):,} extra, {len(self.altered):,} altered{lost}"

    @property
    def same(self) -> bool:
        """The documents are those there should be."""
        return not (self.missing or self.extra or self.altered) and self.counted == self.expected

    @property
    def ok(self) -> bool:
        """Nothing differs, and the statistics are there."""
        return self.same and not self.lost


def verify(engine: Engine, index: str, ledger: Ledger, *, deep: float = 0.0) -> Difference:
    """Compare an index with its ledger: a few requests for an intact index of any size.

    Args:
        engine: Where the index is.
        index: The generation.
        ledger: What was sent.
        deep: Share of the documents whose content is read back, 0 to 1; below 1 a random sample.
    """
    doors.check(engine=engine)
    return _verify(engine, index, lineage.read(engine, index), ledger, deep, encodings=True)


def verify_against_source(engine: Engine, index: str, source: Source, *, deep: float = 0.0) -> Difference:
    """Compare an index with its source itself.

    Args:
        engine: Where the index is.
        index: The generation.
        source: What it should hold; it is cut into passages where the index is.
        deep: Share of the documents whose content is read back.
    """
    doors.check(engine=engine, source=source)
    made = lineage.read(engine, index)
    with tempfile.TemporaryDirectory(prefix="termweave-") as scratch, Ledger(Path(scratch) / "source.sqlite") as ledger:
        survey(in_passages(source, Window.of(made.passages)), None, ledger, skip_bad=True, progress=lambda *_: None)
        return _verify(engine, index, made, ledger, deep, encodings=False)


def _verify(engine: Engine, index: str, made: Lineage, ledger: Ledger, deep: float, *, encodings: bool) -> Difference:
    found = _compare(engine, index, ledger, encodings=encodings)
    if made.statistics and not stored_statistics.there(engine, index):
        found.lost = stored_statistics.companion(index)
    if deep:
        _read_back(engine, index, made.layout, found, _sample(ledger, deep))
    return found


@dataclass(frozen=True, slots=True)
class Stored:
    """What the index says of one document or passage.

    Attributes:
        id: Its id; what the engine calls it, where its fields are those of another document.
        parent: Of a passage, the id of its document.
        own: It lies under its own id and in its own bucket: it may be a document that was sent.
        source: Digest of what the source said of it.
        encoding: That of its encoding.
    """

    id: str
    parent: str | None
    own: bool
    source: int
    encoding: int


def otherwise_stored(engine: Engine, index: str, ledger: Ledger) -> tuple[list[int], Iterator[Stored]]:
    """Where index and ledger differ: the buckets, and what the index holds in them. Documents that are not ours are left out."""
    engine.request("POST", f"/{index}/_refresh")
    _, _, stored = _bucket_sums(engine, index)
    should = ledger.buckets()
    buckets = [bucket for bucket in {*stored, *should} if bucket >= 0 and stored.get(bucket) != should.get(bucket)]
    return buckets, stored_where(engine, index, {"terms": {"bucket": buckets}}) if buckets else iter(())


def stored_where(engine: Engine, index: str, where: Mapping[str, Any]) -> Iterator[Stored]:
    """What the index holds of the documents and passages that match, in the order of their ids."""
    fields = ["id", "passage", "bucket", "source_digest", "encoding_digest"]
    for hit in _scan(engine, index, where, {"_source": False, "docvalue_fields": fields}, _PAGE):
        values = {name: found[0] for name, found in hit.get("fields", {}).items()}
        document, number = values.get("id"), values.get("passage")
        identity = _identity(hit, document, number)
        theirs = document is not None and identity == Passage.key(document, number)
        yield Stored(
            id=identity,
            parent=document if theirs and number is not None else None,
            own=theirs and values.get("bucket") == bucket_of(identity),
            source=values.get("source_digest", 0),
            encoding=values.get("encoding_digest", 0),
        )


def sound(engine: Engine, index: str, layout: DocumentLayout, identities: Sequence[str]) -> set[str]:
    """Which of these stored documents have the content that the digests beside it say: they are read back."""
    where = {"ids": {"values": [engine_id(identity) for identity in identities]}}
    return {identity for identity, same in _contents(engine, index, layout, where) if same}


def _identity(hit: Mapping[str, Any], document: Any, number: Any) -> str:
    """What a stored document is called: as its fields say where it lies under that id, else as the engine says."""
    if not isinstance(document, str):
        return str(hit["_id"])
    identity = Passage.key(document, number)
    return identity if hit["_id"] == engine_id(identity) else str(hit["_id"])


def _compare(engine: Engine, index: str, ledger: Ledger, *, encodings: bool) -> Difference:
    engine.request("POST", f"/{index}/_refresh")
    counted, documents, stored = _bucket_sums(engine, index)
    should = ledger.buckets()
    found = Difference(counted, sum(bucket.count for bucket in should.values()), documents=documents)
    nothing = BucketSum(0, 0, 0)
    for bucket in sorted({*stored, *should}):
        here, there = stored.get(bucket, nothing), should.get(bucket, nothing)
        same = here == there if encodings else (here.count, here.source) == (there.count, there.source)
        if not same:
            _narrow(engine, index, ledger, bucket, found, encodings=encodings)
    # A document in the wrong bucket is missing in one and extra in the other.
    moved = set(found.missing) & set(found.extra)
    found.altered = sorted(moved | set(found.altered))
    found.missing = sorted(set(found.missing) - moved)
    found.extra = sorted(identity for identity in found.extra if identity not in moved)
    return found


def _bucket_sums(engine: Engine, index: str) -> tuple[int, int, dict[int, BucketSum]]:
    """Documents and passages, documents, and the sums of every bucket."""
    sums = {"source": {"sum": {"field": "source_digest"}}, "encoding": {"sum": {"field": "encoding_digest"}}}
    body = {
        "size": 0,
        "track_total_hits": True,
        # A document without a bucket was not written by termweave: bucket -1.
        "aggs": {
            "buckets": {"terms": {"field": "bucket", "size": BUCKETS + 1, "missing": -1}, "aggs": sums},
            "further": {"filter": {"range": {"passage": {"gt": 1}}}},
        },
    }
    answer = engine.request("POST", f"/{index}/_search", params=_WHOLE, body=body)
    found = {
        int(bucket["key"]): BucketSum(bucket["doc_count"], int(bucket["source"]["value"]), int(bucket["encoding"]["value"]))
        for bucket in answer["aggregations"]["buckets"]["buckets"]
    }
    counted = int(answer["hits"]["total"]["value"])
    return counted, counted - int(answer["aggregations"]["further"]["doc_count"]), found


def _narrow(engine: Engine, index: str, ledger: Ledger, bucket: int, found: Difference, *, encodings: bool) -> None:
    """Name the documents by which one bucket differs."""
    expected = ledger.in_bucket(bucket)
    where = {"term": {"bucket": bucket}} if bucket >= 0 else {"bool": {"must_not": {"exists": {"field": "bucket"}}}}
    seen = set()
    for each in stored_where(engine, index, where):
        identity = each.id
        if identity in seen or identity not in expected:
            found.extra.append(identity)
        elif each.source != expected[identity][0] or (encodings and each.encoding != expected[identity][1]):
            found.altered.append(identity)
        seen.add(identity)
    found.missing += sorted(expected.keys() - seen)


def _sample(ledger: Ledger, share: float) -> list[int] | None:
    """Buckets that together hold about that share of the documents; None for all.

    A bucket is chosen by a hash of the id, so whole buckets are a random sample, and reading them needs no list of ids.
    """
    if share >= 1.0:
        return None
    counts = [(bucket, found.count) for bucket, found in ledger.buckets().items()]
    secrets.SystemRandom().shuffle(counts)
    wanted = share * sum(count for _, count in counts)
    chosen: list[int] = []
    for bucket, count in counts:
        if wanted <= 0:
            break
        chosen.append(bucket)
        wanted -= count
    return chosen


def _read_back(engine: Engine, index: str, layout: DocumentLayout, found: Difference, buckets: list[int] | None) -> None:
    """Add the documents whose stored content does not give the digests stored beside it."""
    known = {*found.altered, *found.extra}
    where: dict[str, Any] = {"match_all": {}} if buckets is None else {"terms": {"bucket": buckets}}
    for identity, same in _contents(engine, index, layout, where):
        found.read += 1
        if not same and identity not in known:
            found.inside.append(identity)
    found.inside.sort()
    found.altered = sorted([*found.altered, *found.inside])


def _contents(engine: Engine, index: str, layout: DocumentLayout, where: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Read documents back: the id of each, and whether its content gives the digests stored beside it."""
    for hit in _scan(engine, index, where, {"_source": True}, _DEEP_PAGE):
        stored = hit["_source"]
        yield _identity(hit, stored.get("id"), stored.get("passage")), _gives_its_digests(stored, layout)


def _gives_its_digests(stored: Mapping[str, Any], layout: DocumentLayout) -> bool:
    try:
        document = stored_document(stored, "") if "id" in stored else None
        digests = (stored.get("source_digest"), stored.get("encoding_digest"))
        same = document is not None and (source_digest(document), layout.encoding_digest(stored)) == digests
        return same and layout.agrees(stored)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return False  # OpenSearch takes values that termweave never writes: a list of texts, a passage without its place


def _scan(engine: Engine, index: str, where: Mapping[str, Any], what: Mapping[str, Any], page: int) -> Iterator[dict[str, Any]]:
    """All documents that match, page by page in the order of their ids."""
    # Documents that are not ours have no id; two with one id lie on two pages only if something tells them apart.
    passage = {"passage": {"order": "asc", "unmapped_type": "integer"}}  # an index of an older layout has none
    order: list[Any] = [{"id": {"order": "asc", "missing": ""}}, passage, "_seq_no"]
    body: dict[str, Any] = {"size": page, "query": where, "sort": order, "track_total_hits": False, **what}
    while True:
        hits = engine.request("POST", f"/{index}/_search", params=_WHOLE, body=body)["hits"]["hits"]
        yield from hits
        if len(hits) < page:
            return
        body["search_after"] = hits[-1]["sort"]
