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

from termweave.indexer.ledger import BucketSum, Ledger
from termweave.indexer.survey import survey
from termweave.records import Passage
from termweave.signals.layout import BUCKETS, source_digest, stored_document

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from termweave.corpora import Source
    from termweave.engine import Engine
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
        read: Documents whose content was read back.
    """

    counted: int
    expected: int
    missing: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    altered: list[str] = field(default_factory=list)
    documents: int = 0
    read: int = 0

    @property
    def ok(self) -> bool:
        """Nothing differs."""
        return not (self.missing or self.extra or self.altered) and self.counted == self.expected


def verify(engine: Engine, index: str, ledger: Ledger, layout: DocumentLayout, *, deep: float = 0.0) -> Difference:
    """Compare an index with its ledger: two requests for an intact index of any size.

    Args:
        engine: Where the index is.
        index: The generation.
        ledger: What was sent.
        layout: Its layout.
        deep: Share of the documents whose content is read back, 0 to 1; below 1 a random sample.
    """
    found = _compare(engine, index, ledger, encodings=True)
    if deep:
        _read_back(engine, index, layout, found, _sample(ledger, deep))
    return found


def verify_against_source(engine: Engine, index: str, source: Source, layout: DocumentLayout, *, deep: float = 0.0) -> Difference:
    """Compare an index with its source itself.

    Args:
        engine: Where the index is.
        index: The generation.
        source: What it should hold, cut into passages as the index is (`passages.in_passages`).
        layout: Its layout.
        deep: Share of the documents whose content is read back.
    """
    with tempfile.TemporaryDirectory(prefix="termweave-") as scratch, Ledger(Path(scratch) / "source.sqlite") as ledger:
        survey(source, None, ledger, skip_bad=True, progress=lambda *_: None)
        found = _compare(engine, index, ledger, encodings=False)
        if deep:
            _read_back(engine, index, layout, found, _sample(ledger, deep))
    return found


@dataclass(frozen=True, slots=True)
class Stored:
    """What the index says of one document or passage."""

    id: str
    parent: str | None
    bucket: int
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
        values = {name: found[0] for name, found in hit["fields"].items()}
        number = values.get("passage")
        yield Stored(
            id=Passage.key(values["id"], number),
            parent=None if number is None else values["id"],
            bucket=values["bucket"],
            source=values["source_digest"],
            encoding=values["encoding_digest"],
        )


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
    found.altered += sorted(moved - set(found.altered))
    found.missing = [identity for identity in found.missing if identity not in moved]
    found.extra = [identity for identity in found.extra if identity not in moved]
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
    fields = ["id", "passage", "source_digest", "encoding_digest"]
    seen = set()
    for hit in _scan(engine, index, where, {"_source": False, "docvalue_fields": fields}, _PAGE):
        values = hit.get("fields", {})
        identity = Passage.key(values.get("id", [hit["_id"]])[0], values.get("passage", [None])[0])
        digests = (values.get("source_digest", [0])[0], values.get("encoding_digest", [0])[0])
        if identity in seen or identity not in expected:
            found.extra.append(identity)
        elif digests[0] != expected[identity][0] or (encodings and digests[1] != expected[identity][1]):
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
    for hit in _scan(engine, index, where, {"_source": True}, _DEEP_PAGE):
        found.read += 1
        stored = hit["_source"]
        document = stored_document(stored, hit["_id"])
        digests = (source_digest(document), layout.encoding_digest(stored))
        if digests != (stored.get("source_digest"), stored.get("encoding_digest")) and document.id not in known:
            found.altered.append(document.id)


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
