"""Estimate the size, time and memory that a build will need, from a sample and before anything is written.

Up to 20,000 documents are read and counted; the counts of a larger source are extrapolated by bytes. Some documents are encoded to
measure the time. The size of the index is the sum of the parts of a Lucene index. The figures were checked against real indices of
OpenSearch 3.6.0, see docs/index-layout.md:

==================  ==================================================================================
stored fields       the document without its vector, which OpenSearch restores from the vectors' file. Half floats in base64 keep their
                    size; the rest is deflated, and half is added, which gives about the size under LZ4
vectors             4 bytes per dimension; the links of the graph are small in comparison
doc values          2 bytes per dimension for the half floats, 60 bytes for ids and digests
postings            3.4 bytes per word, which is in two fields, and 3 bytes per learned weight; a sixth more for dictionaries
==================  ==================================================================================
"""

from __future__ import annotations

import time
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import orjson

from termweave.corpora.sources import Derived, Progress, Source
from termweave.indexer.build_plan import BuildPlan, plan
from termweave.indexer.ledger.ledger import temporary_ledger
from termweave.indexer.preparation.corpus_pass import drift_before_build, length_warnings, read_corpus, unreadable
from termweave.indexer.preparation.passages import WORD, in_passages
from termweave.signals.dense import VECTOR_FIELD

if TYPE_CHECKING:
    from termweave.catalog.layout import DocumentLayout
    from termweave.indexer.options import BuildOptions
    from termweave.indexer.preparation.corpus_pass import BuildProgress, CorpusPass, LiveStatistics
    from termweave.records import Capabilities, Document, Encoding

#: Largest number of documents that are read.
_READ = 20_000
#: Number of documents that are encoded to measure the time, and of those encoded before it to warm up.
_ENCODED, _WARM = 96, 8
#: Number of queries, or of titles if there are no queries, whose terms are counted.
_QUERIES = 200
#: Bytes of heap that a server without data needs, and that it needs for each vector to build the graph.
_HEAP, _HEAP_VECTOR = 512_000_000, 400
#: Disk space relative to the size of the index: segments exist twice while they are merged.
_DISK = 2.0
#: Bytes of a word in the index of an analyzer, relative to other analyzers: `cjk` stores pairs of characters (1.7 and 2.1 measured on two sets).
_TERM_COST = {"cjk": 2.0}


@dataclass(frozen=True, slots=True)
class Clauses:
    """How many clauses (one for each term) the queries of a search have.

    Attributes:
        mean: Mean number of clauses.
        most: Largest number of clauses.
        limit: Number of clauses that the server allows.
        of: What was counted: "queries", or "titles" if the source has no queries.
    """

    mean: float
    most: int
    limit: int
    of: str


@dataclass(frozen=True)
class BuildEstimate:
    """The estimated size and cost of a build.

    Attributes:
        source: Name of the corpus.
        documents: Number of documents.
        passages: Number of passages that they are stored as; equal to `documents` if texts are not cut.
        exact: Whether the whole source was read; otherwise the counts are extrapolated.
        source_bytes: Size of the source on disk.
        encode_seconds: Time to encode everything on this machine under its present load.
        model_bytes: Size of the graphs that encode documents.
        index_bytes: Size of one copy of the index.
        disk_bytes: Free disk space that one copy needs while it is built, in addition to the live generation.
        heap_bytes: Heap that the server needs for this index.
        cache_bytes: Memory in addition to the heap that should hold vectors and postings for fast searches.
        clauses: Numbers of clauses in queries.
        signals: Names of the signals.
        models: Output -> name of the model.
        warnings: Sentences that a user should read before the build.
        notes: Sentences about signals that are left out, and why.
    """

    source: str
    documents: int
    passages: int
    exact: bool
    source_bytes: int
    encode_seconds: float
    model_bytes: int
    index_bytes: int
    disk_bytes: int
    heap_bytes: int
    cache_bytes: int
    clauses: Clauses
    signals: tuple[str, ...]
    models: dict[str, str]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]


class _Head(Derived):
    """A source that yields the first documents of another source, and tells what share of that source they are."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.read = 0
        self.complete = True
        self._bytes = deque([0], maxlen=1)

    def documents(self, progress: Progress | None = None) -> Iterator[Document]:
        del progress
        for document in self._source.documents(self._bytes.append):
            if self.read == _READ:
                self.complete = False
                return
            self.read += 1
            yield document

    @property
    def share(self) -> float:
        """The share of the source that was read, 0 to 1."""
        if self.complete or not self.read:
            return 1.0
        if self._source.total:
            return self.read / self._source.total
        read = self._bytes[0]
        return min(1.0, read / self._source.size) if read and self._source.size else 1.0


def estimate_build(
    source: Source,
    capabilities: Capabilities,
    options: BuildOptions,
    queries: Sequence[str] = (),
    progress: BuildProgress = lambda *_: None,
    live: LiveStatistics | None = None,
) -> BuildEstimate:
    """Estimate the size and cost of a build. Nothing is written except in a temporary folder.

    Args:
        source: The source, opened with `skip_bad`, so that bad entries become warnings.
        capabilities: Capabilities of the server.
        options: The build options.
        queries: Texts of queries; may be empty.
        progress: Called with (stage, done, total).
        live: The live generation and its statistics: if the source has drifted from them, a warning says so. None: drift is not checked.

    Raises:
        TermweaveError: `build` would fail with the same error.
    """
    source.refuse_encodings("a plan estimates how long encoding takes", "Index it: 'termweave index FOLDER NAME' runs no model.")
    planned = plan(source, capabilities, options)
    head = _Head(source)
    with temporary_ledger() as ledger:
        surveyed = read_corpus(in_passages(head, options.passages), planned.encoder, ledger, skip_bad=True, progress=progress)
        documents, stored = ledger.documents, ledger.total
    sample = surveyed.sample[:: max(1, len(surveyed.sample) // _ENCODED)][:_ENCODED]
    texts = [each.content for each in sample]
    encode = partial(planned.encoder.encode, kind="document", statistics=surveyed.statistics)
    encode(texts[:_WARM])
    began = time.perf_counter()
    encodings = encode(texts)
    seconds = (time.perf_counter() - began) / len(texts)
    layout = planned.layout(capabilities, encodings, surveyed.statistics, calibrate=False)
    fields, others = _document_bytes(layout, sample, encodings, surveyed, planned.analyzer)
    passages = round(stored / head.share)
    dense = passages if "dense" in planned.signals else 0
    index_bytes = round((fields + others) * passages)
    return BuildEstimate(
        source=source.name,
        documents=round(documents / head.share),
        passages=passages,
        exact=head.complete,
        source_bytes=source.size,
        encode_seconds=seconds * passages,
        model_bytes=planned.encoder.graph_bytes,
        index_bytes=index_bytes,
        disk_bytes=round(_DISK * index_bytes),
        heap_bytes=_HEAP + _HEAP_VECTOR * dense,
        cache_bytes=round(others * passages),
        clauses=_clauses(planned, surveyed, queries, capabilities),
        signals=planned.signals,
        models={output: model.name for output, model in planned.encoder.models.items()},
        warnings=(
            *_warnings(planned, surveyed, unreadable(source.skipped)),
            *drift_before_build(live, planned, surveyed.statistics, None if head.complete else head.read),
        ),
        notes=planned.notes,
    )


def _document_bytes(
    layout: DocumentLayout, sample: Sequence[Document], encodings: Sequence[Encoding], surveyed: CorpusPass, analyzer: str
) -> tuple[float, float]:
    """Estimate the mean number of bytes of a document in the index: of the stored fields, and of everything else that the index holds of a document."""
    names = {signal.name for signal in layout.signals}
    words = features = halves = vectors = encoded = 0
    lines = []
    for document, encoding in zip(sample, encodings, strict=True):
        body = layout.document(document, encoding, surveyed.statistics)
        vector = body.pop("vector", None)
        encoded += len(body.pop(VECTOR_FIELD, ""))
        if vector is not None:
            vectors += vector.nbytes  # floats, or bytes with --vectors byte
            halves += 2 * len(vector)
        features += len(body.get("weights", ()))
        words += len(WORD.findall(document.content)) if "lexical" in names else 0
        lines.append(orjson.dumps(body))
    stored = encoded + 1.5 * len(zlib.compress(b"\n".join(lines), 1))
    count = len(sample)
    postings = (3.4 * _TERM_COST.get(analyzer, 1) * words + 3 * features) * 7 / 6
    return stored / count, (vectors * 1.02 + halves + postings) / count + 60


def _clauses(planned: BuildPlan, surveyed: CorpusPass, queries: Sequence[str], capabilities: Capabilities) -> Clauses:
    texts = list(queries[:_QUERIES])
    of = "queries" if texts else "titles"
    if not texts:
        texts = [each.title or " ".join(each.text.split()[:10]) for each in surveyed.sample[:_QUERIES]]
    if "weights" in planned.signals:
        encoded = planned.encoder.encode(texts, kind="query", statistics=surveyed.statistics)
        counts = [len(each.weights or ()) for each in encoded]
    else:
        counts = [len(WORD.findall(text)) for text in texts]
    return Clauses(sum(counts) / len(counts), max(counts), capabilities.max_clause_count, of)


def _warnings(planned: BuildPlan, surveyed: CorpusPass, unreadable: Sequence[str]) -> Iterator[str]:
    texts = [document.content for document in surveyed.sample]
    consequence = "" if planned.options.skip_bad else " Without --skip-bad the build stops with an error."
    yield from (f"{warning}{consequence}" for warning in (*surveyed.warnings, *unreadable))
    yield from (note for note in surveyed.notes if note not in unreadable)
    passages, cut = planned.options.passages is not None, not planned.options.keep_mapping
    yield from length_warnings(planned.encoder, texts, passages=passages, cut=cut)
    yield from planned.warnings
