"""How fast documents with ready encodings are sent, compared with sending pre-built bodies: the row `send` of indexing.py."""

# A script's functions need no types.
# ruff: noqa: ANN202, D102
from __future__ import annotations

import hashlib
import http.client
import json
import threading
import time
from statistics import median
from typing import TYPE_CHECKING
from unittest import mock
from urllib.parse import urlsplit

import numpy as np
import orjson
import pybase64
from synthetic import NAME, corpus, remove, synthetic, timed

from termweave import corpora, engine
from termweave.indexer import BuildOptions, build
from termweave.indexer.ledger.entries import LedgerEntry
from termweave.indexer.ledger.ledger import Ledger
from termweave.support.messages import sized

if TYPE_CHECKING:
    from pathlib import Path


def post(url: str, path: str, bodies: list, threads: int, write=lambda body: body, after=lambda _: None) -> float:
    """Send bodies from plain threads with one connection each, pre-built or built first; return the seconds."""
    waiting = iter(bodies)
    lock = threading.Lock()

    def work() -> None:
        connection = http.client.HTTPConnection(urlsplit(url).netloc)
        while True:
            with lock:
                body = next(waiting, None)
            if body is None:
                return
            connection.request("POST", path, write(body), {"content-type": "application/x-ndjson"})
            answer = connection.getresponse()
            assert answer.status == 200
            assert not json.loads(answer.read())["errors"]
            after(body)

    started = time.perf_counter()
    crew = [threading.Thread(target=work) for _ in range(threads)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    return time.perf_counter() - started


def parsed(body: bytes) -> list[dict]:
    """Return the actions and documents of a body, with vectors as arrays: the minimum that a client with encodings needs."""
    lines = [orjson.loads(line) for line in body.splitlines()]
    return [
        {name: np.array(value, np.float32) if isinstance(value, list) else value for name, value in line.items()}
        for line in lines
    ]


def written(lines: list[dict]) -> bytes:
    return b"".join(orjson.dumps(line, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE) for line in lines)


class Entered:
    """Do the minimum of a client with a ledger: read documents, ask which ones to send, write them, and record them.

    No digests, no weights to name and round, nothing looked at: all of that comes on top.
    """

    def __init__(self, ledger: Ledger, source: Path, bodies: list[list[dict]]) -> None:
        self._ledger = ledger
        places = {f"d{number}": (f"d{number}", number) for number in range(sum(map(len, bodies)) // 2)}
        with source.open("rb") as file:
            read = dict(zip(places, file, strict=True))
        ledger.enter([LedgerEntry(*place, 0) for place in places.values()])
        identities = [[line["index"]["_id"] for line in body[::2]] for body in bodies]
        self.batches = [
            (body, [places[each] for each in known], [read[each] for each in known])
            for body, known in zip(bodies, identities, strict=True)
        ]

    def write(self, batch: tuple) -> bytes:
        body, places, lines = batch
        documents = [orjson.loads(line) for line in lines]
        assert len(self._ledger.pending(places)) == len(documents)
        return written(body)

    def after(self, batch: tuple) -> None:
        self._ledger.acknowledge([(identity, 1) for identity, _ in batch[1]])


class Digested(Entered):
    """Do the minimum that `verify` and the signals need in addition: named and rounded weights, float16 vectors, two digests.

    Whatever numpy can do for a batch at once it does for the batch; nothing is checked, and no name holds a dot.
    """

    def __init__(self, ledger: Ledger, source: Path, bodies: list[list[dict]]) -> None:
        super().__init__(ledger, source, bodies)
        self.batches = [(self._cached(body), *rest) for body, *rest in self.batches]

    @staticmethod
    def _cached(body: list[dict]) -> tuple:
        """Return what an encoder makes of a batch (names, concatenated impacts, vectors) and the actions."""
        documents = body[1::2]
        impacts = np.concatenate([np.array(list(each["weights"].values()), np.float32) / 28 for each in documents])
        return body[::2], [list(each["weights"]) for each in documents], impacts, [each["vector"] for each in documents]

    def write(self, batch: tuple) -> bytes:
        (actions, names, impacts, vectors), places, lines = batch
        documents = [orjson.loads(line) for line in lines]
        assert len(self._ledger.pending(places)) == len(documents)
        rounded = np.minimum(np.maximum(np.rint(impacts * 28), 1), 255).astype(np.int64).tolist()
        halves = np.stack(vectors).astype("<f2")
        body, at = [], 0
        for action, document, terms, vector, half in zip(actions, documents, names, vectors, halves, strict=True):
            weights = dict(zip(terms, rounded[at : at + len(terms)], strict=True))
            at += len(terms)
            twin = pybase64.b64encode(half)
            own = "\n".join((document["_id"], document["title"], document["text"])).encode()
            encoded = orjson.dumps(weights, option=orjson.OPT_SORT_KEYS) + vector.tobytes() + twin
            source, encoding = (int.from_bytes(hashlib.sha256(part).digest()[:4], "big") for part in (own, encoded))
            body.append(action)
            body.append(
                {
                    "id": document["_id"],
                    "title": document["title"],
                    "text": document["text"],
                    "weights": weights,
                    "weights_terms": len(weights),
                    "weights_sum": sum(weights.values()),
                    "vector": vector,
                    "vector_fp16": twin.decode(),
                    "bucket": source % 1024,
                    "source_digest": source,
                    "encoding_digest": encoding,
                }
            )
        return written(body)


def send(server: engine.Engine, folder: Path, *, quick: bool) -> None:
    """Compare sending, with building and acknowledging, with pre-built bodies."""
    count, rounds = (50, 1) if quick else (15_000, 3)
    file, bodies = corpus(folder, count), []
    source = corpora.open_source(file)
    once = engine.Engine.request

    def recording(server, method, path, **given):
        if path.endswith("/_bulk"):
            bodies.append(given["body"])
        return once(server, method, path, **given)

    plain: dict[int, list[float]] = {2: [], 3: [], 4: []}
    bare: list[float] = []
    entered: list[float] = []
    digested: list[float] = []
    ours: list[float] = []
    with synthetic():
        with mock.patch.object(engine.Engine, "request", recording):
            index = build(server, source, NAME, BuildOptions()).index
        made = server.request("GET", f"/{index}")[index]
        loading = {"index.knn": True, "index.refresh_interval": "-1", "index.number_of_replicas": 0}
        lines = [parsed(body) for body in bodies]
        for number in range(rounds):
            with Ledger(folder / f"{number}.db") as ledger:
                least, more = (kind(ledger, file, lines) for kind in (Entered, Digested))
                for threads, times, given, *how in (
                    *((threads, times, bodies) for threads, times in plain.items()),
                    (2, bare, lines, written),
                    (2, entered, least.batches, least.write, least.after),
                    (2, digested, more.batches, more.write, more.after),
                ):
                    ledger.mark_unsent([f"d{each}" for each in range(count)])
                    remove(server)
                    server.request("PUT", f"/{NAME}-plain", body={"mappings": made["mappings"], "settings": loading})
                    times.append(post(server.url, f"/{NAME}-plain/_bulk", given, threads, *how))
                    server.request("DELETE", f"/{NAME}-plain")
            with timed(ours):
                build(server, source, NAME, BuildOptions())
    medians = {threads: median(times) for threads, times in plain.items()}
    best = min(medians, key=medians.__getitem__)
    print(
        f"send: {count:,} documents, {sized(sum(map(len, bodies)))}, from cached encodings: {count / median(ours):.0f}/s; "
        f"the same bodies, pre-built, {best} plain threads: {count / medians[best]:.0f}/s; "
        f"ratio {medians[best] / median(ours):.2f} (wanted .92)\n"
        f"the least a client can do, 2 plain threads that only write each document with orjson and post: {count / median(bare):.0f}/s; "
        f"ratio {medians[best] / median(bare):.2f}\n"
        f"the same, reading documents and keeping a ledger: {count / median(entered):.0f}/s; ratio {medians[best] / median(entered):.2f}\n"
        f"and digesting, rounding and naming, by the batch: {count / median(digested):.0f}/s; ratio {medians[best] / median(digested):.2f}"
    )
