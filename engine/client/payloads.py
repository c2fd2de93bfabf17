"""Encode requests and decode responses: JSON bodies, query parameters, content types, escaped parts of a path."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote as escape

from termweave.engine.client.retries import endpoint
from termweave.support.messages import readable

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Parameters of a search that must fail if a shard is missing. By default the server leaves out the documents of that shard and says
#: nothing about it: `_shards.failed` stays 0.
ALL_SHARDS = {"allow_partial_search_results": False}
#: Settings of an index of ours, against those of the cluster's index templates: no ingest pipeline changes what is written into it.
NO_PIPELINES = {"index.default_pipeline": "_none", "index.final_pipeline": "_none"}
#: Parts of its mapping, likewise: every field is stored, and no document needs a routing.
WHOLE_DOCUMENTS: dict[str, Any] = {"_source": {"enabled": True, "excludes": [], "includes": []}, "_routing": {"required": False}}


def quote(part: str) -> str:
    """Escape one part of a path: an index name or a document id, which may be any text."""
    return escape(part, safe="")


def as_text(value: Any) -> Any:
    """A setting as the server returns it: every value is a string."""
    if isinstance(value, list):
        return [as_text(item) for item in value]
    return value if isinstance(value, str) else json.dumps(value)


def is_search(path: str) -> bool:
    """Whether a path searches indices: `/_search`, `/NAME/_msearch`. Plugins have a `_search` of their own, with other bodies."""
    return endpoint(path) in {"_search", "_msearch"} and not path.startswith("/_plugins/")


def encode(body: Any, path: str = "") -> bytes | None:
    """The bytes of a request's body: bytes and strings as they are, the list of an `_msearch` line by line, everything else as JSON."""
    if body is None or isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode()
    import orjson  # noqa: PLC0415

    option = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
    if isinstance(body, list) and endpoint(path) == "_msearch":
        return b"".join(orjson.dumps(line, option=option | orjson.OPT_APPEND_NEWLINE) for line in body)
    return orjson.dumps(body, option=option)


def content_type(path: str, data: bytes | None) -> str:
    """The content type of a body: newline-delimited JSON for `_bulk` and `_msearch`, else JSON."""
    return "application/x-ndjson" if data is not None and endpoint(path) in {"_bulk", "_msearch"} else "application/json"


def query_parameters(params: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Query parameters without those that are None; True and False become "true" and "false"."""
    if not params:
        return None
    return {name: str(value).lower() if isinstance(value, bool) else value for name, value in params.items() if value is not None}


def decode(text: str) -> Any:
    """The value of a response's JSON; None where the response is empty.

    Raises:
        ValueError: The text is not JSON.
        RecursionError: The JSON is nested deeper than the parser can go.
    """
    import orjson  # noqa: PLC0415

    if not text:
        return None
    try:
        return orjson.loads(text)
    except ValueError:
        # JSON allows half of a surrogate pair, and documents of other programs may hold one. Nothing here could write it again.

        return orjson.loads(readable(json.dumps(json.loads(text), ensure_ascii=False)))
