"""Resuming: the unfinished generation of a name, if it is of this source, these models and these settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.errors import UsageError
from termweave.indexer import generations, ledgers
from termweave.search.lineage import Lineage, exists
from termweave.words import clipped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from termweave.engine import Engine
    from termweave.indexer.ledger import Ledger
    from termweave.indexer.plan import Plan


class UnfinishedBuild(UsageError):  # what the command line says is wrong usage, `demo` may settle by itself
    """An unfinished generation of another source, model or setting is in the way."""


def resume(engine: Engine, name: str, planned: Plan, *, fresh: bool) -> tuple[str, Lineage, Ledger] | None:
    """The unfinished generation of `name`, if there is one.

    Args:
        engine: The cluster.
        name: The alias it is built for.
        planned: What is to be built: source, models and settings as they are now.
        fresh: Throw it away.

    Raises:
        UnfinishedBuild: There is one, of another source, model or setting.
    """
    live = generations.live(engine, name)
    for index, ledger in ledgers.of(engine, name):
        with ledger.handed_on():
            state = ledger.get("state")
            if state not in {"surveying", "building", "rejected", "missed"}:
                ledger.close()
                continue
            if state == "surveying" or not exists(engine, index):  # it had nothing yet, or has nothing any more, to go on from
                ledger.close()
                generations.remove(engine, index)
                continue
            if generations.was_published(engine, index, ledger, live):
                continue
            found = Lineage.from_meta({"termweave": ledger.get("lineage")}, index)
            other = found.fingerprint != planned.fingerprint
            if state == "missed" and (fresh or other):  # whole, and not published: `promote` and `prune` decide about it
                ledger.close()
                continue
            if fresh or (other and state == "rejected"):  # a rejected one of another source has served its purpose
                ledger.close()
                generations.remove(engine, index)
                continue
            if other:
                done, total, made_of = ledger.acknowledged, ledger.total, ledger.get("made_of")
                what = "passages" if found.passages else "documents"
                raise UnfinishedBuild(
                    f"An unfinished generation of {name!r} is there ({index}, {done:,} of {total:,} {what}), "
                    f"made otherwise: {_differences(made_of or _remembered(found), planned.made_of)}.",
                    "Repeat the command that began it to finish it, or add --fresh to throw it away.",
                )
            return index, found, ledger
    return None


def _remembered(found: Lineage) -> dict[str, str]:
    """What a generation says of itself where its ledger was begun before that was written there."""
    models = {f"--{output}": f"{model.name} ({model.hash[:8]})" for output, model in found.models.items()}
    source = f"{found.source['name']} ({found.source['fingerprint'][:8]})"
    return {"source": source, "--weights": "none", "--dense": "none", **models, "--signals": ",".join(found.signals)}


def _differences(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """What two builds are made of, where it is not the same: each with both values."""
    pairs = [(part, before.get(part, "unknown"), value) for part, value in now.items()]
    return "; ".join(f"{part} was {clipped(old)} and is {clipped(new)}" for part, old, new in pairs if old != new)
