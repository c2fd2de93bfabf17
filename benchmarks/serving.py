"""`termweave serve` against the library: its start, a page beside its search, and searches a second of eight clients.

It builds an index of its own on the server of the settings ($OPENSEARCH_URL) and removes it. Rounds of the library and of the API alternate, so that
another load on the machine meets both. With `--quick` the input is the smallest: that shows that the script works, the figures mean nothing.
"""

# A script's functions need no types.
# ruff: noqa: ANN201, ANN202, SIM905
from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import orjson
from entry_point import enter
from throughput import calls_a_second

from termweave import corpora, engine, settings
from termweave.indexer import BuildOptions, build
from termweave.search import Index

CLIENTS = 8
QUERIES = ("run a function after a delay", "parse json from a string", "read a csv file", "remove a folder", "start a thread")
WORDS = (
    "thread function json string parse path file csv reader random folder remove object delay call time start event value list"
).split()


@contextmanager
def served(name):
    """The process on a free port: its address, the seconds until it could be opened, and those of the processor among them."""
    line = [sys.executable, "-m", "termweave", "serve", name, "--port", "0", "--json", "--read-only"]
    began = time.perf_counter()
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    try:
        lines = []
        while not lines or not lines[-1].startswith("}"):
            lines.append(process.stdout.readline())
            if not lines[-1]:
                sys.exit("termweave serve did not start.")
        yield json.loads("".join(lines))["url"], time.perf_counter() - began, cpu_seconds(process.pid)
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def cpu_seconds(pid):
    """Seconds of the processor that a process has used, which another load on the machine hardly changes; None where there is no /proc."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.is_file():
        return None
    user, system = stat.read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def a_second(seconds, make):
    """Calls a second of `CLIENTS` clients; `make` gives each its own function of a query."""

    def client(number):
        ask = make()
        return lambda turn: ask(QUERIES[(turn + number) % len(QUERIES)])

    return calls_a_second([client(number) for number in range(CLIENTS)], seconds)


def asker(url, path):
    """A function that asks a path of the server for a query over one connection."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname, place.port)

    def ask(query):
        connection.request("GET", f"{path}?{urlencode({'q': query})}")
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != http.client.OK:
            sys.exit(body.decode())

    return ask


def times_ms(call, runs):
    """The times of calls, in milliseconds."""
    milliseconds = []
    for number in range(runs):
        began = time.perf_counter()
        call(QUERIES[number % len(QUERIES)])
        milliseconds.append(1000 * (time.perf_counter() - began))
    return milliseconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="40 documents, rounds of half a second")
    parser.add_argument("--documents", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="of a round")
    asked = parser.parse_args()
    documents, rounds, seconds = (40, 1, 0.5) if asked.quick else (asked.documents, asked.rounds, asked.seconds)
    connection = engine.connect(settings.load(), pool_maxsize=CLIENTS * 2)
    name = f"bench-serving-{os.getpid()}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "corpus.jsonl"
        texts = [" ".join(WORDS[(number * step) % len(WORDS)] for step in range(1, 31)) for number in range(documents)]
        path.write_bytes(b"\n".join(orjson.dumps({"_id": f"d{number}", "text": text}) for number, text in enumerate(texts)))
        try:
            build(connection, corpora.open_source(path), name, BuildOptions())
            measure(connection, name, rounds, seconds)
        finally:
            connection.request("DELETE", f"/{name}*", params={"expand_wildcards": "all", "ignore_unavailable": True})


def measure(connection, name, rounds, seconds):
    """Print the figures of an index."""
    index = Index.open(connection, name)
    index.answer(QUERIES[0])
    with served(name) as (url, started, worked):
        page = asker(url, "/search")
        first = times_ms(page, 1)[0]  # it loads the models
        runs = 10 * rounds
        pages, searches = times_ms(page, runs), times_ms(lambda query: index.answer(query, explain=True), runs)
        rates = [
            (a_second(seconds, lambda: index.answer), a_second(seconds, lambda: asker(url, "/api/search"))) for _ in range(rounds)
        ]
    processor = "" if worked is None else f" ({worked:.2f} s of the processor)"
    print(
        f"start until the address is printed: {started:.2f} s{processor}; the first page, which loads the models: {first:.0f} ms"
    )
    beside = statistics.median(pages) - statistics.median(searches)
    print(
        f"page {statistics.median(pages):.1f} ms, search {statistics.median(searches):.1f} ms, beside the search {beside:.1f} ms"
    )
    print(f"| {CLIENTS} clients | searches a second | ratio |\n|---|---:|---:|")
    library, served_rate = (statistics.median(each) for each in zip(*rates, strict=True))
    ratio = statistics.median(theirs / own for own, theirs in rates)
    print(f"| library, {CLIENTS} threads | {library:.0f} | 1.00 |\n| /api/search | {served_rate:.0f} | {ratio:.2f} |")


if __name__ == "__main__":
    enter(main)
