"""Resuming: the unfinished generation of a name, if it is of this source, these models and these settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.errors import UsageError
from termweave.indexer import generations, ledgers
from termweave.indexer.ledger import Ledger
from termweave.search.lineage import Lineage, exists, read

if TYPE_CHECKING:
    from termweave.engine import Engine


class UnfinishedBuild(UsageError):  # what the command line says is wrong usage, `demo` may settle by itself
    """An unfinished generation of another source, model or setting is in the way."""


def resume(engine: Engine, name: str, fingerprint: str, *, fresh: bool) -> tuple[str, Lineage, Ledger] | None:
    """The unfinished generation of `name`, if there is one.

    Args:
        engine: The cluster.
        name: The alias it is built for.
        fingerprint: Of source, models and settings as they are now.
        fresh: Throw it away.

    Raises:
        UnfinishedBuild: There is one, of another source, model or setting.
    """
    live = generations.live(engine, name)
    for path in sorted(ledgers.folder(engine).glob(f"{name}-*.sqlite"), reverse=True):
        ledger = Ledger(path)
        state = ledger.get("state")
        if ledger.get("name") != name or state not in {"surveying", "building", "rejected"}:
            ledger.close()
            continue
        index = path.stem
        if state == "surveying" or not exists(engine, index):  # it had nothing yet, or has nothing any more, to go on from
            ledger.close()
            generations.remove(engine, index)
            continue
        found = Lineage.from_meta({"termweave": ledger.get("lineage")}, index)
        published = read(engine, index).complete and not exists(engine, generations.writer(index))
        if index == live or published:  # the builder died between publishing and saying so
            ledger.put("state", "complete")
            ledger.close()
            continue
        other = found.fingerprint != fingerprint
        if fresh or (other and state == "rejected"):  # a rejected one of another source has served its purpose
            ledger.close()
            generations.remove(engine, index)
            continue
        if other:
            done, total = ledger.acknowledged, ledger.total
            ledger.close()
            raise UnfinishedBuild(
                f"An unfinished generation of {name!r} is there ({index}, {done:,} of {total:,} documents), "
                "made from another source, model or setting.",
                f"Its source was {found.source['name']!r}. Repeat that command to finish it, or add --fresh to throw it away.",
            )
        return index, found, ledger
    return None
