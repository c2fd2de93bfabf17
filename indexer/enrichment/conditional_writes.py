"""Reads and writes of an index that an application changes at the same time: a write counts only if the document is still as it was read."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import orjson

from termweave.engine.client.connection import Engine, quote
from termweave.engine.client.retries import TURNED_AWAY
from termweave.engine.client.server_errors import EngineResponseError, block_hint, known_status
from termweave.errors import EngineError, RefusedDocuments
from termweave.indexer.pipeline.bulk_sender import PARAMETERS, reason_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from termweave.corpora.index.point_in_time import PointInTime

#: Statuses of a write that this pass or a later one makes again.
_LATER = {HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND} | TURNED_AWAY
#: Documents in one request.
_PAGE = 200


def pages(point: PointInTime, source: Any) -> Iterator[list[dict[str, Any]]]:
    """All documents of a point in time with `_source`, sequence number, primary term and routing, page by page.

    Args:
        point: The point in time.
        source: `_source` of the requests, which must give weights and vectors, too.
    """
    body = {
        "_source": source,
        "sort": [{"_seq_no": "asc"}],
        "track_total_hits": False,
        "seq_no_primary_term": True,
    }
    for view in point.views:
        if view.documents:
            for hits, _ in point.pages(view, view.first, view.last, body, lambda: _PAGE):
                if hits:
                    yield hits


def send(engine: Engine, index: str, writes: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> int:
    """Send writes; returns how many were accepted. The others met a change of the application.

    Those that the server turns away because it is overloaded, its disk full or a shard away, are sent again as long as the engine is
    patient, and so is a request whose answer is lost: what it wrote then counts as changed, and is found as it should be in the next pass.

    Raises:
        RefusedDocuments: The server does not take a document.
        EngineError: It does not take any.
    """
    statuses: list[int] = []
    left = writes

    def attempt() -> None:
        nonlocal left
        results = _results(engine, index, left)
        statuses.extend(result["status"] for result in results)
        away = [number for number, result in enumerate(results) if result["status"] in TURNED_AWAY]
        left = [left[number] for number in away]
        if left:
            status, reason = results[away[-1]]["status"], reason_of(results[away[-1]])
            hint = f"{block_hint(reason)} Run the command again: it goes on.".lstrip()
            request = f"POST /{index}/_bulk"
            raise EngineResponseError(status, reason, results, request=request, hint=hint, product=engine.product)

    if writes:
        engine.repeat(attempt)
    return sum(status < HTTPStatus.BAD_REQUEST for status in statuses)


def _results(engine: Engine, index: str, writes: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> list[dict[str, Any]]:
    """Send writes once; returns the status of each, and why it was not accepted."""
    lines = []
    for hit, action in writes:
        ((kind, content),) = action.items()
        head = {"_id": hit["_id"], "if_seq_no": hit["_seq_no"], "if_primary_term": hit["_primary_term"]}
        head |= {"routing": hit["_routing"]} if "_routing" in hit else {}
        lines += [orjson.dumps({kind: head}), orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)]
    body = b"\n".join([*lines, b""])
    items = engine.request("POST", f"/{quote(index)}/_bulk", params=PARAMETERS, body=body, retry=False)["items"]  # `send` repeats
    results = [next(iter(item.values())) for item in items]
    for (hit, _), result in zip(writes, results, strict=True):
        reason = reason_of(result)
        status = result["status"] = known_status(result["status"], reason)
        if status == HTTPStatus.BAD_REQUEST:
            raise RefusedDocuments(
                f"The index {index} does not take document {hit['_id']!r}: {reason}.",
                "Correct the document, then run the command again.",
            )
        if status >= HTTPStatus.BAD_REQUEST and status not in _LATER:
            raise EngineError(
                f"The index {index} takes no documents: {reason} (status {status}).",
                f"{block_hint(reason)} Run the command again when that is fixed: it goes on.".lstrip(),
            )
    return results
