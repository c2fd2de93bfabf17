"""Encode requests, decode responses, and tell whether an answer has the form that the server's documentation describes.

Commands read answers as OpenSearch and Elasticsearch document them. If an exception ends a command, the last answers are checked: if an
answer has a value that the server never sends, the error blames the server; otherwise the fault is in termweave itself.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from types import NoneType
from typing import Any
from urllib.parse import quote as escape

from termweave.engine.client.retries import endpoint
from termweave.errors import EngineError
from termweave.support.messages import clipped, readable

#: Parameters of a search that must fail if a shard is missing. By default the server leaves out the documents of that shard and says
#: nothing about it: `_shards.failed` stays 0.
ALL_SHARDS = {"allow_partial_search_results": False}
#: Settings of an index of ours, against those of the cluster's index templates: no ingest pipeline changes what is written into it.
NO_PIPELINES = {"index.default_pipeline": "_none", "index.final_pipeline": "_none"}
#: Parts of its mapping, likewise: every field is stored, and no document needs a routing.
WHOLE_DOCUMENTS: dict[str, Any] = {"_source": {"enabled": True, "excludes": [], "includes": []}, "_routing": {"required": False}}
#: Answers that are kept, and the most characters of one.
_KEPT, _LONGEST = 64, 100_000
#: Exceptions that come of reading an answer that has another shape.
_OF_READING = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
_NUMBER = (int, float, NoneType)
#: Field of an answer -> the types of its value, wherever it stands.
_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("_source", "_meta", "_shards", "aggregations", "aliases", "mappings", "settings", "properties"), (dict,)),
    **dict.fromkeys(("nodes", "indices", "shards", "termweave", "attributes"), (dict, list)),
    **dict.fromkeys(("_id", "_index", "pit_id"), (str,)),
    **dict.fromkeys(("_seq_no", "_primary_term", "_version", "doc_count", "count", "failed", "skipped"), (int,)),
    **dict.fromkeys(("buckets", "docs", "hits", "items", "responses", "sort"), (list, dict)),
    **dict.fromkeys(("signals", "models", "statistics", "source"), (dict,)),
    **dict.fromkeys(("_score", "max_score", "value", "min", "max", "sum", "sum_of_squares"), _NUMBER),
    **dict.fromkeys(("errors", "found", "timed_out", "acknowledged"), (bool,)),
    "successful": (int, bool),  # of shards, and of a point in time that is deleted
    "total": (int, dict),
    "number": (int, str),
    "took": (int, float),
    "component": (str, NoneType),
    "created": (str,),
}
#: Lists, and mappings of names, whose elements are objects.
_LISTS_OF_OBJECTS = {"buckets", "docs", "hits", "items", "responses"}
_NAMED_OBJECTS = {"aggregations", "nodes", "models"}
#: Endpoint -> the field that its answer has, or that each index in it has.
_REQUIRED = {"_search": "hits", "_mapping": "mappings", "_settings": "settings"}
#: Values that belong to users: their fields may have any name. Retention leases have a `source` that is no lineage's.
_FREE = {"_source", "fields", "highlight", "settings", "key", "after_key", "detail", "retention_leases"}


def quote(part: str) -> str:
    """Escape one part of a path: an index name or a document id, which may be any text."""
    return escape(part, safe="")


def as_text(value: Any) -> Any:
    """A setting in the form in which the server returns it, where every value is a string."""
    if isinstance(value, list):
        return [as_text(item) for item in value]
    return value if isinstance(value, str) else json.dumps(value)


def is_search(path: str) -> bool:
    """Whether a request's path searches indices: `/_search`, `/NAME/_msearch`, but not a plugin's `_search`, whose bodies differ."""
    return endpoint(path) in {"_search", "_msearch"} and not path.startswith("/_plugins/")


def encode(body: Any, path: str) -> bytes | None:
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


class LastAnswers:
    """Keeps the last answers of a server, except large ones."""

    def __init__(self) -> None:
        self._answers: deque[tuple[str, str, bool]] = deque(maxlen=_KEPT)

    def add(self, request: str, text: str, *, whole: bool = True) -> None:
        """Keep an answer.

        Args:
            request: Method and path.
            text: The text of the answer.
            whole: Whether the request asked for all fields of the answer.
        """
        if len(text) <= _LONGEST:
            self._answers.append((request, text, whole))

    def blamed(self, error: Exception, url: str) -> EngineError | None:
        """The error that blames the server for an exception; None: reading an answer did not cause it, or all answers have the right form."""
        if not isinstance(error, _OF_READING):
            return None
        for request, text, whole in reversed(self._answers):
            try:
                answer = decode(text)
            except (ValueError, RecursionError):  # the page of a proxy: that was an error of its own
                continue
            missing = _missing(answer, request) if whole else ""
            place = missing or next(_wrong_below(answer, ""), None)
            if place is not None:
                hint = "Check what stands between termweave and the server, such as a proxy."
                return EngineError(f"{url} answered {request} with something that no OpenSearch sends: {place}.", hint)
        return None


def _missing(answer: Any, request: str) -> str:
    """Say, as a clause, which required field the answer to a request lacks; "" if it lacks none."""
    method, _, path = request.partition(" ")
    name = _REQUIRED.get(endpoint(path), "") if method == ("POST" if path.endswith("_search") else "GET") else ""
    parts = answer.values() if name != "hits" and isinstance(answer, dict) else [answer]
    return f"{name} is missing" if name and not all(isinstance(part, dict) and name in part for part in parts) else ""


def _wrong_below(value: Any, place: str) -> Iterator[str]:
    parts: Iterable[tuple[Any, Any]]
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    holder = place.rpartition(".")[2]
    for key, part in parts:
        here = f"{place}.{key}" if place else str(key)
        is_object = holder in (_LISTS_OF_OBJECTS if isinstance(value, list) else _NAMED_OBJECTS)
        is_version = key == holder == "termweave"  # of the lineage, which has this name, too
        if not (isinstance(part, dict) if is_object else is_version or _fits(key, part)):
            yield f"{here} is {clipped(repr(part), 80)}"
        elif key == "hits" and isinstance(part, dict) and not isinstance(part.get("hits"), list):
            yield f"{here}.hits is missing"
        elif key == "properties":
            yield from _wrong_fields(part, here)
        elif key not in _FREE:
            yield from _wrong_below(part, here)


def _wrong_fields(fields: Any, place: str) -> Iterator[str]:
    """Yield a clause for each field of a mapping, at any depth, whose description is not an object; `place` is the path to the fields."""
    if not isinstance(fields, dict):
        yield f"{place} is {clipped(repr(fields), 80)}"
        return
    for name, field in fields.items():
        if isinstance(field, dict):
            for part in field.keys() & {"properties", "fields"}:
                yield from _wrong_fields(field[part], f"{place}.{name}.{part}")
        else:
            yield f"{place}.{name} is {clipped(repr(field), 80)}"


def _fits(key: object, value: Any) -> bool:
    """Whether the value of a field of an answer has the type that the server always gives that field."""
    types = _TYPES.get(key) if isinstance(key, str) else None
    if types is None or isinstance(value, bool):
        return types is None or bool in types
    return isinstance(value, types) and not (types == (int,) and isinstance(value, int) and value < 0)
