"""Removing documents from a generation that is live: by their ids, in `_bulk` requests that may be sent twice."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING

import orjson

from termweave.engine.failures import block_hint
from termweave.errors import EngineError, UsageError
from termweave.indexer import generations, ledgers
from termweave.indexer.generations import writer
from termweave.indexer.verification import stored_where
from termweave.search import lineage
from termweave.sequences import in_parts
from termweave.signals.layout import engine_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from termweave.engine import Engine
    from termweave.indexer.generations import Generation
    from termweave.indexer.ledger import Ledger
    from termweave.search.lineage import Lineage

#: Ids that one request takes.
PAGE = 1000


@dataclass(frozen=True)
class Removal:
    """Documents that are to be deleted.

    Attributes:
        index: The live generation.
        documents: Ids it holds.
        passages: What it stores of them: their ids, or those of their passages.
        absent: Ids it does not hold.
    """

    index: str
    documents: list[str]
    passages: list[str]
    absent: list[str]


def remove_all(engine: Engine, name: str, found: Iterable[Generation]) -> None:
    """Delete generations of a name, with what belongs to them.

    Raises:
        TermweaveError: A build of the name is running.
    """
    with ledgers.lease(engine, name):
        for each in found:
            generations.remove(engine, each.index)


def find(engine: Engine, name: str, ids: Sequence[str]) -> Removal:
    """What the live generation of a name stores of some documents.

    Raises:
        UsageError: There is no such name, or it is not termweave's.
    """
    index = lineage.resolve(engine, name)
    lineage.read(engine, index)  # refuses what termweave did not make
    engine.request("POST", f"/{index}/_refresh")
    wanted = list(dict.fromkeys(ids))
    stored = [
        each
        for page in in_parts(wanted, PAGE)
        for each in stored_where(engine, index, {"bool": {"should": [{"terms": {"id": page}}, {"ids": {"values": page}}]}})
        if (each.parent or each.id) in page  # not what only says it is that document
    ]
    held = {each.parent or each.id for each in stored}
    present, absent = [each for each in wanted if each in held], [each for each in wanted if each not in held]
    return Removal(index, present, [each.id for each in stored], absent)


def remove_documents(engine: Engine, name: str, removal: Removal) -> Removal:
    """Delete documents from the live generation, from its ledger where that is on this host, and from what it says of itself.

    Returns:
        What was deleted. They are looked for once more: since `find` somebody may have been asked, and an update run.

    Raises:
        TermweaveError: A build of the name is running.
        UsageError: Another generation is live by now.
    """
    with ledgers.lease(engine, name):
        index = lineage.resolve(engine, name)
        if index != removal.index:
            raise UsageError(f"{name!r} points at {index!r} by now.", "Run the command again.")
        found, never = find(engine, name, removal.documents), find(engine, name, removal.absent)
        made = lineage.read(engine, index)
        after = _less(made, found) if found.documents else made
        if found.documents:
            lineage.write(engine, index, replace(made, fingerprint=""))  # first: a call that is killed has changed it, too
            generations.open_writer(engine, index)
            remove(engine, index, None, in_parts(found.passages, PAGE))
            generations.close_writer(engine, index)
            engine.request("POST", f"/{index}/_refresh")
        with suppress(UsageError), ledgers.existing(engine, index) as ledger:
            ledger.forget([*removal.documents, *never.absent])  # of those deleted by a call that was killed, too
            if (ledger.get("lineage") or {}).get("updated", "") == made.updated:  # else another host's update is to be seen still
                ledger.put("lineage", asdict(after))  # verification sees by it that nobody else made the difference
        lineage.write(engine, index, after)
        return replace(found, absent=[*removal.absent, *found.absent])


def _less(made: Lineage, found: Removal) -> Lineage:
    """What a generation says of itself without some of its documents."""
    passages = {**made.passages, "count": made.passages["count"] - len(found.passages)} if made.passages else {}
    moment = datetime.now(UTC).isoformat(timespec="milliseconds")
    return replace(made, documents=made.documents - len(found.documents), passages=passages, fingerprint="", updated=moment)


def remove(engine: Engine, index: str, ledger: Ledger | None, pages: Iterable[Sequence[str]]) -> int:
    """Delete documents and passages from an index whose writer is open, then from its ledger; returns how many.

    Raises:
        EngineError: The engine did not delete them. Those deleted before are noted; the same call goes on.
    """
    removed = 0
    for ids in pages:
        lines = b"".join(orjson.dumps({"delete": {"_id": engine_id(each)}}) + b"\n" for each in ids)
        answer = engine.request("POST", f"/{writer(index)}/_bulk", params={"require_alias": True}, body=lines, retry=True)
        for item in answer["items"]:
            result = item["delete"]
            absent = result["status"] == HTTPStatus.NOT_FOUND and "error" not in result
            if result["status"] >= HTTPStatus.BAD_REQUEST and not absent:
                reason = result.get("error", {}).get("reason", f"status {result['status']}")
                hint = f"{block_hint(reason)} Run the command again: it goes on.".lstrip()
                raise EngineError(f"Documents of {index} could not be deleted: {reason}.", hint)
        if ledger is not None:
            ledger.remove(ids)
        removed += len(ids)
    return removed
