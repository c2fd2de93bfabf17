"""The generation that a build writes into: a new one, or one that an earlier command left unfinished."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import orjson

from termweave import __version__
from termweave.catalog import generations, statistics_store
from termweave.catalog.lineage import Lineage, ModelLineage
from termweave.dialect import dialect_of
from termweave.engine import EngineResponseError
from termweave.errors import EngineError
from termweave.indexer.generations import deletion, index_setup
from termweave.indexer.ledger import storage, unfinished_builds
from termweave.indexer.preparation import kept_mapping, user_mapping
from termweave.indexer.preparation.corpus_pass import read_corpus
from termweave.indexer.preparation.corpus_remarks import length_warnings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from termweave.catalog.generations import LiveGeneration
    from termweave.catalog.layout import DocumentLayout
    from termweave.corpora import Source
    from termweave.dialect import ServerDialect
    from termweave.engine import Engine
    from termweave.indexer.build_plan import BuildPlan
    from termweave.indexer.ledger.build_lock import Lease
    from termweave.indexer.ledger.ledger import Ledger
    from termweave.indexer.options import BuildOptions
    from termweave.indexer.preparation.corpus_pass import BuildProgress, CorpusPass
    from termweave.records import Encoding, ModelInfo
    from termweave.statistics import CorpusStatistics


@dataclass
class BuildTarget:
    """The generation that a build or an update writes into.

    Attributes:
        index: The concrete index.
        lineage: Its lineage when the command began to write.
        layout: How its documents are stored.
        statistics: The statistics of its weights; None without a weights model.
        ledger: Its ledger.
        lease: The lease under which it is written.
        notes: Sentences that a user should know.
        warnings: Sentences that a user should not miss.
    """

    index: str
    lineage: Lineage
    layout: DocumentLayout
    statistics: CorpusStatistics | None
    ledger: Ledger
    lease: Lease
    notes: list[str]
    warnings: list[str]


def open_target(
    engine: Engine, source: Source, lease: Lease, planned: BuildPlan, live: LiveGeneration | None, progress: BuildProgress
) -> BuildTarget:
    """Open the generation that a build writes into: the one that an earlier command left unfinished, else a new one.

    Args:
        engine: The server.
        source: The documents, or their passages.
        lease: The lease of the alias.
        planned: The plan of the build.
        live: The live generation.
        progress: Called with (stage, done, total).

    Raises:
        UnfinishedBuild: The unfinished generation has another source, model or setting.
    """
    before = live.index if live else None
    unfinished = unfinished_builds.resume(engine, lease.name, planned, before, trial=source.trial)
    if unfinished is None:
        return _begin(engine, source, lease, planned, progress)
    return _reopen(engine, planned.options, lease, *unfinished)


def _begin(engine: Engine, source: Source, lease: Lease, planned: BuildPlan, progress: BuildProgress) -> BuildTarget:
    """Read the source once, and create the empty index of a new generation."""
    options, name = planned.options, lease.name
    index = generations.new_index(name)
    ledger = storage.open_(engine, index)
    try:
        ledger.put("name", name)
        ledger.put("made_of", planned.made_of)
        ledger.put("entry", source.ENTRY)
        ledger.put("trial", value=source.trial)  # it must not block other builds
        ledger.put("state", "surveying")  # if this process dies now, the next build deletes the generation
        corpus, sample = _surveyed(source, planned, ledger, progress)
        layout = planned.layout(engine.capabilities, sample, corpus.statistics)
        own = set(options.mapping.get("properties", {})) - set(layout.mapping({})["properties"])
        layout = replace(layout, extra=sorted(own), types=corpus.metadata.types(() if options.keep_mapping else own))
        spelling = dialect_of(engine.capabilities)
        mapping = _merged(layout, options, spelling)
        corpus.notes.extend(corpus.metadata.notes())
        passages = {}
        if options.passages is not None:
            passages = {**options.passages.parameters(), "count": ledger.total, "most": ledger.most_passages}
        made = replace(
            new_lineage(engine, name, layout, planned.models, corpus.statistics),
            source={**source.origin, "options": orjson.dumps(planned.stored).decode()},
            fingerprint=planned.fingerprint,
            documents=ledger.documents,
            passages=passages,
            fields=layout.extra,
            types=layout.types,
        )
        settings = user_mapping.merged(layout.settings(spelling), {"index.number_of_shards": options.shards, **options.settings})
        copies = 0 if options.loading else replicas(engine, options)
        settings |= index_setup.LOADING if options.loading else {"index.number_of_replicas": copies}
        lease.check()
        index_setup.create(engine, index, mapping, made, settings, lease)
        if copies:  # a node may fail while documents are sent: that is what --no-loading is for
            index_setup.wait_for_copies(engine, index, "is filled")
        keep_statistics(engine, index, corpus.statistics, options)
        ledger.put("lineage", made.as_meta())
        ledger.put("said", [corpus.notes, corpus.warnings])  # a build that resumes does not read the source for them
        ledger.put("state", "building")
    except (EngineError, KeyboardInterrupt):
        ledger.close()  # a snapshot of the source belongs to it; the next build takes that over and deletes this
        raise
    except BaseException:
        ledger.close()
        with suppress(EngineError):  # no build could resume this; if deleting fails, the next build does it
            deletion.remove_generation(engine, index)
        raise
    return BuildTarget(index, made, layout, corpus.statistics, ledger, lease, corpus.notes, corpus.warnings)


def _surveyed(
    source: Source, planned: BuildPlan, ledger: Ledger, progress: BuildProgress
) -> tuple[CorpusPass, Sequence[Encoding]]:
    """Read the source once, and encode its sample; a source that brings its encodings brings statistics and sample, too."""
    options, encoder, brought = planned.options, planned.encoder, source.encodings
    corpus = read_corpus(source, encoder, ledger, skip_bad=options.skip_bad, progress=progress)
    if brought is not None:  # its notes and warnings are in the plan
        statistics = brought.statistics if "weights" in planned.models else None
        return replace(corpus, statistics=statistics, notes=[], warnings=[]), brought.sample
    texts = [document.content for document in corpus.sample]
    corpus.warnings.extend(length_warnings(encoder, texts, passages=options.passages is not None, cut=not options.keep_mapping))
    return corpus, encoder.encode(texts, kind="document", statistics=corpus.statistics)


def _merged(layout: DocumentLayout, options: BuildOptions, spelling: ServerDialect) -> dict[str, Any]:
    """The mapping of the signals with that of the user, or of the source."""
    ours = layout.mapping({}, spelling)
    if not options.keep_mapping:
        return user_mapping.merged(ours, options.mapping)
    theirs = options.mapping["properties"]
    beside = {name: field for name, field in theirs.items() if name not in ours["properties"]}
    properties = kept_mapping.with_copies(ours["properties"] | beside, theirs)
    return {**ours, **options.mapping, "properties": properties}


def _reopen(engine: Engine, options: BuildOptions, lease: Lease, index: str, made: Lineage, ledger: Ledger) -> BuildTarget:
    """Continue a generation that an earlier command left unfinished."""
    with ledger.closed_on_error():
        index_setup.open_writer(engine, index, lease)
        statistics = statistics_store.load(engine, index, made)
        keep_statistics(engine, index, statistics, options)
        noun = "passages" if made.passages else "documents"
        progress = f"{ledger.acknowledged:,} of {ledger.total:,} {noun} were sent before"
        notes, warnings = ledger.get("said") or ([], [])
        return BuildTarget(
            index, made, made.layout, statistics, ledger, lease, [f"Resumed {index}: {progress}.", *notes], warnings
        )


def keep_statistics(engine: Engine, index: str, statistics: CorpusStatistics | None, options: BuildOptions) -> None:
    """Store the statistics of a generation if the cluster lacks them, because they are new or somebody deleted them."""
    if statistics is not None and not statistics_store.is_complete(engine, index):
        statistics_store.save(engine, index, statistics, {"index.number_of_replicas": replicas(engine, options)})


def replicas(engine: Engine, options: BuildOptions) -> int:
    """The number of replicas: the option if it is set, else 1 if there are several data nodes, else 0."""
    if options.replicas is not None:
        return options.replicas
    try:
        return 1 if engine.request("GET", "/_cluster/health")["number_of_data_nodes"] > 1 else 0
    except EngineResponseError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return 1  # this user may not ask; a replica without a second node does no harm


def new_lineage(
    engine: Engine, name: str, layout: DocumentLayout, models: Mapping[str, ModelInfo], statistics: CorpusStatistics | None
) -> Lineage:
    """The lineage of a new index, with its signals, models and statistics, and without its source."""
    counts = ("hash", "analysis", "documents", "average_length")
    return Lineage(
        name=name,
        created=generations.creation_time(engine, name),
        termweave=__version__,
        source={},
        fingerprint="",
        signals={signal.name: signal.parameters() for signal in layout.signals},
        models={output: ModelLineage(model.name, model.hash) for output, model in models.items()},
        statistics={each: getattr(statistics, each) for each in counts} if statistics else {},
    )


def stored_on_average(engine: Engine, index: str, layout: DocumentLayout) -> list[str]:
    """Say how much each signal that can be counted stores for a document, on average."""
    counted = {signal.name: signal.counted for signal in layout.signals if signal.counted}
    if not counted:
        return []
    aggregations = {name: {"avg": {"field": field}} for name, (field, _) in counted.items()}
    answer = engine.request("POST", f"/{index}/_search", body={"size": 0, "aggs": aggregations})["aggregations"]
    return [f"{name}: {answer[name]['value'] or 0:.1f} {noun} a document on average." for name, (_, noun) in counted.items()]
