"""A copy of the live generation, made by the server: what `index --update --new` changes in its place.

`_reindex` copies each `_source` with its digests, so nothing is encoded again; verification proves afterwards that everything arrived.
If the copying is interrupted, the copy is kept, and the next update of the same live generation from the same source continues it.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from termweave.catalog import generations, statistics_store
from termweave.catalog.lineage import exists
from termweave.indexer.generations import deletion, index_setup, publication, reindex_task
from termweave.indexer.ledger import storage

if TYPE_CHECKING:
    from termweave.catalog.generations import LiveGeneration
    from termweave.engine import Engine
    from termweave.indexer.ledger.ledger import Ledger
    from termweave.indexer.preparation.corpus_pass import BuildProgress
    from termweave.statistics import CorpusStatistics


def copy(
    engine: Engine,
    live: LiveGeneration,
    source: str,
    statistics: CorpusStatistics | None,
    created: str,
    progress: BuildProgress,
) -> tuple[str, Ledger]:
    """Copy the live generation. A copy that an earlier command began for the same source is finished.

    Args:
        engine: The server.
        live: The generation to copy.
        source: Fingerprint of the source that changes the copy: what was sent of another one must not be published.
        statistics: The statistics of its weights, which the copy keeps.
        created: `Lineage.created` of a new copy.
        progress: Called with (stage, done, total).

    Returns:
        The copy, which is not published, and its ledger.

    Raises:
        EngineError: The server has no `_reindex`, or did not copy everything.
    """
    reindex_task.require(engine)
    base = [live.index, live.lineage.updated, source]
    index, ledger = _unfinished(engine, live.lineage.name, base) or _begin(engine, live, statistics, created, base)
    with ledger.closed_on_error():
        if not ledger.get("copied"):
            reindex_task.run(engine, live.index, index, progress)
            ledger.put("copied", value=True)
        return index, ledger


def _begin(
    engine: Engine, live: LiveGeneration, statistics: CorpusStatistics | None, created: str, base: list[str]
) -> tuple[str, Ledger]:
    """Create an empty copy."""
    name = live.lineage.name
    index = generations.new_index(name)
    with storage.copied(engine, live.index, index).closed_on_error() as ledger:
        made = replace(live.lineage, created=created, complete=False)
        for key, value in {"name": name, "base": base, "lineage": made.as_meta(), "state": "copying"}.items():
            ledger.put(key, value)
        ledger.put("settings", index_setup.create_like(engine, index, live.index, made))
        if statistics is not None:
            copies = ledger.get("settings")["number_of_replicas"]
            statistics_store.save(engine, index, statistics, {"index.number_of_replicas": copies})
        return index, ledger


def _unfinished(engine: Engine, name: str, base: list[str]) -> tuple[str, Ledger] | None:
    """Find an unfinished copy of the present live generation for the same source, and delete the others."""
    copy_to_finish = None
    with ExitStack() as on_error:
        for index, ledger in storage.open_ledgers(engine, name):
            on_error.enter_context(ledger.closed_on_error())  # closes the ledger that is returned, too, if a later step fails
            copying = ledger.get("state") == "copying"
            present = copying and exists(engine, index)
            if present and publication.was_published(engine, index, ledger, base[0]):
                continue
            ready = present and ledger.get("settings") is not None
            if copy_to_finish is None and ready and ledger.get("base") == base:
                copy_to_finish = index, ledger
                continue
            ledger.close()
            if copying:
                deletion.remove_generation(engine, index)
    return copy_to_finish
