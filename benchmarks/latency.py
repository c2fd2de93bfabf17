"""What a search costs on 100,000 documents: hybrid+rNN against its signals' own searches, and where the client's time goes.

    termweave node start
    python benchmarks/latency.py            prints one Markdown table; --keep leaves the index for the next run,
                                            --quick takes the smallest input, to see whether the script works
    python benchmarks/latency.py --learned  a plain match on the field `learned` against one on the text, without vectors

The documents are mixtures of the demo corpus's passages: real words with real impacts, and vectors between real ones, so
that no model has to read 100,000 texts. Queries are the demo corpus's 294 questions, encoded beforehand: encoding is the same
for every row. Searches take turns query by query; each row is the median over all of them. Client-side work is what is not
spent inside urllib3: beside the server, which has the same processors, and again right after with the same answers replayed.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Collection, Iterator, Sequence

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import platform
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any
from unittest import mock
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import opensearchpy
import orjson
import urllib3
from entry_point import enter

from termweave import __version__, corpora, encoders, engine, settings
from termweave.catalog import generations, statistics_store
from termweave.catalog.layout import DocumentLayout, signal_class
from termweave.catalog.lineage import Lineage, ModelLineage
from termweave.contracts.signal import Fitting
from termweave.indexer.generations import index_setup, publication
from termweave.indexer.ledger import build_lock
from termweave.records import Document, Encoding, TermWeights
from termweave.rerank import Rules, reciprocal
from termweave.search import Index
from termweave.search.retrieval.candidates import gather, signal_requests
from termweave.statistics import StatisticsCounter

if TYPE_CHECKING:
    from termweave.engine import Engine
    from termweave.rerank.rerankers import Need

DOCUMENTS = 100_000
CLIENTS = 8
SIGNALS = ("lexical", "weights", "dense")
NAME = "bench-latency"
QUICK_DOCUMENTS, QUICK_PASSAGES, QUICK_QUERIES = 150, 8, 2
_BATCH = 500


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--documents", type=int, default=DOCUMENTS)
    arguments.add_argument("--queries", type=int, default=294)
    arguments.add_argument("--keep", action="store_true", help="leave the index for the next run")
    arguments.add_argument("--quick", action="store_true", help="the smallest input, to see whether the script works")
    arguments.add_argument("--learned", action="store_true", help="compare a match on `learned` with one on the text")
    chosen = arguments.parse_args()
    wire = Wire()
    server = engine.connect(settings.load(), pool_maxsize=CLIENTS)
    signals = ("lexical", "learned") if chosen.learned else SIGNALS
    name, passages = f"{NAME}{'-learned' * chosen.learned}-{chosen.documents}", None
    if chosen.quick:
        name, passages = f"{NAME}-quick-{os.getpid()}", QUICK_PASSAGES
        chosen.documents, chosen.queries = QUICK_DOCUMENTS, QUICK_QUERIES
    if generations.live(server, name) is None:
        build(server, name, chosen.documents, passages, signals)
    try:
        if chosen.learned:
            report_matches(server, name, chosen.queries)
        else:
            report(server, name, chosen.queries, wire)
    finally:
        if not chosen.keep:
            server.request("DELETE", f"/{name}-*", params={"expand_wildcards": "all"})


def build(server: Engine, name: str, count: int, first: int | None, signals: Sequence[str]) -> None:
    """The synthetic generation, published under its name; sent straight, for what is measured here is reading.

    Args:
        server: Where to.
        name: Of the index.
        count: How many documents.
        first: Mix so many passages of the demo corpus; None: all.
        signals: Names of the signals.
    """
    source, encoder = corpora.open_source("demo"), encoders.load()
    passages = [document for document in source.documents() if document.content][:first]
    texts = [document.content for document in passages]
    say(f"encoding {len(texts):,} passages")
    counter = StatisticsCounter(encoder.analysis)
    for terms in encoder.analyse(texts):
        counter.add(terms)
    counted = counter.result()
    encodings = encoder.encode(texts, kind="document", statistics=counted)
    fitting = Fitting(server.capabilities, encodings[:1000], encoder.dimension, statistics=counted)
    layout = DocumentLayout([signal_class(each).fit(fitting) for each in signals])
    index = generations.new_index(name)
    described = {"hash": counted.hash, "analysis": counted.analysis}
    record = Lineage(
        name=name,
        created=datetime.now(UTC).isoformat(timespec="milliseconds"),
        termweave=__version__,
        source={"name": "mixtures of demo", "fingerprint": ""},
        fingerprint="",
        signals={signal.name: signal.parameters() for signal in layout.signals},
        models={output: ModelLineage(model.name, model.hash) for output, model in encoder.models.items()},
        statistics=described,
        documents=count,
        complete=True,
    )
    loading = {"index.number_of_shards": 1, "index.number_of_replicas": 0, "index.refresh_interval": "-1"}
    with build_lock.hold_lease(server, name, "benchmark") as lease:
        index_setup.create(server, index, layout.mapping({}), record, {**layout.settings(), **loading}, lease)
    statistics_store.save(server, index, counted, {"index.number_of_replicas": 0})
    random = np.random.default_rng(0)
    for start in range(0, count, _BATCH):
        lines = []
        for number in range(start, min(start + _BATCH, count)):
            one, other = random.integers(0, len(passages), 2).tolist()
            identity = f"{number:06}"
            mixed = mixture(identity, passages[one], passages[other], encodings[one], encodings[other], random)
            body = layout.document(*mixed, counted)
            lines += [orjson.dumps({"index": {"_id": identity}}), orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)]
        answer = server.request("POST", f"/{index}/_bulk", body=b"\n".join(lines) + b"\n", timeout=300)
        if answer["errors"]:
            raise SystemExit("the engine refused documents")
        say(f"{min(start + _BATCH, count):,} of {count:,} documents", end="\r")
    say("\nmerging to one segment")
    index_setup.finish_loading(server, index, None, 0)
    server.request("POST", f"/{index}/_forcemerge", params={"max_num_segments": 1}, timeout=1800)
    server.request("POST", f"/{index}/_refresh")
    publication.publish(server, name, index, None)


def mixture(
    identity: str, one: Document, other: Document, first: Encoding, second: Encoding, random: np.random.Generator
) -> tuple[Document, Encoding]:
    """Half the words of each of two passages, their impacts, and a vector between theirs with some noise of its own."""
    text = " ".join(piece for each in (one.content, other.content) for piece in halves(each.split(), random))
    impacts: dict[str, float] = {}
    for encoding in (first, second):
        terms = list(zip(encoding.weights.terms, encoding.weights.weights.tolist(), strict=True))
        impacts |= dict(halves(terms, random))
    vector = (
        first.vector + random.uniform(0, 1) * second.vector + random.normal(0, 0.3 / len(first.vector) ** 0.5, len(first.vector))
    )
    vector = (vector / np.linalg.norm(vector)).astype(np.float32)
    weights = TermWeights(tuple(impacts), np.array(list(impacts.values()), np.float32))
    return Document(identity, text, one.title), Encoding(text, weights, vector)


def halves(items: list, random: np.random.Generator) -> list:
    """A random half, in order."""
    kept = random.random(len(items)) < 0.5
    return [item for item, keep in zip(items, kept.tolist(), strict=True) if keep]


#: Status, headers and body of an answer as it came.
Came = tuple[int, "urllib3.HTTPHeaderDict", bytes]


class Wire:
    """Stands where urllib3 sends: counts what is spent there, keeps what came, and can give it once more without a server.

    It must stand there before a client is made: termweave's keeps the function that sends.

    Attributes:
        seconds: Spent there by the clock: sent, waited for, received. All else of a search is the client's own work.
        processor: Of this thread's processor time.
    """

    def __init__(self) -> None:
        self.seconds = self.processor = 0.0
        self._original = urllib3.connectionpool.HTTPConnectionPool.urlopen
        self._taped: dict[tuple[str, str], list[tuple[Came, float]]] = {}
        self._answer: Callable[..., Came] = self._asked

        def timed(*arguments: Any, **options: Any) -> Any:
            began, busy = time.perf_counter(), time.thread_time()
            try:
                status, headers, body = self._answer(*arguments, **options)
            finally:
                self.seconds += time.perf_counter() - began
                self.processor += time.thread_time() - busy
            read = options.get("preload_content", True)
            return urllib3.HTTPResponse(BytesIO(body), headers, status, preload_content=read)

        urllib3.connectionpool.HTTPConnectionPool.urlopen = timed

    def _asked(self, *arguments: Any, **options: Any) -> Came:
        response = self._original(*arguments, **{**options, "preload_content": False})
        return response.status, response.headers, response.read(decode_content=False)

    def recorded(self, search: str, question: str) -> None:
        """What follows is asked of the server, and kept. Not for timing: what is kept makes the memory grow, which costs time."""
        tape = self._taped[search, question] = []

        def answer(*arguments: Any, **options: Any) -> Came:
            began = time.perf_counter()
            came = self._asked(*arguments, **options)
            tape.append((came, time.perf_counter() - began))
            return came

        self._answer = answer

    def live(self, search: str, question: str) -> None:
        """What follows is asked of the server."""
        del search, question
        self._answer = self._asked

    def replayed(self, search: str, question: str, *, paused: bool = False) -> None:
        """What follows is answered as what was `recorded`: at once, or when as long has passed as that took.

        That time is spun away and not slept: the processor neither rests nor works for a server, it only leaves our code.
        """
        tape = iter(self._taped[search, question])

        def answer(*_: Any, **__: Any) -> Came:
            came, took = next(tape)
            until = time.perf_counter() + (took if paused else 0.0)
            while time.perf_counter() < until:
                pass
            return came

        self._answer = answer


def report(server: Engine, name: str, count: int, wire: Wire) -> None:
    """Measure and print."""
    index = Index.pinned(server, name)  # it asks for nothing else meanwhile, such as what the name stands for
    questions = [query.text for query in corpora.open_dataset("demo").queries()][:count]
    encoded = encode_beforehand(index, questions)
    searches: dict[str, Callable[[str], object]] = {
        **{signal: lambda query, signal=signal: index.search(query, mode=signal) for signal in SIGNALS},
        "hybrid": index.search,
        "hybrid+rNN": lambda query: index.search(query, rerank="rnn"),
        "all three+rNN": lambda query: index.search(query, mode=",".join(SIGNALS), rerank="rnn"),
        **{
            f"dense alone, {kind}": leg(index, encoded, needs=() if kind == "ids" else ("vectors",))
            for kind in ("ids", "ids and vectors")
        },
        "opensearch-py alone": alone(index, questions),
    }
    turns(searches, questions[:1], wire, wire.live)  # what is asked once only: what the server can do
    turns(searches, questions, wire, wire.recorded)
    live = turns(searches, questions, wire, wire.live)
    paused = turns(searches, questions, wire, partial(wire.replayed, paused=True))
    replayed = turns(searches, questions, wire, wire.replayed)
    wire.live("", "")
    print(
        f"{index.lineage.documents:,} documents, OpenSearch {server.capabilities.version}, Python {platform.python_version()}, k = 10, N = 60, "
        f"{os.cpu_count()} cores shared by client and server, {len(questions)} questions; medians, encoding of the query not counted.\n"
    )
    print("| search | ms | client-side ms | of it processor | replayed | replayed after pauses |\n|---|---:|---:|---:|---:|---:|")
    for search, (whole, own, busy) in live.items():
        print(f"| {search} | {whole:.1f} | {own:.2f} | {busy:.2f} | {replayed[search][1]:.2f} | {paused[search][1]:.2f} |")
    took = {search: times[0] for search, times in live.items()}
    pair, three = took["weights"] + took["dense"], sum(took[signal] for signal in SIGNALS)
    vectors = took["dense alone, ids and vectors"] - took["dense alone, ids"]
    rates = {name: throughput(searches[name], questions) for name in ("hybrid", "hybrid+rNN")}
    print("\n| figure | measured | goal |\n|---|---:|---:|")
    print(f"| hybrid+rNN against weights + dense, each alone | {took['hybrid+rNN'] / pair:.2f} x | < 1 x |")
    print(f"| all three + rNN against the three, each alone | {took['all three+rNN'] / three:.2f} x | < 1 x |")
    print(f"| client-side work of hybrid+rNN, answers replayed | {replayed['hybrid+rNN'][1]:.2f} ms | ≤ 2 ms |")
    print(f"| client-side work of hybrid+rNN, beside the server | {live['hybrid+rNN'][1]:.2f} ms | ≤ 2 ms |")
    against = live["hybrid+rNN"][1] / live["opensearch-py alone"][1]
    print(f"| the same, against opensearch-py alone with the same requests | {against:.2f} x | reported |")
    print(f"| vectors of 100 candidates over ids alone | {vectors:+.2f} ms | ≤ 1.5 ms |")
    for search, rate in rates.items():
        print(f"| {search}, {CLIENTS} clients at once | {rate:.0f} a second | reported |")
    print(
        f"| one query from a shell, against Python that does nothing | {from_a_shell(server, name, questions[0]):.1f} x | reported |"
    )
    for candidates in (60, 200, 1000):
        print(f"| rNN of {candidates} vectors against its bound | {rnn_to_its_bound(candidates):.2f} x | reported |")
    scored_twice(index, questions, encoded)


def from_a_shell(server: Engine, name: str, question: str) -> float:
    """`termweave search` over `python -c pass`: medians of seven runs in turn."""
    commands = {
        "search": ["-m", "termweave", "search", name, question, "--url", server.url, "--quiet"],
        "nothing": ["-c", "pass"],
    }
    took = {kind: Times() for kind in commands}
    for _ in range(7):
        for kind, command in commands.items():
            with took[kind].timed():
                subprocess.run([sys.executable, *command], check=True, capture_output=True)
    return took["search"].median / took["nothing"].median


def rnn_to_its_bound(count: int) -> float:
    """RNN of `count` vectors of 768 numbers over what nothing on top of BLAS gets below: all inner products, and a partition of each row."""
    random = np.random.default_rng(0)
    vectors = (random.normal(size=768) + random.normal(size=(count + 1, 768))).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    calls: dict[str, Callable[[], object]] = {
        "rNN": lambda: reciprocal(vectors[0], vectors[1:], weight=0.5, rules=Rules(k=20)),
        "bound": lambda: np.partition(vectors @ vectors.T, count - 20, axis=1),
    }
    took = {kind: Times() for kind in calls}
    for _ in range(30):
        for kind, call in calls.items():
            with took[kind].timed():
                call()
    return took["rNN"].median / took["bound"].median


def scored_twice(index: Index, questions: list[str], encoded: dict[str, Encoding]) -> None:
    """What `track_scores` would cost, which hits sorted by score do without: whole requests with vectors, both ways in turns."""
    print("\n| requests | with track_scores, ms | without, ms | hits with other scores |\n|---|---:|---:|---:|")
    for names in (SIGNALS[1:], SIGNALS):
        signals = [signal for signal in index.layout.signals if signal.name in names]
        whole, others = {True: Times(), False: Times()}, 0
        for number, question in enumerate(questions):
            prepared = signal_requests(encoded[question], signals, index.engine.capabilities, depth=100, needs=("vectors",))
            pairs = {}
            for tracked in (True, False) if number % 2 else (False, True):
                bodies = {name: {**body, "track_scores": tracked} for name, body in prepared.bodies.items()}
                with whole[tracked].timed():
                    ((candidates,), _) = gather(index.engine, index.generation, [replace(prepared, bodies=bodies)], signals)
                pairs[tracked] = [pair for ranked in candidates.lists.values() for pair in ranked.scores.items()]
            others += len(set(pairs[True]) ^ set(pairs[False]))
        print(f"| {' + '.join(names)} | {whole[True].median:.2f} | {whole[False].median:.2f} | {others} |")


class Times(list[float]):
    """Milliseconds of many runs."""

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Time what is inside."""
        began = time.perf_counter()
        yield
        self.append((time.perf_counter() - began) * 1000)

    @property
    def median(self) -> float:
        """Half were faster."""
        return statistics.median(self)


def report_matches(server: Engine, name: str, count: int) -> None:
    """Measure a plain match on each field, the fields in turn, and print."""
    questions = [query.text for query in corpora.open_dataset("demo").queries()][:count]
    taken: dict[str, list[float]] = {"content": [], "learned": []}
    for round_ in range(3):  # the first one warms the server up
        for number, question in enumerate(questions):
            for field in list(taken)[:: 1 if number % 2 else -1]:
                body = {"query": {"match": {field: question}}, "size": 10, "_source": False}
                began = time.perf_counter()
                server.request("POST", f"/{name}/_search", body=body)
                if round_:
                    taken[field].append((time.perf_counter() - began) * 1000)
    print(f"{len(questions)} questions, twice each, one client\n\n| match on | p50, ms | p95, ms |\n|---|---:|---:|")
    for field, times in taken.items():
        print(f"| {field} | {np.median(times):.2f} | {np.percentile(times, 95):.2f} |")
    print(f"\nratio of the medians {np.median(taken['learned']) / np.median(taken['content']):.2f}")


def leg(index: Index, encoded: dict[str, Encoding], *, needs: Collection[Need]) -> Callable[[str], object]:
    """The dense leg alone, 100 candidates, without fetching their texts."""
    signals = [signal for signal in index.layout.signals if signal.name == "dense"]

    def ask(query: str) -> object:
        prepared = signal_requests(encoded[query], signals, index.engine.capabilities, depth=100, needs=needs)
        return gather(index.engine, index.generation, [prepared], signals)

    return ask


def alone(index: Index, questions: list[str]) -> Callable[[str], object]:
    """The two requests of hybrid+rNN sent by opensearch-py as it comes, their answers taken apart, and nothing else done."""
    client = opensearchpy.OpenSearch(index.engine.url)
    bodies = {}
    for question in questions:
        first, second = index.requests(question, rerank="rnn")
        bodies[question] = orjson.loads(orjson.dumps(first["body"], option=orjson.OPT_SERIALIZE_NUMPY))
    fields = dict(parse_qsl(urlsplit(second["path"]).query))

    def ask(query: str) -> object:
        answers = client.msearch(body=bodies[query], index=index.name)["responses"]
        ids = [hit["sort"][1] for answer in answers for hit in answer["hits"]["hits"][:5]]
        return client.mget(body={"ids": ids}, index=index.generation, params=fields)

    return ask


def turns(
    searches: dict[str, Callable[[str], object]], questions: list[str], wire: Wire, before: Callable[[str, str], None]
) -> dict[str, tuple[float, float, float]]:
    """Medians in ms: the whole, the client's own part by the clock, and that part's processor time.

    Every question is asked of all, beginning with another one each time.

    Args:
        searches: Name -> what asks a question.
        questions: All of them.
        wire: What counts.
        before: Said to it before each search: where its answers come from.
    """
    taken: dict[str, list[tuple[float, float, float]]] = {name: [] for name in searches}
    names = list(searches)
    for number, question in enumerate(questions):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            before(name, question)
            wire.seconds = wire.processor = 0.0
            began, busy = time.perf_counter(), time.thread_time()
            searches[name](question)
            seconds, processor = time.perf_counter() - began, time.thread_time() - busy
            taken[name].append((seconds, seconds - wire.seconds, processor - wire.processor))
    return {name: tuple((np.median(times, axis=0) * 1000).tolist()) for name, times in taken.items()}


def throughput(search: Callable[[str], object], questions: list[str]) -> float:
    """Searches a second with several clients (threads of this process) at once."""
    with ThreadPoolExecutor(CLIENTS) as clients:
        began = time.perf_counter()
        for _ in clients.map(search, questions * 2):
            pass
        return 2 * len(questions) / (time.perf_counter() - began)


def say(message: str, end: str = "\n") -> None:
    print(message, end=end, file=sys.stderr, flush=True)


def encode_beforehand(index: Index, queries: Sequence[str]) -> dict[str, Encoding]:
    """Encode queries now; searches of this process for them run no model from now on, until this is called for another index."""
    from termweave.search.opening import OpenGeneration

    mock.patch.stopall()  # or the table of another index, with other statistics, would answer here
    known = dict(zip(queries, index.encode(queries), strict=True))
    mock.patch.object(OpenGeneration, "encode", lambda _generation, wanted: [known[each] for each in wanted]).start()
    return known


if __name__ == "__main__":
    enter(main)
