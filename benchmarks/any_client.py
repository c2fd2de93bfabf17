"""Any client against termweave's own search: order, nDCG@10 and latency of plain match queries through `termweave connect`.

    termweave node start --ml
    termweave index ../shared/data/cranfield cranfield
    termweave serve cranfield --models
    termweave connect cranfield --mode hybrid
    python benchmarks/any_client.py ../shared/data/cranfield cranfield

The client is opensearch-py and sends {"match": {"text": WORDS}}. Clients are threads of this process; each sends the questions one after
the other, and the ways to search take turns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from math import isclose

import numpy as np
from entry_point import enter

from termweave import corpora, engine, settings
from termweave.evaluation import measures
from termweave.records import Run
from termweave.search import Index

#: How many of the best documents are compared.
BEST = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", help="BEIR folder, or FOLDER:SPLIT")
    parser.add_argument("name", help="an index that is connected in the mode hybrid")
    parser.add_argument("--queries", type=int, metavar="N", help="the first N queries only")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8], help="[default: 1 8]")
    parser.add_argument("--timed", type=int, default=100, metavar="N", help="questions that each client asks  [default: 100]")
    given = parser.parse_args()
    dataset = corpora.open_dataset(given.dataset)
    queries = {query.id: query.text for query in islice(dataset.queries(), given.queries)}
    server = engine.connect(settings.load(), pool_maxsize=2 * max(given.clients))
    index = Index.open(server, given.name)

    def through(words: str, **params: str) -> dict[str, float]:
        body = {"query": {"match": {"text": words}}, "size": BEST, "_source": ["id"]}
        answer = server.request("POST", f"/{given.name}/_search", params=params, body=body)
        return {hit["_source"]["id"]: hit["_score"] for hit in answer["hits"]["hits"]}

    def own(words: str, **options: object) -> dict[str, float]:
        return {hit.id: hit.score for hit in index.search(words, k=BEST, **options)}

    ways: dict[str, Callable[[str], dict[str, float]]] = {
        "match": through,
        "match through the pipeline": lambda words: through(words, search_pipeline=f"{given.name}-learned"),
        "termweave, hybrid": own,
        "termweave, hybrid, fused by the server": lambda words: own(words, mode="hybrid@min-max", server_fusion=True),
    }
    ranked = {way: {query: search(words) for query, words in queries.items()} for way, search in ways.items()}
    theirs, server_side = ranked["match through the pipeline"], ranked["termweave, hybrid, fused by the server"]
    same = sum(alike(theirs[query], server_side[query]) for query in queries)
    print(f"{dataset.name}, {index.lineage.documents:,} documents, OpenSearch {server.capabilities.version}")
    print(
        f"Order and scores through the pipeline are those of search --server-fusion for {same:,} of {len(queries):,} queries.\n"
    )
    columns = "".join(f" p50, {count} | p95, {count} |" for count in given.clients)
    print(f"| | nDCG@{BEST} |{columns}\n|---|---:|{'---:|' * 2 * len(given.clients)}")
    times = {way: [] for way in ways}
    for count in given.clients:
        for way, search in ways.items():
            times[way] += [
                1000 * value for value in np.percentile(seconds(search, [*queries.values()][: given.timed], count), [50, 95])
            ]
    for way, scores in ranked.items():
        figure = measures.per_query(Run(way, scores), dataset.qrels(), list(queries), measures=[f"nDCG@{BEST}"])
        mean = next(iter(figure.values())).mean()
        print(f"| {way} | {mean:.4f} | {' | '.join(f'{value:.1f}' for value in times[way])} |")


def alike(one: dict[str, float], other: dict[str, float]) -> bool:
    """Whether two answers have the same documents and scores but for the last bits, which change once the server's code is compiled."""
    return one.keys() == other.keys() and all(isclose(score, other[document], rel_tol=1e-5) for document, score in one.items())


def seconds(search: Callable[[str], object], questions: list[str], clients: int) -> list[float]:
    """The time of each search: every client asks all questions."""

    def ask(number: int) -> list[float]:
        taken = []
        for place in range(len(questions)):
            began = time.perf_counter()
            search(questions[(place + number * 7) % len(questions)])
            taken.append(time.perf_counter() - began)
        return taken

    with ThreadPoolExecutor(clients) as pool:
        return [each for times in pool.map(ask, range(clients)) for each in times]


if __name__ == "__main__":
    enter(main)
