"""A build: read the corpus, create the index, send the documents, verify, publish.

``reader -> Document -> encoder -> Encoding -> signals -> NDJSON -> _bulk -> ledger -> refresh -> verify -> alias``

The source is read twice. The first pass counts the statistics that term weights are based on, and enters every document in the ledger.
The second pass encodes and sends the documents that the ledger does not list as acknowledged, so a build that was killed continues
where it stopped.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from termweave.catalog import generations, lineage
from termweave.corpora.index import spool
from termweave.encoders.recorded_models import remember
from termweave.errors import GateNotMet, RefusedDocuments, VerificationFailed
from termweave.indexer import build_target, rebuild_options
from termweave.indexer.build_plan import plan
from termweave.indexer.generations import index_setup, profile_transfer, publication
from termweave.indexer.ledger import storage
from termweave.indexer.pipeline import dead_letters
from termweave.indexer.pipeline.pipeline import Pipeline
from termweave.indexer.preparation import kept_mapping
from termweave.indexer.preparation.passages import in_passages
from termweave.indexer.verification import SAMPLE, changed_by_server, verify_written
from termweave.support import arguments

if TYPE_CHECKING:
    from collections.abc import Callable

    from termweave.catalog.generations import LiveGeneration
    from termweave.catalog.lineage import Lineage
    from termweave.corpora import Source
    from termweave.engine import Engine
    from termweave.indexer.build_plan import BuildPlan
    from termweave.indexer.build_target import BuildTarget
    from termweave.indexer.options import BuildOptions
    from termweave.indexer.preparation.corpus_pass import BuildProgress
    from termweave.indexer.updater import Updated

#: Seconds of waiting that are worth a note.
_NOTICEABLE = 5.0


@dataclass(frozen=True)
class Built:
    """The result of a build.

    Attributes:
        name: The alias.
        index: The generation that was built.
        documents: Documents in it.
        passages: How many texts they are stored as; equal to `documents` if none was cut.
        sent: Documents or passages that this run sent; fewer than `passages` after a resume.
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
    """A generation is whole, but its gate kept it from being published.

    Attributes:
        built: The result of the build or update.
    """

    def __init__(self, missed: GateNotMet, built: Built | Updated) -> None:
        super().__init__(missed.message, missed.hint)
        self.built = built


def build(
    engine: Engine,
    source: Source,
    name: str,
    options: BuildOptions,
    progress: BuildProgress = lambda *_: None,
    gate: Callable[[str], None] = lambda _: None,
    live: LiveGeneration | None = None,
) -> Built:
    """Build a generation of `name` from `source`, verify it and point the alias at it.

    Args:
        engine: The server.
        source: The corpus.
        name: The alias.
        options: How to build.
        progress: Called with (stage, done, total or None).
        gate: Called with the verified generation; raises `GateNotMet` if it must not be published.
        live: The live generation, if the caller has read its lineage already.

    Raises:
        TermweaveError: Another build of the name is running, here or on another host.
        NotPublished: The gate was missed; the alias was not moved.
        UsageError: The name, a signal or a model cannot be used.
        InputError: The source has an entry that cannot be read, or an id twice.
        RefusedDocuments: The server refused documents; the alias was not moved.
        VerificationFailed: What is stored is not what was sent; the alias was not moved.
    """
    started = time.monotonic()
    arguments.check(engine=engine, source=source, options=options)
    engine = engine.patient(options.patience)
    live = live or generations.find_live(engine, name)
    with storage.lease(engine, name) as lease:
        live = _still(engine, name, live)
        planned = plan(source, engine.capabilities, options)
        remember(planned.models.values())
        source = in_passages(source, planned.options.passages)
        target = build_target.open_target(engine, source, lease, planned, live, progress)
        with target.ledger as ledger:
            if live is not None and (other := rebuild_options.differences(live.lineage, planned)):
                target.notes.append(f"Unlike the live generation before it: {other}.")
            sent = _fill(engine, source, planned, target, progress)
            passages = {**target.lineage.passages, "count": ledger.acknowledged} if target.lineage.passages else {}
            whole = replace(target.lineage, complete=True, documents=ledger.documents, passages=passages)
            built = Built(
                name=name,
                index=target.index,
                documents=ledger.documents,
                passages=ledger.acknowledged,
                sent=sent,
                seconds=time.monotonic() - started,
                signals=planned.signals,
                notes=(*planned.notes, *target.notes),
                warnings=(*planned.warnings, *target.warnings),
            )
            pass_gate(engine, gate, target, whole, live, built)
            lease.check()
            left_behind = profile_transfer.write(engine, target.index, whole, live)
            publication.publish(engine, name, target.index, live.index if live else None, lease=lease)
            ledger.put("state", "complete")
            spool.discard_all(name)  # those of builds from other indices, which were stopped
            return replace(built, seconds=time.monotonic() - started, warnings=(*built.warnings, *left_behind))


def up_to_date(engine: Engine, source: Source, name: str, options: BuildOptions) -> str | None:
    """The live generation of `name`, if a build of this source with these options would only make it again; else None."""
    arguments.check(engine=engine, source=source, options=options)
    engine = engine.patient(options.patience)
    index = generations.live(engine, name)
    if index is None:
        return None
    same = lineage.read(engine, index).fingerprint == plan(source, engine.capabilities, options).fingerprint
    return index if same else None


def _still(engine: Engine, name: str, live: LiveGeneration | None) -> LiveGeneration | None:
    """The live generation; its lineage is read again only if another build has published one since."""
    index = generations.live(engine, name)
    return live if (live.index if live else None) == index else generations.find_live(engine, name)


def pass_gate(
    engine: Engine,
    gate: Callable[[str], None],
    target: BuildTarget,
    whole: Lineage,
    live: LiveGeneration | None,
    built: Built | Updated,
) -> None:
    """Measure a generation with the gate. If it fails, mark it as complete in its lineage, so that it can be promoted or pruned.

    The gate searches with the default profile, so the generation is first given the profiles that it would be published with.

    Args:
        engine: The server.
        gate: The gate.
        target: The generation.
        whole: Its lineage once it is published.
        live: The generation that was live when the command began.
        built: The result of the build or update, for the error.

    Raises:
        NotPublished: The gate was missed.
    """
    # A generation that an update has changed has no fingerprint; until it is published, it is marked as being changed.
    profile_transfer.write(
        engine, target.index, replace(whole, complete=False, fingerprint=whole.fingerprint or lineage.CHANGING), live
    )
    try:
        gate(target.index)
    except GateNotMet as missed:
        profile_transfer.write(engine, target.index, replace(whole, missed=missed.message), live)
        target.ledger.put("lineage", replace(whole, complete=False).as_meta())  # for a build that calls the gate again
        target.ledger.put("state", "missed")
        raise NotPublished(missed, built) from missed


def _fill(engine: Engine, source: Source, planned: BuildPlan, target: BuildTarget, progress: BuildProgress) -> int:
    """Send all documents to a generation and verify it; returns how many this run sent."""
    try:
        sent = Pipeline(engine, source, planned.encoder, target, planned.options).run(progress)
        _finish_and_verify(engine, target, planned.options)
    except (RefusedDocuments, VerificationFailed):
        lineage.write(engine, target.index, target.lineage)  # it may have been whole when its gate refused it
        target.ledger.put("state", "rejected")  # the same command tries again; a corrected source begins anew
        raise
    target.notes += [
        *noticeable_wait(engine),
        *build_target.stored_on_average(engine, target.index, target.layout),
        *kept_mapping.sizes_of_hits(engine, target.index, target.layout, planned.options),
    ]
    return sent


def _finish_and_verify(engine: Engine, target: BuildTarget, options: BuildOptions) -> None:
    """Make the generation searchable and verify that it is whole."""
    refresh = options.settings.get("index.refresh_interval")
    index_setup.finish_loading(engine, target.index, refresh, build_target.replicas(engine, options))
    target.notes += dead_letters.check(target.ledger, target.index, options.allow_refused)
    difference = verify_written(engine, target.index, target.lineage, target.ledger, target.ledger.sample(SAMPLE))
    if not difference.ok:
        target.ledger.mark_unsent([*difference.missing, *difference.altered])
        advice = "with --fresh" if difference.extra else "again: it sends what is missing or altered"
        cause = f" {changed_by_server(engine, target.index)}" if difference.inside else ""
        raise VerificationFailed(f"{target.index} {difference}.", f"It was not published. Run the same command {advice}.{cause}")


def noticeable_wait(engine: Engine) -> list[str]:
    """Say how long a build or an update waited for the server, if that was noticeable."""
    seconds = engine.seconds_waited
    if seconds < _NOTICEABLE:
        return []
    return [
        f"Waited {seconds:.0f} s for the server, which was overloaded or away; a slower pace (--workers 1) or more memory may help."
    ]
