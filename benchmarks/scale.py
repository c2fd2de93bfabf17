"""What grows with the corpus, and how fast: time, disk, memory of client and server, verification, latency, at several sizes.

    termweave node start
    python benchmarks/scale.py DATA/cranfield --documents 10000 100000 --plot scale.png

The documents are recombined from the passages of the sets (see `recombined.py`), so that no model reads them: times are those of sending ready
encodings. The index is built by `termweave index FOLDER NAME` in a process of its own, whose largest memory is measured; the server's is its largest resident
memory meanwhile, where it runs on this host. Queries are the judged ones of the sets, encoded beforehand. A figure that grows as N^x has the exponent x:
the slope of a line through the logarithms. With `--quick` the input is the smallest: that shows that the script works, the figures mean nothing.
"""

# A script's functions need no types.
# ruff: noqa: ANN002, ANN201, ANN202
from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest import mock

import numpy as np
import psutil
from clients import encode_beforehand
from entry_point import enter
from recombined import EncodedPassages, write

from termweave import engine, settings
from termweave.indexer import verify
from termweave.indexer.ledger import storage
from termweave.search import Index

NAME = "bench-scale"
MODES = {
    "lexical": {"mode": "lexical"},
    "weights": {"mode": "weights"},
    "dense": {"mode": "dense"},
    "hybrid": {},
    "hybrid+rNN": {"rerank": "rnn"},
}
CLIENTS = (1, 8)
#: The sizes that the exponents are carried on to.
BEYOND = (1_000_000, 10_000_000, 100_000_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sets", nargs="*", default=["demo"], help="data sets whose passages are recombined")
    parser.add_argument("--documents", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--passages", type=int, help="passages of each set; all of them if left out")
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--shards", type=int, default=1, help="shards of the index in the cluster; three for three nodes")
    parser.add_argument("--plot", type=Path, help="where the growth is drawn")
    parser.add_argument("--quick", action="store_true", help="200 and 400 documents, 3 queries")
    asked = parser.parse_args()
    sizes, most, count = sorted(asked.documents), asked.passages, asked.queries
    if asked.quick:
        sizes, most, count = [200, 400], 24, 3
    server = engine.connect(settings.load(), pool_maxsize=2 * max(CLIENTS))
    say("encoding the passages")
    passages = EncodedPassages(asked.sets, most)
    found = {}
    for size in sizes:
        say(f"{size:,} documents")
        found[size] = measured(server, passages, size, count, asked.shards)
    report(found, len(passages.documents), min(count, len(passages.queries)))
    if asked.plot:
        draw(found, asked.plot)


def measured(server, passages, size, count, shards):
    """The figures of one size: name -> number."""
    name = f"{NAME}-{size}-{os.getpid()}"
    with tempfile.TemporaryDirectory() as folder:
        write(passages, size, max(1, min(16, size // 1000)), Path(folder))
        try:
            figures = built(server, name, folder, shards)
            figures |= verified(server, name)
            figures |= searched(server, name, passages, count)
        finally:
            server.request("DELETE", f"/{name}*", params={"expand_wildcards": "all", "ignore_unavailable": True})
    return figures


def built(server, name, folder, shards):
    """Index the folder in a process of its own."""
    command = [sys.executable, "-m", "termweave", "index", folder, name, "--json", "--quiet", "--url", server.url]
    command += ["--shards", str(shards)]
    with largest(server_processes(server)) as server_memory:
        began = time.perf_counter()
        # Not `ru_maxrss` of the child: Linux counts the memory of the process that forked it.
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child, largest([psutil.Process(child.pid)]) as client_memory:
            said = child.stdout.read()
        seconds = time.perf_counter() - began
    if child.returncode:
        sys.exit(f"termweave index ended with {child.returncode}")
    index = json.loads(said)["generation"]
    store = server.request("GET", f"/{index}/_stats/store")["_all"]["primaries"]["store"]["size_in_bytes"]
    return {
        "index, s": seconds,
        "documents a second": json.loads(said)["documents"] / seconds,
        "disk, MB": store / 1e6,
        "client memory, MB": client_memory[0] / 1e6,
        **({"server memory, MB": server_memory[0] / 1e6} if server_memory[0] else {}),
    }


def server_processes(server):
    """The processes of the cluster's nodes, if they run on this host; else none."""
    nodes = server.request("GET", "/_nodes/process")["nodes"]
    try:
        processes = [psutil.Process(node["process"]["id"]) for node in nodes.values()]
        return processes if all("java" in process.name() for process in processes) else []
    except psutil.Error:
        return []


@contextmanager
def largest(processes):
    """Note the largest resident memory of processes together meanwhile."""
    most, ended = [0], threading.Event()

    def look():
        while processes and not ended.wait(0.2):
            with suppress(psutil.Error):  # one has ended
                most[0] = max(most[0], sum(process.memory_info().rss for process in processes))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield most
    finally:
        ended.set()
        thread.join()


def verified(server, name):
    """The time of a verification, and how many requests it sends."""
    index, sent = Index.open(server, name).generation, []
    once = engine.Engine.request

    def counted(own, *arguments, **given):
        sent.append(arguments)
        return once(own, *arguments, **given)

    began = time.perf_counter()
    with mock.patch.object(engine.Engine, "request", counted), storage.existing(server, index) as ledger:
        if not verify(server, index, ledger).ok:
            sys.exit("The index is not whole.")
    return {"verify, s": time.perf_counter() - began, "verify, requests": len(sent)}


def searched(server, name, passages, count):
    """Latency of each mode with one and with several clients, and how often a known answer is among the first ten."""
    index = Index.open(server, name)
    questions = passages.queries[:count]
    encode_beforehand(index, questions)
    figures = {}
    for mode, how in MODES.items():

        def timed(question, how=how):
            began = time.perf_counter()
            hits = index.search(question, k=10, **how)
            return 1000 * (time.perf_counter() - began), any(hit.id in passages.answers[question] for hit in hits)

        for clients in CLIENTS:
            with ThreadPoolExecutor(clients) as pool:
                list(pool.map(timed, questions[:20]))  # caches
                found = list(pool.map(timed, questions))
            for part in (50, 95):
                figures[f"{mode}, {clients} client{'s' * (clients > 1)}, p{part} ms"] = float(
                    np.percentile([each for each, _ in found], part)
                )
        figures[f"{mode}, known answer in 10"] = sum(answered for _, answered in found) / len(found)
    return figures


def exponent(sizes, values):
    """The slope through the logarithms; None for a figure of zero."""
    if min(values) <= 0:
        return None
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def report(found, passages, count):
    """Print the figures, their exponents, and what these make of larger sizes."""
    sizes = list(found)
    first, last = found[sizes[0]], found[sizes[-1]]
    print(
        f"{passages:,} passages recombined, {count} queries, {os.cpu_count()} cores shared by client and server, load {os.getloadavg()[0]:.0f}\n"
    )
    print(f"| figure | {' | '.join(f'{size:,}' for size in sizes)} | exponent | {' | '.join(f'{size:,}' for size in BEYOND)} |")
    print(f"|---{'|---:' * (len(sizes) + 1 + len(BEYOND))}|")
    for figure in first:
        values = [found[size][figure] for size in sizes]
        slope = exponent(sizes, values)
        fixed = any(part in figure for part in ("answer", "a second", "server memory"))  # the heap has the size that it was given
        whole = fixed or slope is None or slope < -0.005  # what falls is not carried on
        carried = ["" if whole else shown(last[figure] * (size / sizes[-1]) ** slope) for size in BEYOND]
        print(
            f"| {figure} | {' | '.join(map(shown, values))} | {'' if slope is None else f'{slope:.2f}'} | {' | '.join(carried)} |"
        )
    grown = last["client memory, MB"] / first["client memory, MB"]
    print(f"\nClient memory grows {grown:.2f} x from {sizes[0]:,} to {sizes[-1]:,} documents.")


def shown(value):
    """A number with three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def draw(found, path):
    """Draw the growth of each figure, as a multiple of its value at the smallest size."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    sizes = list(found)
    wanted = ["index, s", "disk, MB", "client memory, MB", "server memory, MB", "verify, s"]
    wanted += [f"{mode}, 1 client, p50 ms" for mode in MODES]
    figure, axes = plt.subplots(figsize=(8, 5))
    for name in wanted:
        if name in found[sizes[0]]:
            axes.plot(sizes, [found[size][name] / found[sizes[0]][name] for size in sizes], marker="o", label=name)
    axes.plot(sizes, [size / sizes[0] for size in sizes], linestyle=":", color="grey", label="as the corpus")
    axes.set(xscale="log", yscale="log", xlabel="documents", ylabel=f"multiple of the value at {sizes[0]:,}")
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    enter(main)
