"""Updating: only what is new or changed is encoded and sent, within the live generation or into a copy of it.

The source is read and its digests are compared with those of the generation. Encodings stand on the statistics that the
generation has, so that all its weights have one scale; a full build counts them anew. An update may be stopped at any time: the
same command compares again and goes on.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from termweave import doors
from termweave.errors import UsageError, VerificationFailed
from termweave.indexer import changes, copying, drifting, expanding, generations, inheriting, ledgers, refusals
from termweave.indexer.building import Generation, keep_statistics, pass_gate, send_rest, while_held
from termweave.indexer.ledger import Ledger
from termweave.indexer.passages import Window, in_passages
from termweave.indexer.removing import PAGE, remove
from termweave.indexer.survey import survey
from termweave.indexer.verification import verify
from termweave.search import lineage, stored_statistics
from termweave.search.models import encoder_of, remember
from termweave.sequences import in_parts
from termweave.words import counted, few

if TYPE_CHECKING:
    from collections.abc import Callable

    from termweave.corpora import Source
    from termweave.encoders import TextEncoder
    from termweave.engine import Engine
    from termweave.indexer.plan import Options
    from termweave.indexer.survey import Progress
    from termweave.indexer.verification import Difference
    from termweave.search.lineage import Lineage

#: The fingerprint of a generation that an update has begun to change: no build makes it, and a repeated update that finds
#: nothing left to change still changed it.
_CHANGING = "changing"


@dataclass(frozen=True)
class Updated:
    """What an update did.

    Attributes:
        name: The alias.
        index: The generation it points at now.
        counts: How the source and the generation differed.
        documents: Documents in it now.
        passages: How many they are stored as.
        sent: Documents or passages sent.
        deleted: Documents deleted.
        outdated: Passages deleted that documents changed meanwhile have no longer.
        seconds: Wall-clock time.
        signals: Names of its signals.
        notes: What a user should know.
        warnings: What a user should not miss.
    """

    name: str
    index: str
    counts: changes.Counts
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
    options: Options,
    *,
    delete_missing: bool = False,
    new: bool = False,
    progress: Progress = lambda *_: None,
    gate: Callable[[str], None] | None = None,
) -> Updated:
    """Bring the live generation of `name`, or a copy of it that then takes its place, to what `source` says.

    Args:
        engine: Where.
        source: What.
        name: The alias.
        options: Of these, the models' folders, workers and `skip_bad`; everything else is as the generation has it.
        delete_missing: Delete documents that the source does not have; none while it has entries that cannot be read.
        new: Into a new generation, published when it is verified; searches see all of the update or nothing.
        progress: Told (stage, done, total or None).
        gate: With `new`, called with the verified generation.

    Raises:
        UsageError: There is nothing to update, or a gate without a new generation.
        EngineError: In place, and the alias was moved to another generation meanwhile.
        TermweaveError: As `build`.
    """
    started = time.monotonic()
    doors.check(engine=engine, source=source, options=options)
    generations.check_name(engine, name)
    if gate is not None and not new:
        raise UsageError(
            "A gate needs a new generation: what is changed within the live one is live at once.", "Add --new, or leave it out."
        )
    with ledgers.lease(engine, name) as lease:
        watched = while_held(lease, progress)
        live = generations.live(engine, name)
        if live is None:
            raise UsageError(f"There is no index {name!r} to update.", "Build it: the same command without --update.")
        found = lineage.read(engine, live)
        encoder = encoder_of(found, name, {"weights": options.weights, "dense": options.dense})
        remember(encoder.models.values())
        moment = generations.moment(engine, name)
        current = _begin(engine, name, live, found, moment, options, watched, new=new)
        with current.ledger as ledger:
            counts, sent, deleted, outdated = _apply(
                engine, source, options, encoder, current, live, watched, delete_missing=delete_missing
            )
            after = _described(source, current, counts, moment, deleted=deleted + outdated)
            _prove(engine, current, options.allow_refused, new=new)

            def updated() -> Updated:
                return Updated(
                    name=name,
                    index=current.index,
                    counts=counts,
                    documents=ledger.documents,
                    passages=ledger.acknowledged,
                    sent=sent,
                    deleted=deleted,
                    outdated=outdated,
                    seconds=time.monotonic() - started,
                    signals=tuple(found.signals),
                    notes=tuple(current.notes),
                    warnings=tuple(current.warnings),
                )

            if gate is not None:
                pass_gate(engine, gate, current, after, live, updated)
            lease.check()
            inheriting.write(engine, current.index, after, live)
            ledger.put("lineage", asdict(after))
            if new:
                generations.publish(engine, name, current.index, live)
            else:
                generations.close_writer(engine, current.index)
            ledger.put("state", "complete")
            if not new:
                generations.stayed(engine, name, current.index)
            return updated()


def _begin(
    engine: Engine, name: str, live: str, found: Lineage, moment: str, options: Options, progress: Progress, *, new: bool
) -> Generation:
    """What is going to be changed: the live generation, open to documents, or a copy of it."""
    statistics = stored_statistics.load(engine, live, found)
    if new:
        index, ledger = copying.copy(engine, live, found, statistics, moment, progress)
    else:
        index, ledger = live, ledgers.open_(engine, live)
    with ledger.handed_on():
        if new:
            fingerprint = lineage.read(engine, index).fingerprint  # of a copy that was begun before
            found = replace(found, created=ledger.get("lineage")["created"], fingerprint=fingerprint)
        else:
            generations.open_writer(engine, live)
            ledger.put("name", name)
            ledger.put("state", "updating")
        keep_statistics(engine, index, statistics, options)
        return Generation(index, found, found.layout, statistics, ledger, [], [])


def _apply(
    engine: Engine,
    source: Source,
    options: Options,
    encoder: TextEncoder,
    current: Generation,
    live: str,
    progress: Progress,
    *,
    delete_missing: bool,
) -> tuple[changes.Counts, int, int, int]:
    """Compare, send what differs, delete what is stale; returns counts, sent, documents deleted, outdated passages deleted."""
    ledger, found = current.ledger, current.lineage
    cut = in_passages(source, Window.of(found.passages))
    elsewhere = not ledger.total
    other = changes.adopt(engine, current.index, ledger, current.layout)
    if other and elsewhere:
        current.notes.append(
            f"This host has no ledger of {current.index}: {counted(other, 'document was', 'documents were')} taken as stored, by the digests beside them "
            "('termweave verify NAME --deep' reads them back)."
        )
    elif other:
        current.notes.append(
            f"{counted(other, 'document was', 'documents were')} not stored as this host's ledger said (an update from elsewhere, one that was stopped, or "
            "damage): what is stored was read back, and what does not agree with its own digests counts as changed."
        )
    with tempfile.TemporaryDirectory(prefix="termweave-") as scratch:
        path = Path(scratch) / "source.sqlite"
        with Ledger(path) as said:
            surveyed = survey(cut, encoder if current.statistics else None, said, skip_bad=options.skip_bad, progress=progress)
        current.notes += surveyed.notes
        current.warnings += [*surveyed.warnings, *drifting.drifted(current.statistics, surveyed.statistics)]
        with changes.Changes(ledger.path, path) as difference:
            difference.enter()
            counts = difference.counts
            if counts.new or counts.changed or (delete_missing and counts.gone):
                changing = replace(lineage.read(engine, current.index), fingerprint=_CHANGING)
                lineage.write(engine, current.index, changing)
            encode = expanding.alone(encoder, current.statistics)
            if found.neighbours:
                encode = expanding.from_index(engine, live, current.layout, encode, found.neighbours)
            sent = send_rest(engine, cut, options, encode, current, progress)
            difference.keep_refused()
            outdated = remove(engine, current.index, ledger, difference.stale(gone=False))
            deleted = 0
            if delete_missing:
                gone = difference.counts.gone
                if gone and cut.skipped:  # an entry that nobody can read may be one of them
                    current.warnings.append(_kept(gone, cut.skipped.count))
                else:
                    remove(engine, current.index, ledger, difference.stale(gone=True))
                    deleted = gone
                foreign = verify(engine, current.index, ledger).extra
                deleted += remove(engine, current.index, None, in_parts(foreign, PAGE))
            return difference.settled(), sent, deleted, outdated


def _kept(gone: int, skipped: int) -> str:
    """What is said where documents are missing and entries left out."""
    return (
        f"Not deleted: {counted(gone, 'document')} that the source does not have, because {counted(skipped, 'entry', 'entries')} of it could not "
        "be read and may be these. Mend the source and update again, or name what is to go: 'termweave delete NAME --ids FILE'."
    )


def _described(source: Source, current: Generation, counts: changes.Counts, moment: str, *, deleted: int) -> Lineage:
    """The lineage afterwards. A generation that was changed is not what a build from its source would make: no fingerprint."""
    ledger, found = current.ledger, current.lineage
    passages = {**found.passages, "count": ledger.acknowledged, "most": ledger.most_passages} if found.passages else {}
    after = replace(found, documents=ledger.documents, passages=passages, complete=True)
    if not (counts.new or counts.changed or deleted or found.fingerprint == _CHANGING):
        return after
    came_from = {"name": source.name, "fingerprint": source.fingerprint}
    return replace(after, source=came_from, fingerprint="", updated=moment)


def _prove(engine: Engine, current: Generation, allowed: float, *, new: bool) -> None:
    """Make a copy searchable as the live generation is; then no more refused than is allowed, and stored what was sent."""
    if new:
        restored = current.ledger.get("settings")
        finish = {"index.refresh_interval": restored["refresh_interval"]}
        generations.finish(engine, current.index, finish, int(restored["number_of_replicas"]))
    current.notes.extend(refusals.check(current.ledger, current.index, allowed))
    found = verify(engine, current.index, current.ledger)
    if not found.ok:
        raise VerificationFailed(f"{current.index} {found}.", _way_out(found))


def _way_out(found: Difference) -> str:
    """What to do where an index is not what its ledger says after an update."""
    kept = [repr(each) for each in (*found.extra, *found.altered)]
    if not kept:
        return "Run the same command again: it sends what is missing."
    return (
        f"Stored and not of the source, or damaged: {few(kept)}. Run the command again with "
        "--delete-missing, which deletes them where the source does not have them, or 'termweave delete NAME --id ID'."
    )
