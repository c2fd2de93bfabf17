"""Collection statistics beside their generation: compressed chunks in ``<generation>.stats``.

A query has to be weighted with the figures its documents were weighted with, from whatever host it comes; so the
figures lie in the cluster. The client keeps a copy by hash.
"""

from __future__ import annotations

import base64
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from termweave import atomic, places
from termweave.errors import EngineError
from termweave.search.lineage import exists
from termweave.statistics import CorpusStatistics

if TYPE_CHECKING:
    from pathlib import Path

    from termweave.engine import Engine
    from termweave.search.lineage import Lineage

#: Bytes of one stored chunk; base64 makes a third more of it.
_CHUNK = 4 * 1024 * 1024


def companion(index: str) -> str:
    """Name of the index that holds a generation's statistics."""
    return f"{index}.stats"


def save(engine: Engine, index: str, statistics: CorpusStatistics, settings: dict[str, Any]) -> None:
    """Store the statistics of a generation, replacing what is there, and keep a copy."""
    data = statistics.to_bytes()
    _keep(statistics.hash, data)
    chunks = [data[start : start + _CHUNK] for start in range(0, len(data), _CHUNK)]
    name = companion(index)
    if not exists(engine, name):
        mapping = {"dynamic": "strict", "properties": {"part": {"type": "integer"}, "data": {"type": "binary"}}}
        engine.request("PUT", f"/{name}", body={"settings": settings, "mappings": mapping})
    for number, chunk in reversed([*enumerate(chunks)]):  # the last one first: from then on it shows how many there should be
        body = {"part": number, "data": base64.b64encode(chunk).decode("ascii")}
        engine.request("PUT", f"/{name}/_doc/{number}", body=body)
    engine.request("POST", f"/{name}/_refresh")


def there(engine: Engine, index: str) -> bool:
    """Whether the cluster holds all of them; a host with a copy does not see otherwise that they are gone, or were never whole."""
    body = {"size": 0, "track_total_hits": True, "aggs": {"last": {"max": {"field": "part"}}}}
    answer = engine.request("GET", f"/{companion(index)}/_search", params={"ignore_unavailable": True}, body=body)
    last = answer.get("aggregations", {}).get("last", {}).get("value")
    return last is not None and answer["hits"]["total"]["value"] == last + 1


def load(engine: Engine, index: str, made: Lineage) -> CorpusStatistics | None:
    """The statistics of a generation, from the cache or the cluster; None where it has no weights that stand on any.

    Raises:
        EngineError: They are gone or are not those the generation names.
    """
    if not made.statistics:
        return None
    expected_hash: str = made.statistics["hash"]
    cached = _copy(expected_hash)
    if cached.exists():
        try:
            return CorpusStatistics.from_bytes(cached.read_bytes())
        except ValueError:  # damaged on the disk
            cached.unlink(missing_ok=True)
    body = {"size": 1000, "sort": ["part"], "query": {"match_all": {}}}
    # One that is gone answers with nothing.
    answer = engine.request("GET", f"/{companion(index)}/_search", params={"ignore_unavailable": True}, body=body)
    data = b"".join(base64.b64decode(hit["_source"]["data"]) for hit in answer["hits"]["hits"])
    try:
        statistics = CorpusStatistics.from_bytes(data)
    except ValueError:
        statistics = None
    if statistics is None or statistics.hash != expected_hash:
        raise EngineError(
            f"The statistics of {index!r} are missing or damaged.", "Index again; without them queries cannot be weighted."
        )
    _keep(expected_hash, data)
    return statistics


def _copy(hash_: str) -> Path:
    return places.cache() / "statistics" / f"{hash_}.bin"


def _keep(hash_: str, data: bytes) -> None:
    with suppress(OSError):  # a host without room for a cache works all the same
        _copy(hash_).parent.mkdir(parents=True, exist_ok=True)
        atomic.write(_copy(hash_), data)
