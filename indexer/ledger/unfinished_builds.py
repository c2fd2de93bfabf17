"""Unfinished builds and copies: find the generation that the same command continues, and delete what no command can continue."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

from termweave.catalog import generations
from termweave.catalog.lineage import Lineage, exists
from termweave.errors import UsageError
from termweave.indexer.generations import deletion, publication
from termweave.indexer.ledger import storage
from termweave.indexer.rebuild_options import differences

if TYPE_CHECKING:
    from termweave.corpora import Source
    from termweave.engine import Engine
    from termweave.indexer.build_plan import BuildPlan
    from termweave.indexer.ledger.ledger import Ledger


class UnfinishedBuild(UsageError):  # a class of its own, because `demo` catches it and builds afresh
    """There is an unfinished generation with another source, model or setting."""


def resume(engine: Engine, name: str, source: Source, planned: BuildPlan, live: str | None) -> tuple[str, Lineage, Ledger] | None:
    """Find the unfinished generation of `name` that this build can continue, and delete those that no build can continue.

    Args:
        engine: The server.
        name: The alias.
        source: The documents, or their passages.
        planned: What to build: source, models and settings.
        live: The index that the alias points at.

    Returns:
        The index, its lineage and its open ledger; None if there is nothing to continue.

    Raises:
        UnfinishedBuild: The unfinished generation has another source, model or setting.
    """
    for index, ledger, state in _begun(engine, name, {"surveying", "building", "rejected", "missed"}, live):
        with ledger.closed_on_error():
            lineage = Lineage.from_meta({"termweave": ledger.get("lineage")}, index)
            fresh, of_learn = planned.options.fresh, bool(ledger.get("trial"))
            different = lineage.fingerprint != planned.fingerprint
            if (state == "missed" and (fresh or different)) or (of_learn and not source.trial):
                # The user decides with `promote` and `prune` about a complete generation that its gate refused; `learn` resumes its own.
                ledger.close()
            elif fresh or (different and (state == "rejected" or of_learn)):
                # A rejected generation is kept only so that a corrected build of the same source can resume it.
                _delete(engine, index, ledger)
            elif different:
                done, total = ledger.acknowledged, ledger.total
                noun = "passages" if lineage.passages else "documents"
                unnamed = "--skip-bad, what --keep-mapping takes over, or the version of termweave"
                changes = differences(lineage, planned, source) or unnamed
                raise UnfinishedBuild(
                    f"{name!r} has an unfinished generation ({index}, {done:,} of {total:,} {noun}) that was begun with "
                    f"another source, model or setting: {changes}.",
                    "Repeat the command that began it to finish it, or add --fresh to delete it and start again.",
                )
            else:
                return index, lineage, ledger
    return None


def copy_to_finish(engine: Engine, name: str, base: list[str]) -> tuple[str, Ledger] | None:
    """Find the unfinished copy of the live generation that an update can continue, and delete the others.

    Args:
        engine: The server.
        name: The alias.
        base: What the update is based on, as `Update` says it: a copy that holds documents of another source must not be published.

    Returns:
        The copy and its open ledger; None if there is nothing to continue.
    """
    copy = None
    with ExitStack() as on_error:
        for index, ledger, _ in _begun(engine, name, {"copying"}, base[0]):
            on_error.enter_context(ledger.closed_on_error())  # closes the ledger that is returned, too, if a later step fails
            if copy is None and ledger.get("settings") is not None and ledger.get("base") == base:
                copy = index, ledger
            else:
                _delete(engine, index, ledger)
    return copy


def _begun(engine: Engine, name: str, states: Collection[str], live: str | None) -> Iterator[tuple[str, Ledger, str]]:
    """Yield the unpublished generations whose ledgers have one of these states; generations to which nothing was sent, or without an index, are deleted.

    Yields:
        The index, its open ledger, which the caller closes, and its state.
    """
    for index, ledger in storage.open_ledgers(engine, name):
        with ledger.closed_on_error():
            state = ledger.get("state")
            if state not in states:
                ledger.close()
                continue
            if state == "surveying" or not exists(engine, index):  # nothing was sent yet, or the index is gone
                _delete(engine, index, ledger)
                continue
            if publication.was_published(engine, index, ledger, live):
                continue
        yield index, ledger, state


def _delete(engine: Engine, index: str, ledger: Ledger) -> None:
    ledger.close()
    deletion.remove_generation(engine, index)


def unfinished(engine: Engine, name: str) -> dict[str, str]:
    """Return generation -> state for builds of `name` that were begun on this host and neither ended nor deleted, except builds of `termweave learn`.

    Raises:
        UsageError: The name cannot be an alias.
    """
    generations.check_spelling(name)
    live, states = generations.live(engine, name), dict[str, str]()
    for index, ledger in storage.open_ledgers(engine, name):
        with ledger:
            state, trial = ledger.get("state"), ledger.get("trial")
            begun = state == "building" and exists(engine, index) and not publication.was_published(engine, index, ledger, live)
        if (begun or state == "surveying") and not trial:
            states[index] = state
    return states


def refuse(engine: Engine, name: str) -> None:
    """Check that no build of `name` is unfinished: a later build would be refused because of that.

    Raises:
        UnfinishedBuild: A build of the name is unfinished.
    """
    for index, state in unfinished(engine, name).items():
        if state == "building":
            hint = f"Repeat the command that began it to finish it, or delete it: 'termweave prune {name} --unfinished'."
            raise UnfinishedBuild(f"{name!r} has an unfinished generation ({index}).", hint)
