"""Delete whole generations, also old ones for `termweave prune`, and single documents of the live generation by their ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING

import orjson

from termweave.catalog import audit
from termweave.catalog import lineage as lineages
from termweave.catalog.generations import live
from termweave.catalog.layout import engine_id
from termweave.catalog.statistics_store import companion
from termweave.corpora.index.pages import discard_all
from termweave.engine.client.server_errors import block_hint
from termweave.errors import EngineError, UsageError
from termweave.indexer.generations import copy as generation_copy
from termweave.indexer.generations.index_setup import close_writer, open_writer, writer
from termweave.indexer.generations.listing import Generation, list_generations, one_generation
from termweave.indexer.ledger import storage
from termweave.indexer.pipeline.bulk_sender import reason_of
from termweave.indexer.stored_documents import stored_where
from termweave.support.batching import in_parts

if TYPE_CHECKING:
    from termweave.engine import Engine
    from termweave.indexer.ledger.build_lock import Lease
    from termweave.indexer.ledger.ledger import Ledger

#: Ids in one request.
PAGE = 1000


@dataclass(frozen=True)
class Deletion:
    """Documents of a live generation that are to be deleted, or were.

    Attributes:
        index: The live generation.
        documents: Ids of the documents that the generation holds.
        passages: Ids under which the generation stores these documents: their own ids, or the ids of their passages.
        absent: Ids that were asked for and that the generation does not hold.
    """

    index: str
    documents: list[str]
    passages: list[str]
    absent: list[str]


def remove_generation(engine: Engine, index: str) -> None:
    """Delete a generation with its statistics and, if it is on this host, its ledger. Parts that are gone already are passed over."""
    generation_copy.stop(engine, index)
    # One request: a builder that dies between two would leave statistics that nobody looks for.
    engine.request("DELETE", f"/{index},{companion(index)}", params={"ignore_unavailable": True})
    storage.forget(engine, index)


def remove_all(engine: Engine, name: str, generations: Iterable[Generation]) -> None:
    """Delete all generations of a name, with their statistics and ledgers, and the files that stopped builds of the name left on this host.

    Raises:
        TermweaveError: A build of the name is running.
    """
    with storage.lease(engine, name):
        before = live(engine, name)
        deleted: list[str] = []
        try:
            for generation in generations:
                remove_generation(engine, generation.index)
                deleted.append(generation.index)
            for index, ledger in storage.open_ledgers(engine, name):
                ledger.close()
                if not lineages.exists(engine, index):
                    storage.forget(engine, index)
            discard_all(name)
        finally:  # those before an error are gone
            after = None if before in deleted else before
            audit.write(engine, "delete generations", name, before=before, after=after, deleted=deleted)


def prunable(engine: Engine, name: str, keep: int, *, unfinished: bool = False) -> list[Generation]:
    """List the generations that may be deleted: neither live nor among the newest published ones.

    A generation that cannot be read is not listed: it may be whole, and of a newer version.

    Args:
        engine: The server.
        name: The alias.
        keep: How many of the newest published generations are kept.
        unfinished: Also list generations that were never finished.
    """
    readable = [each for each in list_generations(engine, name) if not each.unreadable]
    newest = [each.index for each in readable if each.accepted][:keep]
    return [each for each in readable if not each.live and each.index not in newest and (each.complete or unfinished)]


def prune(engine: Engine, name: str, old: Iterable[Generation]) -> list[str]:
    """Delete generations. A generation that became live after it was listed is kept: the user may have taken long to confirm.

    Returns:
        The indices that were deleted.
    """
    deleted: list[str] = []
    published = None
    try:
        for generation in old:
            published = live(engine, name)
            if published != generation.index:
                remove_generation(engine, generation.index)
                deleted.append(generation.index)
    finally:  # those before an error are gone
        if deleted:
            audit.write(engine, "delete generations", name, before=published, after=published, deleted=deleted)
    return deleted


def find(engine: Engine, name: str, ids: Sequence[str]) -> Deletion:
    """Look up which of these documents the live generation of a name holds.

    Raises:
        UsageError: No index has this name, the name is that of a single generation, or termweave did not make the index.
    """
    index = lineages.resolve_index(engine, name)
    lineage = lineages.read_lineage(engine, index)  # refuses what termweave did not make
    lineages.refuse_enriched(lineage)
    if lineage.name != name:  # the lock of another name would not keep an update of this generation away
        raise one_generation(name, lineage)
    return _find(engine, index, ids)


def _find(engine: Engine, index: str, ids: Sequence[str]) -> Deletion:
    engine.request("POST", f"/{index}/_refresh")
    distinct = list(dict.fromkeys(ids))
    stored = [
        document
        for page in in_parts(distinct, PAGE)
        for document in stored_where(engine, index, {"bool": {"should": [{"terms": {"id": page}}, {"ids": {"values": page}}]}})
        if (document.parent or document.id) in page  # not one whose field `id` is wrong
    ]
    stored_ids = {document.parent or document.id for document in stored}
    present = [identity for identity in distinct if identity in stored_ids]
    absent = [identity for identity in distinct if identity not in stored_ids]
    return Deletion(index, present, [document.id for document in stored], absent)


def remove_documents(engine: Engine, name: str, deletion: Deletion) -> Deletion:
    """Delete documents from the live generation, from its ledger if that is on this host, and from the counts of its lineage.

    The documents are looked up again first: between `find` and this call a user may have been asked, and an update may have run.

    Returns:
        The documents that were deleted, and the ids that were absent.

    Raises:
        TermweaveError: A build of the name is running.
        UsageError: Another generation is live now.
    """
    with storage.lease(engine, name) as lease:
        index = lineages.resolve_index(engine, name)
        if index != deletion.index:
            message = f"Nothing was deleted: meanwhile another command pointed {name!r} at {index!r}."
            raise UsageError(message, "Run the command again.")
        lineage = lineages.read_lineage(engine, index)
        present, absent = _find(engine, index, deletion.documents), _find(engine, index, deletion.absent)
        after = _without(lineage, present) if present.documents else lineage
        if present.documents:
            # First: a call that is killed has changed it, too.
            lineages.store_lineage(engine, index, replace(lineage, fingerprint=after.fingerprint))
            open_writer(engine, index, lease)
            remove(engine, index, lease, None, in_parts(present.passages, PAGE))
            close_writer(engine, index, lease)
            engine.request("POST", f"/{index}/_refresh")
        with suppress(UsageError), storage.existing(engine, index) as ledger:
            ledger.forget([*deletion.documents, *absent.absent])  # also those that a killed call deleted
            # If another host updated the index since this ledger was written, verification must still notice that.
            if (ledger.get("lineage") or {}).get("updated", "") == lineage.updated:
                ledger.put("lineage", after.as_meta())
        lineages.store_lineage(engine, index, after)
        if present.documents:
            audit.write(engine, "delete documents", name, before=index, after=index, documents=len(present.documents))
        return replace(present, absent=[*deletion.absent, *present.absent])


def _without(lineage: lineages.Lineage, deleted: Deletion) -> lineages.Lineage:
    """Return the lineage of a generation after a deletion, with the counts of documents and passages reduced."""
    passages = {**lineage.passages, "count": lineage.passages["count"] - len(deleted.passages)} if lineage.passages else {}
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    # If an update of it was stopped, the next one must still know that.
    fingerprint = lineages.CHANGING if lineage.fingerprint == lineages.CHANGING else ""
    documents = lineage.documents - len(deleted.documents)
    return replace(lineage, documents=documents, passages=passages, fingerprint=fingerprint, updated=now)


def remove(engine: Engine, index: str, lease: Lease, ledger: Ledger | None, pages: Iterable[Sequence[str]]) -> int:
    """Delete documents and passages from an index whose writer is open, then from its ledger.

    Args:
        engine: The server.
        index: The generation.
        lease: The lease under which the writer of the index was opened.
        ledger: The ledger of the generation; None: no ledger is changed.
        pages: Lists of ids; each list is sent in one request.

    Returns:
        How many ids there were in all pages.

    Raises:
        EngineError: The server did not delete some documents. The ledger notes the pages deleted before; the same call continues.
    """
    removed = 0
    for ids in pages:
        lease.check()
        lines = b"".join(orjson.dumps({"delete": {"_id": engine_id(identity)}}) + b"\n" for identity in ids)
        path = f"/{writer(index, lease.number)}/_bulk"
        answer = engine.request("POST", path, params={"require_alias": True}, body=lines, retry=True)
        for item in answer["items"]:
            result = item["delete"]
            absent = result["status"] == HTTPStatus.NOT_FOUND and "error" not in result
            if result["status"] >= HTTPStatus.BAD_REQUEST and not absent:
                reason = reason_of(result)
                hint = f"{block_hint(reason)} Run the command again: it continues.".lstrip()
                raise EngineError(f"Documents of {index} could not be deleted: {reason}.", hint)
        if ledger is not None:
            ledger.remove(ids)
        removed += len(ids)
    return removed
