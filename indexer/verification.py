"""Verification: check that an index holds exactly the documents that were sent, or those of its source.

Every stored document carries a digest of its source, a digest of its encoding and a bucket number. One aggregation compares the counts
and digest sums of all buckets with the ledger; only a bucket that differs is read id by id. With `deep`, the text, weights and vectors of
all documents, or of a sample, are read back and their digests computed again: this finds a single altered weight. At the end of a build
each signal is asked for a few documents, too.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from termweave.catalog import statistics_store
from termweave.catalog.layout import BUCKETS, DocumentLayout, engine_id, stored_content
from termweave.catalog.lineage import Lineage, read_lineage, refuse_enriched
from termweave.dialect import dialect_of
from termweave.engine import Engine, EngineResponseError
from termweave.errors import EngineError, VerificationFailed
from termweave.indexer.generations.index_setup import template_advice
from termweave.indexer.ledger.ledger import BucketSum, Ledger, temporary_ledger
from termweave.indexer.options import Window
from termweave.indexer.preparation.corpus_pass import read_corpus
from termweave.indexer.preparation.passages import in_passages
from termweave.indexer.stored_documents import StoredDocument, contents, stored_where, undamaged
from termweave.records import Encoding
from termweave.signals.dense import VECTOR_FIELD, from_half
from termweave.signals.weights import WeightedTerms
from termweave.support import arguments
from termweave.support.messages import counted

if TYPE_CHECKING:
    from termweave.contracts.signal import Signal
    from termweave.corpora import Source

#: Documents that a build or an update reads back, whatever the size of the index.
SAMPLE = 200
#: Documents that each signal is asked for, and characters of their texts that are sent.
_DOCUMENTS, _CHARACTERS = 5, 100


@dataclass
class Difference:
    """The result of a verification.

    Attributes:
        counted: Documents in the index; each passage counts as one.
        expected: Documents that should be there, counted in the same way.
        documents: Documents of the source in the index: all passages of one count once.
        missing: Ids that should be there and are not.
        extra: Ids that should not be there.
        altered: Ids whose content is not what was sent.
        inside: The altered ids that only reading documents back finds, because the stored digests are unchanged.
        read: Documents whose content was read back.
        lost: Name of the index with the statistics of the weights, if that index is gone; "": it exists. A host that keeps a copy of the
            statistics does not notice the loss otherwise.
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
        count = counted(self.counted, "document or passage", "documents and passages")
        lost = f"; the index with its statistics, {self.lost}, is gone" if self.lost else ""
        wrong = f"{len(self.missing):,} missing, {len(self.extra):,} extra, {len(self.altered):,} altered"
        return f"holds {count} and should hold {self.expected:,}: {wrong}{lost}"

    @property
    def same(self) -> bool:
        """Whether the documents are exactly those that should be there."""
        return not (self.missing or self.extra or self.altered) and self.counted == self.expected

    @property
    def ok(self) -> bool:
        """Whether nothing differs and the statistics are there."""
        return self.same and not self.lost


def verify(engine: Engine, index: str, ledger: Ledger, *, deep: float = 0.0, lineage: Lineage | None = None) -> Difference:
    """Compare an index with its ledger. An intact index of any size takes a few requests.

    Args:
        engine: The server.
        index: The generation.
        ledger: Its ledger, which lists what was sent.
        deep: Share of the documents whose content is read back, 0 to 1; below 1 a random sample.
        lineage: The lineage of the generation, if the caller has read it already.
    """
    arguments.check(engine=engine)
    return _verify(engine, index, lineage or read_lineage(engine, index), ledger, deep, encodings=True)


def verify_written(engine: Engine, index: str, lineage: Lineage, ledger: Ledger, sample: Sequence[str]) -> Difference:
    """Compare an index with its ledger, read a sample of documents back, and check that a search of each signal finds some of them.

    Args:
        engine: The server.
        index: The generation.
        lineage: Its lineage, as stored in the mapping.
        ledger: Its ledger.
        sample: Ids of documents and passages that the server acknowledged.

    Raises:
        VerificationFailed: A search of a signal does not find what is stored.
    """
    difference = _verify(engine, index, lineage, ledger, 0.0, encodings=True)
    whole = undamaged(engine, index, lineage.layout, sample)
    difference.inside = sorted({*sample} - whole - {*difference.missing, *difference.altered})
    difference.altered = sorted([*difference.altered, *difference.inside])
    if difference.ok:
        _check_findability(engine, index, lineage.layout, sample)
    return difference


def verify_against_source(
    engine: Engine, index: str, source: Source, *, deep: float = 0.0, lineage: Lineage | None = None
) -> Difference:
    """Compare an index with its source.

    Args:
        engine: The server.
        index: The generation.
        source: The corpus that it should hold. It is cut into passages as the generation's texts are.
        deep: Share of the documents whose content is read back, 0 to 1.
        lineage: The lineage of the generation, if the caller has read it already.
    """
    arguments.check(engine=engine, source=source)
    lineage = lineage or read_lineage(engine, index)
    refuse_enriched(lineage)  # its documents have no bucket, and each would count as altered
    with temporary_ledger() as ledger:
        source = in_passages(source, Window.from_lineage(lineage.passages))
        read_corpus(source, None, ledger, skip_bad=True, progress=lambda *_: None)
        return _verify(engine, index, lineage, ledger, deep, encodings=False)


def _verify(engine: Engine, index: str, lineage: Lineage, ledger: Ledger, deep: float, *, encodings: bool) -> Difference:
    """Compare the buckets of an index and a ledger, and read the share `deep` of the documents back; `encodings`: compare the digests of encodings, too."""
    total, documents, stored = _bucket_sums(engine, index, encodings=encodings)
    expected = ledger.buckets()
    difference = Difference(total, sum(bucket.count for bucket in expected.values()), documents=documents)
    for bucket in sorted({*stored, *expected}):
        if stored.get(bucket) != expected.get(bucket):
            _compare_bucket(engine, index, ledger, bucket, difference, encodings=encodings)
    # A document in the wrong bucket is missing in one and extra in the other.
    moved = set(difference.missing) & set(difference.extra)
    difference.altered = sorted(moved | set(difference.altered))
    difference.missing = sorted(set(difference.missing) - moved)
    difference.extra = sorted(identity for identity in difference.extra if identity not in moved)
    if lineage.statistics and not statistics_store.is_complete(engine, index):
        difference.lost = statistics_store.companion(index)
    if deep:
        _read_back(engine, index, lineage.layout, difference, _sample(ledger, deep))
    return difference


def differing_buckets(engine: Engine, index: str, ledger: Ledger) -> tuple[list[int], Iterator[StoredDocument]]:
    """Return the buckets in which index and ledger differ, and the documents that the index holds in these buckets; other programs' documents are left out."""
    _, _, stored = _bucket_sums(engine, index, encodings=True)
    expected = ledger.buckets()
    buckets = [bucket for bucket in {*stored, *expected} if bucket >= 0 and stored.get(bucket) != expected.get(bucket)]
    return buckets, stored_where(engine, index, {"terms": {"bucket": buckets}}) if buckets else iter(())


def _bucket_sums(engine: Engine, index: str, *, encodings: bool) -> tuple[int, int, dict[int, BucketSum]]:
    """Refresh an index and count what it stores; without `encodings` the sums of encoding digests are 0, as in a ledger that lists only a source.

    Returns:
        The number of documents and passages, the number of documents, and the sums of every bucket.
    """
    engine.request("POST", f"/{index}/_refresh")
    sums = {"source": {"sum": {"field": "source_digest"}}, "encoding": {"sum": {"field": "encoding_digest"}}}
    body = {
        "size": 0,
        "track_total_hits": True,
        # A document without a bucket was not written by termweave: it counts as bucket -1.
        "aggs": {
            "buckets": {"terms": {"field": "bucket", "size": BUCKETS + 1, "missing": -1}, "aggs": sums},
            "further": {"filter": {"range": {"passage": {"gt": 1}}}},
        },
    }
    answer = engine.search(index, body)
    buckets = {}
    for bucket in answer["aggregations"]["buckets"]["buckets"]:
        source, encoding = (int(bucket[digest]["value"]) for digest in ("source", "encoding"))
        buckets[int(bucket["key"])] = BucketSum(bucket["doc_count"], source, encoding if encodings else 0)
    total = int(answer["hits"]["total"]["value"])
    return total, total - int(answer["aggregations"]["further"]["doc_count"]), buckets


def _compare_bucket(engine: Engine, index: str, ledger: Ledger, bucket: int, difference: Difference, *, encodings: bool) -> None:
    """Find the documents by which one bucket of an index and its ledger differ, and add them to `difference`."""
    expected = ledger.in_bucket(bucket)
    query = {"term": {"bucket": bucket}} if bucket >= 0 else {"bool": {"must_not": {"exists": {"field": "bucket"}}}}
    seen = set()
    for document in stored_where(engine, index, query):
        identity = document.id
        if identity in seen or identity not in expected:
            difference.extra.append(identity)
        elif (document.source, document.encoding if encodings else 0) != expected[identity]:
            difference.altered.append(identity)
        seen.add(identity)
    difference.missing += sorted(expected.keys() - seen)


def _sample(ledger: Ledger, share: float) -> list[int] | None:
    """Draw buckets that together hold about this share of the documents; None: all buckets.

    The bucket of a document is a hash of its id, so whole buckets are a random sample, and reading them needs no list of ids.
    """
    if share >= 1.0:
        return None
    counts = [(bucket, sums.count) for bucket, sums in ledger.buckets().items()]
    secrets.SystemRandom().shuffle(counts)
    before = accumulate((count for _, count in counts), initial=0)
    enough = share * sum(count for _, count in counts)
    return [bucket for (bucket, _), drawn in zip(counts, before, strict=False) if drawn < enough]


def _read_back(engine: Engine, index: str, layout: DocumentLayout, difference: Difference, buckets: list[int] | None) -> None:
    """Read documents back, and add to `difference` those whose content does not agree with the digests stored beside it."""
    reported = {*difference.altered, *difference.extra}
    query: dict[str, Any] = {"match_all": {}} if buckets is None else {"terms": {"bucket": buckets}}
    for identity, agrees in contents(engine, index, layout, query):
        difference.read += 1
        if not agrees and identity not in reported:
            difference.inside.append(identity)
    difference.inside.sort()
    difference.altered = sorted([*difference.altered, *difference.inside])


def _check_findability(engine: Engine, index: str, layout: DocumentLayout, identities: Sequence[str]) -> None:
    """Search for documents by their own content: each signal is asked with what it has stored of them.

    Args:
        engine: The server.
        index: The generation, refreshed.
        layout: How its documents are stored.
        identities: Ids of documents and passages that are stored; the first few are searched for.

    Raises:
        VerificationFailed: A signal finds none of the documents for which it has something to search.
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
            try:
                hits = engine.search(index, {"size": 1, "_source": False, "query": clause.query})["hits"]["hits"]
            except EngineResponseError as error:
                if signal.text_fields:  # the user's analyzer may make more tokens of a text than a query may have
                    continue
                message = f"{engine.product} could not search the signal {signal.name}: {error.message}"
                raise VerificationFailed(message, error.hint) from error
            if hits:
                lost = ""
                break
            if _has_words(engine, index, signal, hit["_source"]):
                lost = lost or hit["_source"]["id"]
        if lost:
            message = f"{index} holds what was sent, but a search of {signal.name} does not find it (document {lost!r})."
            hint = template_advice(engine, index) or f"Compare GET /{index} with what 'termweave index' sets."
            raise VerificationFailed(message, hint)


def _query(signal: Signal, stored: Mapping[str, Any]) -> Encoding:
    """Make a query of a stored document: the beginning of its text, and the weights and vector that the index stores of it."""
    weights = signal.impacts_of(stored) if isinstance(signal, WeightedTerms) else None
    vector = from_half(stored[VECTOR_FIELD]) if VECTOR_FIELD in stored else None
    return Encoding(stored_content(stored)[:_CHARACTERS], weights if weights is not None and len(weights) else None, vector)


def _has_words(engine: Engine, index: str, signal: Signal, stored: Mapping[str, Any]) -> bool:
    """Whether the server's analyzer finds several words in a stored text, so that a search must find the text. False, too, if a role may not ask.

    A text may be of stop words alone, and an analyzer may keep title and text whole, each as one token.
    """
    if not signal.text_fields:
        return True
    body = {"field": next(iter(signal.text_fields)), "text": stored_content(stored)[:_CHARACTERS]}
    try:
        return len(engine.request("POST", f"/{index}/_analyze", body=body)["tokens"]) > 1
    except EngineError:
        return False
