"""What indexing costs around the models: overlap, memory, an index as source, resuming, verifying; each against a named alternative in this run.

    termweave node start
    python benchmarks/indexing.py [whole] [resume] [memory] [source]
    python benchmarks/indexing.py --quick         all rows on the smallest input, to see whether the script works

Encodings are synthetic (60 terms of a Zipf vocabulary, a vector of 384) where the row does not ask for a model; the corpus of
`whole` is the documentation of the Python standard library, with the shipped model.
"""

# A script's functions need no types.
# ruff: noqa: ANN002, ANN202, D102
from __future__ import annotations

import argparse
import hashlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import TYPE_CHECKING
from unittest import mock

import orjson
from entry_point import enter
from synthetic import NAME, Cached, corpus, remove, synthetic, timed

from termweave import corpora, engine, settings
from termweave.catalog import generations
from termweave.errors import UsageError
from termweave.indexer import BuildOptions, build, verify
from termweave.indexer.ledger import storage
from termweave.indexer.pipeline import pipeline
from termweave.signals.dense import Dense
from termweave.support.messages import sized

if TYPE_CHECKING:
    from termweave.records import Document, Encoding


class OneCore(Cached):
    """A model that keeps one core busy for a fixed time per text without holding Python's lock, as a small model in one thread does."""

    seconds = 0.0003

    def __init__(self) -> None:
        super().__init__()
        started = time.perf_counter()
        hashlib.pbkdf2_hmac("sha1", b"", b"", 100_000)
        self._rounds = int(100_000 * self.seconds / (time.perf_counter() - started))

    def encode(self, texts: list[str], **options: object) -> list[Encoding]:
        hashlib.pbkdf2_hmac("sha1", b"", b"", self._rounds * len(texts))
        return super().encode(texts, **options)


def settings_of(folder: Path, *, quick: bool) -> dict[str, Path]:
    """Make texts of three lengths from the demo corpus: whole entries, their first sentences, and forty entries joined."""
    if quick:
        return {"one core": corpus(folder, 20), "sentences": corpus(folder, 2)}
    entries = list(corpora.open_source("demo").documents())
    rows = {
        "entries": [(each.title, each.text) for each in entries[:1_000]],
        "sentences": [("", f"{number} {each.text.partition('.')[0]}") for number, each in enumerate(entries[:3_000])],
        "long": [("", "\n\n".join(each.text for each in entries[at : at + 40])) for at in range(0, 6_000, 40)],
    }
    paths = {"one core": corpus(folder, 10_000)}
    for name, texts in rows.items():
        paths[name] = folder / f"{name}.jsonl"
        documents = [{"_id": str(number), "title": title, "text": text} for number, (title, text) in enumerate(texts)]
        paths[name].write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in documents))
    return paths


def texts_of(documents: Sequence[Document]) -> list[str]:
    return [document.content for document in documents]


def busy(server: engine.Engine) -> float:
    """Return the processor seconds that client and server have used."""
    nodes = server.request("GET", "/_nodes/stats/process")["nodes"].values()
    return sum(os.times()[:2]) + sum(node["process"]["cpu"]["total_in_millis"] for node in nodes) / 1000


def whole(server: engine.Engine, folder: Path, *, quick: bool) -> None:
    """Measure all stages at once, against encoding everything and then sending everything; with the shipped model but for "one core".

    Nothing can be faster than the slower of the two, nor than the processors' work in both spread evenly over all cores.
    """
    for name, path in settings_of(folder, quick=quick).items():
        source = corpora.open_source(path)
        documents = list(source.documents())
        texts = texts_of(documents)
        encode: list[float] = []
        send_alone: list[float] = []
        together: list[float] = []
        work: list[float] = []

        def encoded(each, documents=documents, encode=encode, work=work):
            before, started = busy(server), time.perf_counter()
            encodings = each.encoder.encode(texts_of(documents), kind="document", statistics=each.target.statistics)
            kept = dict(zip(texts_of(documents), encodings, strict=True))
            encode.append(time.perf_counter() - started)
            work.append(busy(server) - before)
            return replace(each, encoder=SimpleNamespace(encode=lambda block, **_: [kept[text] for text in block]))

        def counted(run, work=work):
            def noted(each, report):
                before = busy(server)
                counts = run(each, report)
                work[-1] += busy(server) - before
                return counts

            return noted

        with synthetic(OneCore()) if name == "one core" else nullcontext():
            for _ in range(1 if quick else 3):
                remove(server)
                with mock.patch.object(pipeline.Pipeline, "run", counted(pipeline.Pipeline.run)), timed(send_alone, encoded):
                    build(server, source, NAME, BuildOptions())
                remove(server)
                with timed(together):
                    build(server, source, NAME, BuildOptions())
        alone = [e + s for e, s in zip(encode, send_alone, strict=True)]
        bounds = [max(e, s, w / os.cpu_count()) for e, s, w in zip(encode, send_alone, work, strict=True)]
        ratio = median(a / t for a, t in zip(alone, together, strict=True))
        bound = median(a / b for a, b in zip(alone, bounds, strict=True))
        print(
            f"whole, {name}: {len(texts):,} documents of {sum(map(len, texts)) // len(texts):,} characters, encode "
            f"{median(encode):.1f} s, then send {median(send_alone):.1f} s; together {median(together):.1f} s; ratio {ratio:.2f} "
            f"(wanted 1.15; the cores allow {bound:.2f})",
            flush=True,
        )


def child(*arguments: str) -> str:
    done = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def memory(server: engine.Engine, folder: Path, *, quick: bool) -> None:
    """Compare the peak resident memory of a process that indexes many documents with one that indexes few; then verify the many."""
    few, many = (20, 40) if quick else (10_000, 200_000)
    peaks = []
    for count in (few, many):
        remove(server)
        peaks.append(int(child("--peak", str(corpus(folder, count)))))
    print(
        f"memory: peak {sized(peaks[1])} with {many:,} documents, {sized(peaks[0])} with {few:,}; "
        f"ratio {peaks[1] / peaks[0]:.2f} (wanted at most 1.15, below 700 MB)"
    )
    index = generations.live(server, NAME)
    requests, request = [], engine.Engine.request

    def counted(each, *arguments, **options):
        requests.append(arguments)
        return request(each, *arguments, **options)

    times = []
    with mock.patch.object(engine.Engine, "request", counted):
        for _ in range(3):
            requests.clear()
            started = time.perf_counter()
            with storage.existing(server, index) as ledger:
                assert verify(server, index, ledger).counted == many
            times.append(time.perf_counter() - started)
    print(f"verify: {many:,} documents intact: {median(times):.2f} s, {len(requests)} requests (wanted below 3 s, at most 10)")


def peak(path: str) -> None:
    """Build, or read an index, in a separate process.

    The server's graph is small: it would take most of the time, and only the client is measured. An index is read as a build reads
    it: from the server to a snapshot on this host, then from the snapshot.
    """
    if path.startswith("opensearch:"):
        opened = corpora.open_source(path)
        counts = {sum(1 for _ in opened.documents()) for _ in range(2)}
        assert counts == {opened.total}
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
        return
    thin = classmethod(lambda cls, fitting: cls(dimension=fitting.dimension, m=4, ef_construction=8))
    with synthetic(), mock.patch.object(Dense, "fit", thin):
        build(connected(), corpora.open_source(path), NAME, BuildOptions())
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def source(server: engine.Engine, folder: Path, *, quick: bool) -> None:
    """Compare the peak resident memory of a process that reads a large index as its source with one that reads a small one."""
    few, many = (20, 200) if quick else (10_000, 100_000)
    index, peaks = f"{NAME}-source", []
    fields = {name: {"type": "text", "index": False} for name in ("title", "text")}
    body = {"settings": {"number_of_replicas": 0}, "mappings": {"dynamic": False, "properties": fields}}
    server.request("PUT", f"/{index}", body=body)
    try:
        for first, count in ((0, few), (few, many)):
            with corpus(folder, count - first, first).open("rb") as file:
                while lines := list(islice(file, 5_000)):
                    ready = b"".join(part for line in lines for part in (b'{"index":{}}\n', line.replace(b'"_id"', b'"number"')))
                    server.request("POST", f"/{index}/_bulk", params={"filter_path": "errors"}, body=ready)
            server.request("POST", f"/{index}/_refresh")
            peaks.append(int(child("--peak", f"opensearch:{index}")))
    finally:
        server.request("DELETE", f"/{index}")
    print(
        f"source: peak {sized(peaks[1])} reading {many:,} documents, {sized(peaks[0])} reading {few:,}; "
        f"ratio {peaks[1] / peaks[0]:.2f} (wanted at most 1.15)"
    )


def resume(server: engine.Engine, folder: Path, *, quick: bool) -> None:
    """Kill a build halfway and resume it; compare the rest with a build of as many documents."""
    count, rounds = (6_000, 1) if quick else (24_000, 3)
    source = corpora.open_source(corpus(folder, count))

    class Killed(BaseException):
        pass

    def kill(stage, done, *_):
        if stage == "Indexing" and done >= count // 2:
            raise Killed

    ratios = []
    with synthetic():
        for _ in range(rounds):
            remove(server)
            with suppress(Killed):
                build(server, source, NAME, BuildOptions(), kill)
            started = time.perf_counter()
            sent = build(server, source, NAME, BuildOptions()).sent
            rest = time.perf_counter() - started
            remove(server)
            half = corpora.open_source(corpus(folder, sent, count - sent))
            started = time.perf_counter()
            build(server, half, NAME, BuildOptions())
            ratios.append(rest / (time.perf_counter() - started))
    print(
        f"resume: {count:,} documents, killed at half; the rest against a build of that rest alone: "
        f"{median(ratios):.2f} (wanted at most 1.1)"
    )


def connected() -> engine.Engine:
    return engine.connect(settings.load())


def main() -> None:
    rows = {"whole": whole, "resume": resume, "memory": memory, "source": source}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"{', '.join(rows)}  [default: all]")
    parser.add_argument("--quick", action="store_true", help="the smallest input, to see whether the script works")
    parser.add_argument("--peak", metavar="CORPUS", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peak:
        peak(given.peak)
        return
    if unknown := set(given.rows) - set(rows):
        raise UsageError(f"There is no row {', '.join(sorted(unknown))}.", f"The rows are {', '.join(rows)}.")
    server = connected()
    for name, row in rows.items():
        if not given.rows or name in given.rows:
            with tempfile.TemporaryDirectory() as folder:
                row(server, Path(folder), quick=given.quick)
            remove(server)


if __name__ == "__main__":
    enter(main)
