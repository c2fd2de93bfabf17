"""An update: only new and changed documents are encoded and sent, to the live generation or to a copy of it.

The source is read, and the digests of its documents are compared with those of the generation. If too much would be deleted, the update
stops here, and nothing has changed (`update_plan`). Documents are encoded with the statistics that the generation has, so that all its
weights have one scale; only a build counts them anew. An update may be stopped at any time: the same command compares again and continues.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from termweave.catalog import audit, generations, lineage, statistics_store
from termweave.catalog.lineage import CHANGING, ModelLineage
from termweave.corpora.sources import entry_of, origin, refuse_encodings
from termweave.encoders.recorded_models import encoder_of, remember
from termweave.errors import UsageError, VerificationFailed
from termweave.indexer import update_changes, update_plan
from termweave.indexer.build_target import BuildTarget, keep_statistics
from termweave.indexer.builder import noticeable_wait, pass_gate
from termweave.indexer.generations import copy as generation_copy
from termweave.indexer.generations import index_setup, profile_transfer, publication
from termweave.indexer.ledger import diff, storage
from termweave.indexer.pipeline import dead_letters
from termweave.indexer.pipeline.pipeline import Pipeline
from termweave.indexer.preparation.passages import Window, in_passages
from termweave.indexer.update_plan import DEFAULT_MODE
from termweave.indexer.verification import SAMPLE, changed_by_server, verify_written
from termweave.support import arguments, private_files
from termweave.support.messages import few

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from termweave.catalog.generations import LiveGeneration
    from termweave.catalog.lineage import Lineage
    from termweave.corpora import Source
    from termweave.encoders import TextEncoder
    from termweave.engine import Engine
    from termweave.indexer.ledger.build_lock import Lease
    from termweave.indexer.options import BuildOptions
    from termweave.indexer.preparation.corpus_pass import BuildProgress
    from termweave.indexer.update_changes import Changes
    from termweave.indexer.update_plan import UpdateMode
    from termweave.indexer.verification import Difference
    from termweave.statistics import CorpusStatistics


_IN_PLACE = "The live generation itself was changed, which 'termweave rollback' does not undo. With --new a copy is changed, and rollback undoes it."


@dataclass(frozen=True)
class Updated:
    """The result of an update.

    Attributes:
        name: The alias.
        index: The generation that was updated.
        counts: How the source and the generation differed.
        documents: Documents in the generation now.
        passages: How many texts they are stored as.
        sent: Documents or passages that were sent.
        deleted: Documents that were deleted.
        outdated: Passages that were deleted because their changed documents no longer have them.
        seconds: Wall-clock time.
        signals: Names of the signals.
        notes: What a user should know.
        warnings: What a user should not miss.
    """

    name: str
    index: str
    counts: diff.ChangeCounts
    documents: int
    passages: int
    sent: int
    deleted: int
    outdated: int
    seconds: float
    signals: tuple[str, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def update(
    engine: Engine,
    source: Source,
    name: str,
    options: BuildOptions,
    mode: UpdateMode = DEFAULT_MODE,
    progress: BuildProgress = lambda *_: None,
    gate: Callable[[str], None] | None = None,
) -> Updated:
    """Bring an index up to date with `source`: its live generation, or a copy that is then published in its place.

    Args:
        engine: The server.
        source: The corpus.
        name: The alias.
        options: Only the models, `workers`, `patience`, `allow_refused` and `skip_bad` are used; everything else stays as it is in the
            generation. Models that `mode.given` does not name are used where this host does not have those of the generation.
        mode: How the update changes the index.
        progress: Called with (stage, done, total or None).
        gate: Called with the verified copy; needs `mode.new`.

    Raises:
        LargeDeletion: It would delete a larger share of the documents than `mode.allow_deletions`.
        UsageError: There is nothing to update, a gate was given without a copy, or a flag that was given has another value there.
        EngineError: The alias was moved to another generation during an update in place.
        TermweaveError: As `build`.
    """
    started = time.monotonic()
    arguments.check(engine=engine, source=source, options=options)
    generations.check_spelling(name)
    refuse_encodings(
        source,
        "an update weighs documents with the statistics of the live generation",
        "Update from the corpus itself, or leave --update out: a build from the folder runs no model.",
    )
    if gate is not None and not mode.new:
        raise UsageError(
            "A gate needs a new generation: a change within the live generation is live at once.",
            "Add --new, or leave the gate out.",
        )
    engine = engine.patient(options.patience)
    with storage.lease(engine, name) as lease, tempfile.TemporaryDirectory(dir=private_files.scratch()) as work:
        live = update_plan.live_to_update(engine, source, name, options, mode)
        named = {"weights", "dense"} if "model" in mode.given else set(mode.given)
        given = {
            output if output in named else f"{output}_otherwise": getattr(options, output) for output in ("weights", "dense")
        }
        encoder = encoder_of(live.lineage, name, given, new_query=options.dense_query)
        remember(encoder.models.values())
        statistics = statistics_store.load(engine, live.index, live.lineage)
        source = in_passages(source, Window.from_lineage(live.lineage.passages))
        path = Path(work) / "source.sqlite"
        counter = encoder if statistics else None
        corpus = update_plan.read_source(engine, live, source, path, counter, skip_bad=options.skip_bad, progress=progress)
        if mode.delete_missing:
            mode = update_plan.admit(update_plan.compare(engine, live, path), mode, name, unreadable=bool(source.skipped))
        now = generations.creation_time(engine, name)
        target = (
            _copy(engine, live, source.fingerprint, lease, statistics, now, progress)
            if mode.new
            else _in_place(engine, live, lease, statistics)
        )
        with target.ledger as ledger:
            lease.check()
            index_setup.open_writer(engine, target.index, lease)
            keep_statistics(engine, target.index, statistics, options)
            ledger.put("entry", entry_of(source))
            read = origin(source)
            pipeline = Pipeline(engine, source, encoder, target, options)
            changes = update_changes.apply(pipeline, path, corpus, progress, delete_missing=mode.delete_missing)
            after = _lineage_after(target, changes, encoder, read, now)
            _finish_and_verify(engine, target, options.allow_refused, changes.sample, new=mode.new)
            updated = Updated(
                name=name,
                index=target.index,
                counts=changes.counts,
                documents=ledger.documents,
                passages=ledger.acknowledged,
                sent=changes.sent,
                deleted=changes.deleted,
                outdated=changes.outdated,
                seconds=time.monotonic() - started,
                signals=tuple(live.lineage.signals),
                notes=(
                    *target.notes,
                    *([] if mode.new or not (changes.sent or changes.deleted) else [_IN_PLACE]),
                    *noticeable_wait(engine),
                ),
                warnings=tuple(target.warnings),
            )
            if gate is not None:
                pass_gate(engine, gate, target, after, live, updated)
            lease.check()
            profile_transfer.write(engine, target.index, after, live)
            ledger.put("lineage", after.as_meta())
            if mode.new:
                publication.publish(engine, name, target.index, live.index, lease=lease)
                ledger.put("state", "complete")
            else:
                index_setup.close_writer(engine, target.index, lease)
                ledger.put("state", "complete")
                changed = changes.sent + changes.deleted
                audit.write(engine, "update", name, before=live.index, after=target.index, documents=changed)
                publication.check_still_live(engine, name, target.index)
            return replace(updated, seconds=time.monotonic() - started)


def _in_place(engine: Engine, live: LiveGeneration, lease: Lease, statistics: CorpusStatistics | None) -> BuildTarget:
    """The live generation, to be changed in place."""
    ledger = storage.open_(engine, live.index)
    with ledger.closed_on_error():
        ledger.put("name", live.lineage.name)
        ledger.put("state", "updating")
        return BuildTarget(live.index, live.lineage, live.lineage.layout, statistics, ledger, lease, [], [])


def _copy(
    engine: Engine,
    live: LiveGeneration,
    source: str,
    lease: Lease,
    statistics: CorpusStatistics | None,
    now: str,
    progress: BuildProgress,
) -> BuildTarget:
    """A copy of the live generation, to be changed in its place."""
    index, ledger = generation_copy.copy(engine, live, source, statistics, now, progress)
    with ledger.closed_on_error():
        begun = lineage.read(engine, index)  # an earlier command may have begun the copy, and begun to change it
        made = replace(live.lineage, created=begun.created, fingerprint=begun.fingerprint, complete=False)
        return BuildTarget(index, made, made.layout, statistics, ledger, lease, [], [])


def _lineage_after(target: BuildTarget, changes: Changes, encoder: TextEncoder, read: dict[str, str], now: str) -> Lineage:
    """The lineage after an update. A changed generation has no fingerprint: no build of its source would make it.

    Args:
        target: The generation.
        changes: What the update did.
        encoder: Its models. Only the encoder of queries can be another one than before.
        read: The source as the lineage stores it.
        now: The time of the update.
    """
    made, ledger, counts = target.lineage, target.ledger, changes.counts
    passages = {**made.passages, "count": ledger.acknowledged, "most": ledger.most_passages} if made.passages else {}
    after = replace(made, documents=ledger.documents, passages=passages, complete=True)
    if counts.new or counts.changed or changes.deleted or changes.outdated or made.fingerprint == CHANGING:
        options = {name: text for name, text in made.source.items() if name == "options"}
        after = replace(after, source=read | options, fingerprint="", updated=now)
    models = {output: ModelLineage(model.name, model.hash) for output, model in encoder.models.items()}
    models = {output: model for output, model in models.items() if output in made.models or output == "dense_query"}
    if models == made.models:
        return after
    queries = models.get("dense_query") or models["dense"]
    target.notes.append(f"Queries are encoded by {queries.name!r} from now on; no document was encoded for that.")
    return replace(after, models=models, fingerprint="", updated=now)


def _finish_and_verify(engine: Engine, target: BuildTarget, allowed: float, sample: Sequence[str], *, new: bool) -> None:
    """Make a copy searchable as the live generation is, check how many documents were refused, and verify what is stored."""
    if new:
        settings = target.ledger.get("settings")
        index_setup.finish_loading(engine, target.index, settings["refresh_interval"], int(settings["number_of_replicas"]))
    target.notes.extend(dead_letters.check(target.ledger, target.index, allowed))
    sample = sorted({*sample, *target.ledger.sample(SAMPLE)}) if new else sample
    difference = verify_written(engine, target.index, target.lineage, target.ledger, sample)
    if not difference.ok:
        cause = f" {changed_by_server(engine, target.index)}" if difference.inside else ""
        raise VerificationFailed(f"{target.index} {difference}.", f"{_advice(difference, target.lineage.name)}{cause}")


def _advice(difference: Difference, name: str) -> str:
    """Advise what to do if an index differs from its ledger after an update."""
    ids = [repr(identity) for identity in (*difference.extra, *difference.altered)]
    if not ids:
        return "Run the same command again: it sends what is missing."
    return (
        f"Stored, but not in the source, or damaged: {few(ids)}. Another program, or an update from another host, may have written them: look "
        f"first, with 'termweave verify {name} SOURCE'. 'termweave delete {name} --id ID' deletes one."
    )
