"""Removing documents from a generation that is live: by their ids, in `_bulk` requests that may be sent twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from termweave.errors import EngineError
from termweave.indexer.generations import writer
from termweave.signals.layout import engine_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from termweave.engine import Engine
    from termweave.indexer.ledger import Ledger

_NOT_FOUND = 404
_FIRST_ERROR = 300


def remove(engine: Engine, index: str, ledger: Ledger, pages: Iterable[list[str]]) -> int:
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
            absent = result["status"] == _NOT_FOUND and "error" not in result
            if result["status"] >= _FIRST_ERROR and not absent:
                reason = result.get("error", {}).get("reason", f"status {result['status']}")
                raise EngineError(f"Documents of {index} could not be deleted: {reason}.", "Run the command again: it goes on.")
        ledger.remove(ids)
        removed += len(ids)
    return removed
