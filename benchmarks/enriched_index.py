"""What an enrichment costs the owner of an index: its size, the application's own searches, and learned ones beside them.

    export OPENSEARCH_URL=http://127.0.0.1:9200
    python benchmarks/enriched_index.py demo
    python benchmarks/enriched_index.py ../shared/data/cranfield

The data set becomes an application's index (`title` and `text`, one shard, no replicas), which is enriched. Sizes are those of the index
after a merge into one segment. Searches take turns query by query, each row is the median over all queries: a `match` as the application
sends it, with ten hits and all fields, without what the enrichment wrote, and termweave's lexical and hybrid search, whose queries are
encoded in this process.
"""

from __future__ import annotations

import argparse
import statistics
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import orjson
from entry_point import enter

from termweave import corpora, engine, settings
from termweave.cli import run
from termweave.engine import EngineResponseError
from termweave.search import Index

if TYPE_CHECKING:
    from termweave.corpora import Document

NAME = "benchmark-shop"
FIELDS = {"title": {"type": "text", "analyzer": "english"}, "text": {"type": "text", "analyzer": "english"}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", help="BEIR folder, FOLDER:SPLIT or demo")
    parser.add_argument("--queries", type=int, default=200, metavar="N", help="at most N queries  [default: 200]")
    given = parser.parse_args()
    server = engine.connect(settings.load())
    dataset = corpora.open_dataset(given.dataset)

    def timed(name: str, body: dict[str, object]) -> None:
        start = time.perf_counter()
        server.request("POST", f"/{NAME}/_search", body=body, params={"request_cache": "false"})
        taken[name].append(time.perf_counter() - start)

    delete(server)
    body = {"settings": {"index.knn": True, "number_of_shards": 1, "number_of_replicas": 0}, "mappings": {"properties": FIELDS}}
    server.request("PUT", f"/{NAME}", body=body)
    documents = list(dataset.documents())
    for start in range(0, len(documents), 500):
        lines = [part for each in documents[start : start + 500] for part in _lines(each)]
        server.request("POST", f"/{NAME}/_bulk", body=b"\n".join([*lines, b""]))
    plain = size(server)
    for signals in ("weights", "weights,dense"):
        run(["enrich", NAME, "--signals", signals, "--quiet"])
        grown = size(server)
        print(f"{signals}: {(grown - plain) / len(documents):,.0f} bytes a document more, {grown / plain:.2f} times the index")
        if signals == "weights":
            run(["enrich", NAME, "--remove", "--quiet"])
    index = Index.open(server, NAME)
    taken: dict[str, list[float]] = {name: [] for name in ("match", "match, all of _source", "lexical", "hybrid")}
    for _, query in zip(range(given.queries), dataset.queries(), strict=False):
        words = {"multi_match": {"query": query.text, "type": "most_fields", "fields": [*FIELDS]}}
        timed("match", {"query": words, "_source": {"excludes": ["termweave"]}})
        timed("match, all of _source", {"query": words})
        for mode in ("lexical", "hybrid"):
            start = time.perf_counter()
            index.search(query.text, mode=mode)
            taken[mode].append(time.perf_counter() - start)
    for name, times in taken.items():
        middle = statistics.median(times)
        print(f"{name}: {1000 * middle:.1f} ms, {middle / statistics.median(taken['match']):.2f} times the match")
    delete(server)


def delete(server: engine.Engine) -> None:
    """Delete the index and its statistics."""
    for index in (NAME, f"{NAME}.stats"):
        with suppress(EngineResponseError):
            server.request("DELETE", f"/{index}")


def size(server: engine.Engine) -> int:
    """The size of the index, merged, in bytes."""
    server.request("POST", f"/{NAME}/_forcemerge", params={"max_num_segments": 1, "flush": True})
    server.request("POST", f"/{NAME}/_refresh")
    segments = server.request("GET", f"/_cat/segments/{NAME}", params={"bytes": "b", "h": "size", "format": "json"})
    return sum(int(each["size"]) for each in segments)


def _lines(document: Document) -> tuple[bytes, bytes]:
    """The two lines of a document in a bulk request."""
    return orjson.dumps({"index": {"_index": NAME, "_id": document.id}}), orjson.dumps(
        {"title": document.title, "text": document.text}
    )


enter(main)
