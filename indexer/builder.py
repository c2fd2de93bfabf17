"""Building a generation: survey, create, send, verify, publish.

``reader -> Document -> encoder -> Encoding -> signals -> NDJSON -> _bulk -> ledger -> refresh -> verify -> alias``

The source is read twice. The survey counts the collection statistics that term weights stand on and enters every document
in the ledger; the second pass encodes and sends what the ledger does not know to be acknowledged. So a build that was
killed goes on where it stopped. With words of neighbours a pass between the two encodes everything (`expanding`).
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from termweave import __version__, doors
from termweave.engine import EngineResponseError
from termweave.errors import EngineError, GateNotMet, RefusedDocuments, VerificationFailed
from termweave.indexer import custom, encoded, expanding, generations, inheriting, ledgers, refusals, resuming, summary
from termweave.indexer.passages import in_passages
from termweave.indexer.pipeline import Pipeline
from termweave.indexer.plan import Options, Plan, plan
from termweave.indexer.survey import survey
from termweave.indexer.verification import verify
from termweave.search import lineage, stored_statistics
from termweave.search.models import remember
from termweave.signals import DocumentLayout, Fitting, signal_class

if TYPE_CHECKING:
    from collections.abc import Callable

    from termweave.corpora import Source
    from termweave.engine import Engine
    from termweave.indexer.expanding import Encode
    from termweave.indexer.leases import Lease
    from termweave.indexer.ledger import Ledger
    from termweave.indexer.passages import Window
    from termweave.indexer.survey import Progress
    from termweave.indexer.updating import Updated
    from termweave.search.lineage import Lineage
    from termweave.statistics import CorpusStatistics

#: The stages in which only what is under way is waited for: after Ctrl-C, and after an error.
SENDING, STOPPING, FAILING = "Indexing", "Stopping", "Ending"
#: While documents come in, nobody searches: no refresh, no copies.
_LOADING = {"index.refresh_interval": "-1", "index.number_of_replicas": 0}


@dataclass(frozen=True)
class Built:
    """What a build did.

    Attributes:
        name: The alias.
        index: The generation it points at now.
        documents: Documents in it.
        passages: How many they are stored as; the same number where none was cut.
        sent: Documents or passages sent by this run (fewer after a resume).
        seconds: Wall-clock time.
        signals: Names of its signals.
        notes: What a user should know: left-out signals, skipped documents, a resume.
        warnings: What a user should not miss.
    """

    name: str
    index: str
    documents: int
    passages: int
    sent: int
    seconds: float
    signals: tuple[str, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()


class NotPublished(GateNotMet):
    """A generation is whole, and its gate kept it from being published.

    Attributes:
        built: What was done all the same.
    """

    def __init__(self, missed: GateNotMet, built: Built | Updated) -> None:
        super().__init__(missed.message, missed.hint)
        self.built = built


@dataclass
class Generation:
    """A generation under construction."""

    index: str
    lineage: Lineage
    layout: DocumentLayout
    statistics: CorpusStatistics | None
    ledger: Ledger
    notes: list[str]
    warnings: list[str]


def build(
    engine: Engine,
    source: Source,
    name: str,
    options: Options,
    progress: Progress = lambda *_: None,
    gate: Callable[[str], None] = lambda _: None,
) -> Built:
    """Build a generation of `name` from `source`, verify it and point the alias at it.

    Args:
        engine: Where.
        source: What.
        name: The alias.
        options: How.
        progress: Told (stage, done, total or None).
        gate: Called with the verified generation; raises `GateNotMet` when it must not be published.

    Raises:
        TermweaveError: Another build of the name is running, here or on another host.
        NotPublished: The gate said no; the alias was not moved.
        UsageError: The name, a signal or a model cannot be meant.
        InputError: The source holds what cannot be read, or an id twice.
        RefusedDocuments: The engine refused documents; the alias was not moved.
        VerificationFailed: What is stored is not what was sent; the alias was not moved.
    """
    started = time.monotonic()
    doors.check(engine=engine, source=source, options=options)
    generations.check_name(engine, name)
    with ledgers.lease(engine, name) as lease:
        watched = while_held(lease, progress)
        before = generations.live(engine, name)
        planned = plan(source, engine.capabilities, options)
        remember(planned.encoder.models.values())
        source = in_passages(source, options.passages)
        found = resuming.resume(engine, name, planned, fresh=options.fresh)
        current = _begin(engine, source, name, planned, watched) if found is None else _reopen(engine, options, *found)
        with current.ledger as ledger:
            try:
                encode = _encode(source, planned, current, watched)
                sent = send_rest(engine, source, planned.options, encode, current, watched)
                current.notes.extend(_settle(engine, current, options))
                encoded.forget(ledger)
            except (RefusedDocuments, VerificationFailed):
                lineage.write(engine, current.index, current.lineage)  # it may have been whole when its gate refused it
                ledger.put("state", "rejected")  # the same command may try again; a mended source begins anew
                raise
            current.notes.extend(summary.stored(engine, current.index, current.layout))
            passages = {**current.lineage.passages, "count": ledger.acknowledged} if options.passages else {}
            whole = replace(current.lineage, complete=True, documents=ledger.documents, passages=passages)

            def built() -> Built:
                return Built(
                    name=name,
                    index=current.index,
                    documents=ledger.documents,
                    passages=ledger.acknowledged,
                    sent=sent,
                    seconds=time.monotonic() - started,
                    signals=planned.signals,
                    notes=(*planned.notes, *current.notes),
                    warnings=(*planned.warnings, *current.warnings),
                )

            pass_gate(engine, gate, current, whole, before, built)
            lease.check()
            current.notes.extend(inheriting.write(engine, current.index, whole, before))
            generations.publish(engine, name, current.index, before)
            ledger.put("state", "complete")
            return built()


def up_to_date(engine: Engine, source: Source, name: str, options: Options) -> str | None:
    """The live generation of `name`, if a build from this source, these models and these settings would only make it again."""
    doors.check(engine=engine, source=source, options=options)
    index = generations.live(engine, name)
    if index is None:
        return None
    same = lineage.read(engine, index).fingerprint == plan(source, engine.capabilities, options).fingerprint
    return index if same else None


def pass_gate(
    engine: Engine,
    gate: Callable[[str], None],
    current: Generation,
    whole: Lineage,
    live: str | None,
    built: Callable[[], Built | Updated],
) -> None:
    """Ask the gate; a generation that misses it is whole all the same and says so, to be promoted or pruned.

    The gate looks at the profile in force: it is asked about the one that the generation would be published with.

    Raises:
        NotPublished: It was missed.
    """
    inheriting.inherit(engine, current.index, live)
    try:
        gate(current.index)
    except GateNotMet as missed:
        inheriting.write(engine, current.index, replace(whole, missed=missed.message), live)
        current.ledger.put("lineage", asdict(replace(whole, complete=False)))  # for a build that asks once more
        current.ledger.put("state", "missed")
        raise NotPublished(missed, built()) from missed


def _begin(engine: Engine, source: Source, name: str, planned: Plan, progress: Progress) -> Generation:
    """Survey the source and create the empty index."""
    options, encoder = planned.options, planned.encoder
    index = generations.new_name(name)
    ledger = ledgers.open_(engine, index)
    try:
        ledger.put("name", name)
        ledger.put("made_of", planned.made_of)
        ledger.put("state", "surveying")  # whoever finds this after our death removes what we made
        surveyed = survey(source, encoder, ledger, skip_bad=options.skip_bad, progress=progress)
        statistics = surveyed.statistics
        texts = [document.content for document in surveyed.sample]
        sample = encoder.encode(texts, kind="document", statistics=statistics)
        fitting = Fitting(engine.capabilities, sample, encoder.dimension, planned.analyzer, options.prune, options.saturation)
        layout = DocumentLayout([signal_class(each).fit(fitting) for each in planned.signals])
        mapping = custom.merged(layout.mapping({}), options.mapping)
        layout = replace(layout, extra=sorted(set(mapping["properties"]) - set(layout.mapping({})["properties"])))
        found = lineage.Lineage(
            name=name,
            created=generations.moment(engine, name),
            termweave=__version__,
            source={"name": source.name, "fingerprint": source.fingerprint},
            fingerprint=planned.fingerprint,
            signals={signal.name: signal.parameters() for signal in layout.signals},
            models={output: lineage.ModelLineage(model.name, model.hash) for output, model in encoder.models.items()},
            statistics={} if statistics is None else _described(statistics),
            documents=ledger.documents,
            passages=_cut(options.passages, ledger),
            fields=layout.extra,
            neighbours=options.neighbours,
        )
        settings = custom.merged(layout.settings(), {"index.number_of_shards": options.shards, **options.settings})
        settings |= _LOADING if options.loading else {"index.number_of_replicas": _replicas(engine, options)}
        generations.create(engine, index, mapping, found, settings)
        keep_statistics(engine, index, statistics, options)
        ledger.put("lineage", asdict(found))
        ledger.put("said", [surveyed.notes, surveyed.warnings])  # a build that resumes surveys nothing
        ledger.put("state", "building")
    except BaseException:
        ledger.close()
        with suppress(EngineError):  # what this call made and nobody could resume; where this fails, the next build does it
            generations.remove(engine, index)
        raise
    return Generation(index, found, layout, statistics, ledger, surveyed.notes, surveyed.warnings)


def _reopen(engine: Engine, options: Options, index: str, found: Lineage, ledger: Ledger) -> Generation:
    with ledger.handed_on():
        statistics = stored_statistics.load(engine, index, found)
        keep_statistics(engine, index, statistics, options)
        what = "passages" if found.passages else "documents"
        there = f"{ledger.acknowledged:,} of {ledger.total:,} {what} were there already"
        if options.neighbours and not ledger.acknowledged:
            there = "no document had been sent, and what was encoded is kept"
        note = f"Resumed {index}: {there}."
        notes, warnings = ledger.get("said") or ([], [])
        return Generation(index, found, found.layout, statistics, ledger, [note, *notes], warnings)


def keep_statistics(engine: Engine, index: str, statistics: CorpusStatistics | None, options: Options) -> None:
    """Store a generation's statistics where the cluster has none: they are new, or somebody deleted them and this host has a copy."""
    if statistics is not None and not stored_statistics.there(engine, index):
        stored_statistics.save(engine, index, statistics, {"index.number_of_replicas": _replicas(engine, options)})


def _cut(window: Window | None, ledger: Ledger) -> dict[str, int]:
    """What a lineage says of passages."""
    if window is None:
        return {}
    return {**window.parameters(), "count": ledger.total, "most": ledger.most_passages}


def _described(statistics: CorpusStatistics) -> dict[str, Any]:
    return {
        "hash": statistics.hash,
        "analysis": statistics.analysis,
        "documents": statistics.documents,
        "average_length": statistics.average_length,
    }


def while_held(lease: Lease, progress: Progress) -> Progress:
    """Progress that ends the work when another builder has taken the lease; one that is stopping anyway may finish."""

    def watched(stage: str, done: int, total: int | None, detail: str = "", /) -> None:
        if stage not in {STOPPING, FAILING}:
            lease.check()
        progress(stage, done, total, detail)

    return watched


def _encode(source: Source, planned: Plan, current: Generation, progress: Progress) -> Encode:
    """What encodes the documents of a build."""
    encode = expanding.alone(planned.encoder, current.statistics)
    ledger, count = current.ledger, planned.options.neighbours
    if not count or ledger.acknowledged == ledger.total:
        return encode
    return expanding.from_source(source, encode, ledger, count, progress)


def send_rest(engine: Engine, source: Source, options: Options, encode: Encode, current: Generation, progress: Progress) -> int:
    """Encode and send what is not acknowledged yet; returns how many documents that were."""
    before = current.ledger.acknowledged
    pipeline = Pipeline(
        engine=engine,
        index=current.index,
        source=source,
        encode=encode,
        layout=current.layout,
        ledger=current.ledger,
        workers=options.workers,
        patience=options.patience,
        allow_refused=options.allow_refused,
    )
    stages = {None: SENDING, True: STOPPING, False: FAILING}
    counts = pipeline.run(lambda now: progress(stages[now.interrupted], now.acknowledged, now.total, str(now)))
    return counts.sent - before


def _settle(engine: Engine, current: Generation, options: Options) -> list[str]:
    """Make the generation searchable and prove that it is whole; returns what a user should know."""
    generations.finish(engine, current.index, dict(options.settings), _replicas(engine, options))
    notes = refusals.check(current.ledger, current.index, options.allow_refused)
    found = verify(engine, current.index, current.ledger)
    if not found.ok:
        current.ledger.again([*found.missing, *found.altered])
        advice = "with --fresh" if found.extra else "again: it sends what is missing or altered"
        raise VerificationFailed(
            f"{current.index} {found}.",
            f"It was not published. Run the same command {advice}.",
        )
    return notes


def _replicas(engine: Engine, options: Options) -> int:
    if options.replicas is not None:
        return options.replicas
    try:
        return 1 if engine.request("GET", "/_cluster/health")["number_of_data_nodes"] > 1 else 0
    except EngineResponseError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return 1  # this role may not ask; a copy that finds no second node harms nobody
