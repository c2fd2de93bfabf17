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

from termweave.corpora.sources import entry_of, refuse_encodings
from termweave.errors import UsageError, VerificationFailed
from termweave.indexer import update_plan
from termweave.indexer.build_target import BuildTarget, keep_statistics
from termweave.indexer.builder import noticeable_wait, pass_gate
from termweave.indexer.generations import (
    audit,
    generations,
    index_setup,
    option_compatibility,
    profile_transfer,
    publication,
)
from termweave.indexer.generations import copy as generation_copy
from termweave.indexer.ledger import diff, storage
from termweave.indexer.pipeline import dead_letters
from termweave.indexer.preparation.passages import Window, in_passages
from termweave.indexer.update_changes import UpdateChanges
from termweave.indexer.update_plan import DEFAULT_MODE
from termweave.indexer.verification import verify
from termweave.search.catalog import lineage, statistics_store
from termweave.search.catalog.lineage import ModelLineage
from termweave.search.catalog.models import encoder_of, remember
from termweave.support import arguments
from termweave.support.messages import few

if TYPE_CHECKING:
    from collections.abc import Callable

    from termweave.corpora import Source
    from termweave.encoders import TextEncoder
    from termweave.engine import Engine
    from termweave.indexer.generations.generations import LiveGeneration
    from termweave.indexer.ledger.build_lock import Lease
    from termweave.indexer.options import BuildOptions
    from termweave.indexer.preparation.corpus_pass import BuildProgress
    from termweave.indexer.update_plan import UpdateMode
    from termweave.indexer.verification import Difference
    from termweave.search.catalog.lineage import Lineage
    from termweave.statistics import CorpusStatistics


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
            generation.
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
    with storage.lease(engine, name) as lease, tempfile.TemporaryDirectory(prefix="termweave-") as scratch:
        live = generations.find_live(engine, name)
        if live is None:
            raise update_plan.missing(name)
        option_compatibility.check(engine, live, options, mode.given)
        update_plan.check_mapping_kept(live, source)
        given = {"weights": options.weights, "dense": options.dense}
        encoder = encoder_of(live.lineage, name, given, new_query=options.dense_query)
        remember(encoder.models.values())
        statistics = statistics_store.load(engine, live.index, live.lineage)
        source = in_passages(source, Window.from_lineage(live.lineage.passages))
        path = Path(scratch) / "source.sqlite"
        counter = encoder if statistics else None
        corpus = update_plan.read_source(engine, live, source, path, counter, skip_bad=options.skip_bad, progress=progress)
        if mode.delete_missing:
            mode = update_plan.admit(update_plan.compare(engine, live, path), mode, name, unreadable=bool(source.skipped))
        now = generations.creation_time(engine, name)
        target = _begin(engine, live, now, statistics, options, lease, progress, new=mode.new)
        with target.ledger as ledger:
            ledger.put("entry", entry_of(source))
            changes = UpdateChanges(engine, source, options, encoder, target)
            changes.apply(path, corpus, progress, delete_missing=mode.delete_missing)
            after = _with_models(changes.lineage_after(now), encoder, target, now)
            _finish_and_verify(engine, target, options.allow_refused, new=mode.new)
            target.notes.extend(noticeable_wait(engine))

            def updated() -> Updated:
                return Updated(
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
                    notes=tuple(target.notes),
                    warnings=tuple(target.warnings),
                )

            if gate is not None:
                pass_gate(engine, gate, target, after, live, updated)
            lease.check()
            profile_transfer.write(engine, target.index, after, live)
            ledger.put("lineage", after.as_meta())
            if mode.new:
                publication.publish(engine, name, target.index, live.index, lease=lease)
            else:
                index_setup.close_writer(engine, target.index, lease)
            ledger.put("state", "complete")
            if not mode.new:
                audit.write(
                    engine, "update", name, before=live.index, after=target.index, documents=changes.sent + changes.deleted
                )
                publication.check_still_live(engine, name, target.index)
            return updated()


def _with_models(made: Lineage, encoder: TextEncoder, target: BuildTarget, now: str) -> Lineage:
    """The lineage with the models of the update. Only the encoder of queries can be another one than before."""
    models = {output: ModelLineage(model.name, model.hash) for output, model in encoder.models.items()}
    models = {output: model for output, model in models.items() if output in made.models or output == "dense_query"}
    if models == made.models:
        return made
    queries = models.get("dense_query") or models["dense"]
    target.notes.append(f"Queries are encoded by {queries.name!r} from now on; no document was encoded for that.")
    return replace(made, models=models, fingerprint="", updated=now)


def _begin(
    engine: Engine,
    live: LiveGeneration,
    now: str,
    statistics: CorpusStatistics | None,
    options: BuildOptions,
    lease: Lease,
    progress: BuildProgress,
    *,
    new: bool,
) -> BuildTarget:
    """Open the live generation for documents, or make a copy of it."""
    made = live.lineage
    if new:
        index, ledger = generation_copy.copy(engine, live, statistics, now, progress)
    else:
        index, ledger = live.index, storage.open_(engine, live.index)
    with ledger.closed_on_error():
        if new:
            begun = lineage.read(engine, index)  # an earlier command may have begun the copy, and begun to change it
            made = replace(made, created=begun.created, fingerprint=begun.fingerprint, complete=False)
        else:
            ledger.put("name", made.name)
            ledger.put("state", "updating")
        lease.check()
        index_setup.open_writer(engine, index, lease)
        keep_statistics(engine, index, statistics, options)
        return BuildTarget(index, made, made.layout, statistics, ledger, lease, [], [])


def _finish_and_verify(engine: Engine, target: BuildTarget, allowed: float, *, new: bool) -> None:
    """Make a copy searchable as the live generation is, check how many documents were refused, and verify what is stored."""
    if new:
        settings = target.ledger.get("settings")
        index_setup.finish_loading(engine, target.index, settings["refresh_interval"], int(settings["number_of_replicas"]))
    target.notes.extend(dead_letters.check(target.ledger, target.index, allowed))
    difference = verify(engine, target.index, target.ledger, made=target.lineage)
    if not difference.ok:
        raise VerificationFailed(f"{target.index} {difference}.", _advice(difference, target.lineage.name))


def _advice(difference: Difference, name: str) -> str:
    """What to do if an index differs from its ledger after an update."""
    ids = [repr(identity) for identity in (*difference.extra, *difference.altered)]
    if not ids:
        return "Run the same command again: it sends what is missing."
    return (
        f"Stored, but not in the source, or damaged: {few(ids)}. Another program, or an update from another host, may have written them: look "
        f"first, with 'termweave verify {name} SOURCE'. 'termweave delete {name} --id ID' deletes one."
    )
