"""Store the collection statistics of a generation in the cluster, as compressed chunks in ``<generation>.stats``.

A query must be weighted with the same statistics as the documents, from every host, so the cluster stores them. Each host caches
them by their hash.
"""

from __future__ import annotations

import base64
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from termweave.catalog.lineage import Lineage, exists
from termweave.engine.client.payloads import NO_PIPELINES, WHOLE_DOCUMENTS, quote
from termweave.errors import EngineError
from termweave.statistics import CorpusStatistics
from termweave.support import atomic_files, paths, private_files

if TYPE_CHECKING:
    from termweave.engine import Engine

#: Size of a chunk in bytes; base64 adds a third.
_CHUNK = 4 * 1024 * 1024
_PROPERTIES = {"part": {"type": "integer"}, "data": {"type": "binary"}}


def companion(index: str) -> str:
    """Return the name of the index that stores a generation's collection statistics."""
    return f"{index}.stats"


def home(index: str, lineage: Lineage) -> str:
    """Return the index whose `companion` holds an index's statistics: the index itself, or another index that was enriched under the same name."""
    return str(lineage.statistics.get("index", index))


def is_taken(engine: Engine, index: str) -> bool:
    """Whether the name of an index's `companion` belongs to an index or alias that this module did not make."""
    name = companion(index)
    if not exists(engine, name):
        return False
    mappings = engine.of_indices(f"/{quote(name)}/_mapping", "mappings")
    return {each: stored["mappings"].get("properties") for each, stored in mappings.items()} != {name: _PROPERTIES}


def save(engine: Engine, index: str, statistics: CorpusStatistics, settings: dict[str, Any]) -> None:
    """Store the statistics of a generation, replacing any that are stored, and cache them on this host."""
    data = statistics.to_bytes()
    _keep(statistics.hash, data)
    chunks = [data[start : start + _CHUNK] for start in range(0, len(data), _CHUNK)]
    name = companion(index)
    if not exists(engine, name):
        mapping = {**WHOLE_DOCUMENTS, "dynamic": "strict", "properties": _PROPERTIES}
        engine.request("PUT", f"/{name}", body={"settings": {**settings, **NO_PIPELINES}, "mappings": mapping})
    # The last chunk comes first, because its number tells how many chunks there should be.
    for number, chunk in reversed([*enumerate(chunks)]):
        body = {"part": number, "data": base64.b64encode(chunk).decode("ascii")}
        engine.request("PUT", f"/{name}/_doc/{number}", body=body)
    engine.request("POST", f"/{name}/_refresh")


def delete_unused(engine: Engine, index: str, lineage: Lineage) -> None:
    """Delete the statistics of an enriched index, unless another index shares them, or the index that holds them is not termweave's."""
    stored, path = home(index, lineage), "*.mappings._meta.termweave.statistics.index"
    answer = engine.of_indices("/*/_mapping", "mappings", params={"filter_path": path, "expand_wildcards": "all"})
    users = {each for each, of in answer.items() if of["mappings"]["_meta"]["termweave"]["statistics"]["index"] == stored}
    if users <= {index} and not is_taken(engine, stored):
        engine.request("DELETE", f"/{quote(companion(stored))}", params={"ignore_unavailable": True})


def is_complete(engine: Engine, index: str) -> bool:
    """Whether the cluster stores all chunks of a generation's statistics. `load` does not notice missing chunks on a host with a cached copy."""
    body = {"size": 0, "track_total_hits": True, "aggs": {"last": {"max": {"field": "part"}}}}
    answer = engine.request("GET", f"/{companion(index)}/_search", params={"ignore_unavailable": True}, body=body)
    last = answer.get("aggregations", {}).get("last", {}).get("value")
    return last is not None and answer["hits"]["total"]["value"] == last + 1


def load(engine: Engine, index: str, lineage: Lineage) -> CorpusStatistics | None:
    """Load the statistics of a generation, from the cache or the cluster; None: the signals of the generation need no statistics.

    Raises:
        EngineError: The statistics are missing, or have another hash than the lineage says.
    """
    if not lineage.statistics:
        return None
    expected_hash: str = lineage.statistics["hash"]
    cached = _copy(expected_hash)
    if cached.exists():
        try:
            return CorpusStatistics.from_bytes(cached.read_bytes())
        except ValueError:  # damaged on the disk
            cached.unlink(missing_ok=True)
    body = {"size": 1000, "sort": ["part"], "query": {"match_all": {}}}
    path = f"/{quote(companion(home(index, lineage)))}/_search"
    answer = engine.request("GET", path, params={"ignore_unavailable": True}, body=body)  # if the index is gone, it has no hits
    data = b"".join(base64.b64decode(hit["_source"]["data"]) for hit in answer["hits"]["hits"])
    try:
        statistics = CorpusStatistics.from_bytes(data)
    except ValueError:
        statistics = None
    if statistics is None or statistics.hash != expected_hash:
        message = f"The collection statistics of {index!r} are missing or damaged, and queries cannot be weighted without them."
        raise EngineError(message, "Index again.")
    _keep(expected_hash, data)
    return statistics


def _copy(hash_: str) -> Path:
    """Return the path of the file that caches the statistics with this hash."""
    return paths.cache() / "statistics" / f"{hash_}.bin"


def _keep(hash_: str, data: bytes) -> None:
    """Cache statistics on this host, under their hash."""
    with suppress(OSError):  # without disk space everything works, only slower
        private_files.make_folder(_copy(hash_).parent)  # statistics contain the words of a corpus
        atomic_files.write(_copy(hash_), data, private=True)
