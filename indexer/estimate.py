"""A forecast: what a build will make and need, said before anything is written, from a sample.

Up to 20,000 documents are read and counted, more are extrapolated by bytes; some of them are encoded, and the time is taken. What
the index will weigh is added up from the parts of a Lucene index (3.6.0, checked against real ones, see docs/index-layout.md):

==================  ==================================================================================
stored fields       the body without its vector (which is rebuilt from the vectors' file): half floats in base64 as they are, the rest
                    deflated and half as much again, which is about what LZ4 makes of it
vectors             4 bytes a dimension; the graph's links are small beside them
doc values          2 bytes a dimension for the half floats, 60 bytes for ids and digests
postings            3.4 bytes a word, which stands in two fields, and 3 bytes a learned weight; a sixth more for dictionaries
==================  ==================================================================================
"""

from __future__ import annotations

import re
import tempfile
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from termweave.corpora.sources import Derived
from termweave.indexer import drifting
from termweave.indexer.ledger import Ledger
from termweave.indexer.passages import WORD, in_passages
from termweave.indexer.plan import plan
from termweave.indexer.survey import survey, unreadable
from termweave.signals import DocumentLayout, Fitting, signal_class
from termweave.signals.dense import VECTOR_FIELD
from termweave.words import sized

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from termweave.corpora import Progress, Source
    from termweave.encoders import TextEncoder
    from termweave.indexer.drifting import Standing
    from termweave.indexer.plan import Options, Plan
    from termweave.indexer.survey import Progress as Told
    from termweave.indexer.survey import Survey
    from termweave.records import Capabilities, Document, Encoding

#: Documents read at most.
_READ = 20_000
#: Encoded, and before them a few that only warm up.
_ENCODED, _WARM = 96, 8
#: Queries, or titles in their place, whose terms are counted.
_QUERIES = 200
_DOTTED = re.compile(r"\w\.\w")
#: Bytes of an encoding in memory, besides the vector.
_HELD = 1_200
#: Heap of an engine that holds nothing, and what building the graph takes for each vector.
_HEAP, _HEAP_VECTOR = 512_000_000, 400
#: While segments are merged they lie there twice.
_DISK = 2.0


@dataclass(frozen=True, slots=True)
class Clauses:
    """How many clauses queries will have.

    Attributes:
        mean: Of the mean query.
        most: Of the longest one looked at.
        limit: What the server allows.
        of: "queries", or "titles" where the source brings no queries.
    """

    mean: float
    most: int
    limit: int
    of: str


@dataclass(frozen=True)
class Forecast:
    """What a build will make and need.

    Attributes:
        source: Name of the corpus.
        documents: Documents.
        passages: How many they will be stored as.
        exact: Everything was read; otherwise the counts are extrapolated.
        source_bytes: Size of the source as it lies.
        encode_seconds: On this machine, as busy as it is now.
        index_bytes: The index, one copy.
        disk_bytes: Free disk that one copy needs while it is built, beside the generation that is live.
        heap_bytes: Heap of the engine that is enough for it.
        cache_bytes: Memory beside the heap in which vectors and postings should fit for fast searches.
        clauses: Of the queries.
        signals: Names.
        models: Output -> name of the model.
        warnings: What a user should look at before the build.
        notes: Signals left out, and why.
    """

    source: str
    documents: int
    passages: int
    exact: bool
    source_bytes: int
    encode_seconds: float
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
    """The first documents of a source, and how much of it they are."""

    def __init__(self, source: Source, most: int) -> None:
        super().__init__(source)
        self._most = most
        self.read = 0
        self.complete = True
        self._bytes = 0

    def documents(self, progress: Progress | None = None) -> Iterator[Document]:
        del progress

        def told(done: int) -> None:
            self._bytes = done

        for document in self._source.documents(told):
            if self.read == self._most:
                self.complete = False
                return
            self.read += 1
            yield document

    @property
    def share(self) -> float:
        """Which part of the source was read."""
        if self.complete or not self.read:
            return 1.0
        if self._source.total:
            return self.read / self._source.total
        return min(1.0, self._bytes / self._source.size) if self._bytes and self._source.size else 1.0


def forecast(
    source: Source,
    capabilities: Capabilities,
    options: Options,
    queries: Sequence[str] = (),
    progress: Told = lambda *_: None,
    most: int = _READ,
    live: Standing | None = None,
) -> Forecast:
    """Say what a build would make and need. Nothing is written anywhere but in a scratch folder.

    Args:
        source: What would be indexed, opened so that bad entries are skipped: they become warnings.
        capabilities: Of the server.
        options: How it would be built.
        queries: Texts of queries, where there are some.
        progress: Told (stage, done, total).
        most: Documents to read.
        live: What the live generation of that name stands on: whether an update would still do is a warning.

    Raises:
        TermweaveError: As `build`, as far as that can be known before.
    """
    planned = plan(source, capabilities, options)
    head = _Head(source, most)
    with tempfile.TemporaryDirectory(prefix="termweave-") as scratch, Ledger(Path(scratch) / "plan.sqlite") as ledger:
        surveyed = survey(in_passages(head, options.passages), planned.encoder, ledger, skip_bad=True, progress=progress)
        documents, stored = ledger.documents, ledger.total
    sample = surveyed.sample[:: max(1, len(surveyed.sample) // _ENCODED)][:_ENCODED]
    encodings, seconds = _encoded(planned.encoder, sample, surveyed)
    fitting = Fitting(capabilities, encodings, planned.encoder.dimension, planned.analyzer, options.prune, options.saturation)
    layout = DocumentLayout([signal_class(each).fit(fitting) for each in planned.signals])
    one = _weight(layout, sample, encodings)
    passages = round(stored / head.share)
    dense = passages if "dense" in planned.signals else 0
    index_bytes = round(sum(one.values()) * passages)
    return Forecast(
        source=source.name,
        documents=round(documents / head.share),
        passages=passages,
        exact=head.complete,
        source_bytes=source.size,
        encode_seconds=seconds * passages,
        index_bytes=index_bytes,
        disk_bytes=round(_DISK * index_bytes),
        heap_bytes=_HEAP + _HEAP_VECTOR * dense,
        cache_bytes=round((sum(one.values()) - one["stored"]) * passages),
        clauses=_clauses(planned, surveyed, queries, capabilities),
        signals=planned.signals,
        models={output: model.name for output, model in planned.encoder.models.items()},
        warnings=(
            *_warnings(planned, surveyed, unreadable(source), passages),
            *drifting.ahead(live, planned.encoder, options.passages, surveyed.statistics, None if head.complete else head.read),
        ),
        notes=planned.notes,
    )


def _encoded(encoder: TextEncoder, sample: Sequence[Document], surveyed: Survey) -> tuple[list[Encoding], float]:
    """Encodings of the sample, and seconds a text."""
    texts = [document.content for document in sample]
    encoder.encode(texts[:_WARM], kind="document", statistics=surveyed.statistics)
    began = time.perf_counter()
    encodings = encoder.encode(texts, kind="document", statistics=surveyed.statistics)
    return encodings, (time.perf_counter() - began) / len(texts)


def _weight(layout: DocumentLayout, sample: Sequence[Document], encodings: Sequence[Encoding]) -> dict[str, float]:
    """Bytes of one document in the index, by part."""
    names = {signal.name for signal in layout.signals}
    words = features = halves = vectors = encoded = 0
    lines = []
    for document, encoding in zip(sample, encodings, strict=True):
        body = layout.document(document, encoding)
        vector = body.pop("vector", ())
        encoded += len(body.pop(VECTOR_FIELD, ""))
        vectors += 4 * len(vector)
        halves += 2 * len(vector)
        features += len(body.get("weights", ()))
        words += len(WORD.findall(document.content)) if "lexical" in names else 0
        lines.append(orjson.dumps(body))
    stored = encoded + 1.5 * len(zlib.compress(b"\n".join(lines), 1))
    count = len(sample)
    return {
        "stored": stored / count,
        "vectors": vectors / count * 1.02,
        "doc values": halves / count + 60,
        "postings": (3.4 * words + 3 * features) * 7 / 6 / count,
    }


def _clauses(planned: Plan, surveyed: Survey, queries: Sequence[str], capabilities: Capabilities) -> Clauses:
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


def _warnings(planned: Plan, surveyed: Survey, unreadable: Sequence[str], passages: int) -> Iterator[str]:
    texts = [document.content for document in surveyed.sample]
    stops = "" if planned.options.skip_bad else " Without --skip-bad the build stops there."
    yield from (f"{warning}{stops}" for warning in (*surveyed.warnings, *unreadable))
    yield from (note for note in surveyed.notes if note not in unreadable)
    longest = min((model.max_length for model in planned.encoder.models.values()), default=0)
    if longest:
        long = _share([length > longest for length in planned.encoder.lengths(texts)])
        if long:
            what = "passages" if planned.options.passages else "documents"
            advice = "a smaller --passage-size" if planned.options.passages else "--passage-size 160"
            yield f"{long} of the {what} are longer than the {longest} word-pieces that the model sees: {advice} gives all of it a vector."
    if planned.options.neighbours:
        held = (_HELD + 4 * (planned.encoder.dimension or 0)) * passages
        yield (
            f"--neighbours encodes everything before it sends anything, and holds it in memory and on the disk: {sized(held)} each. "
            "Impacts of neighbours' words come on top of the index size above."
        )
    dotted = _share([_DOTTED.search(text) is not None for text in texts])
    if dotted:
        yield f"{dotted} of the texts hold words with dots (os.path, 3.5): models see them in parts, the analyzer perhaps as one."
    yield from planned.warnings


def _share(found: Sequence[bool]) -> str:
    """As a percentage; empty where it is none."""
    share = sum(found) / len(found)
    return f"{share:.0%}" if share >= 0.005 else ""
