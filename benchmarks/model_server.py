"""`termweave serve --model` against sentence-transformers behind the same HTTP layer: texts a second, p50 and p95 of the time of a request.

The other server is what one writes first: an endpoint of starlette that calls `SentenceTransformer.encode`, served by uvicorn, fp32 as the model
comes. Both get texts of the same lengths, none twice; rounds alternate, so that another load on the machine meets both. $OMP_NUM_THREADS limits
its threads: on a busy machine those of one text wait for each other.
"""

# A script's functions need no types.
# ruff: noqa: ANN002, ANN201, ANN202
from __future__ import annotations

import argparse
import http.client
import math
import random
import statistics
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import orjson
from entry_point import enter

from serving import WORDS, cpu_seconds
from termweave.encoders import backbones
from termweave.encoders.model_lookup import resolve
from termweave.encoders.onnx import bert_graph

#: Name -> texts of a request, words of a text.
REQUESTS = {"single queries": (1, 8), "batches of 32 texts": (32, 60)}
CLIENTS = (1, 8)


def naive(model_folder):
    """Serve vectors as one writes it first."""
    import uvicorn
    from sentence_transformers import SentenceTransformer
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import Response
    from starlette.routing import Route

    model = SentenceTransformer(str(model_folder), device="cpu")

    async def embeddings(request):
        texts = orjson.loads(await request.body())["input"]
        vectors = await run_in_threadpool(model.encode, texts, normalize_embeddings=True, show_progress_bar=False)
        rows = [{"object": "embedding", "index": place, "embedding": vector} for place, vector in enumerate(vectors)]
        return Response(orjson.dumps({"object": "list", "data": rows}, option=orjson.OPT_SERIALIZE_NUMPY))

    class Announcing(uvicorn.Server):
        async def startup(self, sockets=None):
            await super().startup(sockets)
            print(f"http://127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]}/", flush=True)

    app = Starlette(routes=[Route("/v1/embeddings", embeddings, methods=["POST"])])
    Announcing(uvicorn.Config(app, port=0, log_level="warning", access_log=False, http="h11")).run()


@contextmanager
def process(*arguments):
    """A server on a free port: its address and its process id."""
    started = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        line = started.stdout.readline()
        if not line:
            sys.exit("A server did not start.")
        yield line.split()[0], started.pid
    finally:
        started.terminate()
        started.wait()
        started.stdout.close()


def texts_of(count, words, seed):
    """Texts that no other call gives."""
    generator = random.Random(seed)
    return [" ".join(generator.choices(WORDS, k=words)) + f" {seed}" for _ in range(count)]


def measure(server, model, clients, size, words, seconds):
    """The texts a second of some clients, the times of their requests, and the processor's milliseconds of a text."""
    url, pid = server
    place, times, worked, began = urlsplit(url), [], cpu_seconds(pid), time.perf_counter()

    def client():
        connection = http.client.HTTPConnection(place.hostname, place.port)
        while (start := time.perf_counter()) - began < seconds:
            body = orjson.dumps({"model": model, "input": texts_of(size, words, random.random()), "input_type": "document"})
            connection.request("POST", "/v1/embeddings", body, {"content-type": "application/json"})
            answer = connection.getresponse()
            content = answer.read()
            if answer.status != http.client.OK:
                sys.exit(content.decode())
            times.append(time.perf_counter() - start)
        connection.close()

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    texts, seconds = len(times) * size, time.perf_counter() - began
    return texts / seconds, times, None if worked is None else 1000 * (cpu_seconds(pid) - worked) / texts


def percentiles(times):
    """p50 and p95 in milliseconds."""
    ordered = sorted(times)
    return f"{1000 * statistics.median(ordered):.1f} / {1000 * ordered[math.ceil(0.95 * len(ordered)) - 1]:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round of half a second")
    parser.add_argument("--backbone", default="all-minilm-l6", help="model of sentence-transformers: a name or a folder")
    parser.add_argument("--model", action="append", help="model of termweave; repeatable  [default: shipped]")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="of a round")
    parser.add_argument("--naive", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.naive:
        naive(asked.naive)
        return
    folder = Path(asked.backbone) if Path(asked.backbone).is_dir() else resolve(asked.backbone)
    if asked.backbone in backbones.BACKBONES:
        bert_graph.write_weights(folder)
    rounds, seconds = (1, 0.5) if asked.quick else (asked.rounds, asked.seconds)
    models = asked.model or ["shipped"]
    options = [part for model in models for part in ("--model", model)]
    print(
        "| requests | clients | server | texts a second | ratio | p50 / p95, ms | processor, ms a text |\n|---|---:|---|---:|---:|---:|---:|"
    )
    with (
        process("-m", "termweave", "serve", "--port", "0", *options) as ours,
        process(__file__, "--naive", str(folder)) as theirs,
    ):
        servers = {"sentence-transformers": (theirs, "any"), **{f"termweave, {model}": (ours, model) for model in models}}
        for name, (size, words) in REQUESTS.items():
            for clients in CLIENTS:
                compare(servers, (name, clients, size, words), rounds, seconds)


def compare(servers, load, rounds, seconds):
    """Print a row for each server under one load."""
    name, clients, size, words = load
    for server, model in servers.values():
        measure(server, model, clients, size, words, seconds / 4)
    measurements = {each: [] for each in servers}
    for _ in range(rounds):
        for each, (server, model) in servers.items():
            measurements[each].append(measure(server, model, clients, size, words, seconds))
    base = [rate for rate, _, _ in measurements["sentence-transformers"]]
    for each, measured in measurements.items():
        rates = [rate for rate, _, _ in measured]
        ratio = statistics.median(own / other for own, other in zip(rates, base, strict=True))
        times = percentiles([each for _, times, _ in measured for each in times])
        works = [work for _, _, work in measured if work is not None]
        work = f"{statistics.median(works):.1f}" if works else ""
        print(f"| {name} | {clients} | {each} | {statistics.median(rates):.0f} | {ratio:.2f} | {times} | {work} |", flush=True)


if __name__ == "__main__":
    enter(main)
