"""Resume a build: find the unfinished generation of a name that has the same source, models and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.catalog import generations
from termweave.catalog.lineage import Lineage, exists
from termweave.errors import UsageError
from termweave.indexer.generations import deletion, publication
from termweave.indexer.ledger import storage
from termweave.indexer.rebuild_options import differing

if TYPE_CHECKING:
    from termweave.engine import Engine
    from termweave.indexer.build_plan import BuildPlan
    from termweave.indexer.ledger.ledger import Ledger


class UnfinishedBuild(UsageError):  # a class of its own, because `demo` catches it and builds afresh
    """There is an unfinished generation with another source, model or setting."""


def resume(engine: Engine, name: str, planned: BuildPlan, live: str | None, *, trial: bool) -> tuple[str, Lineage, Ledger] | None:
    """Find the unfinished generation of `name` that this build can continue, and delete those that no build can continue.

    Args:
        engine: The server.
        name: The alias.
        planned: What to build: source, models and settings.
        live: The index that the alias points at.
        trial: Whether `learn` builds.

    Returns:
        The index, its lineage and its open ledger; None if there is nothing to continue.

    Raises:
        UnfinishedBuild: The unfinished generation has another source, model or setting.
    """
    for index, ledger in storage.open_ledgers(engine, name):
        with ledger.closed_on_error():
            state = ledger.get("state")
            if state not in {"surveying", "building", "rejected", "missed"}:
                ledger.close()
                continue
            if state == "surveying" or not exists(engine, index):  # nothing was sent yet, or the index is gone
                ledger.close()
                deletion.remove_generation(engine, index)
                continue
            if publication.was_published(engine, index, ledger, live):
                continue
            lineage = Lineage.from_meta({"termweave": ledger.get("lineage")}, index)
            different = lineage.fingerprint != planned.fingerprint
            refused, of_learn = state == "missed" and (planned.options.fresh or different), bool(ledger.get("trial"))
            if refused or (of_learn and not trial):
                # The user decides with `promote` and `prune` about a complete generation that its gate refused; `learn` resumes its own.
                ledger.close()
                continue
            if planned.options.fresh or (different and (state == "rejected" or of_learn)):
                # A rejected generation is kept only so that a corrected build of the same source can resume it.
                ledger.close()
                deletion.remove_generation(engine, index)
                continue
            if different:
                done, total = ledger.acknowledged, ledger.total
                noun = "passages" if lineage.passages else "documents"
                raise UnfinishedBuild(
                    f"{name!r} has an unfinished generation ({index}, {done:,} of {total:,} {noun}) that was begun with "
                    f"another source, model or setting: {differing(ledger.get('made_of'), planned.made_of)}.",
                    "Repeat the command that began it to finish it, or add --fresh to delete it and start again.",
                )
            return index, lineage, ledger
    return None


def unfinished(engine: Engine, name: str) -> dict[str, str]:
    """The builds of `name` that were begun on this host and neither ended nor deleted, without those of `learn`: generation -> state.

    Raises:
        UsageError: The name cannot be an alias.
    """
    generations.check_spelling(name)
    live, found = generations.live(engine, name), {}
    for index, ledger in storage.open_ledgers(engine, name):
        with ledger:
            state, trial = ledger.get("state"), ledger.get("trial")
            begun = state == "surveying" or (
                state == "building" and exists(engine, index) and not publication.was_published(engine, index, ledger, live)
            )
        if begun and not trial:
            found[index] = state
    return found


def refuse(engine: Engine, name: str) -> None:
    """Refuse to go on where a build of `name` is unfinished, which a later build would refuse, too.

    Raises:
        UnfinishedBuild: There is one.
    """
    for index, state in unfinished(engine, name).items():
        if state == "building":
            raise UnfinishedBuild(
                f"{name!r} has an unfinished generation ({index}).",
                f"Repeat the command that began it to finish it, or delete it: 'termweave prune {name} --unfinished'.",
            )
