"""Queries a second of eight clients: the library against opensearch-py as it comes, which sends the same bodies and does nothing else.

    termweave node start
    python benchmarks/throughput.py         prints one Markdown table; --keep leaves the index for the next run,
                                            --quick takes the smallest input, to see whether the script works

The index is that of `latency.py`. Queries are encoded beforehand: encoding is the same for every row. Clients are threads of one process, as in an
application. The rows take turns, round by round, so that another load on the machine meets all of them; ratios are medians over the rounds.
In the rows of batches a client has 16 queries answered at a time, in one `_msearch`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import statistics
import threading
import time
from urllib.parse import parse_qsl, urlsplit

import latency
import opensearchpy
import orjson
from entry_point import enter

from termweave import corpora, engine, settings
from termweave.catalog import generations
from termweave.search import Index
from termweave.search.batch import QUERIES
from termweave.support.batching import in_parts

CLIENTS = 8
#: Row -> reranker and number of queries at a time.
ROWS = {
    "hybrid": (None, 1),
    "hybrid+rNN": ("rnn", 1),
    "hybrid, batches": (None, QUERIES),
    "hybrid+rNN, batches": ("rnn", QUERIES),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--documents", type=int, default=latency.DOCUMENTS)
    parser.add_argument(
        "--passages", type=int, help="mix so many passages of the demo corpus, which are encoded first; all of them if left out"
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=4.0, help="of a row in a round")
    parser.add_argument("--keep", action="store_true", help="leave the index for the next run")
    parser.add_argument("--quick", action="store_true", help="the smallest input, to see whether the script works")
    chosen = parser.parse_args()
    server = engine.connect(settings.load(), pool_maxsize=2 * CLIENTS)
    name, passages = f"{latency.NAME}-{chosen.documents}", chosen.passages
    if chosen.quick:
        name, passages = f"{latency.NAME}-quick-{os.getpid()}", latency.QUICK_PASSAGES
        chosen.documents, chosen.rounds, chosen.seconds = latency.QUICK_DOCUMENTS, 1, 0.3
    if generations.live(server, name) is None:
        latency.build(server, name, chosen.documents, passages, latency.SIGNALS)
    try:
        measure(server, name, chosen.rounds, chosen.seconds)
    finally:
        if not chosen.keep:
            server.request("DELETE", f"/{name}-*", params={"expand_wildcards": "all"})


def measure(server: engine.Engine, name: str, rounds: int, seconds: float) -> None:
    """Measure and print."""
    index = Index.open(server, name)
    questions = [query.text for query in corpora.open_dataset("demo").queries()]
    latency.encode_beforehand(index, questions)
    rates: dict[str, list[tuple[float, float]]] = {row: [] for row in ROWS}
    calls = {row: (ours(index, *how), plain(index, questions, *how)) for row, how in ROWS.items()}
    for number in range(rounds + 1):  # the first round warms up
        for row, (_, size) in ROWS.items():
            parts = [part for part in in_parts(questions, size) if len(part) == size]
            both = tuple(size * a_second(call, parts, seconds) for call in calls[row])
            if number:
                rates[row].append((both[0], both[1]))
    print(
        f"{index.lineage.documents:,} documents, {CLIENTS} clients, {rounds} rounds of {seconds:g} s, {os.cpu_count()} cores shared with the server\n"
    )
    print("| queries a second | termweave | opensearch-py | ratio |\n|---|---:|---:|---:|")
    for row, pairs in rates.items():
        own, other = (statistics.median(each) for each in zip(*pairs, strict=True))
        print(f"| {row} | {own:.0f} | {other:.0f} | {statistics.median(mine / theirs for mine, theirs in pairs):.2f} |")


def ours(index: Index, rerank: str | None, size: int) -> Callable[[Sequence[str]], object]:
    """What a client of the library does with some queries."""
    if size == 1:
        return lambda queries: index.search(queries[0], rerank=rerank)
    return lambda queries: index.run(dict(enumerated(queries)), k=10, rerank=rerank, workers=1)


def enumerated(queries: Sequence[str]) -> list[tuple[str, str]]:
    return [(str(number), query) for number, query in enumerate(queries)]


def plain(index: Index, questions: Sequence[str], rerank: str | None, size: int) -> Callable[[Sequence[str]], object]:
    """The requests of the library sent by opensearch-py, their answers parsed, and nothing else done; a run has no texts to fetch."""
    client = opensearchpy.OpenSearch(index.engine.url, pool_maxsize=CLIENTS)
    bodies, fields = {}, {}
    for question in questions:
        first, second = index.requests(question, rerank=rerank)
        bodies[question] = orjson.loads(orjson.dumps(first["body"], option=orjson.OPT_SERIALIZE_NUMPY))
        fields = dict(parse_qsl(urlsplit(second["path"]).query))

    def ask(queries: Sequence[str]) -> object:
        body = [line for query in queries for line in bodies[query]]
        answers = client.msearch(body=body, index=index.name)["responses"]
        if size > 1:
            return answers
        ids = [hit["sort"][1] for answer in answers for hit in answer["hits"]["hits"][:5]]
        return client.mget(body={"ids": ids}, index=index.generation, params=fields)

    return ask


def a_second(call: Callable[[Sequence[str]], object], parts: Sequence[Sequence[str]], seconds: float) -> float:
    """Calls a second of all clients, each of which begins elsewhere in the queries."""

    def client(number: int) -> Callable[[int], object]:
        return lambda turn: call(parts[(number * len(parts) // CLIENTS + turn) % len(parts)])

    return calls_a_second([client(number) for number in range(CLIENTS)], seconds)


def calls_a_second(clients: Sequence[Callable[[int], object]], seconds: float) -> float:
    """Calls a second of all clients together, each in a thread of its own; a client is given the number of the calls that it made before."""
    done, began = [0] * len(clients), time.perf_counter()

    def work(number: int) -> None:
        while time.perf_counter() - began < seconds:
            clients[number](done[number])
            done[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(clients))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / (time.perf_counter() - began)


if __name__ == "__main__":
    enter(main)
