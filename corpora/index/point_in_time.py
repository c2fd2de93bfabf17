"""A point in time of an index: every shard as it was when the reading began, whatever is written meanwhile.

Each shard has a point in time of its own. Within a shard every document has a sequence number of its own, so that pages can be
ordered by this number, and slices of a shard are ranges of it. Another point in time of the same shard keeps these numbers: if a point in time
expires, the reading goes on in another where it was.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from termweave.engine.client.payloads import ALL_SHARDS, quote
from termweave.engine.client.server_errors import EngineResponseError
from termweave.errors import EngineError, InputError

if TYPE_CHECKING:
    from termweave.engine.client.connection import Engine

#: How long the server keeps a point in time after its last use, and how often this process uses one that waits for its turn.
_KEEP_ALIVE, _HEARTBEAT = "15m", 240.0
#: More shards than an index can have by default are believed, but not any number: each is opened.
_MOST_SHARDS = 100_000
_ALL: Mapping[str, Any] = {"match_all": {}}
_BETWEEN = "Check what stands between termweave and the server, such as a proxy."
_IN_ORDER: Mapping[str, Any] = {"sort": [{"_seq_no": "asc"}], "track_total_hits": False}


@dataclass
class ShardView:
    """One shard at one moment.

    Attributes:
        index: The concrete index.
        number: Number of the shard.
        uuid: Id of the index, which no later index of the same name has; "": this user may not read the id.
        pit: Id of the shard's point in time.
        documents: How many documents of the shard match the query.
        first: Lowest sequence number of these documents.
        last: Highest sequence number of these documents.
        state: A text that changes with every change of these documents.
        renewed: Whether the first point in time was lost, so that later changes are visible.
        alias_filter: Clause that the alias by which the index was named puts on every search; None: no alias restricts searches.
    """

    index: str
    number: int
    uuid: str = ""
    pit: str = ""
    documents: int = 0
    first: int = 0
    last: int = -1
    state: str = ""
    renewed: bool = False
    alias_filter: Mapping[str, Any] | None = None

    @property
    def key(self) -> str:
        """A name of this shard that no shard of another index has."""
        return f"{self.uuid}/{self.number}"


class PointInTime:
    """The shards of an index at one moment, kept alive by a thread until `close`. Threads may share it.

    Args:
        engine: The server.
        query: Query clause that the documents to read match; None: all documents are read.
        views: The shards, as `open_views` or an earlier run of the command opened them.
    """

    def __init__(self, engine: Engine, query: Mapping[str, Any] | None, views: Sequence[ShardView]) -> None:
        self.views = list(views)
        self._engine = engine
        self._query = query or _ALL
        self._lock = threading.Lock()
        self._closed = threading.Event()
        threading.Thread(target=self._keep_alive, name="termweave-point-in-time", daemon=True).start()

    def pages(
        self, view: ShardView, low: int, high: int | None, body: Mapping[str, Any], size: Callable[[], int]
    ) -> Iterator[tuple[list[dict[str, Any]], int]]:
        """Read the documents of one shard page by page, in the order of their sequence numbers.

        Args:
            view: The shard.
            low: The first sequence number.
            high: The last sequence number; None: no upper limit.
            body: Further parts of the search request, such as ``_source``.
            size: Function that is called before each page and returns its size, in documents.

        Yields:
            The documents of a page, and the sequence number at which the next page begins.

        Raises:
            InputError: The index was deleted meanwhile.
            EngineError: The server does not answer.
        """
        while high is None or low <= high:
            most = size()
            hits = self._search(view, low, high, {**body, "size": most})
            complete = len(hits) < most
            low = (high or 0) + 1 if complete else hits[-1]["sort"][0] + 1
            yield hits, low
            if complete:
                return

    def _search(self, view: ShardView, low: int, high: int | None, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        limits = {"gte": low} if high is None else {"gte": low, "lte": high}
        query = {"bool": {"filter": [self._query, view.alias_filter or _ALL, {"range": {"_seq_no": limits}}]}}
        while True:
            pit = view.pit
            try:
                answer = _search(self._engine, pit, {"query": query, **_IN_ORDER, **body})
            except EngineResponseError as error:
                if not _expired(error):
                    raise
                self._renew(view, pit)
            else:
                hits: list[dict[str, Any]] = answer["hits"]["hits"]
                _check_order(hits, low, self._engine.url)
                return hits

    def close(self, *, delete: bool = True) -> None:
        """Stop keeping the points in time alive; with `delete` also delete them on the server."""
        if self._closed.is_set():
            return
        self._closed.set()
        if delete and self.views:
            with suppress(EngineError):  # they expire by themselves
                pits = [view.pit for view in self.views]
                if _is_elasticsearch(self._engine):
                    for pit in pits:
                        self._engine.request("DELETE", "/_pit", body={"id": pit})
                else:
                    self._engine.request("DELETE", "/_search/point_in_time", body={"pit_id": pits})

    def _renew(self, view: ShardView, expired: str) -> None:
        with self._lock:
            if view.pit == expired:  # no other thread was faster
                if uuid_of(self._engine, view.index) != view.uuid:
                    raise _deleted(view.index)
                # In this order: whoever sees the new id sees that it is new.
                view.renewed, view.pit = True, _open(self._engine, view)

    def _keep_alive(self) -> None:
        while not self._closed.wait(_HEARTBEAT):
            for view in self.views:
                with suppress(EngineError):
                    _search(self._engine, view.pit, {"size": 0, "terminate_after": 1, "track_total_hits": False})


def open_views(
    engine: Engine, name: str, indices: Collection[str], query: Mapping[str, Any] | None, after: Mapping[str, int] | None = None
) -> list[ShardView]:
    """Open a point in time for every shard that a search of `name` reads, shard after shard without a pause.

    Args:
        engine: The server.
        name: An index, an alias or a data stream.
        indices: The concrete indices that `name` stands for.
        query: Query clause that the documents to read match; None: all documents are read.
        after: `ShardView.key` -> sequence number; of such a shard only documents with a higher number are read; None: no shard has a limit.

    Raises:
        EngineError: The server refuses the query, or this user may not read the index.
    """
    views = shards_of(engine, name, indices)
    for view in views:
        view.pit = _open(engine, view)
    for view in views:
        later = {"range": {"_seq_no": {"gt": (after or {}).get(view.key, -1)}}}
        _describe(engine, view, {"bool": {"filter": [query or _ALL, view.alias_filter or _ALL, later]}})
    return views


def shards_of(engine: Engine, name: str, indices: Collection[str]) -> list[ShardView]:
    """List the shards that a search of `name` reads, without opening them: of an alias the shards that its routing leaves, each with its filter.

    Raises:
        InputError: `name` now stands for other indices than `indices`.
        EngineError: A shard cannot be read, or this user may not ask for the shards.
    """
    if list(indices) == [name]:
        answer = engine.request("POST", f"/{quote(name)}/_search", body={"size": 0, "track_total_hits": False})
        count = answer["_shards"]["total"]
        if not 0 < count <= _MOST_SHARDS:  # an index that seems empty would have everything deleted
            raise EngineError(f"{engine.url} says that {name} has {count:,} shards.", _BETWEEN)
        uuid = uuid_of(engine, name)
        return [ShardView(name, number, uuid) for number in range(count)]
    answer = engine.request("GET", f"/{quote(name)}/_search_shards")
    if not all(answer["shards"]):
        raise EngineError(f"A shard of {name!r} cannot be read.", "GET /_cluster/allocation/explain says why.")
    shards = sorted((copies[0]["index"], copies[0]["shard"]) for copies in answer["shards"])
    if {index for index, _ in shards} != set(indices):
        raise InputError(f"{name!r} stands for other indices than a moment ago.", "Repeat the command.")
    uuids = {index: uuid_of(engine, index) for index in indices}
    filters = {index: each.get("filter") for index, each in answer["indices"].items()}
    return [ShardView(index, number, uuids[index], alias_filter=filters[index]) for index, number in shards]


def uuid_of(engine: Engine, index: str) -> str:
    """Return the id of an index; "": this user may not read the settings of the index.

    Raises:
        InputError: The index does not exist any more.
    """
    try:
        answer = engine.request("GET", f"/{quote(index)}/_settings", params={"flat_settings": True})
    except EngineResponseError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            raise _deleted(index) from error
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return ""
    return str(answer[index]["settings"]["index.uuid"])


def sequence_numbers(engine: Engine, index: str) -> dict[int, dict[str, int]]:
    """Return for each shard the sequence numbers of its primary copy: "max_seq_no", "global_checkpoint" and so on.

    A shard whose primary is not open, as after the start of a node, is left out.
    """
    answer = engine.request("GET", f"/{quote(index)}/_stats/docs", params={"level": "shards"})
    shards = answer["indices"].get(index, {"shards": {}})["shards"]  # none while all of its shards are unassigned
    primaries = [(number, copy) for number, copies in shards.items() for copy in copies if copy["routing"]["primary"]]
    return {int(number): copy["seq_no"] for number, copy in primaries if "seq_no" in copy}


def _open(engine: Engine, view: ShardView) -> str:
    """Open a point in time of one shard and return its id."""
    path = f"/{quote(view.index)}/{'_pit' if _is_elasticsearch(engine) else '_search/point_in_time'}"
    params = {"keep_alive": _KEEP_ALIVE, "preference": f"_shards:{view.number}"}

    def attempt() -> str:
        try:
            answer = engine.request("POST", path, params=params, retry=False)  # `repeat` does
        except EngineResponseError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                raise _deleted(view.index) from error
            if "point_in_time" in error.reason.lower() or "Point In Time" in error.reason:
                error.hint = error.hint or "Wait until others have closed theirs, or raise search.max_open_pit_context."
            raise
        # An Elasticsearch before 8.16 answers with the id alone, and only if the shard is there.
        shards = answer.get("_shards", {"successful": 1}) if _is_elasticsearch(engine) else answer["_shards"]
        if shards.get("successful") != 1:  # its node has died: another copy may take over
            reason, hint = f"shard {view.number} has no copy that can be read", "GET /_cluster/allocation/explain says why."
            context = {"request": f"POST {path}", "hint": hint, "product": engine.product}
            raise EngineResponseError(HTTPStatus.SERVICE_UNAVAILABLE, reason, answer, **context)
        return str(answer["pit_id"] if "pit_id" in answer else answer["id"])

    return engine.repeat(attempt)


def _describe(engine: Engine, view: ShardView, query: Mapping[str, Any]) -> None:
    """Enter into the view of a shard how many of its documents match a query, and the sequence numbers of these documents.

    A write gives its document the highest number of the shard, so count and numbers together change with every write and deletion.
    """
    numbers = {"numbers": {"extended_stats": {"field": "_seq_no"}}}
    body = {"size": 0, "track_total_hits": True, "query": query, "aggs": numbers}
    answer = None
    while answer is None:
        try:
            answer = _search(engine, view.pit, body)
        except EngineResponseError as error:  # its node has died since it was opened
            if not _expired(error):
                raise
            view.pit = _open(engine, view)
    numbers = answer["aggregations"]["numbers"]
    view.documents = answer["hits"]["total"]["value"]
    if view.documents:
        view.first, view.last = int(numbers["min"]), int(numbers["max"])
    view.state = f"{view.uuid} {view.documents} {numbers['sum']:.0f} {numbers['sum_of_squares'] or 0:.0f} {view.last}"


def _search(engine: Engine, pit: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Search a point in time; fail unless its shard answers, because documents would be missing."""
    body = {**body, "pit": {"id": pit, "keep_alive": _KEEP_ALIVE}}
    answer: dict[str, Any] = engine.request("POST", "/_search", params=ALL_SHARDS, body=body)
    return answer


def _check_order(hits: Sequence[Mapping[str, Any]], low: int, url: str) -> None:
    """Check that a page is in the order of the sequence numbers: otherwise the reading would never end, or would leave documents out.

    Raises:
        EngineError: A sequence number is not above the one before.
    """
    for hit in hits:
        number = (hit.get("sort") or [None])[0]
        if not isinstance(number, int) or number < low:
            message = f"{url} gave documents that are not in the order of their sequence numbers ({number!r} after {low - 1})."
            raise EngineError(message, _BETWEEN)
        low = number + 1


def _deleted(index: str) -> InputError:
    return InputError(f"The index {index!r} was deleted while it was read.", "Name another source, or repeat the command later.")


def _expired(error: EngineResponseError) -> bool:
    died = ("no node found for id", "Node not connected", "] disconnected")  # its node
    text = str(error.body)
    return error.status == HTTPStatus.NOT_FOUND or any(each in text for each in ("search_context_missing", *died))


def _is_elasticsearch(engine: Engine) -> bool:
    return engine.capabilities.distribution == "elasticsearch"
