"""A copy of a generation, made by the engine: where an update goes that must not touch the live one.

`_reindex` carries `_source` over, digests included, so nothing is encoded again; whether everything arrived is what verification
proves afterwards. The copying may die at any time: what is there is kept, and the next update of the same live generation
goes on with it.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from termweave.indexer import generations, ledgers, reindexing
from termweave.search import stored_statistics
from termweave.search.lineage import exists

if TYPE_CHECKING:
    from termweave.engine import Engine
    from termweave.indexer.ledger import Ledger
    from termweave.indexer.survey import Progress
    from termweave.search.lineage import Lineage
    from termweave.statistics import CorpusStatistics


def copy(
    engine: Engine, live: str, found: Lineage, statistics: CorpusStatistics | None, created: str, progress: Progress
) -> tuple[str, Ledger]:
    """A copy of the live generation that is not published, and its ledger; one that was begun before is finished.

    Args:
        engine: The cluster.
        live: The generation.
        found: Its lineage.
        statistics: Those its weights stand on, which the copy keeps.
        created: When the copy is made, UTC, ISO 8601.
        progress: Told (stage, done, total).
    """
    base = [live, found.updated]
    index, ledger = _begun(engine, found.name, base) or _begin(engine, live, found, statistics, created, base)
    with ledger.handed_on():
        if not ledger.get("copied"):
            reindexing.run(engine, live, index, progress)
            ledger.put("copied", value=True)
        return index, ledger


def _begin(
    engine: Engine, live: str, found: Lineage, statistics: CorpusStatistics | None, created: str, base: list[str]
) -> tuple[str, Ledger]:
    """An empty copy."""
    index = generations.new_name(found.name)
    with ledgers.copied(engine, live, index).handed_on() as ledger:
        made = replace(found, created=created, complete=False)
        for key, value in {"name": found.name, "base": base, "lineage": asdict(made), "state": "copying"}.items():
            ledger.put(key, value)
        ledger.put("settings", generations.create_like(engine, index, live, made))
        if statistics is not None:
            copies = ledger.get("settings")["number_of_replicas"]
            stored_statistics.save(engine, index, statistics, {"index.number_of_replicas": copies})
        return index, ledger


def _begun(engine: Engine, name: str, base: list[str]) -> tuple[str, Ledger] | None:
    """The unfinished copy of what is live now; those of what was live before are thrown away."""
    found = None
    with ExitStack() as given:
        for index, ledger in ledgers.of(engine, name):
            given.enter_context(ledger.handed_on())  # the one found, too, should an older one fail to be thrown away
            copying = ledger.get("state") == "copying"
            there = copying and exists(engine, index)
            if there and generations.was_published(engine, index, ledger, base[0]):
                continue
            ready = there and ledger.get("settings") is not None
            if found is None and ready and ledger.get("base") == base:
                found = index, ledger
                continue
            ledger.close()
            if copying:
                generations.remove(engine, index)
    return found
