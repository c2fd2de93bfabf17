"""Search within an index's limits: `index.max_result_window` (hits of an answer) and `index.max_terms_count` (values of a clause).

An application, or a template of the cluster, may set these limits far below their defaults (10,000 and 65,536). The server's refusal names
the limit. From then on searches of the same path are sent in parts, and the joined answer is that of an index without the limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from termweave.engine.client.server_errors import EngineResponseError
from termweave.support.batching import in_parts

#: Name of a limit -> how OpenSearch and Elasticsearch refuse what is beyond it.
_REFUSALS = {
    "window": re.compile(r"Result window is too large, from \+ size must be less than or equal to: \[(\d+)\]"),
    "terms": re.compile(r"Terms Query request has exceeded the allowed maximum of \[(\d+)\]"),
}
#: Hits of a search that does not say how many it wants.
_USUAL = 10


class IndexLimits:
    """The limits of a server's indices that refusals have named so far. Threads may share an object."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, int]] = {}

    def search(self, path: str, body: Any, send: Callable[[Any], Any]) -> Any:
        """Send a search, or the lines of an `_msearch`, in as many requests as the limits of the path ask for.

        Args:
            path: Path of the request.
            body: Body of the request, parsed: a search, or the lines of an `_msearch`.
            send: Sends a body; returns the answer.

        Raises:
            EngineError: The request failed.
        """
        several = isinstance(body, list)
        searches = [_Search(*pair) for pair in zip(body[::2], body[1::2], strict=True)] if several else [_Search({}, body or {})]
        answer: dict[str, Any] = {}
        while True:
            limits = self._of.get(path, {})
            parts = [(each, part) for each in searches if (part := each.next_part(limits)) is not None]
            if not parts:
                return {**answer, "responses": [each.answer for each in searches]} if several else searches[0].answer
            try:
                answer = send([line for each, part in parts for line in (each.head, part)] if several else parts[0][1])
            except EngineResponseError as error:
                if not self._learns(path, limits, error.reason):
                    raise
                continue
            for (each, part), answered in zip(parts, answer["responses"] if several else [answer], strict=True):
                if not self._learns(path, limits, str((answered.get("error"), answered.get("_shards", {}).get("failures")))):
                    each.add(part, answered)

    def _learns(self, path: str, limits: Mapping[str, int], refusal: str) -> bool:
        """Note the limits that a refusal names; return whether they differ from `limits`, for which the refused request was made."""
        new = {name: int(match[1]) for name, pattern in _REFUSALS.items() if (match := pattern.search(refusal))}
        self._of[path] = {**self._of.get(path, {}), **new}
        return {**limits, **new} != limits


@dataclass
class _Search:
    """One search, and the part of its answer that has arrived so far.

    Attributes:
        head: The line before the search's body in an `_msearch`.
        body: The search's body, as if there were no limits.
        answer: The answer to the first part, to which the hits of later parts are added; if a part failed, that part's answer.
        hits: The list of hits in `answer`.
        done: Whether all hits have arrived, or a part failed.
    """

    head: Mapping[str, Any]
    body: Any
    answer: Any = None
    hits: list[Any] = field(default_factory=list)
    done: bool = False

    def next_part(self, limits: Mapping[str, int]) -> Any:
        """The body of the next request, within these limits; None: the search is done."""
        part, size = self.body, self.body.get("size", _USUAL)
        if self.done:
            return None
        # The server fuses all hits at once.
        if (window := limits.get("window", size)) < size and "hybrid" not in part.get("query", {}):
            if "sort" not in part and part.get("stored_fields") == "_none_":  # without an order they are told apart by `_id`
                part = {key: value for key, value in part.items() if key != "stored_fields"} | {"_source": False}
            part = {**_after(part, self.hits), "size": min(size - len(self.hits), window)}
        return _with_short_lists(part, limits["terms"]) if "terms" in limits else part

    def add(self, part: Any, answer: dict[str, Any]) -> None:
        """Add the hits of the server's answer to a part of the search, and note whether the search is done."""
        hits = answer.get("hits", {}).get("hits", [])
        failed = "hits" not in answer or answer.get("timed_out") or answer.get("_shards", {}).get("failed")
        if failed or self.answer is None:
            self.answer, self.hits = answer, hits
        else:
            self.hits += hits
        size, size_of_part = (body.get("size", _USUAL) for body in (self.body, part))
        self.done = bool(failed) or len(hits) < size_of_part or len(self.hits) >= size


def _after(body: dict[str, Any], hits: list[Any]) -> dict[str, Any]:
    """The body of a search for further hits, without the hits that have arrived already.

    In a point in time, and for hits without `_id`, no two hits tie in the order, so the search goes on after the last hit. Any other search
    excludes the documents that have arrived, or their groups, so that ties do not matter.
    """
    if not hits:
        return body
    rest = {key: value for key, value in body.items() if key not in {"aggs", "suggest"}} | {"track_total_hits": False}
    group = body.get("collapse", {}).get("field")
    if "pit" in body or (group is None and body.get("stored_fields") == "_none_"):
        return {**rest, "search_after": hits[-1]["sort"]}
    if group is None:
        came: dict[str, Any] = {"ids": {"values": [hit["_id"] for hit in hits]}}
    else:
        came = {"terms": {group: [value for hit in hits for value in hit["fields"].get(group, ())]}}
    return {**rest, "query": {"bool": {"must": [body.get("query") or {"match_all": {}}], "must_not": [came]}}}


def _with_short_lists(part: Any, most: int) -> Any:
    """Split each clause of a search that has more than `most` values into several clauses; scores stay the same."""
    if isinstance(part, list | tuple):
        return [_with_short_lists(each, most) for each in part]
    if not isinstance(part, dict):
        return part
    terms = part.get("terms")
    if isinstance(terms, dict) and not isinstance(terms.get("field"), str):  # not an aggregation
        for name, values in terms.items():
            if isinstance(values, list | tuple) and len(values) > most:
                short = [{"terms": {name: each}} for each in in_parts(values, most)]
                return {"constant_score": {"filter": {"bool": {"should": short}}, "boost": terms.get("boost", 1.0)}}
    return {key: _with_short_lists(value, most) for key, value in part.items()}
